"""The exact p99 of a plan: batch times beside neighbours, arrivals dealt to replicas, and the queue delay."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.errors import InputError
from gpuloom.gpus.grant import Grant
from gpuloom.perf.queueing.event_run import serve
from gpuloom.perf.queueing.latency import Batching, BatchTimes, Poisson, Recorded, Regular, latency_of
from gpuloom.perf.sharing.interference import Placed
from gpuloom.provision.demand import Pattern, Problem
from gpuloom.provision.offer import Offer
from gpuloom.provision.plan import Replica
from gpuloom.provision.shares.confirm import DELAYS, Exactly, arrivals_of, batch_times, p99_ms, times_on, with_delay
from gpuloom.provision.shares.items import Grid
from gpuloom.work.model import Service
from tests.provision.shares.worlds import LAWS, MODELS, SOME

FLAT = BatchTimes.of([10.01, 10.02])
"""A batch of 2 takes hardly longer than one of 1: waiting for the second request is worth it."""
RATE_RPS = 1000.0 * 0.5 * 2 / 10.02

residents = st.lists(
    st.builds(Placed, st.sampled_from(MODELS), st.integers(1, 8), st.sampled_from([5.0, 12.5, 25.0])),
    min_size=1,
    max_size=4,
)


def problem_of(offer: Offer, slo_ms: float, pattern: Pattern = Pattern.POISSON, rate_rps: float = RATE_RPS) -> Problem:
    gaps = {"": np.ones(100)} if pattern is Pattern.TRACE else {}
    return Problem((Service("a", "vgg19", rate_rps, slo_ms),), offer, pattern, gaps)


@SOME
@given(placed=residents, margin=st.sampled_from([0.0, 1.0]))
def test_batches_up_to_ones_own_never_get_shorter(placed: list[Placed], margin: float, offer: Offer) -> None:
    times = batch_times(offer.model, placed, margin)
    assert [len(each.busy_ms) for each in times] == [resident.batch for resident in placed]
    for each in times:
        assert (np.diff(each.busy_ms) >= 0.0).all()
        assert (np.diff(each.latency_ms) >= 0.0).all()
        assert (each.latency_ms >= each.busy_ms).all()


@SOME
@given(placed=residents, model=st.sampled_from(MODELS))
def test_a_neighbour_more_never_makes_a_batch_shorter(placed: list[Placed], model: str, offer: Offer) -> None:
    before = batch_times(offer.model, placed, 1.0)
    after = batch_times(offer.model, [*placed, Placed(model, 1, 2.5)], 1.0)
    for alone, crowded in zip(before, after, strict=False):
        assert (crowded.busy_ms >= alone.busy_ms - 1e-9).all()


def test_alone_they_are_those_of_the_grid(offer: Offer) -> None:
    grid = Grid.of(offer, LAWS[2], 0.0)
    for model, name in enumerate(offer.model.names):
        (times,) = batch_times(offer.model, [Placed(name, 8, 25.0)], 0.0)
        assert times.busy_ms == pytest.approx(grid.busy_ms[model, :8, 9])
        assert times.latency_ms - times.busy_ms == pytest.approx(grid.load_ms[model, :8, 9])


def test_times_are_by_gpu_and_equal_gpus_are_alike(offer: Offer) -> None:
    """Two GPUs with the same pair, a third with a single one of it."""
    replicas = [
        Replica(service, gpu, Grant(gpu, share_pct=share_pct, batch=4), 0.0, 10.0, 1.0)
        for gpu, services in enumerate([("a", "b"), ("a", "b"), ("a",)])
        for service, share_pct in zip(services, (25.0, 50.0), strict=False)
    ]
    times = times_on(replicas, {"a": "vgg19", "b": "ssd"}, offer.model)
    first, second, _, _, single = (times[replica] for replica in replicas)
    assert len(times) == 5
    assert times[replicas[2]] is first
    assert times[replicas[3]] is second
    assert (single.busy_ms < first.busy_ms).all()
    pair = batch_times(offer.model, [Placed("vgg19", 4, 25.0), Placed("ssd", 4, 50.0)], 0.0)
    assert (first.busy_ms == pair[0].busy_ms).all()
    assert (second.busy_ms == pair[1].busy_ms).all()
    careful = times_on(replicas, {"a": "vgg19", "b": "ssd"}, offer.model, margin=1.0)
    assert (careful[replicas[0]].busy_ms > first.busy_ms).all()


@SOME
@given(gaps=st.lists(st.floats(0.01, 5.0), min_size=1, max_size=40), replicas=st.integers(1, 9))
def test_every_request_of_a_trace_goes_to_one_replica(gaps: list[float], replicas: int, offer: Offer) -> None:
    trace = np.array(gaps) / np.mean(gaps)
    problem = Problem((Service("a", "ssd", 90.0, 60.0),), offer, Pattern.TRACE, {"": trace})
    dealt = [arrivals_of(problem, "a", 90.0 / replicas, turn, replicas) for turn in range(replicas)]
    moments: list[float] = []
    for turn, arrivals in enumerate(dealt):
        assert isinstance(arrivals, Recorded)
        assert len(arrivals.arrivals_ms) >= 1
        moments += arrivals.arrivals_ms.tolist() if turn < len(gaps) else []
    assert sorted(moments) == pytest.approx(np.cumsum(trace) * 1000.0 / 90.0)


def test_random_and_regular_arrivals_are_those_of_the_replica(offer: Offer) -> None:
    assert arrivals_of(problem_of(offer, 60.0), "a", 45.0, 1, 2) == Poisson(45.0)
    assert arrivals_of(problem_of(offer, 60.0, Pattern.REGULAR), "a", 45.0, 1, 2) == Regular(45.0)


@pytest.mark.parametrize(
    ("slo_ms", "part"), [(30.6, 0.0), (30.4, 0.25), (30.2, 0.5), (29.0, 0.5)], ids=["none", "some", "more", "in vain"]
)
def test_requests_are_held_back_only_as_long_as_it_helps(slo_ms: float, part: float, offer: Offer) -> None:
    """30.57, 30.32 and 30.09 ms with each of the delays."""
    problem = problem_of(offer, slo_ms)
    p99, delay_ms = with_delay(problem, problem.services[0], FLAT, 2, 0, 1)
    assert delay_ms == pytest.approx(part * 10.02)
    assert p99 == latency_of(FLAT, Batching(2, delay_ms), Poisson(RATE_RPS)).percentile_ms(99.0)
    assert (p99 <= slo_ms) == (slo_ms > 30.0)


@settings(max_examples=20, deadline=None)
@given(
    batch=st.integers(1, 8),
    floor=st.floats(0.5, 10.0),
    slope=st.floats(0.01, 2.0),
    load=st.floats(0.1, 0.95),
    slo_times=st.floats(1.0, 8.0),
)
def test_the_first_delay_that_keeps_the_promise_else_the_best(
    batch: int, floor: float, slope: float, load: float, slo_times: float, offer: Offer
) -> None:
    times = BatchTimes.of(floor + slope * np.arange(1, batch + 1))
    full_ms = float(times.busy_ms[-1])
    rate_rps = 1000.0 * load * batch / full_ms
    problem = problem_of(offer, slo_times * full_ms, rate_rps=rate_rps)
    delays = [part * full_ms for part in (DELAYS if batch > 1 else DELAYS[:1])]
    each = [latency_of(times, Batching(batch, delay), Poisson(rate_rps)).percentile_ms(99.0) for delay in delays]
    kept = [delay for delay, p99 in zip(delays, each, strict=True) if p99 <= slo_times * full_ms]
    p99, delay_ms = with_delay(problem, problem.services[0], times, batch, 0, 1)
    assert delay_ms == (kept[0] if kept else delays[int(np.argmin(each))])
    assert p99 == each[delays.index(delay_ms)]


def test_two_replicas_get_half_each(offer: Offer) -> None:
    problem = problem_of(offer, 60.0)
    busier = replace(problem, services=(replace(problem.services[0], rate_rps=2 * RATE_RPS),))
    single = with_delay(problem, problem.services[0], FLAT, 2, 0, 1)
    assert with_delay(busier, busier.services[0], FLAT, 2, 1, 2) == single


def test_of_regular_arrivals_the_longest_counts(offer: Offer) -> None:
    """Every third finds the server busy: the p99 of all is not the least it can be."""
    times = BatchTimes.of([10.0, 12.0])
    problem = problem_of(offer, 60.0, Pattern.REGULAR, 120.0)
    longest = serve(np.arange(500) * (1000.0 / 120.0), times, Batching(2)).latencies_ms[250:].max()
    assert p99_ms(problem, "a", times, Batching(2), 120.0) == pytest.approx(longest)


def test_what_is_remembered_is_what_would_be_computed(offer: Offer) -> None:
    """By neighbourhood and seat; of a trace by whose turn it is, too."""
    gaps = np.tile([0.2, 1.8, 1.0, 0.4], 40) / 0.85
    service = Service("a", "vgg19", 120.0, 60.0)
    for pattern in Pattern:
        problem = Problem((service,), offer, pattern, {"": gaps} if pattern is Pattern.TRACE else {})
        exactly = Exactly(problem)
        placed = (Placed("vgg19", 4, 40.0), Placed("vgg19", 2, 60.0))
        times = batch_times(offer.model, placed, problem.margin)
        for _ in range(2):
            for seat, resident in enumerate(placed):
                for turn in range(2):
                    expected = with_delay(problem, service, times[seat], int(resident.batch), turn, 2)
                    assert exactly.of(placed, seat, service, turn, 2) == expected


def test_impossible_residents_are_refused(offer: Offer) -> None:
    with pytest.raises(InputError, match="no profile of the model 'bert'"):
        batch_times(offer.model, [Placed("bert", 1, 50.0)], 1.0)
    with pytest.raises(InputError, match="the share of ssd is 0"):
        batch_times(offer.model, [Placed("ssd", 1, 0.0)], 1.0)
