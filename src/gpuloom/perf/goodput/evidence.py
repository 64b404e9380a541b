"""What a job, or all jobs of one name, have seen of their step times: one fit, and what it gets wrong by count.

The fit has a handful of parameters and is off by up to a quarter at single numbers of GPUs (the second node costs more
than the third). Where a number was seen, the mean error there is taken out again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import exp, log

from gpuloom.perf.goodput.fit import fit_step_times
from gpuloom.perf.goodput.goodput import step_s
from gpuloom.perf.goodput.model import Observation, StepTimes

MOST = 256
"""Configurations kept: after so many the fit no longer moves."""
GROWTH = 1.1
"""It may be fitted again when there is a tenth more to fit, or something of a new kind."""
SHRINK = 0.5
"""An error seen once counts by 1 / (1 + this)."""


@dataclass(slots=True)
class Evidence:
    """Of one name. Its fit follows from the observations up to `fitted`, so that is all there is to remember."""

    seen: dict[tuple[int, int, int], Observation] = field(default_factory=dict)
    """By nodes, GPUs and samples of a pass, in order of their coming; the first time counts."""
    fitted: int = 0
    """So many of them are in the fit."""
    _part: tuple[Observation, ...] = ()

    def add(self, observations: Iterable[Observation]) -> None:
        for one in observations:
            if one[:3] not in self.seen and len(self.seen) < MOST:
                self.seen[one[:3]] = one

    def is_due(self) -> bool:
        """There is enough that is new for another fit."""
        if len(self.seen) > self.fitted * GROWTH:
            return True
        rows = [*self.seen.values()]
        fitted = {(one.nodes > 1, one.replicas) for one in rows[: self.fitted]}
        return any((one.nodes > 1, one.replicas) not in fitted for one in rows[self.fitted :])

    def fit_all(self) -> None:
        self.fitted = len(self.seen)

    @property
    def most_replicas(self) -> int:
        return max(seen.replicas for seen in self.seen.values())

    def part(self) -> tuple[Observation, ...]:
        """What the fit is made from."""
        if len(self._part) != self.fitted:
            self._part = tuple(sorted([*self.seen.values()][: self.fitted]))
        return self._part


@lru_cache(maxsize=4096)
def times_of(seen: tuple[Observation, ...]) -> StepTimes:
    """The fit to what was seen, in order."""
    return fit_step_times(seen, ring=True)


@lru_cache(maxsize=4096)
def factors(times: StepTimes, seen: tuple[Observation, ...], node_size: int) -> Mapping[int, float]:
    """By number of GPUs: how much faster it is than the fit says, where it was seen on as few nodes as possible."""
    errors: dict[int, list[float]] = {}
    for one in seen:
        if one.nodes != -(-one.replicas // node_size):
            continue
        expected_s = step_s(times, one.nodes > 1, one.replicas, one.samples)
        errors.setdefault(one.replicas, []).append(log(expected_s / one.step_s))
    return {replicas: exp(sum(them) / (len(them) + SHRINK)) for replicas, them in errors.items()}
