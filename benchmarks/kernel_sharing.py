"""Kernel-level sharing on a real device: a high-priority service beside a low-priority job, under every policy.

    python benchmarks/kernel_sharing.py --output json
    python benchmarks/kernel_sharing.py --part two_queues --rounds 8

The device is PoCL on one core; both cores are kept awake by loops of idle priority. Services are the example networks
with one input, jobs the same networks with four, and a large one: all pairs. In each round every pair runs alone,
under each policy, and once more alone with every kernel recorded, for `fikit` and for replay, in random order; ratios
are of one round, and medians over the rounds. A service waits for its answer, pauses, and asks again: `two_queues` and
`two_processes` pause for twice its exclusive latency, within 5 %; `random` has that mean and an exponential
distribution. The first request of a run is not counted. The job is as long as what it gets done beside the service
under default sharing, so that it is there throughout under every policy; its time is that of the whole job, also after
the service is done (low_job_ratio); low_device_share is what it has of the device while the service is there, and
low_rate_ratio that relative to default sharing. `frontier` lets others slow the service down by little and by much. In
`floor` the service never pauses, for seconds: what does the job have of the device? `tinygrad` has networks that
nobody looked at while the policy was made (needs tinygrad 0.14).
"""

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import kernel_tinygrad
from gpuloom.kernels import FLOOR, SLOWDOWN
from gpuloom.kernels.core import Policy, library_path
from gpuloom.kernels.session import Settings, environment, joined, switch
from kernel_pairs import (
    PAUSES,
    Floats,
    Host,
    Mode,
    Network,
    Pair,
    compare,
    hosting,
    pair_of,
    replayed,
    spread,
    summary,
)

SERVICES = tuple(Network(name, 1) for name in ("mlp", "conv", "resnet", "transformer"))
JOBS = (*(Network(name, 4) for name in ("mlp", "conv", "resnet", "transformer")), Network("resnet-large", 1, ahead=1))
HELD_OUT_SERVICES = tuple(Network(name, 1) for name in kernel_tinygrad.NETWORKS)
HELD_OUT_JOBS = (Network("tg-mlp", 64), Network("tg-resnet", 8), Network("tg-gru", 8))  # building all six takes long
POLICIES = tuple(Mode(policy.name.lower(), policy) for policy in Policy)
FLOOR_RUN_S = 4.0
NICE = Mode("nice", Policy.SHARE, nice=19)
SWEEP = tuple(Mode(f"fill_{slowdown}", Policy.FILL, slowdown) for slowdown in (0.0, 0.02, 0.05, 0.2, 0.4, 1.0))


@dataclass(frozen=True, slots=True)
class Part:
    processes: int
    pauses: str
    modes: tuple[Mode, ...] = POLICIES
    services: tuple[Network, ...] = SERVICES
    jobs: tuple[Network, ...] = JOBS


PARTS = {
    "two_queues": Part(1, "steady"),
    "random": Part(1, "random"),
    "two_processes": Part(2, "steady", (*POLICIES, NICE)),
    "tinygrad": Part(1, "steady", services=HELD_OUT_SERVICES, jobs=HELD_OUT_JOBS),
    "frontier": Part(1, "steady", (*POLICIES, *SWEEP)),
}


def measure(part: Part, rounds: int, seed: int, wanted: set[str] | None) -> list[dict[str, Any]]:
    """A row for each pair."""
    order = random.Random(seed)
    rows = []
    for pair in pairs_of(part, wanted):
        seen = compare(pair, part.modes, rounds, order)
        row = summary(pair, seen)
        row |= {
            name: row["fill_detail"][name]["median"]
            for name in ("speedup_vs_share", "ratio_to_exclusive", "low_job_ratio", "low_rate_ratio")
        }
        if part.processes == 1:
            row["replay"] = replayed(pair, seen, POLICIES)
        rows.append(row)
        progress(row)
    return rows


