"""Measured mixes as columns of numbers, one row for each job: what the regressions and networks are trained on.

Knows which rows may be used: `without(family)` leaves out every mix that contains the family, not only its jobs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from gpuloom.perf.arrays import Bools, Floats, Ints
from gpuloom.perf.slices.intervals import SLICES
from gpuloom.perf.slices.mix import Mix, MpsSpeeds, as_mix, neighbours
from gpuloom.work.measured.figures import WorkloadFigures
from gpuloom.work.measured.mps_mixes import MeasuredJob, MeasuredMix, family_of

MeasuredSpeeds = Mapping[str, WorkloadFigures]


def probe_of(job: MeasuredJob, mem_mib: int | None = None, *, tell_family: bool = True) -> MpsSpeeds:
    """What a probe would have told of a measured job."""
    return MpsSpeeds.from_latencies(job.mps, mem_mib, job.family if tell_family else None)


def mix_of(measured: MeasuredMix) -> Mix:
    return as_mix([probe_of(job) for job in measured.jobs], [probe_of(gauge) for gauge in measured.gauges])


def true_speeds(job: MeasuredJob, figures: MeasuredSpeeds) -> tuple[float, ...]:
    """On SLICES: 4g and 3g as measured with the mixes, 2g and 1g of the figures; NaN if not measured."""
    on_7g, on_4g, on_3g = job.mig
    known = figures.get(job.workload)
    by_slices = {int(profile.split("g")[0]): speed for profile, speed in known.speeds.items()} if known else {}
    return on_7g / on_4g, on_7g / on_3g, by_slices.get(2, np.nan), by_slices.get(1, np.nan)


@dataclass(frozen=True)
class Table:
    mixes: Sequence[Mix]
    jobs: Sequence[MeasuredJob]
    """All jobs, mix after mix."""
    figures: MeasuredSpeeds

    @classmethod
    def of(cls, measured: Sequence[MeasuredMix], figures: MeasuredSpeeds) -> "Table":
        return cls([mix_of(mix) for mix in measured], [job for mix in measured for job in mix.jobs], figures)

    @cached_property
    def sizes(self) -> Ints:
        """Of each job: how many there are in its mix."""
        return np.array([mix.size for mix in self.mixes for _ in range(mix.size)])

    @cached_property
    def inputs(self) -> Floats:
        """Columns of `ridge_inputs`, NaN where there are no neighbours or no gauge."""
        nothing = np.full(2, np.nan)
        rows = [
            np.column_stack(
                [mix.own, neighbours(mix), np.tile(nothing if mix.gauge is None else mix.gauge, (mix.size, 1))]
            )
            for mix in self.mixes
        ]
        return np.concatenate(rows)

    @cached_property
    def ends(self) -> Ints:
        """Where to split the rows to have those of each mix."""
        return np.cumsum([mix.size for mix in self.mixes])[:-1]

    @cached_property
    def workloads(self) -> list[str]:
        return sorted({job.workload for job in self.jobs})

    @cached_property
    def families(self) -> list[str]:
        return sorted({job.family for job in self.jobs})

    @cached_property
    def workload(self) -> Ints:
        numbers = {name: number for number, name in enumerate(self.workloads)}
        return np.array([numbers[job.workload] for job in self.jobs])

    @cached_property
    def family(self) -> Ints:
        numbers = {name: number for number, name in enumerate(self.families)}
        return np.array([numbers[job.family] for job in self.jobs])

    @cached_property
    def family_of_workload(self) -> Ints:
        return np.array([self.families.index(family_of(name)) for name in self.workloads])

    @cached_property
    def latencies(self) -> Floats:
        """Of each job: on 7g and on 4g relative to 3g, at most 1."""
        return np.array([[min(job.mig[0] / job.mig[2], 1.0), min(job.mig[1] / job.mig[2], 1.0)] for job in self.jobs])

    @cached_property
    def speeds(self) -> Floats:
        """Of each job: true speeds on SLICES."""
        return np.array([true_speeds(job, self.figures) for job in self.jobs]).reshape(-1, len(SLICES))

    @cached_property
    def gauged(self) -> Bools:
        """Which jobs had a gauge beside them."""
        return np.isfinite(self.inputs[:, -1])

    @cached_property
    def _contains(self) -> Bools:
        """Of each job: which families its mix has."""
        rows = np.zeros((len(self.jobs), len(self.families)), bool)
        for here, families in zip(np.split(rows, self.ends), np.split(self.family, self.ends), strict=True):
            here[:, families] = True
        return rows

    def without(self, family: int) -> Bools:
        """Which jobs are in mixes that have nothing of this family."""
        return ~self._contains[:, family]

    @cached_property
    def means(self) -> "Means":
        rows_of = [self.workload == number for number in range(len(self.workloads))]
        alone = [self.inputs[rows & (self.sizes == 1), 0] for rows in rows_of]
        return Means(
            np.array([slowdowns.mean() if len(slowdowns) else np.nan for slowdowns in alone]),
            np.array([self.latencies[rows].mean(axis=0) for rows in rows_of]),
            np.array([self.speeds[rows].mean(axis=0) for rows in rows_of]),
        )


class Means(NamedTuple):
    """Of each workload."""

    solo: Floats
    """Its slowdown when alone; NaN if it was never measured alone."""
    latencies: Floats
    speeds: Floats
