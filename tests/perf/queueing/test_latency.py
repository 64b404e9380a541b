"""Latency by kind of arrivals, and its inverses: what a planner asks of a batching server."""

from math import inf, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.errors import InputError
from gpuloom.perf.queueing.batching import Batching, BatchTimes
from gpuloom.perf.queueing.event_run import serve
from gpuloom.perf.queueing.latency import (
    REGULAR_BATCHES,
    Arrivals,
    Observed,
    Poisson,
    Recorded,
    Regular,
    Sampled,
    erlang_gaps,
    highest_rate_per_s,
    latency_of,
)
from tests.perf.queueing.queues import AFFINE, PERCENTS, at_load, batchings, choosy_batchings, gap_lists


@settings(deadline=None, max_examples=40)
@given(st.floats(0.05, 0.9), st.floats(0.01, 0.08))
def test_grows_with_the_rate_without_batches(load: float, more: float) -> None:
    few, many = at_load(load, Batching(1)), at_load(load + more, Batching(1))
    assert few.percentile_ms(99) <= many.percentile_ms(99) * 1.001
    assert few.mean_ms < many.mean_ms


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 12), st.floats(0.05, 0.85), st.floats(0.02, 0.1))
def test_without_a_delay_more_requests_wait_longer(max_batch: int, load: float, more: float) -> None:
    few, many = at_load(load, Batching(max_batch)), at_load(load + more, Batching(max_batch))
    for percent in PERCENTS:
        assert few.percentile_ms(percent) <= many.percentile_ms(percent) * 1.002
    assert few.mean_batch <= many.mean_batch + 1e-6
    assert few.utilisation < many.utilisation


@settings(deadline=None, max_examples=60)
@given(gap_lists, choosy_batchings())
def test_a_recorded_trace_is_run_as_it_is(gaps: list[float], batching: Batching) -> None:
    arrivals = np.cumsum(gaps)
    queue, served = latency_of(AFFINE, batching, Recorded(arrivals)), serve(arrivals, AFFINE, batching)
    assert queue.mean_ms == pytest.approx(float(served.latencies_ms.mean()))
    assert queue.mean_batch == served.mean_batch
    assert queue.utilisation == served.utilisation
    for percent in PERCENTS:
        exact = float(np.percentile(served.latencies_ms, percent, method="inverted_cdf"))
        assert queue.percentile_ms(percent) == exact


@settings(deadline=None, max_examples=60)
@given(st.lists(st.floats(0.1, 100.0), min_size=1, max_size=50), st.floats(0.5, 99.5))
def test_of_what_was_observed_the_percentile_is_the_shortest_that_is_enough(
    values: list[float], percent: float
) -> None:
    seen = Observed(np.sort(values), 1.0, 0.5)
    limit = seen.percentile_ms(percent)
    assert limit in values
    assert seen.share_above(limit) <= 1 - percent / 100 + 1e-9
    shorter = [value for value in values if value < limit]
    if shorter:
        assert seen.share_above(max(shorter)) > 1 - percent / 100 - 1e-9
    assert seen.share_above(max(values)) == 0.0
    assert seen.share_above(0.0) == 1.0


@settings(deadline=None, max_examples=40)
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


@settings(deadline=None, max_examples=30)
@given(batchings, st.floats(0.1, 0.95))
def test_regular_arrivals_are_a_long_trace_of_equal_gaps(batching: Batching, load: float) -> None:
    rate = load * AFFINE.capacity_per_s(batching)
    queue = latency_of(AFFINE, batching, Regular(rate))
    served = serve(np.arange(2500) * (1000.0 / rate), AFFINE, batching)
    settled = served.latencies_ms[1200:2400]  # the last wait in vain for others to fill their batch
    assert queue.percentile_ms(99.9) == pytest.approx(float(settled.max()), rel=0.02, abs=1000.0 / rate)
    assert queue.mean_ms == pytest.approx(float(settled.mean()), rel=0.05, abs=0.1 * 1000.0 / rate)