def pairs_of(part: Part, wanted: set[str] | None) -> Iterator[Pair]:
    """One after another, each in processes of its own."""
    pairs = {f"{service}/{job}": (service, job) for service in part.services for job in part.jobs}
    chosen = [both for name, both in pairs.items() if not wanted or name in wanted]
    if not chosen:
        raise SystemExit(f"no such pair: expected some of {', '.join(pairs)}")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        region = Path(folder) / "region"
        with joined(region) as shared:
            for service, job in chosen:
                with pair_of(service, job, part.pauses, shared, region, part.processes) as pair:
                    yield pair


@contextmanager
def awake() -> Iterator[None]:
    """Loops of idle priority on both cores: a core that sleeps takes long to wake, most of all in a virtual machine,
    and would sleep more when a service is alone than when it has company."""
    loop = "import os, sys\nos.sched_setaffinity(0, [int(sys.argv[1])])\n"
    loop += "os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))\nwhile True: pass"
    cores = sorted(os.sched_getaffinity(0))
    loops = [subprocess.Popen([sys.executable, "-c", loop, str(core)]) for core in (cores[0], cores[-1])]
    try:
        yield
    finally:
        for one in loops:
            one.kill()
            one.wait()


def totals(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Over the pairs, of each pair's median over the rounds."""

    def of(mode: str, name: str) -> Floats:
        return np.array([row[f"{mode}_detail"][name]["median"] for row in rows])

    if not rows:
        return {}
    found: dict[str, Any] = {"pairs": len(rows)}
    for mode in (name.removesuffix("_detail") for name in rows[0] if name.endswith("_detail")):
        found[mode] = {
            f"{name}_median": round(float(np.median(of(mode, name))), 3) for name in rows[0][f"{mode}_detail"]
        }
        found[mode]["ratio_to_exclusive_worst"] = round(float(of(mode, "ratio_to_exclusive").max()), 3)
        p99 = [row[f"{mode}_p99_ms"] / row["exclusive_p99_ms"] for row in rows]
        found[mode] |= {
            "p99_to_exclusive_median": round(float(np.median(p99)), 3),
            "p99_to_exclusive_worst": round(max(p99), 3),
        }
        for name in ("low_job_ratio", "low_rate_ratio", "low_device_share"):
            found[mode][f"{name}_least"] = round(float(of(mode, name).min()), 3)
    costly = of("share", "ratio_to_exclusive") >= 1.4
    if costly.any():
        found["least_speedup_where_sharing_costs_1.4"] = round(float(of("fill", "speedup_vs_share")[costly].min()), 3)
    if "replay" in rows[0]:
        for policy in POLICIES:
            errors = np.array([abs(row["replay"][f"{policy.name}_error"]) for row in rows])
            found[f"replay_error_{policy.name}"] = {
                "median": round(float(np.median(errors)), 3),
                "worst": round(float(errors.max()), 3),
            }
    return found


def progress(row: dict[str, Any]) -> None:
    modes = [name.removesuffix("_detail") for name in row if name.endswith("_detail")]
    shown = " ".join(f"{mode} {row[f'{mode}_ms']:.2f}" for mode in modes)
    ours = {name: detail["median"] for name, detail in row["fill_detail"].items()}
    print(f"{row['high']:14} {row['low']:15} alone {row['exclusive_ms']:.2f} {shown} {ours}", file=sys.stderr)
    print(f"{'':30} replay {row['replay']}" if "replay" in row else "", file=sys.stderr)


def overhead(rounds: int, seed: int) -> dict[str, Any]:
    """Alone, without the layer and with it: nobody else there, and somebody who does nothing."""
    order = random.Random(seed)
    rows = []
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        region = Path(folder) / "region"
        with joined(region) as shared:
            switch(shared, Policy.FILL)
            gated = environment(Settings(region, 0, None, SLOWDOWN, FLOOR), os.environ)
            bare = {"without": Host(dict(os.environ)), "alone": Host(gated)}
            for network in SERVICES:
                for host in bare.values():
                    host.make("it", network, 0)
                means: dict[str, list[float]] = {"without": [], "alone": [], "watched": []}
                for _ in range(rounds):
                    for mode in order.sample(list(means), 3):
                        host = bare["without" if mode == "without" else "alone"]
                        if mode == "watched":
                            host.make("other", Network("mlp", 1), 5)
                        served = host.ask("serve", tenant="it", pauses_ms=[0.2] * 60)["latencies_ms"]
                        if mode == "watched":
                            host.ask("drop", tenant="other")
                        means[mode].append(float(np.median(served)))
                for host in bare.values():
                    host.ask("drop", tenant="it")
                without = np.array(means["without"])
                row: dict[str, Any] = {"network": str(network), "without_ms": round(float(without.mean()), 4)}
                rows.append(row | {mode: spread(np.array(means[mode]) / without) for mode in ("alone", "watched")})
            for host in bare.values():
                host.close()
    medians = {mode: round(float(np.median([row[mode]["median"] for row in rows])), 4) for mode in ("alone", "watched")}
    return {"networks": rows, "median_ratio": medians, "nanoseconds": nanoseconds()}


def floors(wanted: set[str] | None) -> list[dict[str, Any]]:
    """What a job has of the device beside a service that never pauses, under `fill`."""
    rows = []
    for pair in pairs_of(Part(1, "none"), wanted):
        pair.prepare(Mode("fill", Policy.FILL))
        pair.requests = round(FLOOR_RUN_S * 1000 / pair.exclusive_ms)
        run = pair.run(None, 1)
        share = round((run.low_ran_ns or 0) / run.lasted_ns, 4)
        rows.append({"high": str(pair.service), "low": str(pair.job), "low_device_share": share})
    return rows


def nanoseconds() -> dict[str, float]:
    """Of a decision, and of a launch with all that belongs to it, in a C program."""
    import gpuloom

    csrc = Path(gpuloom.__file__).parent / "kernels" / "csrc"
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        program = Path(folder) / "ns"
        sources = [str(csrc / name) for name in ("slots.c", "gate.c", "learn.c", "region_file.c", "runtime.c")]
        own = str(Path(__file__).with_name("kernel_nanoseconds.c"))
        subprocess.run(
            ["gcc", "-std=c11", "-O2", f"-I{csrc}", *sources, own, "-o", str(program), "-lm", "-pthread"], check=True
        )
        out = subprocess.run([str(program), f"{folder}/region"], check=True, capture_output=True, text=True).stdout
    found: dict[str, float] = json.loads(out)
    return found


def circumstances() -> dict[str, Any]:
    with hosting(dict(os.environ)) as host:
        device = host.make("it", SERVICES[0], 0)["device"]
    return {
        "device": device,
        "device_workers": 1,
        "cores": len(os.sched_getaffinity(0)),
        "load": [round(one, 2) for one in os.getloadavg()],
        "python": platform.python_version(),
        "library": library_path().name,
        "slowdown": SLOWDOWN,
        "floor": FLOOR,
        "pauses_of_exclusive": PAUSES,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=["all", *PARTS, "overhead", "floor"], default="all")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pairs", help="Only these, such as conv-1/mlp-4,mlp-1/conv-4.")
    parser.add_argument("--output", choices=["json"], default="json")
    given = parser.parse_args()
    wanted = set(given.pairs.split(",")) if given.pairs else None
    result: dict[str, Any] = {"circumstances": circumstances()}
    for name in (*PARTS, "overhead", "floor"):
        if given.part not in ("all", name):
            continue
        if given.part == "all" and name == "tinygrad" and find_spec("tinygrad") is None:
            continue
        with awake():
            if name == "overhead":
                result[name] = overhead(max(given.rounds, 2), given.seed)
            elif name == "floor":
                result[name] = floors(wanted)
            else:
                result[name] = measure(PARTS[name], given.rounds, given.seed, wanted)
                result[f"{name}_summary"] = totals(result[name])
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
