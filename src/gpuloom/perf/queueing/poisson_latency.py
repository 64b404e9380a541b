"""The latency of a request in the batching queue with Poisson arrivals, from the law of the batches' starts.

Counts the requests of the next batch that are answered later than x, for each y of `poisson_batches` (a = x -
latency[b], the age at the start from which on they are; N, T_1, B and m as there):

- full at y:     E[min(N(y - a), B)] - (y - a)+ / y E[N(y); N(y) < B]
- b < B at y:    P(N(y) = b) b ((y - a)+ - (m / y)^(b-1) (m - a)+) / y, since b arrivals in y lie uniformly
- b at T_1 + delay:  the first is as old as the delay, the others uniformly younger
- just full at T_1 + r, r < delay:  the same with r; r is Erlang of order B-1, and T_1 > y - r

All are piecewise linear in `a`, so sums over y are suffix sums: an evaluation costs a few array operations. Beyond
`settled_ms` the first two fall exponentially.
"""

from dataclasses import dataclass
from functools import cached_property
from math import log

import numpy as np

from gpuloom.perf.arrays import Floats
from gpuloom.perf.queueing.batching import BatchTimes, check_percent
from gpuloom.perf.queueing.poisson_batches import Starts, erlang, poisson, reach

FINE = 384
"""Steps of the table of E[min(N(t), B)]."""
STEPS = np.arange(FINE + 1, dtype=float)
CELLS = 96
"""Of the waiting time r of a batch that fills."""
GRID, WIDTH = np.arange(17) / 16, 1e-3
"""A percentile is bracketed to WIDTH of itself in steps of GRID; within that the logarithm of the share is a line."""


def suffix_sums(values: Floats) -> Floats:
    """Row i: the sum of rows i and after; a row of 0 at the end."""
    sums = np.zeros((len(values) + 1, *values.shape[1:]))
    sums[:-1] = values[::-1].cumsum(axis=0)[::-1]
    return sums


@dataclass(frozen=True, slots=True)
class Ramps:
    """The sum over points p of weight (p - a)+, in columns."""

    points: Floats
    weights: Floats
    """Suffix sums, as are `moments`."""
    moments: Floats

    @classmethod
    def of(cls, points: Floats, weights: Floats) -> "Ramps":
        return cls(points, suffix_sums(weights), suffix_sums(weights * points[:, None]))

    def __call__(self, a: Floats) -> Floats:
        """For an `a` in each column of each row."""
        row = np.searchsorted(self.points, a, side="right")
        column = np.arange(a.shape[1])
        return np.asarray(self.moments[row, column] - a * self.weights[row, column])


