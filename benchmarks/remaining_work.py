"""How well `ones` knows the work that is left of a job: its distribution against what was left in truth.

    python benchmarks/remaining_work.py --profiles ../shared/data/pollux --workloads ../shared/data/pollux/workloads/*

In every round of a simulated run the distribution of every live job is kept, and how the policy came by it: from
finished jobs of its name, from the one of its name that has come furthest, from the path of its metric, or from the
work done alone. Lengths have a jitter, else one finished job would tell all. Printed for each kind: how often the truth
lay below the 10th, 50th and 90th of a hundred (calibrated would be 0.1, 0.5, 0.9), and the mean distance of the median
from the truth as a logarithm (0.7 is a factor of two); each job counts once, with the mean over its rounds.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # matrices are tiny: threads would only burn CPU time

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from elastic_runs import GPUS, elastic_inputs
from gpuloom.cli.inputs import parse_seeds
from gpuloom.contract.view import JobView, View
from gpuloom.engine.machine import Engine
from gpuloom.errors import InputError
from gpuloom.gpus.cluster import Cluster, parse_cluster
from gpuloom.perf.goodput.remaining import QUANTILES
from gpuloom.policies.ones.policy import Ones, Round
from gpuloom.sim.body import VirtualBody
from gpuloom.sim.compare.runs import in_parallel
from gpuloom.sim.inputs import Inputs, load
from gpuloom.sim.run import make_world
from gpuloom.sim.worlds.elastic import stretched

LEVELS = (0.1, 0.5, 0.9)


@dataclass(frozen=True, slots=True)
class Guess:
    job_id: str
    how: str
    done: float
    left: tuple[float, ...]
    """At each of LEVELS."""


class Watched(Ones):
    """`ones`, which also keeps what it believed of the work left."""

    def __init__(self, cluster: Cluster, seed: int = 0, arg: str = "") -> None:
        super().__init__(cluster, seed, arg)
        self.guesses: list[Guess] = []

    def _round(self, view: View, gpus: int) -> Round:
        now = super()._round(view, gpus)
        furthest: dict[str | None, float] = {}
        reported = [job for job in now.jobs if job.report is not None and job.report.progress > 0]
        for job in reported:
            furthest[job.job.workload] = max(furthest.get(job.job.workload, 0.0), _done(job))
        for job in reported:
            left = self._beliefs.left(job, furthest[job.job.workload])
            at = np.interp(LEVELS, QUANTILES, left) if len(left) > 1 else np.repeat(left, len(LEVELS))
            self.guesses.append(Guess(job.id, self._how(job), _done(job), tuple(at.tolist())))
        return now

    def _how(self, job: JobView) -> str:
        if self._tuning.by_name:
            known = job.job.workload in self._beliefs.finished_names
            return "finished jobs of its name" if known else "the furthest of its name"
        return "the work done" if self._beliefs.left_by_metric(job) is None else "the path of its metric"


def _done(job: JobView) -> float:
    return job.report.progress if job.report else 0.0


@dataclass(frozen=True, slots=True)
class Case:
    inputs: Inputs
    arg: str
    seed: int


Row = tuple[str, str, float, tuple[bool, ...]]
"""Job, how it was known, the median's distance from the truth, and whether the truth lay below each level."""


def run_case(case: Case) -> list[Row]:
    scenario = load(case.inputs, case.seed)
    assert scenario.tables is not None, "the inputs are Pollux's"
    cluster = parse_cluster(scenario.gpus)
    policy = Watched(cluster, case.seed, case.arg)
    world = make_world(scenario, cluster, policy, case.seed)
    engine = Engine(cluster, policy, costs=scenario.costs.told())
    VirtualBody(engine, world, scenario.costs, (), scenario.faults).run(scenario.trace)
    marks = {one.job.id: scenario.tables[one.job.workload or ""].epoch_marks for one in scenario.trace}
    works = {one.job.id: stretched(marks[one.job.id], one.stretch)[-1] for one in scenario.trace}
    rows = []
    for guess in policy.guesses:
        truth = works[guess.job_id] - guess.done
        if truth > 0:
            apart = abs(log(guess.left[1] / truth))
            rows.append((guess.job_id, guess.how, apart, tuple(truth < level for level in guess.left)))
    return rows


def table(runs: Sequence[list[Row]]) -> dict[str, Any]:
    """By kind; each job of each run counts once."""
    by_job: dict[str, dict[tuple[int, str], list[Row]]] = {}
    for number, rows in enumerate(runs):
        for row in rows:
            by_job.setdefault(row[1], {}).setdefault((number, row[0]), []).append(row)
    found: dict[str, Any] = {}
    for how, jobs in sorted(by_job.items()):
        below = [fmean(fmean(row[3][at] for row in rows) for rows in jobs.values()) for at in range(len(LEVELS))]
        apart = fmean(fmean(row[2] for row in rows) for rows in jobs.values())
        figures = {f"below_{round(100 * level)}_pct": part for level, part in zip(LEVELS, below, strict=True)}
        found[how] = {"jobs": len(jobs), **figures, "median_off_log": apart}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profiles", type=Path, required=True, help="folder with a folder of tables for each model")
    parser.add_argument("--workloads", type=Path, nargs="+", required=True, help="CSV files of jobs")
    parser.add_argument("--length-jitter", type=float, default=0.7)
    parser.add_argument("--seeds", default="1-5", help="of the lengths")
    parser.add_argument("--gpus", default=GPUS)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    args = parser.parse_args()
    inputs = elastic_inputs(args.workloads, args.profiles, args.gpus, length_jitter=args.length_jitter)
    cases = {arg: [Case(one, arg, seed) for one in inputs for seed in parse_seeds(args.seeds)] for arg in ("", "-name")}
    done = dict(in_parallel(run_case, [case for them in cases.values() for case in them], args.workers))
    found: dict[str, Any] = {"length_jitter": args.length_jitter, "seeds": args.seeds}
    found |= {
        "with names": table([done[case] for case in cases[""]]),
        "without names": table([done[case] for case in cases["-name"]]),
    }
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"{Path(__file__).name}: {error}")
