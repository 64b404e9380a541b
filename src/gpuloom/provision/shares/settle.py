"""The least shares with which all services on a GPU keep their promises: any number of GPUs in one call.

From shares that are too small for sure (each alone), whoever would be late gets a unit more, until nobody is. More for
one never helps another, so nobody ever gets a unit that it does not need in the end: the result is the least there is.
Neighbours count as always busy with full batches.
"""

from dataclasses import dataclass

import numpy as np

from gpuloom.perf.arrays import Bools, Floats, Ints
from gpuloom.perf.sharing.interference import NOBODY, Crowd
from gpuloom.provision.offer import Offer
from gpuloom.provision.shares.candidates import Beside
from gpuloom.provision.shares.items import Grid, Items, with_margin
from gpuloom.provision.shares.laws import Law

LATE = 1e-9
"""Part of the SLO by which a p99 may be above it: rounding."""
EMPTY = -1
"""The item of an empty seat."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What every step of the planner knows."""

    offer: Offer
    law: Law
    items: Items
    grid: Grid
    margin: float


@dataclass(frozen=True, slots=True)
class Times:
    """Of each seat: a batch of 1, a full one, and loading it."""

    first_ms: Floats
    full_ms: Floats
    load_ms: Floats


@dataclass(frozen=True, slots=True)
class Settled:
    """Who is on each GPU, with which batch and how many units of share."""

    seats: Ints
    """Items: a row for each GPU."""
    batch: Ints
    """Columns of the grid."""
    units: Ints
    """0 for an empty seat."""
    fits: Bools
    """Whether a GPU is enough; where not, the units are those at which it was seen."""

    @property
    def total(self) -> Ints:
        """Units given on each GPU."""
        return np.asarray(self.units.sum(axis=1))

    def rows(self, which: Ints | Bools) -> "Settled":
        """Some of the GPUs, each perhaps several times."""
        return Settled(self.seats[which], self.batch[which], self.units[which], self.fits[which])


def settle(setting: Setting, seats: Ints, batch: Ints, units: Ints) -> Settled:
    """`batch` and `units` have a value for each seat; the units are those to begin with, at most the least ones."""
    units = np.where(seats == EMPTY, 0, units)
    fits = np.zeros(len(seats), bool)
    going = np.flatnonzero(units.sum(axis=1) <= setting.offer.units)
    while len(going):
        times = times_of(setting, seats[going], batch[going], units[going])
        late = lateness(setting, seats[going], batch[going], times) > LATE
        anybody = late.any(axis=1)
        fits[going[~anybody]] = True
        going, late = going[anybody], late[anybody]
        units[going] += late
        going = going[units[going].sum(axis=1) <= setting.offer.units]
    return Settled(seats, batch, units, fits)


def lateness(setting: Setting, seats: Ints, batch: Ints, times: Times) -> Floats:
    """p99 over the SLO, minus 1: above 0 is late."""
    items, item = setting.items, np.maximum(seats, 0)
    size = setting.grid.batches[batch]
    p99 = setting.law.p99_ms(size, times.first_ms, times.full_ms, times.load_ms, items.rate_per_ms[item])
    return np.where(seats == EMPTY, -1.0, p99 / items.slo_ms[item] - 1.0)


def times_of(setting: Setting, seats: Ints, batch: Ints, units: Ints) -> Times:
    """With all neighbours busy with full batches."""
    here = seats != EMPTY
    model = np.where(here, setting.items.model[np.maximum(seats, 0)], NOBODY)
    size = np.where(here, setting.grid.batches[batch], 1.0)
    share = np.where(here, units * setting.offer.unit_pct, 100.0)
    full, load = with_margin(setting.offer.model.latencies(Crowd(model, size, share)), setting.margin)
    first = full.copy()
    row, seat = np.nonzero(here & (size > 1.0))
    trial = np.arange(len(row))  # one for each batch above 1: that one made 1, the neighbours as they are
    single = size[row]
    single[trial, seat] = 1.0
    busy, _ = with_margin(setting.offer.model.latencies(Crowd(model[row], single, share[row])), setting.margin)
    first[row, seat] = busy[trial, seat]
    return Times(np.minimum(first, full), full, load)


def beside(setting: Setting, settled: Settled) -> Beside:
    """What the neighbours do to each seat (flat, row by row), as `candidates` wants it."""
    times = times_of(setting, settled.seats, settled.batch, np.maximum(settled.units, 1))
    model = setting.items.model[np.maximum(settled.seats, 0)]
    units = np.clip(settled.units, 1, setting.grid.units) - 1
    first, full = setting.grid.busy_ms[model, 0, units], setting.grid.busy_ms[model, settled.batch, units]
    apart = full - first > 1e-9
    slope = np.where(apart, (times.full_ms - times.first_ms) / np.where(apart, full - first, 1.0), times.full_ms / full)
    slope = np.clip(slope, 1.0, times.full_ms / full)
    return Beside(np.maximum(times.full_ms - slope * full, 0.0).ravel(), slope.ravel())
