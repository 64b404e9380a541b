"""The batching queue: the Poisson solution against known results and against the simulation, and the rules of both."""

from math import exp, factorial, floor, inf, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.errors import InputError
from gpuloom.perf.queueing.event_run import serve
from gpuloom.perf.queueing.latency import (
    Arrivals,
    Batching,
    BatchTimes,
    Poisson,
    QueueLatency,
    Recorded,
    Regular,
    Sampled,
    best_batching,
    erlang_gaps,
    highest_rate_per_s,
    latency_of,
)

PERCENTS = (50.0, 99.0, 99.9)
AFFINE = BatchTimes.of(2.0 + 0.8 * np.arange(1, 33), 2.0 + 0.9 * np.arange(1, 33))
loads = st.floats(0.02, 0.97)
batchings = st.builds(Batching, st.integers(1, 12), st.sampled_from([0.0, 0.5, 3.0, 40.0]))


def at_load(load: float, batching: Batching, times: BatchTimes = AFFINE) -> QueueLatency:
    return latency_of(times, batching, Poisson(load * times.capacity_per_s(batching)))


def md1_wait_above(load: float, service: float, limit: float) -> float:
    """Erlang's formula of 1909 for the wait in M/D/1."""
    rate = load / service
    terms = ((rate * (k * service - limit)) ** k / factorial(k) for k in range(floor(limit / service) + 1))
    total = sum(term * exp(-rate * (k * service - limit)) for k, term in enumerate(terms))
    return 1.0 - (1.0 - load) * total


@pytest.mark.parametrize("load", [0.1, 0.5, 0.8, 0.9])
def test_one_by_one_is_md1(load: float) -> None:
    service = 4.0
    queue = at_load(load, Batching(1, delay_ms=7.0), BatchTimes.of([service]))
    assert queue.mean_ms == pytest.approx(service + load * service / (2 * (1 - load)), rel=5e-4)
    assert queue.utilisation == pytest.approx(load)
    assert queue.mean_batch == pytest.approx(1.0)
    for wait in (0.01, 1.0, 3.9, 4.1, 6.0, 11.0, 20.0):
        exact = md1_wait_above(load, service, wait)
        assert queue.share_above(service + wait) == pytest.approx(exact, rel=0.01, abs=2e-6)


def test_the_p99_of_md1() -> None:
    queue = at_load(0.5, Batching(1), BatchTimes.of([1.0]))
    p99 = queue.percentile_ms(99)
    assert md1_wait_above(0.5, 1.0, p99 - 1.0) == pytest.approx(0.01, rel=0.005)
    assert queue.percentile_ms(40) == pytest.approx(1.0, rel=2e-3)  # half of the requests find it idle


@pytest.mark.parametrize("delay_share", [0.0, 0.4, 2.5])
@pytest.mark.parametrize(("max_batch", "load"), [(2, 0.6), (3, 0.85), (8, 0.3), (8, 0.85), (32, 0.7)])
def test_agrees_with_simulation(max_batch: int, load: float, delay_share: float) -> None:
    batching = Batching(max_batch, delay_share * float(AFFINE.busy_ms[max_batch - 1]))
    queue = at_load(load, batching)
    gap_ms = 1000.0 / (load * AFFINE.capacity_per_s(batching))
    generator = np.random.default_rng([max_batch, round(10 * delay_share)])
    served = [serve(np.cumsum(generator.exponential(gap_ms, 30_000)), AFFINE, batching) for _ in range(6)]
    counted = [run.latencies_ms[1500:] for run in served]
    answers = [
        ([run.mean() for run in counted], queue.mean_ms),
        ([run.mean_batch for run in served], queue.mean_batch),
        ([run.utilisation for run in served], queue.utilisation),
        *(([np.percentile(run, p) for run in counted], queue.percentile_ms(p)) for p in PERCENTS[:2]),
        *(([(run > x).mean() for run in counted], queue.share_above(x)) for x in (queue.mean_ms, 2 * queue.mean_ms)),
    ]
    for seen, predicted in answers:
        stderr = np.std(seen, ddof=1) / len(seen) ** 0.5
        assert abs(np.mean(seen) - predicted) <= 5 * stderr + 0.003 * predicted + 1e-6


