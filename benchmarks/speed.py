"""How fast it is, as a user would time it: whole commands in fresh processes, the best of a few runs.

    python benchmarks/speed.py --philly ../shared/data/pollux/philly.csv --profiles ../shared/data/pollux \\
        --workload ../shared/data/pollux/workloads/workload-1.csv

Seconds of wall clock and of CPU, and peak memory. `memory_mib` runs the same number of jobs over 1 and over 100 times
the simulated time: the figures should not differ.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

GPULOOM = Path(sys.executable).with_name("gpuloom")


def timed(arguments: list[str], repeats: int) -> dict[str, float]:
    """The best of several runs: whatever else the machine does can only add."""
    best = {"wall_s": float("inf"), "cpu_s": float("inf")}
    for _ in range(repeats):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        began = time.perf_counter()
        subprocess.run([GPULOOM, *arguments], check=True, stdout=subprocess.DEVNULL)
        wall_s = time.perf_counter() - began
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        best = {"wall_s": min(best["wall_s"], wall_s), "cpu_s": min(best["cpu_s"], cpu_s)}
    return best


def peak_mib(arguments: list[str]) -> float:
    """Peak resident memory of one command, asked of a process that has no other children."""
    code = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL);"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024)"
    )
    return float(
        subprocess.run([sys.executable, "-c", code, GPULOOM, *arguments], check=True, capture_output=True).stdout
    )


def simulate(*arguments: object) -> list[str]:
    return ["simulate", *map(str, arguments), "--output", "json"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--philly", type=Path)
    parser.add_argument("--profiles", type=Path)
    parser.add_argument("--workload", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--output", choices=["json"], default="json")
    args = parser.parse_args()
    figures: dict[str, object] = {"help": timed(["--help"], 5)}
    if args.philly:
        philly = simulate(
            "--trace", args.philly, "--format", "philly", "--gpus", "500x4xV100", "--policy", "whole-fifo"
        )
        figures["philly_whole_fifo_2000_gpus"] = timed(philly, args.repeats)
    if args.workload and args.profiles:
        elastic = ("--trace", args.workload, "--format", "pollux", "--profiles", args.profiles, "--gpus", "16x4xV100")
        for policy, repeats in (("tiresias", args.repeats), ("optimus", args.repeats), ("pollux", 1)):
            figures[policy] = timed(simulate(*elastic, "--policy", policy), repeats)
    short, long = (simulate("--jobs", 5000, "--gap-s", gap_s, "--policy", "whole-fifo") for gap_s in (60, 6000))
    figures["memory_mib"] = {"simulated_time_x1": peak_mib(short), "simulated_time_x100": peak_mib(long)}
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
