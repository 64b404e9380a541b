"""Pollux's world (OSDI'21): Tiresias, Optimus and Pollux on its measured tables, against the authors' figures.

    python benchmarks/elastic_world.py --profiles ../shared/data/pollux --workloads ../shared/data/pollux/workloads/*

Prints for each policy and workload the mean JCT (for Pollux the mean over seeds with its standard error) and the CPU
seconds of a run; and the published figure with the ratio to it, where the workload is one of the authors' (told by its
content, not by its name). Any workload in that format will do. Tiresias and Optimus have no randomness: they run once.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # matrices are tiny: threads would only burn CPU time

import argparse
import json
import time
from pathlib import Path
from statistics import fmean, stdev

from gpuloom.cli.inputs import parse_seeds
from gpuloom.sim.inputs import Inputs, load
from gpuloom.sim.run import simulate
from gpuloom.sim.scenario import Scenario

GPUS = "16x4xV100-16GB"
RANDOM = {"pollux"}
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
"""Mean JCT of workloads 1 to 4 in the authors' simulator at load 1.0."""


def published_s(scenario: Scenario, policy: str) -> float | None:
    """What the authors found, if this is one of their workloads."""
    first, second = (entry.job for entry in (*scenario.trace, *scenario.trace)[:2])
    known = (first.id, first.submit_s, second.id, second.submit_s)
    if policy not in PUBLISHED_S or len(scenario.trace) != 160 or known not in FIRST_JOBS:
        return None
    return PUBLISHED_S[policy][FIRST_JOBS.index(known)]


def measure(scenario: Scenario, policy: str, seeds: list[int]) -> dict[str, object]:
    jct_s, cpu_s = [], []
    for seed in seeds if policy in RANDOM else seeds[:1]:
        began = time.process_time()
        summary = simulate(scenario, policy, seed).summary
        cpu_s.append(time.process_time() - began)
        assert summary.avg_jct_s is not None, "a run that ends has completed jobs"
        jct_s.append(summary.avg_jct_s)
    row: dict[str, object] = {"avg_jct_s": fmean(jct_s), "runs": len(jct_s), "cpu_s_per_run": round(fmean(cpu_s), 2)}
    if len(jct_s) > 1:
        row |= {"stderr_s": stdev(jct_s) / len(jct_s) ** 0.5, "by_seed_s": jct_s}
    known_s = published_s(scenario, policy)
    if known_s is not None:
        row |= {"published_s": known_s, "ratio": fmean(jct_s) / known_s}
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profiles", type=Path, required=True, help="folder with a folder of tables for each model")
    parser.add_argument("--workloads", type=Path, nargs="+", required=True, help="CSV files of jobs")
    parser.add_argument("--policies", default="tiresias,optimus,pollux")
    parser.add_argument("--seeds", default="1-5")
    parser.add_argument("--gpus", default=GPUS)
    parser.add_argument("--output", choices=["json"], default="json")
    args = parser.parse_args()
    seeds = parse_seeds(args.seeds)
    results: dict[str, dict[str, object]] = {policy: {} for policy in args.policies.split(",")}
    for path in args.workloads:
        scenario = load(Inputs(path, "pollux", args.gpus, profiles=args.profiles), seed=0)
        for policy, rows in results.items():
            rows[path.stem] = measure(scenario, policy, seeds)
    print(json.dumps({"gpus": args.gpus, "seeds": args.seeds, "policies": results}, indent=2))


if __name__ == "__main__":
    main()
