"""MISO's world: the authors' experiment (SoCC'22) on their measurements: whole GPUs, static cuts, their Oracle, ours.

    python benchmarks/miso_world.py --data ../shared/data/miso --seeds 1-20
    python benchmarks/miso_world.py --data ../shared/data/miso --seeds 1-10 --loads 0.5,0.75,1,1.5,2

Prints per policy the mean over seeds of the mean JCT, its standard error, and ratios paired by seed; and the published
figure where the setting is the published one. Probe and cut costs are charged. Probes of `miso` err as the shipped
predictor does on measured mixes of model families that it was not trained on (DIR/mps_mixes.csv, docs/predictor.md);
those of `miso-paper`, the peer, as its authors assumed; `--probe authors` or `--probe FILE` sets one for both. A load
of 2 means that jobs come twice as fast. Any folder in that format will do.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpuloom.cli.inputs import parse_seeds
from gpuloom.errors import InputError
from gpuloom.sim.compare.runs import run_all, tasks_for
from gpuloom.sim.compare.statistics import mean_and_error, summarise
from gpuloom.sim.inputs import AUTHORS, Inputs

POLICIES = "whole-fifo whole-sjf static:3,2,2 best-static mps-only oracle miso-paper miso"
PEERS = ("whole-fifo", "best-static", "oracle")
"""Every policy's ratio to each of these is printed."""
PUBLISHED_S = {
    ("8xA100-40GB", None, None): {"whole-fifo": 2541, "whole-sjf": 1231, "static:3,2,2": 1244, "static:4,2,1": 1228,
                                  "static:3,3": 1262, "oracle": 1065, "miso-paper": 1102},
    ("40xA100-40GB", 1000, 12.0): {"whole-fifo": 4875, "static:3,2,2": 1280, "oracle": 1188, "miso-paper": 1234},
}  # fmt: skip
"""Mean JCT of the authors' controller, run on its own measurements: seeds 1-5 on 8 GPUs, 1-3 on 40."""
MEAN_GAP_S = 60.0
"""Between jobs of the experiment, halved for the first third of them."""


def measure(inputs: Inputs, names: Sequence[str], seeds: Sequence[int]) -> dict[str, dict[str, Any]]:
    """By policy, one row each."""
    tasks = [
        replace(task, inputs=replace(inputs, probe=inputs.probe or AUTHORS)) if task.policy == "miso-paper" else task
        for task in tasks_for(inputs, names, seeds, timelines=False)
    ]

    def tell(done: int) -> None:
        print(f"\r{done} of {len(tasks)} runs", end="" if done < len(tasks) else "\n", file=sys.stderr, flush=True)

    rows = [figures for figures, _ in run_all(tasks, os.cpu_count() or 1, on_progress=tell)]
    table = {row["policy"]: row for row in summarise(rows, names[0])}
    jct_s = {(row["policy"], row["seed"]): row["avg_jct_s"] for row in rows}
    for name, row in table.items():
        for unwanted in ("policy", f"ratio_to_{names[0]}", "difference_s", "difference_stderr_s"):
            del row[unwanted]
        row["ratio_to"], row["ratio_stderr"] = {}, {}
        for peer in [peer for peer in PEERS if peer in names and peer != name]:
            ratios = [jct_s[name, seed] / jct_s[peer, seed] for seed in seeds]
            row["ratio_to"][peer], row["ratio_stderr"][peer] = mean_and_error(ratios)
        probing = name.startswith("miso")
        row["probe"] = (inputs.probe or (AUTHORS if name == "miso-paper" else "measured")) if probing else None
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", default="1-5")
    parser.add_argument("--policies", default=POLICIES)
    parser.add_argument("--gpus", default="8xA100-40GB")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--gap-s", type=float)
    parser.add_argument("--loads", help="0.5,1,2: one table for each, instead of --gap-s")
    parser.add_argument("--probe", help="authors, or a CSV of measured mixes")
    parser.add_argument("--output", choices=["json"], default="json")
    args = parser.parse_args()
    names, seeds = args.policies.split(), parse_seeds(args.seeds)
    inputs = Inputs(args.data, "miso", args.gpus, args.jobs, args.gap_s, probe=args.probe)
    found: dict[str, Any] = {"gpus": args.gpus, "jobs": args.jobs or 100, "seeds": args.seeds}
    if args.loads:
        loads = {text: float(text) for text in args.loads.split(",")}
        gap_s = args.gap_s or MEAN_GAP_S
        found["loads"] = {
            text: measure(replace(inputs, gap_s=gap_s / load), names, seeds) for text, load in loads.items()
        }
    else:
        found["policies"] = measure(inputs, names, seeds)
        for name, published_s in PUBLISHED_S.get((args.gpus, args.jobs, args.gap_s), {}).items():
            if name in found["policies"]:
                row = found["policies"][name]
                row |= {"published_s": published_s, "off_by": row["avg_jct_s"] / published_s - 1}
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"{Path(__file__).name}: {error}")
