"""Latency with Poisson arrivals: Erlang's results for single requests, the simulation, and what any law must obey."""

from math import exp, factorial, floor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.perf.arrays import Floats
from gpuloom.perf.queueing.batching import Batching, BatchTimes
from gpuloom.perf.queueing.event_run import serve
from gpuloom.perf.queueing.poisson_latency import Ramps, suffix_sums
from tests.perf.queueing.queues import AFFINE, PERCENTS, at_load, batchings, loads


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


@settings(deadline=None, max_examples=100)
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


@settings(deadline=None, max_examples=15)
@given(batchings, st.floats(0.05, 0.93))
def test_the_mean_is_the_area_below_the_tail(batching: Batching, load: float) -> None:
    """Found in two ways: from the ages at the starts, and from the share above every limit."""
    queue = at_load(load, batching)
    far_ms = 1.5 * queue.percentile_ms(99.99)
    limits = np.linspace(0.0, far_ms, 1001)
    shares = np.array([queue.share_above(limit) for limit in limits])
    assert float(np.trapezoid(shares, limits)) == pytest.approx(queue.mean_ms, rel=0.004)
    assert (np.diff(shares) <= 1e-6).all()
    assert shares[-1] < 1e-3


@settings(deadline=None, max_examples=60)
@given(batchings, loads)
def test_nobody_is_answered_before_a_batch_of_one_could_be(batching: Batching, load: float) -> None:
    queue = at_load(load, batching)
    assert queue.share_above(float(AFFINE.latency_ms[0]) * 0.999) == pytest.approx(1.0, abs=2e-3)
    assert queue.mean_ms >= float(AFFINE.latency_ms[0]) * 0.999


@settings(deadline=None, max_examples=60)
@given(batchings, loads)
def test_the_instance_is_busy_for_the_batches_that_it_serves(batching: Batching, load: float) -> None:
    """A batch occupies it no shorter than one alone and no longer than a full one."""
    queue = at_load(load, batching)
    per_ms = load * AFFINE.capacity_per_s(batching) / 1000 / queue.mean_batch
    least, most = AFFINE.busy_ms[0], AFFINE.busy_ms[batching.max_batch - 1]
    assert per_ms * least <= queue.utilisation * (1 + 1e-9)
    assert queue.utilisation <= per_ms * most * (1 + 1e-9)


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 12), loads, st.floats(0.5, 20.0))
def test_time_has_no_unit(max_batch: int, load: float, factor: float) -> None:
    slow = BatchTimes.of(AFFINE.busy_ms * factor, AFFINE.latency_ms * factor)
    batching, stretched = Batching(max_batch, 1.0), Batching(max_batch, factor)
    straight, scaled = at_load(load, batching), at_load(load, stretched, slow)
    assert scaled.mean_ms == pytest.approx(straight.mean_ms * factor, rel=1e-6)
    for percent in PERCENTS:
        assert scaled.percentile_ms(percent) == pytest.approx(straight.percentile_ms(percent) * factor, rel=1e-3)


def test_a_huge_delay_means_full_batches() -> None:
    queue = at_load(0.4, Batching(8, 1e9))
    assert queue.mean_batch == pytest.approx(8.0, abs=1e-6)
    assert queue.utilisation == pytest.approx(0.4, rel=1e-6)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.floats(0.0, 10.0), st.floats(0.0, 5.0)), min_size=1, max_size=20), st.floats(-1.0, 11.0))
def test_ramps_are_sums_of_what_lies_above(points: list[tuple[float, float]], limit: float) -> None:
    where, weights = (np.array(column) for column in zip(*sorted(points), strict=True))
    both: Floats = np.column_stack([weights, 2 * weights])
    found = Ramps.of(where, both)(np.array([[limit, limit]]))
    exact = float((weights * np.maximum(where - limit, 0.0)).sum())
    assert found[0] == pytest.approx([exact, 2 * exact], abs=1e-9)


def test_suffix_sums_end_with_nothing() -> None:
    assert suffix_sums(np.array([1.0, 2.0, 4.0])).tolist() == [7.0, 6.0, 4.0, 0.0]
    assert suffix_sums(np.ones((2, 3))).tolist() == [[2.0] * 3, [1.0] * 3, [0.0] * 3]
