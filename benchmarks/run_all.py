"""`make bench`: every benchmark on the data folder ($GPULOOM_DATA, or ../shared/data), as one JSON object."""

import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
DATA = Path(os.environ.get("GPULOOM_DATA", HERE.parent.parent / "shared" / "data"))
MISO, POLLUX = DATA / "miso", DATA / "pollux"
WORKLOADS = sorted((POLLUX / "workloads").glob("workload-*.csv"))
ELASTIC = ["--profiles", POLLUX, "--workloads", *WORKLOADS]

COMMANDS: dict[str, list[object]] = {
    "miso_world": ["miso_world.py", "--data", MISO, "--seeds", "1-20"],
    "miso_world_published_seeds": ["miso_world.py", "--data", MISO, "--seeds", "1-5"],
    "miso_world_loads": [
        "miso_world.py", "--data", MISO, "--seeds", "1-10", "--loads", "0.5,0.75,1,1.5,2",
        "--policies", "whole-fifo best-static oracle miso-paper miso",
    ],
    "miso_levers": ["miso_levers.py", "--data", MISO, "--seeds", "1-20"],
    "miso_memory": ["miso_memory.py", "--data", MISO, "--seeds", "1-20"],
    "predictor": ["predictor.py", "--train", MISO / "mps_mixes.csv"],
    "miso_world_40_gpus": [
        "miso_world.py", "--data", MISO, "--seeds", "1-3", "--gpus", "40xA100-40GB", "--jobs", 1000, "--gap-s", 12,
        "--policies", "whole-fifo static:3,2,2 best-static oracle miso-paper miso",
    ],
    "elastic_world": ["elastic_world.py", *ELASTIC, "--seeds", "1-5"],
    "elastic_world_in_place": ["elastic_world.py", *ELASTIC, "--seeds", "1-5", "--rescale-s", 1],
    "elastic_world_unlike_lengths": [
        "elastic_world.py", *ELASTIC, "--seeds", "1-5", "--length-jitter", 0.7,
        "--policies", "tiresias,pollux,ones,ones:-name",
    ],
    "elastic_world_unlike_lengths_in_place": [
        "elastic_world.py", *ELASTIC, "--seeds", "1-5", "--length-jitter", 0.7, "--rescale-s", 1,
        "--policies", "tiresias,pollux,ones,ones:-name",
    ],
    "elastic_axes": ["elastic_axes.py", *ELASTIC, "--seeds", "1-2"],
    "ones_levers": ["ones_levers.py", *ELASTIC],
    "ones_search": ["ones_search.py", *ELASTIC, "--seeds", "1-2"],
    "remaining_work": ["remaining_work.py", *ELASTIC, "--seeds", "1-5"],
    "ones_scale": ["ones_scale.py"],
    "elastic_rescale": ["elastic_rescale.py"],
    "elastic_loop": ["elastic_loop.py", "--scale", 0.6, "--policies", "ones fixed:2 fixed:1"],
    "ones_slices": ["ones_slices.py", *ELASTIC, "--miso", MISO, "--seeds", "1-10"],
    "interference": [
        "interference.py", "--profile", DATA / "igniter" / "profile_v100.jsonl",
        "--solo-and-pairs", DATA / "igniter" / "solo_and_pairs_v100.jsonl", "--a100", DATA / "gpulet_a100",
    ],
    "queueing": ["queueing.py"],
    "provision_slo": ["provision_slo.py", "--data", DATA],
    "provision_scale": ["provision_scale.py"],
    "provision_mig": [
        "provision_mig.py", "--profiles", DATA / "parvagpu" / "a100_mig_mps_profile.csv",
        "--scenarios", DATA / "parvagpu" / "scenarios.csv",
    ],
    "recommend": ["recommend.py", "--data", MISO],
    "mig_study": ["mig_study.py"],
    "kernel_sharing": ["kernel_sharing.py", "--rounds", 8],
    "cpu_loop": ["cpu_loop.py"],
    "speed": [
        "speed.py", "--philly", POLLUX / "philly.csv", "--profiles", POLLUX,
        "--workload", POLLUX / "workloads" / "workload-1.csv",
    ],
}  # fmt: skip


def main() -> None:
    if not DATA.is_dir():
        sys.exit(f"benchmarks need the folder of measured data: {DATA} is absent (set GPULOOM_DATA)")
    results = {}
    for name, (script, *arguments) in COMMANDS.items():
        print(f"{name}: {script} {' '.join(map(str, arguments))}", file=sys.stderr, flush=True)
        command: list[str | Path] = [sys.executable, HERE / str(script), *map(str, arguments)]
        results[name] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