class PoissonLatency:
    """Percentiles and shares; built in parts, each when it is first asked for."""

    def __init__(self, times: BatchTimes, starts: Starts) -> None:
        self._times = times
        self._starts = starts
        self._order = len(times.busy_ms)

    @property
    def mean_batch(self) -> float:
        return self._starts.mean_batch

    @property
    def utilisation(self) -> float:
        return self._starts.rate_per_ms * float(self._starts.sizes @ self._times.busy_ms) / self._starts.mean_batch

    @cached_property
    def mean_ms(self) -> float:
        """Ages at the start and the batch's own latency, summed over the batch."""
        starts, order = self._starts, self._order
        grid, taken, slope = self._taken
        integral = _integral(taken, slope, float(grid[1]))
        over = np.maximum(starts.free_ms - grid[-1], 0.0)
        aged = np.interp(starts.free_ms, grid, integral) + order * over
        far = float(integral[-1]) + order * (starts.far_free_ms - float(grid[-1]))
        ages = float(starts.weight @ aged) + starts.far_weight * far
        late, delay = self._late, starts.delay_ms
        ages -= float((late * np.minimum(starts.free_ms, delay)[:, None] ** 2).sum()) / 2
        ages += float(self._timed_out @ np.arange(2, order + 1)) * delay / 2
        ages += self._filling.mean_ms * order / 2
        own = float(starts.sizes @ (np.arange(1, order + 1) * self._times.latency_ms))
        return (ages + own) / starts.mean_batch

    def share_above(self, limit_ms: float) -> float:
        return float(self._above(np.array([limit_ms]))[0])

    def percentile_ms(self, percent: float) -> float:
        target = 1.0 - check_percent(percent) / 100.0
        low, high = 0.0, self._bound(target)
        while True:
            grid = low + (high - low) * GRID
            above = self._above(grid)
            first = int(np.argmax(above <= target))
            if first == 0:
                return low if above[0] <= target else high
            low, high = float(grid[first - 1]), float(grid[first])
            if high - low <= WIDTH * high:
                break
        before, after = float(above[first - 1]), max(float(above[first]), target / 1e3)
        return low + (high - low) * log(before / target) / log(before / after)

    def _bound(self, target: float) -> float:
        starts = self._starts
        tail = log(1.0 / max(target, 1e-12)) / starts.decay_per_ms
        waits = starts.delay_ms if self._order > 1 else 0.0
        return float(self._times.latency_ms[-1]) + max(starts.settled_ms, waits) + tail + 1e-9

    def _above(self, limits_ms: Floats) -> Floats:
        above = (self._queued(limits_ms) + self._waited(limits_ms)) / self.mean_batch
        return np.asarray(np.minimum(np.maximum(above, 0.0), 1.0))

    @cached_property
    def _taken(self) -> tuple[Floats, Floats, Floats]:
        """Times t up to where all B have come, E[min(N(t), B)] there, and its slope."""
        rate, order = self._starts.rate_per_ms, self._order
        step = min(reach(order) / rate, float(self._starts.free_ms[-1])) / FINE
        grid = STEPS * step
        density = np.full(FINE + 1, rate if order == 1 else 0.0)
        density[1:] = erlang(grid[1:], order, rate)
        slope = np.full(FINE + 1, {1: -rate * rate, 2: rate * rate}.get(order, 0.0))
        slope[1:] = density[1:] * ((order - 1) / grid[1:] - rate)
        below = 1.0 - _integral(density, slope, step)
        return grid, rate * _integral(below, -density, step), rate * below

    @cached_property
    def _late(self) -> Floats:
        """`_partial` times (m / y)^(b-1), that of batches in which the oldest had not waited for the delay."""
        starts, order = self._starts, self._order
        size = np.arange(1, order)
        ratio = np.minimum(starts.delay_ms / starts.free_ms, 1.0)[:, None]
        return np.asarray(self._partial * ratio ** (size - 1))

    @cached_property
    def _partial(self) -> Floats:
        """Weight of y, times P(N(y) = b) b / y for b = 1..B-1."""
        starts = self._starts
        scale = starts.weight / starts.free_ms
        return np.asarray(scale[:, None] * starts.counts[:, 1:] * np.arange(1, self._order))

    @cached_property
    def _ramps(self) -> tuple[Ramps, Ramps]:
        """Of batches below B, and in the last column, to be subtracted, of full ones; and what the delay takes away."""
        starts = self._starts
        partial = np.empty_like(starts.counts)
        partial[:, :-1] = self._partial
        partial[:, -1] = self._partial.sum(axis=1)
        return Ramps.of(starts.free_ms, partial), Ramps.of(np.minimum(starts.free_ms, starts.delay_ms), self._late)

    def _queued(self, limits_ms: Floats) -> Floats:
        """Requests of a batch that starts as soon as the instance is free, above the limits."""
        starts, times, order = self._starts, self._times, self._order
        settled = float(times.latency_ms[-1]) + starts.settled_ms
        ages = np.maximum(np.minimum(limits_ms, settled)[:, None] - times.latency_ms, 0.0)
        grid, taken, _ = self._taken
        full = np.interp(starts.free_ms - ages[:, -1:], grid, taken) @ starts.weight + order * starts.far_weight
        ramps, delayed = self._ramps
        partial = ramps(ages)
        above = full - partial[:, -1] + partial[:, :-1].sum(axis=1)
        if starts.delay_ms > 0:
            above -= delayed(ages[:, :-1]).sum(axis=1)
        return np.asarray(above * np.exp(-starts.decay_per_ms * np.maximum(limits_ms - settled, 0.0)))

    @cached_property
    def _timed_out(self) -> Floats:
        """Probability of 1..B-1 requests in a batch that waited for the whole delay."""
        starts, order = self._starts, self._order
        idle = float(starts.weight @ np.exp(-starts.rate_per_ms * np.maximum(starts.free_ms - starts.delay_ms, 0.0)))
        if starts.delay_ms == 0:
            return np.asarray(idle * np.eye(1, order - 1)[0])
        return np.asarray(idle * poisson(np.array([starts.rate_per_ms * starts.delay_ms]), order - 1)[0])

    @cached_property
    def _filling(self) -> "Filling":
        starts, order, rate = self._starts, self._order, self._starts.rate_per_ms
        longest = min(starts.delay_ms, reach(order) / rate)
        if order == 1 or longest == 0:
            return Filling.of(np.ones(1), np.zeros(1))
        cells = np.asarray((np.arange(CELLS) + 0.5) * (longest / CELLS), dtype=np.float64)
        before = np.searchsorted(starts.free_ms, cells)
        later = suffix_sums(starts.weight * np.exp(-rate * starts.free_ms))[before]
        idle = np.concatenate([[0.0], starts.weight.cumsum()])[before] + np.exp(rate * cells) * later
        mass = idle * erlang(cells, order - 1, rate)
        total = float(mass.sum())
        return Filling.of(cells, mass * (starts.just_full / total if total > 0 else 0.0))

    def _waited(self, limits_ms: Floats) -> Floats:
        """Requests of a batch that an idle instance waited for, above the limits."""
        order, delay = self._order, self._starts.delay_ms
        ages = limits_ms[:, None] - self._times.latency_ms
        alone = np.where(ages[:, -1] < 0, self._starts.just_full, 0.0)
        if order == 1:
            return alone
        if delay == 0:
            return np.asarray((ages[:, :-1] < 0) @ self._timed_out)
        past = np.maximum(ages, 0.0)
        first = ages[:, :-1] < delay
        share = np.maximum(1.0 - past[:, :-1] / delay, 0.0)
        timed_out = (first + share * np.arange(order - 1)) @ self._timed_out
        return np.asarray(alone + self._filling.above(past[:, -1], order) + timed_out)


