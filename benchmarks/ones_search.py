"""Where a search would pay: `ones`, whose counts are exact, against the same with evolution or roll-outs on top.

    python benchmarks/ones_search.py --profiles ../shared/data/pollux --workloads ../shared/data/pollux/workloads/*

The policies are in ones_searches.py. Every one runs on every workload, with and without names, where a change is a
restart of 30 s and where it is a resize in place. Printed: ratios of mean and p99 JCT to `ones` alone, means over
workloads and seeds (of the search's dice) with standard errors over these; below 1 means that the search pays. And the
CPU time of a whole run against that of `ones`.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from elastic_runs import GPUS, Case, Run, elastic_inputs, run_cases
from gpuloom.cli.inputs import parse_seeds
from gpuloom.errors import InputError
from gpuloom.sim.compare.statistics import mean_and_error
from gpuloom.sim.inputs import Inputs

SEARCHES = ("Evolved", "RolledOut")
FILE = Path(__file__).with_name("ones_searches.py")
VARIANTS = {"with names": "", "without names": "-name"}


def row_of(alone: Sequence[Run], searched: Sequence[Run]) -> dict[str, Any]:
    """Runs in the same order."""
    row: dict[str, Any] = {}
    for name, figure in (("ratio", "avg_jct_s"), ("p99_ratio", "p99_jct_s")):
        pairs = zip(alone, searched, strict=True)
        value, error = mean_and_error([other.figures[figure] / one.figures[figure] for one, other in pairs])
        row |= {name: value, f"{name}_stderr": error}
    moves = [fmean(run.figures["restarts"] + run.figures["rescales"] for run in runs) for runs in (searched, alone)]
    row |= {"moves": moves[0], "moves_alone": moves[1]}
    return row | {"cpu_ratio": fmean(run.cpu_s for run in searched) / fmean(run.cpu_s for run in alone)}


def measure(inputs: Sequence[Inputs], seeds: Sequence[int], workers: int | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for words, lever in VARIANTS.items():
        plain = [Case(one, f"ones:{lever}" if lever else "ones", seeds[0]) for one in inputs]
        cases = {
            search: [Case(one, f"{FILE}:{search}:{lever}", seed) for one in inputs for seed in seeds]
            for search in SEARCHES
        }
        runs = iter(run_cases([*plain, *(case for them in cases.values() for case in them)], workers))
        alone = [next(runs) for _ in plain]
        repeated = [run for run in alone for _ in seeds]
        found[words] = {search: row_of(repeated, [next(runs) for _ in them]) for search, them in cases.items()}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profiles", type=Path, required=True, help="folder with a folder of tables for each model")
    parser.add_argument("--workloads", type=Path, nargs="+", required=True, help="CSV files of jobs")
    parser.add_argument("--seeds", default="1-2")
    parser.add_argument("--gpus", default=GPUS)
    parser.add_argument("--rescale-s", type=float, default=1.0)
    parser.add_argument("--load", type=float, default=1.0)
    parser.add_argument("--workers", type=int, default=None)
    parser.add_argument("--output", choices=["json"], default="json")
    args = parser.parse_args()
    seeds = parse_seeds(args.seeds)
    restarted = elastic_inputs(args.workloads, args.profiles, args.gpus, pressure=args.load)
    resized = elastic_inputs(args.workloads, args.profiles, args.gpus, rescale_s=args.rescale_s, pressure=args.load)
    found: dict[str, Any] = {"gpus": args.gpus, "seeds": args.seeds, "load": args.load}
    found["restarted_30_s"] = measure(restarted, seeds, args.workers)
    found[f"resized_{args.rescale_s:g}_s"] = measure(resized, seeds, args.workers)
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"{Path(__file__).name}: {error}")
