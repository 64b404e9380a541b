"""What each thing that `miso` does beyond MISO's paper is worth: the policy without it, against the policy with all.

    python benchmarks/miso_levers.py --data ../shared/data/miso --seeds 1-20

Each lever alone is turned off (`miso:-NAME`), on the same seeds, in the authors' experiment and at twice its load; the
ratio of mean JCTs is paired by seed, and above 1 means that the lever helps. Two are not switches of the policy. For
"keeping", a job whose instance stays while others are cut loses 15 s (a cut of 4 s and a restart of about 11 s), as if
everybody had to be stopped. For "guesses", owners guess the length of their jobs, off by up to a factor of 2. Levers
overlap: what one does another may make up for, so that the worths do not add up.
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
from gpuloom.policies.miso.tuning import LEVERS
from gpuloom.sim.compare.runs import Task, run_all
from gpuloom.sim.compare.statistics import mean_and_error
from gpuloom.sim.inputs import Inputs

GUESSES = 2.0
STAY = "stay_s=15"
WHAT = {
    "layouts": "all legal layouts, 4g+3g included",
    "placement": "placement by marginal gain, not by the fewest jobs",
    "choosing": "a probe only where the answer could change the cut",
    "memory": "what is known of a workload holds for its next job",
    "telemetry": "speeds that jobs report correct predictions, and cuts",
    "costs": "what moves cost is counted",
    "migration": "jobs move between GPUs",
    "skipping": "nobody waits behind a job that does not fit",
    "sizes": "short and young jobs count more",
}
NO_SWITCH = {"keeping": "instances that stay keep running", "guesses": "owners guess lengths within a factor of 2"}
assert set(WHAT) == set(LEVERS)


def measure(inputs: Inputs, seeds: Sequence[int]) -> list[dict[str, Any]]:
    off = {name: Task(inputs, f"miso:-{name}", 0) for name in WHAT}
    off["keeping"] = Task(replace(inputs, costs=(STAY,)), "miso", 0)
    guessed = Task(replace(inputs, guesses=GUESSES), "miso", 0)
    off["guesses"] = Task(inputs, "miso", 0)
    on = dict.fromkeys(off, Task(inputs, "miso", 0)) | {"guesses": guessed}
    kinds = list(dict.fromkeys([*on.values(), *off.values()]))
    tasks = [replace(kind, seed=seed) for kind in kinds for seed in seeds]
    rows = [figures for figures, _ in run_all(tasks, os.cpu_count() or 1)]
    runs = dict(zip(tasks, rows, strict=True))
    table = []
    for name, without in off.items():
        pairs = [(runs[replace(without, seed=seed)], runs[replace(on[name], seed=seed)]) for seed in seeds]
        ratio, error = mean_and_error([less["avg_jct_s"] / full["avg_jct_s"] for less, full in pairs])
        table.append(
            {
                "lever": name,
                "what": (WHAT | NO_SWITCH)[name],
                "avg_jct_s": mean_and_error([full["avg_jct_s"] for _, full in pairs])[0],
                "without_s": mean_and_error([less["avg_jct_s"] for less, _ in pairs])[0],
                "ratio": ratio,
                "ratio_stderr": error,
                "p99_slowdown": mean_and_error([full["p99_slowdown"] for _, full in pairs])[0],
                "p99_slowdown_without": mean_and_error([less["p99_slowdown"] for less, _ in pairs])[0],
            }
        )
    return sorted(table, key=lambda row: -row["ratio"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", default="1-20")
    parser.add_argument("--output", choices=["json"], default="json")
    args = parser.parse_args()
    seeds = parse_seeds(args.seeds)
    found: dict[str, Any] = {"gpus": "8xA100-40GB", "seeds": args.seeds}
    for load in (1, 2):
        print(f"load {load}", file=sys.stderr, flush=True)
        found[f"load_{load}x"] = measure(Inputs(args.data, "miso", gap_s=60.0 / load), seeds)
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
