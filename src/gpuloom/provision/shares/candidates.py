"""The least share of each item for each max batch, if its neighbours lengthen its batches in a known way.

What neighbours do is two numbers: a batch that takes t alone takes `add_ms + times * t` beside them. Launch delays add,
cache and clock multiply. (0, 1) is being alone. All items and batches at once, by bisection over the units of share.
"""

from dataclasses import dataclass

import numpy as np

from gpuloom.perf.arrays import Bools, Floats, Ints
from gpuloom.provision.shares.items import Grid, Items
from gpuloom.provision.shares.laws import Law


@dataclass(frozen=True, slots=True)
class Beside:
    """What the neighbours do, for each item."""

    add_ms: Floats
    times: Floats


def alone(count: int) -> Beside:
    return Beside(np.zeros(count), np.ones(count))


@dataclass(frozen=True, slots=True)
class Choice:
    """For each item."""

    batch: Ints
    """Column of the grid."""
    units: Ints
    """Least units with it; more than a GPU has if nothing is enough."""


def choose(items: Items, grid: Grid, law: Law, beside: Beside) -> Choice:
    """The max batch with the least share; of equals that with the most room, in latency and in throughput."""
    units = least_units(items, grid, law, beside, np.arange(len(grid.batches)))
    least = units.min(axis=1)
    model, column = np.broadcast_arrays(items.model[:, None], np.arange(len(grid.batches)))
    first, full, load = _times(grid, beside, model, column, np.minimum(least, grid.units)[:, None])
    rate, batch = items.rate_per_ms[:, None], np.broadcast_to(grid.batches, full.shape)
    strain = np.maximum(law.p99_ms(batch, first, full, load, rate) / items.slo_ms[:, None], rate * full / batch)
    return Choice(np.where(units == least[:, None], strain, np.inf).argmin(axis=1), least)


def least_units(items: Items, grid: Grid, law: Law, beside: Beside, columns: Ints, bound: bool = False) -> Ints:
    """A row for each item, a column for each of the grid's batches; one more than a GPU has if nothing is enough.

    `bound`: no more than the least units, instead of no fewer.
    """
    shape = len(items), len(columns)
    low = np.zeros(shape, np.intp)
    high = np.where(grid.batches[columns] <= items.most_batch[:, None], grid.units, 0)
    allowed = high > 0
    hopeless = allowed & ~_holds(items, grid, law, beside, columns, np.full(shape, grid.units), bound)
    while (high - low > 1).any():
        middle = (low + high + 1) // 2
        fits = _holds(items, grid, law, beside, columns, np.maximum(middle, 1), bound)
        low, high = np.where(fits, low, np.minimum(middle, high)), np.where(fits, np.minimum(middle, high), high)
        low = np.minimum(low, high)
    return np.where(hopeless | ~allowed, grid.units + 1, np.maximum(high, 1))


def _holds(items: Items, grid: Grid, law: Law, beside: Beside, columns: Ints, units: Ints, bound: bool) -> Bools:
    """Whether the SLO is kept, by item and column, with so many units."""
    batch = np.broadcast_to(grid.batches[columns], units.shape)
    model, column = np.broadcast_arrays(items.model[:, None], columns)
    first, full, load = _times(grid, beside, model, column, units)
    rate, slo = items.rate_per_ms[:, None], items.slo_ms[:, None]
    if bound:
        # Times are convex in the batch: the line through the last two is below all of them.
        lowest = full - (batch - 1.0) * (full - grid.before_ms[model, column, units - 1])
        return np.asarray(law.at_least_ms(batch, np.maximum(lowest, 0.0), full, load / batch, rate) <= slo)
    return np.asarray(law.p99_ms(batch, first, full, load, rate) <= slo)


def _times(grid: Grid, beside: Beside, model: Ints, column: Ints, units: Ints) -> tuple[Floats, Floats, Floats]:
    """Of a batch of 1, of a full one, and of loading it."""
    add, times = beside.add_ms[:, None], beside.times[:, None]
    first = add + times * grid.busy_ms[model, 0, units - 1]
    full = add + times * grid.busy_ms[model, column, units - 1]
    return first, full, grid.load_ms[model, column, units - 1] * times
