"""Runs in Pollux's world, many at once, and what is told of them: shared by the benchmarks of elastic policies.

A policy without randomness runs once, unless its workload is random: lengths with a jitter differ from seed to seed,
and then it is compared with the others seed by seed.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # matrices are tiny: threads would only burn CPU time

import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from math import sqrt
from pathlib import Path
from statistics import fmean
from typing import Any

from gpuloom.contract.view import MoveCosts
from gpuloom.errors import InputError
from gpuloom.gpus.cluster import parse_cluster
from gpuloom.sim.compare.runs import in_parallel
from gpuloom.sim.compare.statistics import mean_and_error
from gpuloom.sim.fairness import finish_time_fairness
from gpuloom.sim.inputs import Inputs, load
from gpuloom.sim.run import simulate
from gpuloom.sim.scenario import Scenario
from gpuloom.sim.worlds.elastic import ElasticWorld

GPUS = "16x4xV100-16GB"
RANDOM = {"pollux", "ones-paper"}
"""Policies that throw dice."""


@dataclass(frozen=True, slots=True)
class Case:
    """One run, small enough to send to a worker, which reads the inputs itself."""

    inputs: Inputs
    policy: str
    seed: int
    told: MoveCosts | None = None
    """What the policy believes that moving a job costs; None: the truth."""

    @property
    def workload(self) -> str:
        return self.inputs.trace.stem if self.inputs.trace else ""


@dataclass(frozen=True, slots=True)
class Run:
    case: Case
    figures: Mapping[str, Any]
    """The summary of the run; empty if it did not end."""
    jct_s: Mapping[str, float]
    """By id of every completed job."""
    fairness: Mapping[str, float]
    cpu_s: float
    stuck: str | None = None
    """Why it did not end."""


def run_case(case: Case) -> Run:
    scenario = replace(load(case.inputs, case.seed), told=case.told)
    began = time.process_time()
    try:
        result = simulate(scenario, case.policy, case.seed)
    except InputError as error:
        if "never places" not in str(error):
            raise
        return Run(case, {}, {}, {}, time.process_time() - began, str(error))
    cpu_s = time.process_time() - began
    jct_s = dict(zip(result.outcomes.ids, result.outcomes.jct_s, strict=True))
    world, entries = fair_world(scenario), {entry.job.id: entry for entry in scenario.trace}
    gpus = len(world.cluster)
    fairness = finish_time_fairness(
        result.outcomes, lambda job_id, parts: world.shared_s(entries[job_id], gpus / parts)
    )
    return Run(case, asdict(result.summary), jct_s, fairness, cpu_s)


def fair_world(scenario: Scenario) -> ElasticWorld:
    """The world that fair shares are worked out in: the same for every policy."""
    assert scenario.tables is not None, "the inputs are Pollux's"
    return ElasticWorld(scenario.tables, parse_cluster(scenario.gpus), adaptive=True, start_s=scenario.costs.start_s)


def cases_for(inputs: Sequence[Inputs], policies: Sequence[str], seeds: Sequence[int]) -> list[Case]:
    """Every workload with every policy, with all seeds where anything is random; the slow ones first."""
    cases = [
        Case(one, policy, seed)
        for policy, one in product(sorted(policies, key=lambda name: name not in RANDOM), inputs)
        for seed in (seeds if policy in RANDOM or one.length_jitter else seeds[:1])
    ]
    return list(dict.fromkeys(cases))


def run_cases(cases: Sequence[Case], workers: int | None = None) -> list[Run]:
    """In the order of the cases; how far it is, on a terminal."""
    done: dict[Case, Run] = {}
    for case, run in in_parallel(run_case, cases, workers or os.cpu_count() or 1):
        done[case] = run
        if sys.stderr.isatty():
            end = "" if len(done) < len(cases) else "\n"
            print(f"\r{len(done)} of {len(cases)} runs", end=end, file=sys.stderr, flush=True)
    return [done[case] for case in cases]


def elastic_inputs(
    workloads: Sequence[Path],
    profiles: Path,
    gpus: str = GPUS,
    *,
    rescale_s: float | None = None,
    resume_s: float | None = None,
    length_jitter: float = 0.0,
    pressure: float = 1.0,
) -> list[Inputs]:
    """One for each workload. Without `rescale_s` a job that is to have other GPUs is stopped and started again."""
    if len({path.stem for path in workloads}) < len(workloads):
        raise InputError("--workloads: two of them have the same name")
    given = {"rescale_s": rescale_s, "restart_s": resume_s}
    costs = tuple(f"{name}={value:g}" for name, value in given.items() if value is not None)
    return [
        Inputs(path, "pollux", gpus, profiles=profiles, costs=costs, load=pressure, length_jitter=length_jitter)
        for path in workloads
    ]


def split_policies(texts: Sequence[str]) -> list[str]:
    """`tiresias,ones:-name,-ranks,pollux`: a comma before a dash belongs to the policy's own argument."""
    return list(dict.fromkeys(name for text in texts for name in re.split(r",(?!-)", text) if name))


