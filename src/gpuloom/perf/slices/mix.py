"""What a probe under MPS says of each job: how much slower it is at 50 and 14 % of the SMs than at 100 %, in numbers.

Only ratios of one job's own speeds are used, so the unit of a speed does not matter. Neighbours hold a job up at 100 %,
where all compete for the same SMs, more than at 14 %, where each has its own. How much is told by the gauge, a tiny
known job that runs along on the free seats, or else guessed from the neighbours. No function here depends on the order
of the jobs: permuting them permutes the rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite, log

import numpy as np

from gpuloom.perf.arrays import Floats, Ints

MOST_JOBS = 7


@dataclass(frozen=True, slots=True)
class MpsSpeeds:
    """One job's speeds under MPS, all jobs of the mix being limited alike; in any unit."""

    at_100: float
    at_50: float
    at_14: float
    mem_mib: int | None = None
    """Device memory it needs; None if unknown, and then no slice is ruled out."""
    family: str | None = None
    """The model it trains, if known. Used for one thing only: whether the predictor was trained on that model."""

    def __post_init__(self) -> None:
        for speed in (self.at_100, self.at_50, self.at_14):
            if not (isfinite(speed) and speed > 0):
                raise ValueError(f"a speed under MPS is {speed}, but must be a number above 0")

    @classmethod
    def from_latencies(
        cls, latencies: Sequence[float], mem_mib: int | None = None, family: str | None = None
    ) -> "MpsSpeeds":
        """From the time of a batch at 100, 50 and 14 %."""
        at_100, at_50, at_14 = latencies
        return cls(1.0 / at_100, 1.0 / at_50, 1.0 / at_14, mem_mib, family)

    @property
    def slowdowns(self) -> tuple[float, float]:
        """Logarithm of its speed at 14 % relative to 100 %, and to 50 %. Alone on a GPU both are below 0."""
        return log(self.at_14 / self.at_100), log(self.at_14 / self.at_50)


@dataclass(frozen=True, slots=True)
class Mix:
    """A probed mix as arrays."""

    own: Floats
    """A row for each job: its slowdowns."""
    gauge: Floats | None
    """Mean slowdowns of the gauges that ran along; None if there were none."""

    @property
    def size(self) -> int:
        return len(self.own)

    @property
    def bare(self) -> bool:
        return self.gauge is None

    def without_gauge(self) -> "Mix":
        return Mix(self.own, None)


def as_mix(jobs: Sequence[MpsSpeeds], gauges: Sequence[MpsSpeeds] = ()) -> Mix:
    if not 1 <= len(jobs) <= MOST_JOBS:
        raise ValueError(f"a mix has {len(jobs)} jobs, but must have 1 to {MOST_JOBS}")
    gauge = np.array([gauge.slowdowns for gauge in gauges]).mean(axis=0) if gauges else None
    return Mix(np.array([job.slowdowns for job in jobs]), gauge)


def net_inputs(mix: Mix) -> Floats:
    """For the network: own slowdowns, the gauge's, how many jobs, and whether there is no gauge."""
    shared = [0.0, 0.0] if mix.gauge is None else [*mix.gauge]
    return np.column_stack([mix.own, np.tile([*shared, mix.size / MOST_JOBS, float(mix.bare)], (mix.size, 1))])


def neighbours(mix: Mix) -> Floats:
    """Of each job: the mean, the least and the most of the other jobs' slowdowns; NaN if it is alone."""
    if mix.size == 1:
        return np.full((1, 6), np.nan)
    others = mix.own[_all_but_one(mix.size)]
    return np.concatenate([others.mean(axis=1), others.min(axis=1), others.max(axis=1)], axis=1)


@lru_cache(maxsize=MOST_JOBS)
def _all_but_one(size: int) -> Ints:
    """A row for each job: the numbers of the others."""
    return np.array([[other for other in range(size) if other != row] for row in range(size)])


def ridge_inputs(mix: Mix) -> Floats:
    """For the regression, of two jobs or more: own slowdowns, the neighbours', and last the gauge's if there is one."""
    columns = [mix.own, neighbours(mix)]
    if mix.gauge is not None:
        columns.append(np.tile(mix.gauge, (mix.size, 1)))
    return np.column_stack(columns)