@given(batchings, loads)
def test_percentiles_are_ordered_and_shares_match(batching: Batching, load: float) -> None:
    queue = at_load(load, batching)
    p50, p99, p999 = (queue.percentile_ms(percent) for percent in PERCENTS)
    assert AFFINE.latency_ms[0] * 0.998 <= p50 <= p99 * 1.001 <= p999 * 1.002
    assert queue.share_above(p99 * 1.003) <= 0.01 + 1e-9
    assert queue.share_above(p99 * 0.997) >= 0.01 * 0.98
    assert queue.share_above(0.0) == pytest.approx(1.0, abs=1e-3)
    assert load * 0.999 <= queue.utilisation <= 1.0
    assert 1.0 <= queue.mean_batch <= batching.max_batch


@given(st.floats(0.05, 0.9), st.floats(0.01, 0.08))
def test_grows_with_the_rate_without_batches(load: float, more: float) -> None:
    few, many = at_load(load, Batching(1)), at_load(load + more, Batching(1))
    assert few.percentile_ms(99) <= many.percentile_ms(99) * 1.001
    assert few.mean_ms < many.mean_ms


gap_lists = st.lists(st.sampled_from([0.0, 0.1, 0.7, 1.0, 2.5, 30.0]), min_size=1, max_size=60)


@given(gap_lists, batchings, st.sets(st.integers(1, 12), max_size=3))
def test_everything_is_served_once_in_order(gaps: list[float], batching: Batching, sizes: set[int]) -> None:
    preferred = tuple(size for size in sizes if size <= batching.max_batch)
    batching = Batching(batching.max_batch, batching.delay_ms, preferred)
    served = serve(np.cumsum(gaps), AFFINE, batching)
    assert served.sizes.sum() == len(gaps)
    assert served.sizes.min() >= 1
    assert served.sizes.max() <= batching.max_batch
    free_ms = served.starts_ms + served.busy_ms
    assert (served.starts_ms[1:] >= free_ms[:-1]).all()
    starts_ms = np.repeat(served.starts_ms, served.sizes)
    assert (starts_ms >= served.arrivals_ms).all()
    waits_ms = starts_ms - np.maximum(served.arrivals_ms, np.repeat([0.0, *free_ms[:-1]], served.sizes))
    assert (waits_ms <= batching.delay_ms + 1e-9).all()


@given(gap_lists, batchings)
def test_preferring_the_max_batch_is_the_default(gaps: list[float], batching: Batching) -> None:
    arrivals = np.cumsum(gaps)
    same = Batching(batching.max_batch, batching.delay_ms, (batching.max_batch,))
    assert np.array_equal(serve(arrivals, AFFINE, batching).starts_ms, serve(arrivals, AFFINE, same).starts_ms)


@pytest.mark.parametrize(
    ("batching", "arrivals", "sizes", "starts"),
    [
        (Batching(4), [0, 0, 0, 0, 0, 0], [4, 2], [0, 10]),
        (Batching(4), [0, 1, 2, 30], [1, 2, 1], [0, 10, 30]),
        (Batching(4, 5.0), [0, 1, 2, 30], [3, 1], [5, 35]),
        (Batching(4, 5.0), [0, 1, 2, 3, 4], [4, 1], [3, 13]),
        (Batching(4, 50.0), [0, 1, 12, 13, 14], [4, 1], [13, 64]),
        (Batching(8, 0.0, (2, 4)), [0, 0, 0, 0, 0, 0, 0], [4, 2, 1], [0, 10, 20]),
        (Batching(8, 5.0, (2, 4)), [0, 0, 0, 0, 0, 0, 0], [4, 3], [0, 10]),
        (Batching(8, 50.0, (2, 4)), [0, 0, 0, 0, 0, 0, 0], [4, 2, 1], [0, 10, 50]),
        (Batching(8, 5.0, (2,)), [0, 7, 8], [1, 2], [5, 15]),
    ],
)
def test_the_rules_of_the_batcher(
    batching: Batching, arrivals: list[float], sizes: list[int], starts: list[float]
) -> None:
    served = serve(arrivals, BatchTimes.of([10.0] * 8), batching)
    assert served.sizes.tolist() == sizes
    assert served.starts_ms.tolist() == starts


