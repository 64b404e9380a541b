"""The batching queue of `batching` on given arrivals, batch by batch: exact, for recorded traces and for validation.

A step is a batch, not a request: about half a microsecond each, so a million requests take a second or less. Times of a
batch come from a table, or from a function of (size, start) where they vary, as for services that share a GPU.
"""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gpuloom.errors import InputError
from gpuloom.perf.arrays import Floats
from gpuloom.perf.queueing.batching import Batching, BatchTimes

TimesAt = Callable[[int, float], tuple[float, float]]
"""From a batch's size and its start (ms) to its (busy_ms, latency_ms)."""


@dataclass(frozen=True, slots=True)
class Served:
    """What happened, requests in the order of arrival and batches in the order of their start."""

    arrivals_ms: Floats
    latencies_ms: Floats
    starts_ms: Floats
    sizes: NDArray[np.int64]
    busy_ms: Floats

    @property
    def utilisation(self) -> float:
        """Share of the time from the first arrival until the last batch is done that the instance was occupied."""
        if not len(self.sizes):
            return 0.0
        return float(self.busy_ms.sum() / (self.starts_ms[-1] + self.busy_ms[-1] - self.arrivals_ms[0]))

    @property
    def mean_batch(self) -> float:
        return float(self.sizes.mean()) if len(self.sizes) else 0.0


def serve(arrivals_ms: ArrayLike, times: BatchTimes | TimesAt, batching: Batching) -> Served:
    """Serves every request; the instance is free at first."""
    arrivals = check_arrivals(arrivals_ms)
    times_at = _from_table(times.up_to(batching)) if isinstance(times, BatchTimes) else times
    run = _run_full if batching.prefers_full else _run_preferred
    starts, ends, busy, latency = run(arrivals.tolist(), times_at, batching)
    served = np.array([0, *ends], dtype=np.int64)
    sizes = served[1:] - served[:-1]
    starts_ms = np.array(starts)
    done_ms = np.repeat(starts_ms + np.array(latency), sizes)
    return Served(arrivals, done_ms - arrivals, starts_ms, sizes, np.array(busy))


def check_arrivals(arrivals_ms: ArrayLike) -> Floats:
    """As an array, if they are finite times in order."""
    arrivals = np.asarray(arrivals_ms, dtype=float)
    if arrivals.ndim != 1 or not np.isfinite(arrivals).all():
        raise InputError("arrival times must be a list of numbers of milliseconds")
    if (np.diff(arrivals) < 0).any():
        raise InputError("arrival times must be in order")
    return arrivals


def _from_table(times: BatchTimes) -> TimesAt:
    pairs = [(0.0, 0.0), *zip(times.busy_ms.tolist(), times.latency_ms.tolist(), strict=True)]

    def times_at(size: int, _start_ms: float) -> tuple[float, float]:
        return pairs[size]

    return times_at


Run = tuple[list[float], list[int], list[float], list[float]]
"""Of each batch: start, number of requests served with it, busy and latency."""


def _run_full(arrivals: list[float], times_at: TimesAt, batching: Batching) -> Run:
    """The max batch is the preferred size: a batch starts when it is full or old enough and the instance is free."""
    size_max, delay, count = batching.max_batch, batching.delay_ms, len(arrivals)
    starts, ends, busys, latencies = [], [], [], []
    first, free = 0, float("-inf")
    while first < count:
        start = arrivals[first] + delay
        last = first + size_max
        if last <= count and arrivals[last - 1] < start:
            start = arrivals[last - 1]
        start = max(start, free)
        end = bisect_right(arrivals, start, first, min(last, count))
        busy, latency = times_at(end - first, start)
        free = start + busy
        starts.append(start)
        ends.append(end)
        busys.append(busy)
        latencies.append(latency)
        first = end
    return starts, ends, busys, latencies


def _run_preferred(arrivals: list[float], times_at: TimesAt, batching: Batching) -> Run:
    """The four rules, for any preferred sizes."""
    size_max, delay, count, smallest = batching.max_batch, batching.delay_ms, len(arrivals), batching.sizes[0]
    preferred = [max((size for size in batching.sizes if size <= queued), default=0) for queued in range(size_max + 1)]
    starts, ends, busys, latencies = [], [], [], []
    first, free = 0, float("-inf")
    while first < count:
        due = arrivals[first] + delay
        start = max(arrivals[first], free)
        last = min(first + size_max, count)
        size = bisect_right(arrivals, start, first, last) - first
        if start < due and size < smallest:
            filled = arrivals[first + smallest - 1] if first + smallest <= count else due
            start = min(filled, due)
            size = bisect_right(arrivals, start, first, last) - first
        if start < due or not delay:
            size = preferred[size] or size
        busy, latency = times_at(size, start)
        free = start + busy
        first += size
        starts.append(start)
        ends.append(first)
        busys.append(busy)
        latencies.append(latency)
    return starts, ends, busys, latencies
