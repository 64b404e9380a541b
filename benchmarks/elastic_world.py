"""Pollux's world (OSDI'21): elastic policies on its measured tables, against the authors' figures and our own Pollux.

    python benchmarks/elastic_world.py --profiles ../shared/data/pollux --workloads ../shared/data/pollux/workloads/*
    python benchmarks/elastic_world.py ... --rescale-s 1 --length-jitter 0.7 --load 2

Prints for each policy and workload the mean JCT (over seeds, with its standard error), its tail, finish-time fairness
(JCT over what one of N equal parts of the GPUs would have taken, N = live jobs in the mean over the job's life; above 1
is unfair), how often jobs moved and the CPU seconds of a run; the published figure with the ratio to it, where the
workload is one of the authors' (told by its content, not by its name) at their settings; and the ratio to our own
Pollux at the same costs. Then for each policy the mean of those ratios. Any workload in that format will do. A policy
without randomness runs once, unless lengths are random (`--length-jitter`).
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from elastic_runs import (
    GPUS,
    Run,
    cases_for,
    elastic_inputs,
    mean_ratio,
    ratio,
    run_cases,
    split_policies,
    without_end,
    worst_against,
)
from gpuloom.cli.inputs import parse_seeds
from gpuloom.errors import InputError
from gpuloom.sim.compare.statistics import mean_and_error
from gpuloom.sim.inputs import Inputs, load
from gpuloom.work.model import TraceJob

POLICIES = "tiresias,optimus,pollux,ones-paper,ones,ones:-name"
PEER = "pollux"
FIRST_JOBS = (
    ("cifar10-0", 107.0, "deepspeech2-1", 110.0),
    ("cifar10-0", 498.0, "ncf-1", 1427.0),
    ("ncf-0", 791.0, "cifar10-1", 1151.0),
    ("bert-0", 259.0, "cifar10-1", 289.0),
)
"""By which the authors' workloads 1 to 4 are known: names and times of their first two jobs."""
PUBLISHED_S = {
    "tiresias": (2473.65, 5144.9625, 3876.25625, 3280.2625),
    "optimus": (4087.0625, 6913.875, 3944.00625, 5967.75),
    "pollux": (2089.0, 3323.0, 2188.0, 2721.0),
}
"""Mean JCT of workloads 1 to 4 in the authors' simulator: load 1.0, 64 GPUs, 30 s for every change."""
MEANS = "p99_jct_s max_jct_s makespan_s restarts rescales"


def published_s(inputs: Inputs, trace: Sequence[TraceJob], policy: str) -> float | None:
    """What the authors found, if this is one of their workloads at their settings."""
    theirs = inputs.gpus == GPUS and not inputs.costs and not inputs.length_jitter and inputs.load == 1.0
    if not theirs or policy not in PUBLISHED_S or len(trace) != 160:
        return None
    first, second = (entry.job for entry in trace[:2])
    known = (first.id, first.submit_s, second.id, second.submit_s)
    return PUBLISHED_S[policy][FIRST_JOBS.index(known)] if known in FIRST_JOBS else None


def row_of(runs: Sequence[Run], known_s: float | None, peers: Sequence[Run]) -> dict[str, Any]:
    """One policy on one workload."""
    ended = [run for run in runs if run.jct_s]
    row: dict[str, Any] = {"runs": len(runs), "cpu_s_per_run": round(fmean(run.cpu_s for run in runs), 2)}
    row |= without_end(runs)
    if not ended:
        return row
    jct_s, error_s = mean_and_error([run.figures["avg_jct_s"] for run in ended])
    row |= {"avg_jct_s": jct_s, "stderr_s": error_s}
    row |= {name: fmean(run.figures[name] for run in ended) for name in MEANS.split()}
    if len(ended) > 1:
        row["by_seed_s"] = [run.figures["avg_jct_s"] for run in ended]
    rho, job_id = max((rho, job_id) for run in ended for job_id, rho in run.fairness.items())
    mean_rho = fmean(fmean(run.fairness.values()) for run in ended)
    row["fairness"] = {"mean": mean_rho, "max": rho, "worst_job": job_id}
    if known_s is not None and jct_s is not None:
        row |= {"published_s": known_s, "ratio": jct_s / known_s}
    found = ratio(ended, peers, "avg_jct_s")
    if found is not None:
        row[f"ratio_to_{PEER}"], row["ratio_stderr"] = found.value, found.stderr
    return row