def test_loading_adds_latency_but_does_not_occupy() -> None:
    served = serve([0.0, 0.0], BatchTimes.of([10.0], [13.0]), Batching(1))
    assert served.latencies_ms.tolist() == [13.0, 23.0]


def test_times_may_depend_on_the_moment() -> None:
    served = serve([0.0, 100.0], lambda size, start: (size + start, size + start + 1.0), Batching(4))
    assert served.latencies_ms.tolist() == [2.0, 102.0]


@given(st.integers(2, 12), st.floats(0.3, 1.0))
def test_regular_arrivals_with_full_batches_are_arithmetic(max_batch: int, load: float) -> None:
    """The first of a batch waits for the others, the last for none."""
    times = BatchTimes.of(2.0 + 0.8 * np.arange(1, max_batch + 1))
    batching = Batching(max_batch, delay_ms=1e6)
    rate = load * times.capacity_per_s(batching)
    queue = latency_of(times, batching, Regular(rate))
    fill_ms = (max_batch - 1) * 1000.0 / rate
    assert queue.percentile_ms(99.9) == pytest.approx(fill_ms + times.latency_ms[-1])
    assert queue.mean_ms == pytest.approx(fill_ms / 2 + times.latency_ms[-1])
    assert queue.mean_batch == pytest.approx(max_batch)


def test_regular_arrivals_that_leave_time_find_it_idle() -> None:
    queue = latency_of(AFFINE, Batching(8), Regular(100.0))
    assert queue.percentile_ms(99) == pytest.approx(AFFINE.latency_ms[0])
    assert queue.mean_batch == 1.0


@pytest.mark.parametrize("kind", [Poisson, Regular])
def test_without_arrivals_a_request_is_alone(kind: type[Poisson | Regular]) -> None:
    queue = latency_of(AFFINE, Batching(8, 3.0), kind(0.0))
    assert queue.percentile_ms(99) == AFFINE.latency_ms[0] + 3.0
    assert queue.utilisation == 0.0
    rare = latency_of(AFFINE, Batching(8, 3.0), kind(1e-6))
    assert rare.percentile_ms(99) == pytest.approx(AFFINE.latency_ms[0] + 3.0, rel=2e-3)


def test_a_huge_delay_means_full_batches() -> None:
    queue = at_load(0.4, Batching(8, 1e9))
    assert queue.mean_batch == pytest.approx(8.0, abs=1e-6)
    assert queue.utilisation == pytest.approx(0.4, rel=1e-6)


@pytest.mark.parametrize("kind", [Poisson, Regular, lambda rate: Sampled(rate, np.ones(50))])
def test_more_than_can_be_served_takes_forever(kind: type[Poisson]) -> None:
    queue = latency_of(AFFINE, Batching(4), kind(1.01 * AFFINE.capacity_per_s(Batching(4))))
    assert queue.percentile_ms(50) == queue.mean_ms == inf
    assert queue.share_above(1e9) == queue.utilisation == 1.0


def test_one_recorded_request() -> None:
    queue = latency_of(AFFINE, Batching(4, 1.5), Recorded(np.array([12.0])))
    assert queue.percentile_ms(50) == pytest.approx(AFFINE.latency_ms[0] + 1.5)
    assert queue.share_above(100.0) == 0.0


def test_dealing_in_turn_is_calmer_than_poisson() -> None:
    generator = np.random.default_rng(7)
    rate = 0.8 * AFFINE.capacity_per_s(Batching(4))
    sampled = [latency_of(AFFINE, Batching(4), Sampled(rate, erlang_gaps(k, 40_000, generator))) for k in (1, 4)]
    poisson = latency_of(AFFINE, Batching(4), Poisson(rate))
    assert sampled[0].percentile_ms(90) == pytest.approx(poisson.percentile_ms(90), rel=0.05)
    assert sampled[1].percentile_ms(99) < 0.9 * poisson.percentile_ms(99)


