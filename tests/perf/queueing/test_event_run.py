"""The queue batch by batch: the rules by hand, against a reference that looks at every moment, and what is kept."""

from collections import deque
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.errors import InputError
from gpuloom.perf.queueing.batching import Batching, BatchTimes
from gpuloom.perf.queueing.event_run import check_arrivals, serve
from tests.perf.queueing.queues import AFFINE, batchings, choosy_batchings, gap_lists

WHOLE_MS = BatchTimes.of([3.0 + batch for batch in range(1, 13)], [4.0 + batch for batch in range(1, 13)])
whole_gaps = st.lists(st.sampled_from([0.0, 0.0, 1.0, 2.0, 7.0, 50.0]), min_size=1, max_size=40)


def by_the_rules(arrivals: Sequence[float], busy_ms: Sequence[float], batching: Batching) -> list[tuple[float, int]]:
    """(start, size) of every batch, moment by moment: the docstring of `batching`, read aloud."""
    coming, queue, batches = deque(arrivals), deque[float](), list[tuple[float, int]]()
    now, free = coming[0], float("-inf")
    while coming or queue:
        while coming and coming[0] <= now:
            queue.append(coming.popleft())
        size = 0
        if queue and now >= free:
            fitting = [preferred for preferred in batching.sizes if preferred <= len(queue)]
            if batching.delay_ms > 0 and now >= queue[0] + batching.delay_ms:
                size = min(len(queue), batching.max_batch)
            elif fitting:
                size = max(fitting)
            elif not batching.delay_ms:
                size = len(queue)
        if size:
            batches.append((now, size))
            free = now + busy_ms[size - 1]
            for _ in range(size):
                queue.popleft()
            continue
        moments = [free, *(queue and [queue[0] + batching.delay_ms]), *(coming and [coming[0]])]
        now = min((moment for moment in moments if moment > now), default=now)
    return batches


@settings(deadline=None, max_examples=300)
@given(whole_gaps, choosy_batchings())
def test_every_batch_is_the_one_that_the_rules_say(gaps: list[float], batching: Batching) -> None:
    arrivals = np.cumsum(gaps)
    served = serve(arrivals, WHOLE_MS, batching)
    reference = by_the_rules(arrivals.tolist(), WHOLE_MS.busy_ms.tolist(), batching)
    assert list(zip(served.starts_ms.tolist(), served.sizes.tolist(), strict=True)) == reference


@settings(deadline=None, max_examples=100)
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


@settings(deadline=None, max_examples=100)
@given(gap_lists, choosy_batchings())
def test_latency_is_the_wait_and_the_batchs_own(gaps: list[float], batching: Batching) -> None:
    served = serve(np.cumsum(gaps), AFFINE, batching)
    own_ms, busy_ms = AFFINE.latency_ms[served.sizes - 1], AFFINE.busy_ms[served.sizes - 1]
    done_ms = np.repeat(served.starts_ms + own_ms, served.sizes)
    assert served.latencies_ms == pytest.approx(done_ms - served.arrivals_ms)
    assert np.array_equal(served.busy_ms, busy_ms)
    assert 0 < served.utilisation <= 1 + 1e-12
    assert served.mean_batch == pytest.approx(len(gaps) / len(served.sizes))


@settings(deadline=None, max_examples=100)
@given(whole_gaps, choosy_batchings(), st.integers(0, 10_000))
def test_what_time_it_is_does_not_matter(gaps: list[float], batching: Batching, later_ms: int) -> None:
    """Whole milliseconds: a shift that loses a digit may decide who still makes it into a batch."""
    arrivals = np.cumsum(gaps)
    moved = serve(arrivals + later_ms, WHOLE_MS, batching)
    assert np.array_equal(moved.latencies_ms, serve(arrivals, WHOLE_MS, batching).latencies_ms)


@settings(deadline=None, max_examples=100)
@given(gap_lists, batchings)
def test_preferring_the_max_batch_is_the_default(gaps: list[float], batching: Batching) -> None:
    arrivals = np.cumsum(gaps)
    same = Batching(batching.max_batch, batching.delay_ms, (batching.max_batch,))
    assert np.array_equal(serve(arrivals, AFFINE, batching).starts_ms, serve(arrivals, AFFINE, same).starts_ms)


@settings(deadline=None, max_examples=60)
@given(gap_lists, choosy_batchings())
def test_a_table_of_times_is_a_function_that_does_not_look_at_the_clock(gaps: list[float], batching: Batching) -> None:
    arrivals = np.cumsum(gaps)
    by_table = serve(arrivals, AFFINE, batching)
    by_function = serve(
        arrivals, lambda size, _: (float(AFFINE.busy_ms[size - 1]), float(AFFINE.latency_ms[size - 1])), batching
    )
    assert np.array_equal(by_table.latencies_ms, by_function.latencies_ms)


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
        (Batching(8, 5.0, (2,)), [0, 5, 5], [3], [5]),
        (Batching(8, 9.0, (2,)), [0, 0, 1, 1, 1], [2, 3], [0, 10]),
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


def test_nobody_came() -> None:
    served = serve([], AFFINE, Batching(4))
    assert served.latencies_ms.size == served.sizes.size == 0
    assert served.utilisation == served.mean_batch == 0.0


@pytest.mark.parametrize("moments", [[2.0, 1.0], [0.0, float("nan")], [float("inf")], [[0.0, 1.0]]])
def test_what_is_no_list_of_moments_in_order(moments: list[float]) -> None:
    with pytest.raises(InputError, match="arrival times must be"):
        check_arrivals(moments)
