"""Elastic jobs and single-GPU jobs in one cluster: what it is worth that `ones` cuts GPUs for the latter.

    python benchmarks/ones_slices.py --profiles ../shared/data/pollux --workloads ../shared/data/pollux/workloads/* \\
        --miso ../shared/data/miso --seeds 1-10

A seed takes one of Pollux's workloads in turn, keeps a random part of its jobs (--keep), and lets MISO's one-GPU jobs
arrive beside them over the same hours (--gap-s between two, in the mean; half as much for the first third). The cluster
is one of A100s; elastic jobs advance by Pollux's tables, measured on other GPUs, sliceable ones by MISO's figures.
Compared with `ones`: `ones:-slices`, which gives every job at least a whole GPU; and a fixed division, k GPUs for
single-GPU jobs under `miso` and the rest for elastic ones under `ones`, with the k that is best for the mean over all
seeds, found in hindsight. Mean JCTs in seconds, and ratios to `ones` seed by seed with standard errors.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # matrices are tiny: threads would only burn CPU time

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

from gpuloom.cli.inputs import parse_seeds
from gpuloom.errors import InputError
from gpuloom.sim.compare.runs import in_parallel
from gpuloom.sim.compare.statistics import mean_and_error
from gpuloom.sim.costs import Costs
from gpuloom.sim.inputs import Inputs, load
from gpuloom.sim.run import simulate
from gpuloom.sim.scenario import Scenario
from gpuloom.work.model import Kind, TraceJob

NODES, NODE_SIZE, MODEL = 4, 4, "A100-40GB"
HOURS = 8
"""Over which Pollux's jobs arrive."""
KINDS = ALL, ELASTIC, SLICED = "all", "elastic", "sliced"


@dataclass(frozen=True, slots=True)
class Case:
    """One run, small enough to send to a worker, which reads the inputs itself."""

    workload: Path
    profiles: Path
    miso: Path
    seed: int
    keep: float
    gap_s: float
    rescale_s: float | None
    policy: str
    jobs: str = ALL
    """Or only one kind of them."""
    gpus: int = NODES * NODE_SIZE


def written(gpus: int) -> str:
    """So many GPUs in nodes, the last of which may be smaller."""
    full, rest = divmod(gpus, NODE_SIZE)
    parts = [f"{full}x{NODE_SIZE}x{MODEL}"] * bool(full) + [f"1x{rest}x{MODEL}"] * bool(rest)
    return ",".join(parts)


@cache
def elastic_part(workload: Path, profiles: Path, rescale_s: float | None) -> Scenario:
    costs = () if rescale_s is None else (f"rescale_s={rescale_s:g}",)
    return load(Inputs(workload, "pollux", written(NODES * NODE_SIZE), profiles=profiles, costs=costs), 0)


def scenario_of(case: Case) -> Scenario:
    elastic = elastic_part(case.workload, case.profiles, case.rescale_s)
    jobs = int(HOURS * 3600 / case.gap_s)
    sliced = load(Inputs(case.miso, "miso", jobs=jobs, gap_s=case.gap_s), case.seed)
    kept = thinned(elastic.trace, case.keep, case.seed) if case.jobs != SLICED else []
    both = [*kept, *(sliced.trace if case.jobs != ELASTIC else ())]
    return Scenario(
        sorted(both, key=lambda entry: entry.job.submit_s),
        written(case.gpus),
        figures=sliced.figures,
        tables=None if case.jobs == SLICED else elastic.tables,
        probers=sliced.probers,
        costs=Costs() if case.jobs == SLICED else elastic.costs,
        slice_costs=Costs(),
    )


def thinned(trace: Sequence[TraceJob], keep: float, seed: int) -> list[TraceJob]:
    dice = Random(seed)
    return [entry for entry in trace if dice.random() < keep]


def run_case(case: Case) -> dict[str, float]:
    """JCT of each job, by its id after its kind."""
    scenario = scenario_of(case)
    result = simulate(scenario, case.policy, case.seed)
    if result.summary.completed != result.summary.jobs or result.summary.plans_rejected:
        raise InputError(f"{case}: {result.summary.completed} of {result.summary.jobs} jobs completed")
    kinds = {entry.job.id: entry.job.kind for entry in scenario.trace}
    rows = zip(result.outcomes.ids, result.outcomes.jct_s, strict=True)
    return {f"{ELASTIC if kinds[job_id] is Kind.ELASTIC else SLICED} {job_id}": jct_s for job_id, jct_s in rows}


