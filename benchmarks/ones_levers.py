"""What each thing that `ones` does is worth: the policy without it, against the policy with all.

    python benchmarks/ones_levers.py --profiles ../shared/data/pollux --workloads ../shared/data/pollux/workloads/*

Each lever alone is turned off (`ones:-NAME`) on the same workloads, where every change of a job's GPUs is a restart of
30 s, and where jobs are resized in place in `--rescale-s` seconds. The ratio of mean JCTs is the mean over workloads
(and, with `--length-jitter`, over seeds) with its standard error over these; above 1 means that the lever helps. One is
no switch of the policy: for "costs" it is told the costs of the other world, so that it moves too often or too seldom.
Levers overlap: what one does another may make up for, so that the worths do not add up.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from elastic_runs import GPUS, Run, cases_for, elastic_inputs, run_cases, without_end
from gpuloom.cli.inputs import parse_seeds
from gpuloom.contract.view import MoveCosts
from gpuloom.errors import InputError
from gpuloom.policies.ones.tuning import LEVERS as ALL_LEVERS
from gpuloom.sim.compare.statistics import mean_and_error
from gpuloom.sim.inputs import POLLUX_COSTS, Inputs

LEVERS = [name for name in ALL_LEVERS if name != "slices"]
"""Of jobs that can do with a part of a GPU there are none here: ones_slices.py has what they are worth."""
WHAT = {
    "name": "jobs of one name learn from each other: step times and lengths",
    "metric": "what is left of jobs without a name follows from the path of their metric too",
    "ranks": "who has less left counts more, by rank",
    "hysteresis": "what a change costs is weighed against what it brings",
    "start": "an unknown job may start on a whole node",
    "growth": "a job may grow to three times what was seen, not two",
    "noise": "gradient noise is taken to grow with the batch",
    "bound": "who has had too little for its age is given its part",
}
NO_SWITCH = {"costs": "what moving costs is known"}


def measure(
    inputs: Sequence[Inputs], believed_s: float, seeds: Sequence[int], workers: int | None
) -> list[dict[str, Any]]:
    """A row for each lever. `believed_s`: what a change is taken to cost by a policy that is told wrong costs."""
    full = cases_for(inputs, ["ones"], seeds)
    variants = {name: [replace(case, policy=f"ones:-{name}") for case in full] for name in LEVERS}
    wrong = MoveCosts(POLLUX_COSTS.start_s, believed_s, believed_s)
    variants["costs"] = [replace(case, told=wrong) for case in full]
    cases = [*full, *(case for them in variants.values() for case in them)]
    runs = dict(zip(cases, run_cases(cases, workers), strict=True))
    rows = [row_of(name, [runs[case] for case in full], [runs[case] for case in off]) for name, off in variants.items()]
    return sorted(rows, key=lambda row: -(row["ratio"] or 0.0))


def row_of(name: str, full: Sequence[Run], less: Sequence[Run]) -> dict[str, Any]:
    row: dict[str, Any] = {"lever": name, "what": (WHAT | NO_SWITCH)[name]} | without_end([*full, *less])
    for figure, word in (("avg_jct_s", ""), ("p99_jct_s", "p99_")):
        pairs = [(one.figures.get(figure), other.figures.get(figure)) for one, other in zip(full, less, strict=True)]
        ratios = [without / all_ if all_ and without else None for all_, without in pairs]
        value, error = mean_and_error(ratios)
        row |= {figure: mean_and_error([all_ for all_, _ in pairs])[0]}
        row |= {f"{word}without_s": mean_and_error([without for _, without in pairs])[0]}
        row |= {f"{word}ratio": value, f"{word}ratio_stderr": error}
    row["by_workload"] = workload_ratios(full, less)
    moves = [
        [run.figures["restarts"] + run.figures["rescales"] for run in runs if run.figures] for runs in (full, less)
    ]
    return row | {"moves": mean_and_error(moves[0])[0], "moves_without": mean_and_error(moves[1])[0]}


def workload_ratios(full: Sequence[Run], less: Sequence[Run]) -> dict[str, float | None]:
    """Of mean JCTs, by workload, in the mean over seeds."""
    found: dict[str, list[float | None]] = {}
    for one, other in zip(full, less, strict=True):
        ours, theirs = other.figures.get("avg_jct_s"), one.figures.get("avg_jct_s")
        found.setdefault(one.case.workload, []).append(ours / theirs if ours and theirs else None)
    return {workload: mean_and_error(ratios)[0] for workload, ratios in found.items()}


def main() -> None:
    if set(WHAT) != set(LEVERS):
        raise InputError(f"levers without a description: {', '.join(set(WHAT) ^ set(LEVERS))}")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profiles", type=Path, required=True, help="folder with a folder of tables for each model")
    parser.add_argument("--workloads", type=Path, nargs="+", required=True, help="CSV files of jobs")
    parser.add_argument("--seeds", default="1-5", help="of the lengths, with --length-jitter")
    parser.add_argument("--gpus", default=GPUS)
    parser.add_argument("--rescale-s", type=float, default=1.0)
    parser.add_argument("--length-jitter", type=float, default=0.0)
    parser.add_argument("--load", type=float, default=1.0)
    parser.add_argument("--workers", type=int, default=None)
    parser.add_argument("--output", choices=["json"], default="json")
    args = parser.parse_args()
    seeds = parse_seeds(args.seeds)
    how = {"length_jitter": args.length_jitter, "pressure": args.load}
    restarted = elastic_inputs(args.workloads, args.profiles, args.gpus, **how)
    resized = elastic_inputs(args.workloads, args.profiles, args.gpus, rescale_s=args.rescale_s, **how)
    found: dict[str, Any] = {"gpus": args.gpus, "seeds": args.seeds if args.length_jitter else None}
    found |= {"workloads": [path.stem for path in args.workloads], "length_jitter": args.length_jitter}
    found["restarted_30_s"] = measure(restarted, args.rescale_s, seeds, args.workers)
    found[f"resized_{args.rescale_s:g}_s"] = measure(resized, POLLUX_COSTS.start_s, seeds, args.workers)
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"{Path(__file__).name}: {error}")