@settings(deadline=None, max_examples=30)
@given(batchings, st.floats(0.1, 1.0))
def test_of_regular_arrivals_the_first_half_is_not_counted(batching: Batching, load: float) -> None:
    rate, count = load * AFFINE.capacity_per_s(batching), REGULAR_BATCHES * batching.max_batch
    settled = serve(np.arange(count) * (1000.0 / rate), AFFINE, batching).latencies_ms[count // 2 :]
    queue = latency_of(AFFINE, batching, Regular(rate))
    assert queue.mean_ms == pytest.approx(float(settled.mean()), rel=1e-12)
    assert queue.percentile_ms(0.001) == settled.min()


def test_it_takes_a_while_until_regular_arrivals_settle() -> None:
    """At nearly all that can be served, the first requests find the instance idle; in the long run nobody does."""
    rate = 0.99 * AFFINE.capacity_per_s(Batching(8))
    queue = latency_of(AFFINE, Batching(8), Regular(rate))
    first = serve(np.arange(8) * (1000.0 / rate), AFFINE, Batching(8)).latencies_ms.min()
    assert first == AFFINE.latency_ms[0] < queue.percentile_ms(0.001)


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


@pytest.mark.parametrize("kind", [Poisson, Regular, lambda rate: Sampled(rate, np.ones(50))])
def test_more_than_can_be_served_takes_forever(kind: type[Poisson]) -> None:
    queue = latency_of(AFFINE, Batching(4), kind(1.01 * AFFINE.capacity_per_s(Batching(4))))
    assert queue.percentile_ms(50) == queue.mean_ms == inf
    assert queue.share_above(1e9) == queue.utilisation == 1.0
    with pytest.raises(InputError, match="percentile"):
        queue.percentile_ms(100.0)


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


@pytest.mark.parametrize("replicas", [1, 2, 8])
def test_gaps_of_dealt_arrivals_have_mean_1_and_spread_less(replicas: int) -> None:
    gaps = erlang_gaps(replicas, 40_000, np.random.default_rng(3))
    assert gaps.mean() == pytest.approx(1.0, abs=0.02)
    assert gaps.std() == pytest.approx(replicas**-0.5, rel=0.03)


@settings(deadline=None, max_examples=15)
@given(st.integers(1, 8), st.sampled_from([0.0, 2.0]), st.floats(6.0, 40.0))
def test_the_highest_rate_is_the_last_that_holds(max_batch: int, delay_ms: float, slo_ms: float) -> None:
    batching = Batching(max_batch, delay_ms)
    rate = highest_rate_per_s(AFFINE, batching, slo_ms)
    step = AFFINE.capacity_per_s(batching) / 4096
    assert rate == 0.0 or latency_of(AFFINE, batching, Poisson(rate)).share_above(slo_ms) <= 0.01 + 1e-9
    assert latency_of(AFFINE, batching, Poisson(rate + step)).share_above(slo_ms) > 0.01


@settings(deadline=None, max_examples=15)
@given(st.integers(1, 8), st.floats(0.1, 0.9), st.sampled_from([95.0, 99.0]))
def test_the_rate_that_a_percentile_allows_is_that_percentiles(max_batch: int, load: float, percent: float) -> None:
    """Without a delay the percentile rises with the rate, so one is the inverse of the other."""
    batching = Batching(max_batch)
    slo_ms = at_load(load, batching).percentile_ms(percent)
    rate = highest_rate_per_s(AFFINE, batching, slo_ms, percent)
    assert rate / AFFINE.capacity_per_s(batching) == pytest.approx(load, abs=0.005)


@settings(deadline=None, max_examples=10)
@given(st.integers(1, 8), st.floats(6.0, 30.0), st.floats(1.05, 2.0))
def test_a_laxer_promise_never_allows_less(max_batch: int, slo_ms: float, factor: float) -> None:
    batching, grain = Batching(max_batch), AFFINE.capacity_per_s(Batching(max_batch)) / 4096
    strict = highest_rate_per_s(AFFINE, batching, slo_ms)
    assert highest_rate_per_s(AFFINE, batching, slo_ms * factor) >= strict - grain
    assert highest_rate_per_s(AFFINE, batching, slo_ms, 90.0) >= strict - grain
    assert strict <= AFFINE.capacity_per_s(batching)


def test_the_highest_rate_at_the_ends() -> None:
    assert highest_rate_per_s(AFFINE, Batching(4), slo_ms=2.0) == 0.0
    full = Batching(4, 1e6)
    fill_ms = float(AFFINE.latency_ms[3]) + 3 * 1000.0 / AFFINE.capacity_per_s(full)
    assert highest_rate_per_s(AFFINE, full, fill_ms + 0.01, 99.0, Regular) == AFFINE.capacity_per_s(full)


@pytest.mark.parametrize("rate", [-1.0, nan, inf])
@pytest.mark.parametrize("kind", [Poisson, Regular, lambda rate: Sampled(rate, np.ones(3))])
def test_bad_rates(kind: type[Poisson], rate: float) -> None:
    with pytest.raises(InputError, match="requests per second"):
        kind(rate)


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
        Sampled(1.0, np.array([]))
    with pytest.raises(InputError):
        erlang_gaps(0, 10, np.random.default_rng(1))
    with pytest.raises(InputError, match="SLO"):
        highest_rate_per_s(AFFINE, Batching(4), -3.0)
