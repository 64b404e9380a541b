"""Mixes that obey simple laws, for tests without the measured data: crowding adds to everybody's slowdown at 100 %."""

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gpuloom.work.measured.figures import WorkloadFigures
from gpuloom.work.measured.mps_mixes import GAUGE, SEATS, MeasuredJob, MeasuredMix

FAMILIES = ("ant", "bee", "cat", "dog", "eel")
BATCHES = (1, 2, 4)


def sensitivity(workload: str) -> float:
    """From 0, which any slice is enough for, to 1, which uses all of the GPU."""
    family, batch = workload.split()
    return 0.1 + 0.15 * FAMILIES.index(family) + 0.1 * BATCHES.index(int(batch))


WORKLOADS = tuple(f"{family} {batch}" for family in FAMILIES for batch in BATCHES)


def _figures(workload: str) -> WorkloadFigures:
    family, batch = workload.split()
    u = sensitivity(workload)
    speeds = {"7g.40gb": 1.0, "4g.20gb": 1 - 0.4 * u, "3g.20gb": 1 - 0.5 * u, "2g.10gb": 1 - 0.7 * u}
    mem_mib = 4864
    if u < 0.8:
        speeds["1g.5gb"] = 1 - 0.85 * u
    else:
        mem_mib = 9856
    return WorkloadFigures(workload, family, int(batch), 0.1, speeds, mem_mib, 5.0)


FIGURES = {workload: _figures(workload) for workload in WORKLOADS}


def _job(workload: str, slowdown: float) -> MeasuredJob:
    """`slowdown`: log of its speed at 14 % relative to 100 %, with the crowd in it."""
    mps = np.array([np.exp(slowdown), np.exp(0.8 * slowdown), 1.0])
    speeds = FIGURES[workload].speeds if workload in FIGURES else {}
    mig = np.array([1.0, *(1.0 / speeds.get(profile, 1.0) for profile in ("4g.20gb", "3g.20gb"))])
    return MeasuredJob(workload, tuple(mps / mps.max()), tuple(mig / mig.max()))


def made_up_mixes(count: int = 300, seed: int = 0) -> tuple[MeasuredMix, ...]:
    """Every workload alone, and then mixes of 1 to 7."""
    rng = np.random.default_rng(seed)
    alone = [[workload] for workload in WORKLOADS]
    mixed = [_of_two_families(rng) for _ in range(count - len(alone))]
    return tuple(_mix(number, workloads, rng) for number, workloads in enumerate([*alone, *mixed]))


def _of_two_families(rng: np.random.Generator) -> list[str]:
    """No more, so that enough is left when families are left out."""
    two = rng.choice(FAMILIES, 2, replace=False)
    return [f"{rng.choice(two)} {rng.choice(BATCHES)}" for _ in range(rng.integers(1, SEATS + 1))]


def _mix(number: int, workloads: Sequence[str], rng: np.random.Generator) -> MeasuredMix:
    crowd = 0.3 * (sum(map(sensitivity, workloads)))
    jobs = [_job(w, -1.6 * sensitivity(w) + crowd - 0.3 * sensitivity(w) + rng.normal(0, 0.01)) for w in workloads]
    gauges = [_job(GAUGE, crowd) for _ in range(SEATS - len(workloads))]
    return MeasuredMix(number, tuple(jobs), tuple(gauges))


def write_csv(path: Path, mixes: Sequence[MeasuredMix]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["mix", "n_active", "slot", "workload", "mps100", "mps50", "mps14", "mig7g", "mig4g", "mig3g"])
        for mix in mixes:
            for slot, job in enumerate((*mix.jobs, *mix.gauges)):
                writer.writerow([mix.id, len(mix.jobs), slot, job.workload, *job.mps, *job.mig])
