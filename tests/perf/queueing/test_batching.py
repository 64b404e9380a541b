"""The batcher's settings and a batch's times: the sizes in force, what a long queue gets, what is refused."""

from math import inf, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.errors import InputError
from gpuloom.perf.queueing.batching import Batching, BatchTimes, check_percent
from gpuloom.perf.queueing.event_run import serve
from tests.perf.queueing.queues import AFFINE, choosy_batchings


@pytest.mark.parametrize(
    ("batching", "sizes", "full", "under_load"),
    [
        (Batching(4), (4,), True, 4),
        (Batching(4, 1.0), (4,), True, 4),
        (Batching(4, 0.0, (4,)), (4,), True, 4),
        (Batching(8, 0.0, (4, 2, 4)), (2, 4), False, 4),
        (Batching(8, 1.0, (2, 4)), (2, 4), False, 8),
        (Batching(8, 0.0, (2, 8)), (2, 8), False, 8),
    ],
)
def test_the_sizes_in_force(batching: Batching, sizes: tuple[int, ...], full: bool, under_load: int) -> None:
    assert batching.sizes == sizes
    assert batching.prefers_full is full
    assert batching.size_under_load == under_load


@settings(deadline=None, max_examples=60)
@given(choosy_batchings(), st.integers(30, 60))
def test_a_long_queue_is_served_at_the_capacity(batching: Batching, batches: int) -> None:
    """All have come at once and are old enough: nothing but full batches of the size under load, back to back."""
    count = batches * batching.size_under_load
    served = serve(np.full(count, -1000.0), AFFINE, batching)
    late = served.starts_ms > -1000.0 + batching.delay_ms  # before, preferred sizes rule
    in_a_row = served.sizes[late][:-2]
    if len(in_a_row) > 5:
        assert set(in_a_row.tolist()) == {batching.size_under_load}
        gap_ms = np.diff(served.starts_ms[late][:-2])
        assert 1000.0 * batching.size_under_load / gap_ms == pytest.approx(AFFINE.capacity_per_s(batching))


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 32))
def test_times_are_cut_to_the_sizes_that_can_occur(max_batch: int) -> None:
    times = AFFINE.up_to(Batching(max_batch))
    assert len(times.busy_ms) == len(times.latency_ms) == max_batch
    assert times.busy_ms.tolist() == AFFINE.busy_ms[:max_batch].tolist()
    assert times.capacity_per_s(Batching(max_batch)) == AFFINE.capacity_per_s(Batching(max_batch))


def test_a_larger_batch_serves_more_where_each_item_costs_less() -> None:
    rates = [AFFINE.capacity_per_s(Batching(size)) for size in range(1, 33)]
    assert rates == sorted(rates)
    assert rates[0] == pytest.approx(1000 / 2.8)


def test_without_latencies_a_batch_is_answered_when_the_instance_is_free() -> None:
    times = BatchTimes.of([1.0, 2.0])
    assert times.latency_ms is times.busy_ms
    with pytest.raises(InputError, match="the max batch is 3, but times are known up to 2 only"):
        times.up_to(Batching(3))


@pytest.mark.parametrize(
    ("busy_ms", "latency_ms", "says"),
    [
        ([], None, "one for each batch size"),
        ([[1.0, 2.0]], None, "one for each batch size"),
        ([1.0, nan], None, "positive numbers"),
        ([1.0, inf], None, "positive numbers"),
        ([0.0, 1.0], None, "positive numbers"),
        ([2.0, 1.0], None, "does at batch 2"),
        ([1.0, 2.0], [3.0], "give both the same"),
        ([1.0, 2.0], [1.0, 1.5], "must not be below busy_ms .batch 2."),
    ],
)
def test_bad_times(busy_ms: list[float], latency_ms: list[float] | None, says: str) -> None:
    with pytest.raises(InputError, match=says):
        BatchTimes.of(busy_ms, latency_ms)


@pytest.mark.parametrize(
    ("max_batch", "delay_ms", "preferred"),
    [(0, 0.0, ()), (4, -1.0, ()), (4, nan, ()), (4, inf, ()), (4, 0.0, (5,)), (4, 0.0, (0, 2))],
)
def test_bad_batching(max_batch: int, delay_ms: float, preferred: tuple[int, ...]) -> None:
    with pytest.raises(InputError):
        Batching(max_batch, delay_ms, preferred)


@pytest.mark.parametrize("percent", [0.0, 100.0, -1.0, nan])
def test_a_percentile_lies_between_0_and_100(percent: float) -> None:
    with pytest.raises(InputError, match="it must lie between 0 and 100"):
        check_percent(percent)
    assert check_percent(99.9) == 99.9
