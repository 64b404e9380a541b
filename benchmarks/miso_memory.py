"""What it is worth to `miso` to be told of earlier runs: MISO's experiment with a memory handed in, against without.

    python benchmarks/miso_memory.py --data ../shared/data/miso --seeds 1-20

The memory is that of one earlier run of the experiment under `miso`, of another seed, that knew nothing; of five such
runs, put together as the file does; or all that `gpuloom measure` would have measured of every workload, alone on each
slice. Ratios of mean JCTs are paired by seed; below 1 means that the memory helps. In this world two jobs of a workload
are equally fast, whoever ran earlier, and reports have no noise: a memory is as true as one can be.
"""

import argparse
import io
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpuloom.cli.inputs import parse_seeds
from gpuloom.engine.recovery import recover
from gpuloom.engine.seen import SeenInRun
from gpuloom.perf.slices.earlier import Rate, Row
from gpuloom.perf.slices.earlier_file import merged, to_text
from gpuloom.sim.compare.runs import in_parallel
from gpuloom.sim.compare.statistics import mean_and_error
from gpuloom.sim.inputs import Inputs, load
from gpuloom.sim.run import build_policy, figures, simulate
from gpuloom.sim.worlds.slices import MEASURED_MODEL
from gpuloom.work.measured.figures import figures_from_csv

RUNS = 5
EARLIER = 1000
"""Seeds of earlier runs begin there."""
HANDED = ("an earlier run", f"{RUNS} earlier runs", "gpuloom measure")


@dataclass(frozen=True, slots=True)
class Run:
    """Small enough to be sent to a worker."""

    inputs: Inputs
    seed: int


@dataclass(frozen=True, slots=True)
class Ran:
    figures: dict[str, Any]
    probes: int
    saw: tuple[Row, ...]


def live(run: Run) -> Ran:
    log = io.StringIO()
    result = simulate(load(run.inputs, run.seed), "miso", run.seed, log=log)
    seen = SeenInRun()
    lines = log.getvalue().splitlines(keepends=True)
    recover(lines, "log", lambda head, gpus: build_policy(head.policy, gpus, head.seed, head.every_s), None, seen.hear)
    rows = [
        Row(key.workload, key.model, f"run {run.seed}", seen.at_s[key], rates=rates)
        for key, rates in seen.rates.items()
    ]
    return Ran(figures(result), sum('{"GpuProbed":' in line for line in lines), tuple(rows))


def all_measured(data: Path) -> list[Row]:
    known = figures_from_csv(data / "mig_batch_latency.csv").workloads.items()
    return [
        Row(name, MEASURED_MODEL.name, "measure", 0.0, measured=True,
            rates={profile: Rate(speed / one.batch_s, 1) for profile, speed in one.speeds.items()})
        for name, one in known
    ]  # fmt: skip


def kept(folder: Path, name: str, rows: Sequence[Row]) -> Path:
    path = folder / f"{name}.json"
    path.write_text(to_text(rows), encoding="utf-8")
    return path


def measure(inputs: Inputs, data: Path, seeds: Sequence[int], folder: Path) -> dict[str, Any]:
    workers = os.cpu_count() or 1
    earlier = {seed: [EARLIER + RUNS * seed + number for number in range(RUNS)] for seed in seeds}
    first = [Run(inputs, seed) for seed in seeds]
    before = [Run(inputs, other) for others in earlier.values() for other in others]
    ran = dict(in_parallel(live, [*first, *before], workers))
    saw = {run.seed: one.saw for run, one in ran.items()}
    measured = kept(folder, "measured", all_measured(data))
    handed: dict[str, dict[int, Path]] = {
        HANDED[0]: {seed: kept(folder, f"one-{seed}", saw[earlier[seed][0]]) for seed in seeds},
        HANDED[1]: {seed: kept(folder, f"all-{seed}", merged(*(saw[one] for one in earlier[seed]))) for seed in seeds},
        HANDED[2]: dict.fromkeys(seeds, measured),
    }
    runs = {
        (name, seed): Run(replace(inputs, memory=path), seed) for name in HANDED for seed, path in handed[name].items()
    }
    told = dict(in_parallel(live, [*runs.values()], workers))
    without = [ran[run] for run in first]
    table = {"nothing": row(without, without)}
    return table | {name: row([told[runs[name, seed]] for seed in seeds], without) for name in HANDED}


def row(ran: Sequence[Ran], without: Sequence[Ran]) -> dict[str, Any]:
    pairs = zip(ran, without, strict=True)
    ratio, error = mean_and_error([one.figures["avg_jct_s"] / other.figures["avg_jct_s"] for one, other in pairs])
    jct_s, jct_error = mean_and_error([one.figures["avg_jct_s"] for one in ran])
    found = {"avg_jct_s": jct_s, "stderr": jct_error, "ratio": ratio, "ratio_stderr": error}
    for name in ("p99_slowdown", "max_slowdown", "stp_per_gpu"):
        found[name] = mean_and_error([one.figures[name] for one in ran])[0]
    return found | {"probes": mean_and_error([float(one.probes) for one in ran])[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", default="1-20")
    parser.add_argument("--output", choices=["json"], default="json")
    args = parser.parse_args()
    seeds = parse_seeds(args.seeds)
    found: dict[str, Any] = {"gpus": "8xA100-40GB", "seeds": args.seeds}
    for pressure in (1, 2):
        print(f"load {pressure}", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix="miso-memory-") as folder:
            inputs = Inputs(args.data, "miso", gap_s=60.0 / pressure)
            found[f"load_{pressure}x"] = measure(inputs, args.data, seeds, Path(folder))
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
