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
from random import Random
from statistics import median

from gpuloom.contract.view import JobView, View
from gpuloom.engine.state import State
from gpuloom.gpus.cluster import parse_cluster
from gpuloom.gpus.grant import Grant
from gpuloom.gpus.layouts import parse
from gpuloom.perf.speed import Estimate
from gpuloom.policies.miso.policy import Miso
from gpuloom.work.model import Job, Kind

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


def decide_ms(repeats: int = 300) -> dict[str, float]:
    """`miso` on one GPU with six jobs on slices, all different, when the seventh comes.

    `cold` asks a fresh policy, `known` one that has seen the same six before: it remembers their cuts.
    """
    cluster = parse_cluster("1xA100-40GB")
    model = cluster.gpus[0].model
    layout = parse(model, "2,1,1,1,1,1")
    cold, known = list[float](), list[float]()
    for seed in range(repeats):
        dice = Random(seed)
        state = State(cluster)
        state.gpus[0] = state.gpus[0]._replace(layout=layout, actual=layout)
        for at in range(7):
            speeds = sorted((dice.uniform(0.15, 1.0) for _ in model.profiles), reverse=True)
            estimates = {
                profile.name: Estimate(speed, speed - 0.05, speed + 0.05)
                for profile, speed in zip(sorted(model.profiles, key=lambda one: -one.slices), speeds, strict=True)
            }
            job = Job(f"j{at}", float(at), Kind.SLICEABLE, f"w{at}", mem_mib=4000)
            state.admit(JobView(job, estimates=estimates))
            if at < 6:
                state.plan_grants(job.id, (Grant(0, layout[at]),))
        view = View(10.0, "benchmark", cluster, state.jobs, state.waiting, state.gpus, state.idle)
        policy = Miso(cluster)
        for times in (cold, known):
            began = time.perf_counter()
            plan = policy.decide(view)
            times.append((time.perf_counter() - began) * 1000)
            assert len(plan.grants) == 7
    first, *rest = cold  # the first in a process also enumerates the layouts
    return {
        "first": first,
        "cold_median": median(rest),
        "cold_p95": sorted(rest)[len(rest) * 95 // 100],
        "known_median": median(known),
    }


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
    figures: dict[str, object] = {"help": timed(["--help"], 5), "decide_7_jobs_ms": decide_ms()}
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
