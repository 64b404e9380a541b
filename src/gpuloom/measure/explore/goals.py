"""What is wanted of a device, and what each choice of a place costs if these are the step times: in per cent.

A goal says two things of draws of step times (a row for each draw, a column for each place, infinite where the workload
does not fit): which place to choose, and what each choice would cost against the best one, in each draw.
"""

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from gpuloom.measure.explore.places import Place
from gpuloom.perf.arrays import Bools, Floats

NEAR = 0.95
"""A copy is as good as fastest at this part of the fastest's speed."""
SURELY = 0.95
"""The chance that makes a promise of it: the slow end of a 90 % interval."""
MISSED_PCT = 100.0
"""A missed deadline costs a whole device: the work has to be done again on one."""


DOUBT_PCT = 15.0
"""So much better has to be what was only predicted: outliers are more frequent than a normal distribution says."""


class Sized(Protocol):
    @property
    def part(self) -> float:
        """Of the device, 0 to 1."""


class Goal(Protocol):
    """A frozen value: goals are compared, and looked up by."""

    def __hash__(self) -> int: ...

    @property
    def name(self) -> str: ...

    @property
    def doubt_pct(self) -> float:
        """What choosing a place that was not measured counts more than it is expected to cost."""

    def choose(self, places: Sequence[Place], step_ms: Floats, ran: Container[int] = (), /) -> int:
        """`ran`: where it was measured."""

    def costs(self, places: Sequence[Place], step_ms: Floats) -> Floats: ...


@dataclass(frozen=True, slots=True)
class OneCopy:
    """The smallest place within 5 % of the fastest. A larger one costs what it wastes of the device, a slower one the
    speed that it lacks."""

    name: str = "one copy"
    doubt_pct: float = 0.0

    def choose(self, places: Sequence[Sized], step_ms: Floats, _ran: Container[int] = ()) -> int:
        """What is expected to cost least: near the threshold a little speed is risked sooner than half a device."""
        return int(np.argmin(self.costs(places, step_ms).mean(axis=0)))

    def costs(self, places: Sequence[Sized], step_ms: Floats) -> Floats:
        near = _slowest_near(step_ms)
        lacking = 100 * (1 - np.divide(near, step_ms, out=np.zeros_like(step_ms), where=np.isfinite(step_ms)))
        costs: Floats = np.where(step_ms <= near, _wasted_pct(places, np.asarray(step_ms <= near)), lacking)
        return costs


@dataclass(frozen=True, slots=True)
class MostWork:
    """Most steps an hour of the whole device, filled with copies that do not slow each other down."""

    name: str = "most work an hour"
    doubt_pct: float = DOUBT_PCT

    def choose(self, places: Sequence[Place], step_ms: Floats, ran: Container[int] = ()) -> int:
        doubts = np.array([0.0 if at in ran else self.doubt_pct for at in range(len(places))])
        return int(np.argmin(self.costs(places, step_ms).mean(axis=0) + doubts))

    def costs(self, places: Sequence[Place], step_ms: Floats) -> Floats:
        rates = np.array([place.most for place in places]) / step_ms
        costs: Floats = 100 * (1 - rates / np.maximum(rates.max(axis=1, keepdims=True), 1e-300))
        return costs


@dataclass(frozen=True, slots=True)
class Deadline:
    """The smallest place that surely does a step in so many ms; if none does, the one that most likely will."""

    step_ms: float
    name: str = "deadline"
    doubt_pct: float = 0.0

    def choose(self, places: Sequence[Place], step_ms: Floats, _ran: Container[int] = ()) -> int:
        chances = (step_ms <= self.step_ms).mean(axis=0)
        return _smallest(places, chances, min(SURELY, float(chances.max())))

    def costs(self, places: Sequence[Place], step_ms: Floats) -> Floats:
        made: Bools = np.less_equal(step_ms, np.full_like(step_ms, self.step_ms))
        costs: Floats = np.where(made, _wasted_pct(places, made), MISSED_PCT * made.any(axis=1, keepdims=True))
        return costs


def _slowest_near(step_ms: Floats) -> Floats:
    near: Floats = step_ms.min(axis=1, keepdims=True) / NEAR
    return near


def _wasted_pct(places: Sequence[Sized], enough: Bools) -> Floats:
    """What each place takes more of the device than the smallest that is enough."""
    parts = np.array([place.part for place in places])
    least = np.where(enough, parts, np.inf).min(axis=1, keepdims=True)
    wasted: Floats = 100 * (parts - np.where(np.isfinite(least), least, parts))
    return wasted


def _smallest(places: Sequence[Place], chances: Floats, enough: float) -> int:
    """The smallest part of the device with such a chance; of equal parts the likelier."""
    good = [at for at in range(len(places)) if chances[at] >= enough]
    return min(good, key=lambda at: (places[at].part, -chances[at]))


@dataclass(frozen=True, slots=True)
class Among:
    """The same goal, but only these places may be chosen: measuring elsewhere can still tell something of them."""

    goal: Goal
    allowed: tuple[int, ...]

    @property
    def name(self) -> str:
        return self.goal.name

    @property
    def doubt_pct(self) -> float:
        return self.goal.doubt_pct

    def choose(self, places: Sequence[Place], step_ms: Floats, ran: Container[int] = (), /) -> int:
        there = [places[at] for at in self.allowed]
        measured = [at for at, place in enumerate(self.allowed) if place in ran]
        return self.allowed[self.goal.choose(there, step_ms[:, self.allowed], measured)]

    def costs(self, places: Sequence[Place], step_ms: Floats) -> Floats:
        costs = np.full(step_ms.shape, 100.0)
        costs[:, self.allowed] = self.goal.costs([places[at] for at in self.allowed], step_ms[:, self.allowed])
        return costs