def means(jct_s: Mapping[str, float]) -> dict[str, float]:
    """Of all jobs, and of each kind."""
    chosen = {kind: [took_s for name, took_s in jct_s.items() if kind in (ALL, name.split()[0])] for kind in KINDS}
    return {kind: fmean(them) for kind, them in chosen.items() if them}


def row_of(name: str, ours: Sequence[Mapping[str, float]], theirs: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """`theirs`, and its ratios to ours, which are above 1 where ours is faster."""
    row: dict[str, Any] = {"policy": name}
    for kind in KINDS:
        value, error = mean_and_error([one[kind] for one in theirs])
        ratio, ratio_error = mean_and_error([other[kind] / one[kind] for one, other in zip(ours, theirs, strict=True)])
        row |= {f"{kind}_jct_s": value, f"{kind}_jct_s_stderr": error}
        row |= {f"{kind}_ratio": ratio, f"{kind}_ratio_stderr": ratio_error}
    return row


def measure(base: Sequence[Case], policies: Sequence[str], divisions: Sequence[int], workers: int) -> dict[str, Any]:
    whole = [replace(case, policy=policy) for policy in policies for case in base]
    total = NODES * NODE_SIZE
    cut = [replace(case, policy="miso", jobs=SLICED, gpus=k) for k in divisions for case in base]
    rest = [replace(case, policy="ones", jobs=ELASTIC, gpus=total - k) for k in divisions for case in base]
    found = dict(in_parallel(run_case, [*rest, *cut, *whole], workers))
    by_policy = {policy: [means(found[replace(case, policy=policy)]) for case in base] for policy in policies}
    ours = by_policy[policies[0]]
    rows = [row_of(policy, ours, them) for policy, them in by_policy.items()]
    for k in divisions:
        pairs = [
            found[replace(case, policy="miso", jobs=SLICED, gpus=k)]
            | found[replace(case, policy="ones", jobs=ELASTIC, gpus=total - k)]
            for case in base
        ]
        rows.append(row_of(f"{k} GPUs for slices, {total - k} for elastic jobs", ours, [*map(means, pairs)]))
    best = min(rows[len(policies) :], key=lambda row: row["all_jct_s"], default=None)
    jobs = [len(found[replace(case, policy=policies[0])]) for case in base]
    return {"jobs": fmean(jobs), "rows": rows, "best_division": best and best["policy"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profiles", type=Path, required=True, help="folder with a folder of tables for each model")
    parser.add_argument("--workloads", type=Path, nargs="+", required=True, help="CSV files of elastic jobs")
    parser.add_argument("--miso", type=Path, required=True, help="folder of MISO's experiment")
    parser.add_argument("--seeds", default="1-10")
    parser.add_argument("--keep", type=float, default=0.15, help="part of the elastic jobs")
    parser.add_argument("--gap-s", type=float, nargs="+", default=[120.0, 60.0], help="between two single-GPU jobs")
    parser.add_argument("--rescale-s", type=float, default=None, help="elastic jobs are resized in place")
    parser.add_argument("--policies", nargs="+", default=["ones", "ones:-slices"], help="the first is the yardstick")
    parser.add_argument("--divisions", type=int, nargs="*", default=[1, 2, 3, 4, 6, 8])
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--output", choices=["json"], default="json")
    args = parser.parse_args()
    if not 0 < args.keep <= 1:
        raise InputError(f"--keep is {args.keep:g}: expected a part of the elastic jobs, above 0 and at most 1")
    if not all(1 <= gap_s <= HOURS * 3600 for gap_s in args.gap_s):
        raise InputError(f"--gap-s: expected seconds from 1 to {HOURS * 3600}")
    workloads, seeds = sorted(args.workloads), parse_seeds(args.seeds)
    found: dict[str, Any] = {"gpus": written(NODES * NODE_SIZE), "seeds": args.seeds, "keep": args.keep}
    for gap_s in args.gap_s:
        base = [
            Case(workloads[seed % len(workloads)], args.profiles, args.miso, seed, args.keep, gap_s, args.rescale_s, "")
            for seed in seeds
        ]
        found[f"gap_{gap_s:g}_s"] = measure(base, args.policies, args.divisions, args.workers)
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"{Path(__file__).name}: {error}")