@settings(max_examples=15)
@given(st.integers(1, 8), st.sampled_from([0.0, 2.0]), st.floats(6.0, 40.0))
def test_the_highest_rate_is_the_last_that_holds(max_batch: int, delay_ms: float, slo_ms: float) -> None:
    batching = Batching(max_batch, delay_ms)
    rate = highest_rate_per_s(AFFINE, batching, slo_ms)
    step = AFFINE.capacity_per_s(batching) / 4096
    assert rate == 0.0 or latency_of(AFFINE, batching, Poisson(rate)).share_above(slo_ms) <= 0.01 + 1e-9
    assert latency_of(AFFINE, batching, Poisson(rate + step)).share_above(slo_ms) > 0.01


def test_the_highest_rate_at_the_ends() -> None:
    assert highest_rate_per_s(AFFINE, Batching(4), slo_ms=2.0) == 0.0
    full = Batching(4, 1e6)
    fill_ms = float(AFFINE.latency_ms[3]) + 3 * 1000.0 / AFFINE.capacity_per_s(full)
    assert highest_rate_per_s(AFFINE, full, fill_ms + 0.01, 99.0, Regular) == AFFINE.capacity_per_s(full)


def test_the_best_batching_beats_the_others() -> None:
    arrivals = Poisson(450.0)
    best = best_batching(AFFINE, arrivals, max_batches=(1, 2, 4, 8))
    assert best.percentile_ms == latency_of(AFFINE, best.batching, arrivals).percentile_ms(99)
    assert best.percentile_ms <= latency_of(AFFINE, Batching(4, 2.0), arrivals).percentile_ms(99)
    assert best_batching(AFFINE, Poisson(1e6)).percentile_ms == inf


@pytest.mark.parametrize(
    ("busy_ms", "latency_ms", "says"),
    [
        ([], None, "one for each batch size"),
        ([1.0, nan], None, "positive numbers"),
        ([0.0, 1.0], None, "positive numbers"),
        ([2.0, 1.0], None, "does at batch 2"),
        ([1.0, 2.0], [3.0], "give both the same"),
        ([1.0, 2.0], [1.0, 1.5], "must not be below busy_ms .batch 2."),
    ],
)
def test_bad_times(busy_ms: list[float], latency_ms: list[float] | None, says: str) -> None:
    with pytest.raises(InputError, match=says):
        BatchTimes.of(busy_ms, latency_ms)


@pytest.mark.parametrize("rate", [-1.0, nan, inf])
@pytest.mark.parametrize("kind", [Poisson, Regular, lambda rate: Sampled(rate, np.ones(3))])
def test_bad_rates(kind: type[Poisson], rate: float) -> None:
    with pytest.raises(InputError, match="requests per second"):
        kind(rate)


@pytest.mark.parametrize(
    ("max_batch", "delay_ms", "preferred"), [(0, 0.0, ()), (4, -1.0, ()), (4, nan, ()), (4, inf, ()), (4, 0.0, (5,))]
)
def test_bad_batching(max_batch: int, delay_ms: float, preferred: tuple[int, ...]) -> None:
    with pytest.raises(InputError):
        Batching(max_batch, delay_ms, preferred)


@pytest.mark.parametrize("moments", [[], [2.0, 1.0], [0.0, nan]])
def test_bad_traces(moments: list[float]) -> None:
    with pytest.raises(InputError):
        Recorded(np.array(moments))


@pytest.mark.parametrize(
    ("batching", "arrivals", "percent"),
    [
        (Batching(33), Poisson(1.0), 99.0),
        (Batching(8, 1.0, (4,)), Poisson(1.0), 99.0),
        (Batching(8), Poisson(1.0), 100.0),
    ],
)
def test_bad_questions(batching: Batching, arrivals: Arrivals, percent: float) -> None:
    with pytest.raises(InputError):
        latency_of(AFFINE, batching, arrivals).percentile_ms(percent)


def test_bad_gaps_and_slo() -> None:
    with pytest.raises(InputError):
        Sampled(1.0, np.array([1.0, -1.0]))
    with pytest.raises(InputError):
        erlang_gaps(0, 10, np.random.default_rng(1))
    with pytest.raises(InputError, match="SLO"):
        highest_rate_per_s(AFFINE, Batching(4), -3.0)
