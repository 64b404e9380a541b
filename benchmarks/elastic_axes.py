"""`ones` against Tiresias and our own Pollux as the load and the cluster change, one at a time, in Pollux's world.

    python benchmarks/elastic_axes.py --profiles ../shared/data/pollux --workloads ../shared/data/pollux/workloads/*

Printed for each setting: the mean JCT of every policy over the workloads, and for `ones`, with and without names, the
ratios to both peers (means over workloads; a policy with dice is the mean over its seeds). Where one is above 1 the
setting is listed under "worse". A peer whose jobs ask for more GPUs than there are does not end, and has no figure.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from elastic_runs import GPUS, Run, cases_for, elastic_inputs, ratio, run_cases, without_end
from gpuloom.cli.inputs import parse_seeds
from gpuloom.errors import InputError
from gpuloom.sim.compare.statistics import mean_and_error
from gpuloom.sim.inputs import Inputs

PEERS, OURS = ("tiresias", "pollux"), ("ones", "ones:-name")
LOADS = (0.5, 0.75, 1.0, 1.5, 2.0)
NODES = (4, 8, 16, 32, 64)


def measure(inputs: Sequence[Inputs], seeds: Sequence[int], workers: int | None) -> dict[str, Any]:
    """One setting."""
    runs: dict[str, dict[str, list[Run]]] = {}
    for run in run_cases(cases_for(inputs, [*PEERS, *OURS], seeds), workers):
        runs.setdefault(run.case.policy, {}).setdefault(run.case.workload, []).append(run)
    row: dict[str, Any] = without_end([run for them in runs.values() for several in them.values() for run in several])
    for policy, by_workload in runs.items():
        row[policy] = mean_and_error([run.figures.get("avg_jct_s") for them in by_workload.values() for run in them])[0]
    for ours in OURS:
        for peer in PEERS:
            found = [ratio(them, runs[peer][workload], "avg_jct_s") for workload, them in runs[ours].items()]
            row[f"{ours} to {peer}"] = mean_and_error([None if one is None else one.value for one in found])[0]
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profiles", type=Path, required=True, help="folder with a folder of tables for each model")
    parser.add_argument("--workloads", type=Path, nargs="+", required=True, help="CSV files of jobs")
    parser.add_argument("--seeds", default="1-2")
    parser.add_argument("--loads", type=float, nargs="*", default=LOADS, help="jobs come so many times as fast")
    parser.add_argument("--nodes", type=int, nargs="*", default=NODES, help="of four GPUs")
    parser.add_argument("--rescale-s", type=float, help="jobs are resized in place; default: stopped and restarted")
    parser.add_argument("--workers", type=int, default=None, help="processes; default: one for each core")
    parser.add_argument("--output", choices=["json"], default="json")
    args = parser.parse_args()
    seeds = parse_seeds(args.seeds)
    base = elastic_inputs(args.workloads, args.profiles, GPUS, rescale_s=args.rescale_s)
    settings = {f"load {load:g}": [replace(one, load=load) for one in base] for load in args.loads}
    settings |= {
        f"{4 * nodes} GPUs": [replace(one, gpus=f"{nodes}x4xV100-16GB") for one in base] for nodes in args.nodes
    }
    rows = {name: measure(inputs, seeds, args.workers) for name, inputs in settings.items()}
    worse = [
        f"{key}, {name}"
        for name, row in rows.items()
        for key, value in row.items()
        if " to " in key and (value or 0) > 1
    ]
    print(json.dumps({"seeds": args.seeds, "rescale_s": args.rescale_s, "settings": rows, "worse": worse}, indent=2))


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"{Path(__file__).name}: {error}")
