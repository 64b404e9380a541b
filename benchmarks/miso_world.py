"""MISO's world: the authors' experiment (SoCC'22), whole GPUs, static cuts and the Oracle, against their own figures.

    python benchmarks/miso_world.py --data ../shared/data/miso --seeds 1-5 --policies "whole-fifo static:3,2,2 oracle"

Prints per policy the mean over seeds of the mean JCT, its standard error, and the ratio to the first policy paired by
seed; and the published figure where the setting is the published one. Any folder in that format will do.
"""

import argparse
import json
import os
from pathlib import Path

from gpuloom.cli.inputs import parse_seeds
from gpuloom.sim.compare import run_all, summarise, tasks_for
from gpuloom.sim.scenario import Inputs

POLICIES = "whole-fifo whole-sjf static:3,2,2 best-static mps-only oracle miso-paper miso"
PUBLISHED_S = {
    ("8xA100-40GB", None, None): {"whole-fifo": 2541, "whole-sjf": 1231, "static:3,2,2": 1244, "static:4,2,1": 1228,
                                  "static:3,3": 1262, "oracle": 1065, "miso-paper": 1102},
    ("40xA100-40GB", 1000, 12.0): {"whole-fifo": 4875, "static:3,2,2": 1280, "oracle": 1188, "miso-paper": 1234},
}  # fmt: skip
"""Mean JCT of the authors' controller, run on its own measurements: seeds 1-5 on 8 GPUs, 1-3 on 40."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", default="1-5")
    parser.add_argument("--policies", default=POLICIES)
    parser.add_argument("--gpus", default="8xA100-40GB")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--gap-s", type=float)
    parser.add_argument("--output", choices=["json"], default="json")
    args = parser.parse_args()
    names = args.policies.split()
    inputs = Inputs(args.data, "miso", args.gpus, args.jobs, args.gap_s)
    tasks = tasks_for(inputs, names, parse_seeds(args.seeds), timelines=False)
    rows = [figures for figures, _ in run_all(tasks, os.cpu_count() or 1)]
    published = PUBLISHED_S.get((args.gpus, args.jobs, args.gap_s), {})
    policies = {}
    for row in summarise(rows, names[0]):
        name = row.pop("policy")
        row["ratio_to"] = {names[0]: row.pop(f"ratio_to_{names[0]}"), "stderr": row.pop("ratio_stderr")}
        if name in published:
            row |= {"published_s": published[name], "off_by": row["avg_jct_s"] / published[name] - 1}
        policies[name] = row
    print(json.dumps({"gpus": args.gpus, "seeds": args.seeds, "policies": policies}, indent=2))


if __name__ == "__main__":
    main()