def over_all(by_workload: Mapping[str, Sequence[Run]], peers: Mapping[str, Sequence[Run]]) -> dict[str, Any]:
    """One policy on all workloads, against Pollux on the same ones."""
    found: dict[str, Any] = {}
    for name, figure in (("avg_jct", "avg_jct_s"), ("p99_jct", "p99_jct_s")):
        ratios = [ratio(runs, peers[workload], figure) for workload, runs in by_workload.items()]
        if all(ratios):
            found[f"{name}_to_{PEER}"] = mean_ratio([one for one in ratios if one is not None])
    worst = [
        (*against, workload)
        for workload, runs in by_workload.items()
        if (against := worst_against(runs, peers[workload])) is not None
    ]
    if worst:
        most, job_id, workload = max(worst)
        found[f"worst_job_to_{PEER}"] = {"ratio": most, "job": job_id, "workload": workload}
    rho = [one for runs in by_workload.values() for run in runs for one in run.fairness.values()]
    if rho:
        found |= {"fairness_mean": fmean(rho), "fairness_max": max(rho)}
        found["unfair_part"] = sum(one > 1 for one in rho) / len(rho)
    means = [mean_and_error([run.figures.get("avg_jct_s") for run in runs])[0] for runs in by_workload.values()]
    return {"avg_jct_s": mean_and_error(means)[0]} | found


def measure(
    inputs: Sequence[Inputs], policies: Sequence[str], seeds: Sequence[int], workers: int | None
) -> dict[str, Any]:
    runs: dict[str, dict[str, list[Run]]] = {policy: {} for policy in policies}
    for run in run_cases(cases_for(inputs, policies, seeds), workers):
        runs[run.case.policy].setdefault(run.case.workload, []).append(run)
    peers = runs.get(PEER, {one.trace.stem: [] for one in inputs if one.trace})
    traces = {one.trace.stem: (one, load(one, seeds[0]).trace) for one in inputs if one.trace}
    rows = {
        policy: {
            workload: row_of(mine, published_s(*traces[workload], policy), peers[workload])
            for workload, mine in by_workload.items()
        }
        for policy, by_workload in runs.items()
    }
    totals = {policy: over_all(by_workload, peers) for policy, by_workload in runs.items()}
    return {"policies": rows, "over_workloads": totals}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profiles", type=Path, required=True, help="folder with a folder of tables for each model")
    parser.add_argument("--workloads", type=Path, nargs="+", required=True, help="CSV files of jobs")
    parser.add_argument("--policies", action="append", help=f"repeatable, or with commas; default {POLICIES}")
    parser.add_argument("--seeds", default="1-5")
    parser.add_argument("--gpus", default=GPUS)
    parser.add_argument("--rescale-s", type=float, help="jobs are resized in place; default: stopped and restarted")
    parser.add_argument("--resume-s", type=float, help="from a checkpoint to the first step; default 30")
    parser.add_argument("--length-jitter", type=float, default=0.0, help="sigma of a lognormal factor of every length")
    parser.add_argument("--load", type=float, default=1.0, help="jobs come so many times as fast")
    parser.add_argument("--workers", type=int, default=None, help="processes; default: one for each core")
    parser.add_argument("--output", choices=["json"], default="json")
    args = parser.parse_args()
    inputs = elastic_inputs(
        args.workloads,
        args.profiles,
        args.gpus,
        rescale_s=args.rescale_s,
        resume_s=args.resume_s,
        length_jitter=args.length_jitter,
        pressure=args.load,
    )
    found = measure(inputs, split_policies(args.policies or [POLICIES]), parse_seeds(args.seeds), args.workers)
    settings = {"gpus": args.gpus, "seeds": args.seeds, "rescale_s": args.rescale_s, "resume_s": args.resume_s}
    settings |= {"length_jitter": args.length_jitter, "load": args.load}
    print(json.dumps(settings | found, indent=2))


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"{Path(__file__).name}: {error}")