# ---- ratios ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ratio:
    value: float
    stderr: float | None
    """By the dice of the runs; None where there were none, or too few."""


def ratio(ours: Sequence[Run], theirs: Sequence[Run], name: str) -> Ratio | None:
    """Of a figure on one workload: seed by seed where both ran with the same seeds, else mean to mean."""
    if not ours or not theirs or any(run.figures.get(name) is None for run in (*ours, *theirs)):
        return None
    over, under = ({run.case.seed: float(run.figures[name]) for run in runs} for runs in (ours, theirs))
    if [*over] == [*under]:
        value, error = mean_and_error([over[seed] / under[seed] for seed in over])
        assert value is not None, "there is a run"
        return Ratio(value, error)
    (a, a_error), (b, b_error) = (mean_and_error([*values.values()]) for values in (over, under))
    assert a is not None, "there is a run"
    assert b is not None, "there is a run"
    apart = sqrt(((a_error or 0.0) / a) ** 2 + ((b_error or 0.0) / b) ** 2)
    return Ratio(a / b, a / b * apart or None)


def mean_ratio(ratios: Sequence[Ratio]) -> dict[str, float | None]:
    """Over workloads. Two errors: by dice, the workloads taken as given; and as if workloads were drawn too."""
    value, spread = mean_and_error([one.value for one in ratios])
    errors = [one.stderr for one in ratios if one.stderr is not None]
    dice = sqrt(sum(error**2 for error in errors)) / len(ratios) if errors else None
    return {"mean": value, "stderr": dice, "stderr_over_workloads": spread}


def worst_against(ours: Sequence[Run], theirs: Sequence[Run]) -> tuple[float, str] | None:
    """The largest ratio of a job's JCT to its mean JCT in their runs on the same jobs, and its id."""
    worst: tuple[float, str] | None = None
    for run in ours:
        same = [peer for peer in theirs if not run.case.inputs.length_jitter or peer.case.seed == run.case.seed]
        for job_id, jct_s in run.jct_s.items():
            peers_s = [peer.jct_s[job_id] for peer in same if job_id in peer.jct_s]
            if peers_s and (worst is None or jct_s / fmean(peers_s) > worst[0]):
                worst = jct_s / fmean(peers_s), job_id
    return worst


def without_end(runs: Sequence[Run]) -> dict[str, Any]:
    """What has to be said of runs in which not everybody completed; nothing, if everybody has."""
    left = {run.case.seed: run.figures["jobs"] - run.figures["completed"] for run in runs if run.figures}
    told: dict[str, Any] = {f"seed {seed}": f"{jobs} jobs not completed" for seed, jobs in left.items() if jobs}
    told |= {f"seed {run.case.seed}": run.stuck for run in runs if run.stuck}
    return {"did_not_end": told} if told else {}