@dataclass(frozen=True, slots=True)
class Filling:
    """The wait r of a batch that an idle instance filled, in cells."""

    edges_ms: Floats
    longer: Floats
    """Probability of a wait beyond each edge."""
    inverse: Floats
    """The same of 1 / r."""
    mean_ms: float

    @classmethod
    def of(cls, cells_ms: Floats, mass: Floats) -> "Filling":
        edges = np.zeros(len(cells_ms) + 1)
        edges[1:] = cells_ms + cells_ms[0]
        return cls(edges, suffix_sums(mass), suffix_sums(mass / cells_ms), float(mass @ cells_ms))

    def above(self, ages_ms: Floats, order: int) -> Floats:
        """Requests that are older at the start; the last, which filled the batch, is not."""
        longer = np.interp(ages_ms, self.edges_ms, self.longer)
        inverse = np.interp(ages_ms, self.edges_ms, self.inverse)
        return np.asarray((order - 1) * longer - (order - 2) * ages_ms * inverse)


def _integral(values: Floats, slopes: Floats, step: float) -> Floats:
    """From the first point to each, by trapezia with the correction for the slopes at both ends."""
    sums = np.zeros_like(values)
    sums[1:] = np.cumsum((values[1:] + values[:-1]) * (step / 2))
    return np.asarray(sums - (slopes - slopes[0]) * (step * step / 12))
