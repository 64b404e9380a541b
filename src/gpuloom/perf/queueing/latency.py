"""How long requests take at a batching server: the latency distribution for each kind of arrivals, and its inverses.

    latency_of(BatchTimes.of([4.0, 5.1, 6.3, 7.2]), Batching(4, delay_ms=1.0), Poisson(400.0)).percentile_ms(99)

`batching` has the server's rules (Triton's dynamic batcher, one instance). By arrivals:

- `Poisson`: from the embedded chain (`poisson_batches`, `poisson_latency`), no simulation; `benchmarks/queueing.py`
  prints errors and speed. The max batch must be the one preferred size.
- `Regular`: the queue is run on equal gaps; the first half, in which it settles, is not counted.
- `Sampled`: the queue is run on gaps that the caller drew, with any preferred sizes; `erlang_gaps` for Poisson arrivals
  dealt round-robin. An estimate, whose error falls with the square root of the number of gaps.
- `Recorded`: the queue is run on the trace.

A rate that the server cannot keep up with gives infinity.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, isfinite
from typing import Protocol

import numpy as np

from gpuloom.errors import InputError
from gpuloom.perf.arrays import Floats
from gpuloom.perf.queueing.batching import Batching, BatchTimes, check_percent
from gpuloom.perf.queueing.event_run import Served, check_arrivals, serve
from gpuloom.perf.queueing.poisson_batches import solve_starts
from gpuloom.perf.queueing.poisson_latency import PoissonLatency

__all__ = [
    "Arrivals",
    "BatchTimes",
    "Batching",
    "Poisson",
    "QueueLatency",
    "Recorded",
    "Regular",
    "Sampled",
    "erlang_gaps",
    "highest_rate_per_s",
    "latency_of",
]

REGULAR_BATCHES = 128
"""Half of them to settle, half to be counted."""
SETTLING = 0.02
"""Share of sampled requests that are not counted."""
LOAD_STEPS, BISECTIONS = 16, 9


@dataclass(frozen=True, slots=True)
class Poisson:
    rate_per_s: float

    def __post_init__(self) -> None:
        _check_rate(self.rate_per_s)


@dataclass(frozen=True, slots=True)
class Regular:
    rate_per_s: float

    def __post_init__(self) -> None:
        _check_rate(self.rate_per_s)


@dataclass(frozen=True, slots=True)
class Sampled:
    rate_per_s: float
    gaps: Floats
    """Independent, of mean 1."""

    def __post_init__(self) -> None:
        _check_rate(self.rate_per_s)
        if not len(self.gaps) or not np.isfinite(self.gaps).all() or (self.gaps < 0).any():
            raise InputError("gaps between arrivals must be numbers that are not negative, at least one")


@dataclass(frozen=True, slots=True)
class Recorded:
    arrivals_ms: Floats

    def __post_init__(self) -> None:
        if not len(check_arrivals(self.arrivals_ms)):
            raise InputError("the recorded trace has no arrivals")


Arrivals = Poisson | Regular | Sampled | Recorded


class QueueLatency(Protocol):
    """What a planner asks."""

    @property
    def mean_ms(self) -> float: ...
    @property
    def utilisation(self) -> float:
        """Share of the time that the instance is occupied."""
        ...

    @property
    def mean_batch(self) -> float: ...
    def percentile_ms(self, percent: float) -> float:
        """The shortest time within which that share of the requests is answered; above 0, below 100."""
        ...

    def share_above(self, limit_ms: float) -> float:
        """Share of the requests that take longer."""
        ...


@dataclass(frozen=True, slots=True)
class Observed:
    """Of requests that were run."""

    latencies_ms: Floats
    """Ascending."""
    mean_batch: float
    utilisation: float

    @property
    def mean_ms(self) -> float:
        return float(self.latencies_ms.mean())

    def percentile_ms(self, percent: float) -> float:
        rank = int(np.ceil(len(self.latencies_ms) * check_percent(percent) / 100.0 - 1e-9))
        return float(self.latencies_ms[max(rank, 1) - 1])

    def share_above(self, limit_ms: float) -> float:
        within = int(np.searchsorted(self.latencies_ms, limit_ms, side="right"))
        return 1.0 - within / len(self.latencies_ms)


@dataclass(frozen=True, slots=True)
class Overloaded:
    """More arrives than can be served: in the long run every request waits beyond any limit."""

    mean_batch: float
    mean_ms: float = inf
    utilisation: float = 1.0

    def percentile_ms(self, percent: float) -> float:
        check_percent(percent)
        return inf

    def share_above(self, limit_ms: float) -> float:  # noqa: ARG002
        return 1.0


def latency_of(times: BatchTimes, batching: Batching, arrivals: Arrivals) -> QueueLatency:
    """In the long run; for a recorded trace, of its requests."""
    times = times.up_to(batching)
    if isinstance(arrivals, Recorded):
        return _observed(serve(arrivals.arrivals_ms, times, batching), 0)
    rate = arrivals.rate_per_s
    if rate == 0:
        alone = serve([0.0], times, batching)
        return Observed(alone.latencies_ms, 1.0, 0.0)
    load = rate / times.capacity_per_s(batching)
    if load > 1.0 + 1e-9 or (load >= 1.0 - 1e-6 and not isinstance(arrivals, Regular)):
        return Overloaded(float(batching.size_under_load))
    if isinstance(arrivals, Poisson):
        if not batching.prefers_full:
            raise InputError("for Poisson arrivals the max batch must be the preferred size; draw gaps for any other")
        return PoissonLatency(times, solve_starts(times.busy_ms, rate / 1000.0, batching.delay_ms))
    if isinstance(arrivals, Regular):
        count = REGULAR_BATCHES * batching.max_batch
        return _observed(serve(np.arange(count) * (1000.0 / rate), times, batching), count // 2)
    moments = np.cumsum(arrivals.gaps) * (1000.0 / rate)
    return _observed(serve(moments, times, batching), int(SETTLING * len(moments)))


def erlang_gaps(replicas: int, count: int, generator: np.random.Generator) -> Floats:
    """Gaps at one of the replicas that Poisson arrivals are dealt to in turn; their mean is 1."""
    if replicas < 1 or count < 1:
        raise InputError("gaps need at least one replica and one request")
    return generator.gamma(replicas, 1.0 / replicas, count)


def highest_rate_per_s(
    times: BatchTimes,
    batching: Batching,
    slo_ms: float,
    percent: float = 99.0,
    arrivals_at: Callable[[float], Arrivals] = Poisson,
) -> float:
    """The highest rate at which that share of the requests is answered within the SLO; 0 if there is none.

    To 1/8192 of the capacity, from below. Found from above: with a delay a low rate may be too slow to fill batches.
    """
    if not (isfinite(slo_ms) and slo_ms > 0):
        raise InputError(f"the SLO is {slo_ms} ms: it must be a positive number")
    allowed = 1.0 - check_percent(percent) / 100.0
    capacity = times.capacity_per_s(batching)

    def keeps(load: float) -> bool:
        return latency_of(times, batching, arrivals_at(load * capacity)).share_above(slo_ms) <= allowed + 1e-12

    if slo_ms < times.latency_ms[0]:
        return 0.0
    fits = next((step for step in range(LOAD_STEPS, -1, -1) if keeps(step / LOAD_STEPS)), None)
    if fits is None:
        return 0.0
    low, high = fits / LOAD_STEPS, min(fits + 1, LOAD_STEPS) / LOAD_STEPS
    for _ in range(BISECTIONS if high > low else 0):
        middle = (low + high) / 2
        low, high = (middle, high) if keeps(middle) else (low, middle)
    return low * capacity


def _observed(served: Served, skip: int) -> Observed:
    return Observed(np.sort(served.latencies_ms[skip:]), served.mean_batch, served.utilisation)


def _check_rate(rate_per_s: float) -> None:
    if not (isfinite(rate_per_s) and rate_per_s >= 0):
        raise InputError(f"the rate is {rate_per_s} requests per second: it must be 0 or a positive number")
