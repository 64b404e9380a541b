"""Kernel-level sharing on a real device: a high-priority service beside a low-priority job, under every policy.

    python benchmarks/kernel_sharing.py --output json
    python benchmarks/kernel_sharing.py --part two_queues --rounds 8

The device is PoCL on one core; both cores are kept awake by loops of idle priority. Services are the example networks
with one input, jobs the same networks with four, and a large one: all pairs. In each round every pair runs alone and
under each policy, in random order; ratios are of one round, and medians over the rounds. A service waits for its
answer, pauses, and asks again: `steady` pauses are twice its exclusive latency, within 5 %; `random` ones have that
mean and an exponential distribution. The job is as long as what it gets done beside the service under default sharing,
so that it is there throughout under every policy; its time is that of the whole job, also after the service is done
(low_job_ratio), and its rate is that beside the service (low_rate_ratio).
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
from pathlib import Path
from typing import Any

import numpy as np

from gpuloom.kernels.native import Policy, library_path
from gpuloom.kernels.profile import Profile, write_profile
from gpuloom.kernels.record import read_records, runs_of
from gpuloom.kernels.replay import Task, replay
from gpuloom.kernels.session import Settings, environment, joined, recording, switch

SERVICES = (("mlp", 1), ("conv", 1), ("resnet", 1), ("transformer", 1))
JOBS = (("mlp", 4), ("conv", 4), ("resnet", 4), ("transformer", 4), ("resnet-large", 1))
POLICIES = ("share", "strict", "fikit", "fill")
FLOOR, SLOWDOWN = 0.1, 0.1
PAUSE = 2.0
"""Of the exclusive latency."""
LONGEST_RUN_S = 0.6
"""Short, so that the runs of one round meet the same machine: its speed changes by the minute."""
Network = tuple[str, int]


class Host:
    """A tenants' process."""

    def __init__(self, env: dict[str, str]) -> None:
        command = [sys.executable, str(Path(__file__).with_name("kernel_tenants.py"))]
        self._process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def tell(self, do: str, **order: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do} | order) + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("a tenants' process ended")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, do: str, **order: object) -> dict[str, Any]:
        self.tell(do, **order)
        return self.answer()

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def ahead(job: Network) -> int:
    """Inferences that a job launches before it waits."""
    return 1 if job[0] == "resnet-large" else 4


def plain(name: Network) -> str:
    return f"{name[0]}-{name[1]}"


def pauses(kind: str, count: int, exclusive_ms: float, seed: int) -> list[float]:
    draw = np.random.default_rng(seed)
    factor = draw.uniform(0.95, 1.05, count) if kind == "steady" else draw.exponential(1.0, count)
    return [float(PAUSE * exclusive_ms * one) for one in factor]


def measure(network: Network, job: bool, exclusive_ms: float, kind: str) -> Profile:
    """The network alone, as a service or as a job, with every kernel recorded."""
    with tempfile.TemporaryDirectory() as folder:
        host = Host(recording(Path(folder) / "record", os.environ))
        host.ask("make", tenant="it", network=network[0], batch=network[1], priority=0)
        if job:
            host.ask("start", tenant="it", inferences=12, ahead=ahead(network))
            host.ask("join", tenant="it", stop=False)
        else:
            host.ask("serve", tenant="it", pauses_ms=pauses(kind, 60, exclusive_ms, 1))
        host.close()
        records = [record for path in sorted(Path(folder).iterdir()) for record in read_records(path)]
    kernels, runs = runs_of(records)
    return Profile(plain(network), kernels, tuple(runs))


class Pair:
    """A service and a job, in one process or in two, and what they did in each run."""

    def __init__(self, service: Network, job: Network, hosts: tuple[Host, Host], profiles: Path, kind: str) -> None:
        self.service, self.job, self.kind = service, job, kind
        self.high, self.low = hosts
        self.launches = self.high.ask(
            "make",
            tenant="high",
            network=service[0],
            batch=service[1],
            priority=0,
            profile=str(profiles / f"s-{plain(service)}"),
        )["launches"]
        self.low.ask(
            "make", tenant="low", network=job[0], batch=job[1], priority=5, profile=str(profiles / f"j-{plain(job)}")
        )
        alone = self.high.ask("serve", tenant="high", pauses_ms=[1.0] * 20)["latencies_ms"]
        self.exclusive_ms = float(np.median(alone))
        self.requests, self.inferences = 8, 0

    def close(self) -> None:
        self.high.ask("drop", tenant="high")
        self.low.ask("drop", tenant="low")

    def size(self) -> None:
        """How many requests fit into a run under default sharing, and how long the job is: what it does meanwhile."""
        trial = self.run(None, 1)
        cycle_ms = float(np.mean(trial["latencies_ms"])) + PAUSE * self.exclusive_ms
        self.requests = int(np.clip(LONGEST_RUN_S * 1000 / cycle_ms, 6, 100))
        self.inferences = self.run(None, 2)["during"] + ahead(self.job)

    def alone(self, seed: int) -> list[float]:
        found: list[float] = self.high.ask("serve", tenant="high", pauses_ms=self._pauses(seed))["latencies_ms"]
        return found

    def _pauses(self, seed: int) -> list[float]:
        return pauses(self.kind, self.requests, self.exclusive_ms, seed)

    def run(self, inferences: int | None, seed: int) -> dict[str, Any]:
        """The service beside the job of so many inferences; None: for as long as the service lasts."""
        began = self.low.ask("start", tenant="low", inferences=inferences, ahead=ahead(self.job))["began_ns"]
        served = self.high.ask("serve", tenant="high", pauses_ms=self._pauses(seed))
        finished = self.low.ask("join", tenant="low", stop=inferences is None)["finished_ns"]
        during = sum(at <= served["ended_ns"] for at in finished)
        return {
            "latencies_ms": served["latencies_ms"],
            "during": during,
            "rate": during / ((served["ended_ns"] - began) / 1e9),
            "job_ms": (finished[-1] - began) / 1e6,
        }


def spread(values: Sequence[float]) -> dict[str, float]:
    """Over the rounds: the median, its standard error by bootstrap, and the quartiles."""
    array = np.asarray(values, float)
    again = np.random.default_rng(1).choice(array, (400, len(array)))
    error = float(np.median(again, axis=1).std()) if len(array) > 1 else float("nan")
    low, high = np.quantile(array, [0.25, 0.75])
    return {
        "median": round(float(np.median(array)), 3),
        "standard_error": round(error, 3),
        "quartile_1": round(float(low), 3),
        "quartile_3": round(float(high), 3),
    }


def compare(pair: Pair, modes: dict[str, Any], rounds: int, order: random.Random) -> dict[str, Any]:
    """Every mode in every round; a mode is a function that prepares it."""
    seen: dict[str, list[dict[str, Any]]] = {mode: [] for mode in modes}
    alone: list[list[float]] = []
    for number in range(rounds):
        for mode in order.sample(["alone", *modes], len(modes) + 1):
            if mode == "alone":
                modes["share"](pair)
                alone.append(pair.alone(100 + number))
            else:
                modes[mode](pair)
                seen[mode].append(pair.run(pair.inferences, 100 + number))
    return summary(pair, alone, seen)


def summary(pair: Pair, alone: list[list[float]], seen: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    means = {mode: np.array([np.mean(run["latencies_ms"]) for run in runs]) for mode, runs in seen.items()}
    exclusive = np.array([np.mean(one) for one in alone])
    row: dict[str, Any] = {
        "high": plain(pair.service),
        "low": plain(pair.job),
        "launches": pair.launches,
        "requests": pair.requests,
        "low_inferences": pair.inferences,
        "exclusive_ms": round(float(exclusive.mean()), 3),
        "exclusive_p99_ms": round(float(np.quantile(np.concatenate(alone), 0.99)), 3),
    }
    for mode, runs in seen.items():
        latencies = np.concatenate([run["latencies_ms"] for run in runs])
        row[f"{mode}_ms"] = round(float(means[mode].mean()), 3)
        row[f"{mode}_p99_ms"] = round(float(np.quantile(latencies, 0.99)), 3)
        row[f"{mode}_detail"] = {
            "speedup_vs_share": spread(means["share"] / means[mode]),
            "ratio_to_exclusive": spread(means[mode] / exclusive),
            "low_job_ratio": spread([s["job_ms"] / r["job_ms"] for s, r in zip(seen["share"], runs, strict=True)]),
            "low_rate_ratio": spread([r["rate"] / s["rate"] for s, r in zip(seen["share"], runs, strict=True)]),
            "low_rate_per_s": round(float(np.mean([run["rate"] for run in runs])), 3),
        }
    row |= {
        name: row["fill_detail"][name]["median"]
        for name in ("speedup_vs_share", "ratio_to_exclusive", "low_job_ratio", "low_rate_ratio")
    }
    return row


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


@contextmanager
def hosts(region: Path, processes: int) -> Iterator[tuple[Host, Host]]:
    env = environment(Settings(region, 0, None, SLOWDOWN, FLOOR), os.environ)
    made = [Host(env) for _ in range(processes)]
    try:
        yield made[0], made[-1]
    finally:
        for host in made:
            host.close()


def profiles_of(folder: Path, kind: str) -> dict[str, Profile]:
    """Recorded profiles of services and jobs, for `fikit` and for replay."""
    found = {}
    for network in SERVICES:
        first = measure(network, False, 1.0, kind)
        ran = sum(launch.held_ns for launch in first.runs[0].launches[-first.period() * 20 :]) / 20 / 1e6
        found[f"s-{plain(network)}"] = measure(network, False, ran * (3 if network[0] == "transformer" else 1), kind)
    for network in JOBS:
        found[f"j-{plain(network)}"] = measure(network, True, 1.0, kind)
    for name, profile in found.items():
        write_profile(profile, folder / name)
    return found


def two(processes: int, kind: str, rounds: int, seed: int, wanted: set[str] | None) -> dict[str, Any]:
    order = random.Random(seed)
    rows = []
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        region = Path(folder) / "region"
        profiles = profiles_of(Path(folder), kind)
        with joined(region) as shared:
            for service in SERVICES:
                for job in JOBS:
                    if wanted and f"{plain(service)}/{plain(job)}" not in wanted:
                        continue
                    with hosts(region, processes) as both:
                        pair = Pair(service, job, both, Path(folder), kind)
                        modes = {name: policy_mode(shared, name, both[1], processes) for name in POLICIES}
                        if processes == 2:
                            modes["nice"] = nice_mode(shared, both[1])
                        modes["share"](pair)
                        pair.size()
                        row = compare(pair, modes, rounds, order)
                        if processes == 1:
                            row["replay"] = replayed(row, pair, profiles)
                        pair.close()
                    rows.append(row)
                    progress(row)
    return {"pairs": rows, "summary": totals(rows)}


def policy_mode(shared: Any, name: str, low: Host, processes: int) -> Any:
    def prepare(_: Pair) -> None:
        switch(shared, Policy[name.upper()])
        if processes == 2:
            low.ask("nice", value=0)

    return prepare


def nice_mode(shared: Any, low: Host) -> Any:
    def prepare(_: Pair) -> None:
        switch(shared, Policy.SHARE)
        low.ask("nice", value=19)

    return prepare


def replayed(row: dict[str, Any], pair: Pair, profiles: dict[str, Profile]) -> dict[str, Any]:
    """Latency relative to exclusive, as replay says from the two profiles alone, beside what was measured: relative,
    since the machine's speed is not the same when a profile is taken and when a pair runs."""
    high, low = profiles[f"s-{row['high']}"], profiles[f"j-{row['low']}"]
    tasks = [
        Task("high", high, 0, 200, SLOWDOWN, FLOOR, pair.launches),
        Task("low", low, 5, None, SLOWDOWN, FLOOR),
    ]
    alone = float(np.mean(replay(tasks[:1], Policy.SHARE)[0].latencies_ns))
    found: dict[str, Any] = {"exclusive_ms": round(alone / 1e6, 3)}
    for name in POLICIES:
        said = float(np.mean(replay(tasks, Policy[name.upper()])[0].latencies_ns)) / alone
        found[name] = round(said, 3)
        found[f"{name}_error"] = round(said / row[f"{name}_detail"]["ratio_to_exclusive"]["median"] - 1, 3)
    return found


def totals(rows: list[dict[str, Any]]) -> dict[str, Any]:
    def of(mode: str, name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
        return np.array([row[f"{mode}_detail"][name]["median"] for row in rows])

    if not rows:
        return {}
    modes = [mode for mode in (*POLICIES, "nice") if f"{mode}_detail" in rows[0]]
    found: dict[str, Any] = {"pairs": len(rows)}
    for mode in modes:
        found[mode] = {
            "speedup_vs_share_median": round(float(np.median(of(mode, "speedup_vs_share"))), 3),
            "ratio_to_exclusive_median": round(float(np.median(of(mode, "ratio_to_exclusive"))), 3),
            "ratio_to_exclusive_worst": round(float(of(mode, "ratio_to_exclusive").max()), 3),
            "low_job_ratio_median": round(float(np.median(of(mode, "low_job_ratio"))), 3),
            "low_job_ratio_least": round(float(of(mode, "low_job_ratio").min()), 3),
            "low_rate_ratio_median": round(float(np.median(of(mode, "low_rate_ratio"))), 3),
            "low_rate_ratio_least": round(float(of(mode, "low_rate_ratio").min()), 3),
        }
    costly = of("share", "ratio_to_exclusive") >= 1.4
    if costly.any():
        found["least_speedup_where_sharing_costs_1.4"] = round(float(of("fill", "speedup_vs_share")[costly].min()), 3)
    if "replay" in rows[0]:
        for mode in POLICIES:
            errors = np.array([abs(row["replay"][f"{mode}_error"]) for row in rows])
            found[f"replay_error_{mode}"] = {
                "median": round(float(np.median(errors)), 3),
                "worst": round(float(errors.max()), 3),
            }
    return found


def progress(row: dict[str, Any]) -> None:
    shown = " ".join(f"{mode} {row[f'{mode}_ms']:.2f}" for mode in (*POLICIES, "nice") if f"{mode}_ms" in row)
    ours = {name: detail["median"] for name, detail in row["fill_detail"].items() if isinstance(detail, dict)}
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
                    host.ask("make", tenant="it", network=network[0], batch=network[1], priority=0)
                means: dict[str, list[float]] = {"without": [], "alone": [], "watched": []}
                for _ in range(rounds):
                    for mode in order.sample(list(means), 3):
                        host = bare["without" if mode == "without" else "alone"]
                        if mode == "watched":
                            host.ask("make", tenant="other", network="mlp", batch=1, priority=5)
                        served = host.ask("serve", tenant="it", pauses_ms=[0.2] * 60)["latencies_ms"]
                        if mode == "watched":
                            host.ask("drop", tenant="other")
                        means[mode].append(float(np.median(served)))
                for host in bare.values():
                    host.ask("drop", tenant="it")
                without = np.array(means["without"])
                rows.append(
                    {"network": plain(network), "without_ms": round(float(without.mean()), 4)}
                    | {mode: spread(np.array(means[mode]) / without) for mode in ("alone", "watched")}
                )
            for host in bare.values():
                host.close()
    medians = {mode: round(float(np.median([row[mode]["median"] for row in rows])), 4) for mode in ("alone", "watched")}
    return {"networks": rows, "median_ratio": medians, "nanoseconds": nanoseconds()}


def nanoseconds() -> dict[str, float]:
    """Of a decision, and of a launch with all that belongs to it, in a C program."""
    import gpuloom

    native = Path(gpuloom.__file__).parent / "kernels" / "native"
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        program = Path(folder) / "ns"
        sources = [str(native / name) for name in ("gate.c", "learn.c", "region_file.c", "runtime.c")]
        own = str(Path(__file__).with_name("kernel_nanoseconds.c"))
        subprocess.run(
            ["gcc", "-std=c11", "-O2", f"-I{native}", *sources, own, "-o", str(program), "-lm", "-pthread"], check=True
        )
        out = subprocess.run([str(program), f"{folder}/region"], check=True, capture_output=True, text=True).stdout
    found: dict[str, float] = json.loads(out)
    return found


def circumstances() -> dict[str, Any]:
    host = Host(dict(os.environ))
    device = host.ask("make", tenant="it", network="mlp", batch=1, priority=0)["device"]
    host.close()
    return {
        "device": device,
        "device_workers": 1,
        "cores": len(os.sched_getaffinity(0)),
        "load": [round(one, 2) for one in os.getloadavg()],
        "python": platform.python_version(),
        "library": library_path().name,
        "slowdown": SLOWDOWN,
        "floor": FLOOR,
        "pause_of_exclusive": PAUSE,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=["all", "two_queues", "random", "two_processes", "overhead"], default="all")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pairs", help="Only these, such as conv-1/mlp-4,mlp-1/conv-4.")
    parser.add_argument("--output", choices=["json"], default="json")
    given = parser.parse_args()
    wanted = set(given.pairs.split(",")) if given.pairs else None
    parts = {
        "two_queues": lambda: two(1, "steady", given.rounds, given.seed, wanted),
        "random": lambda: two(1, "random", given.rounds, given.seed, wanted),
        "two_processes": lambda: two(2, "steady", given.rounds, given.seed, wanted),
        "overhead": lambda: overhead(max(given.rounds, 2), given.seed),
    }
    result: dict[str, Any] = {"circumstances": circumstances()}
    for name, part in parts.items():
        if given.part not in ("all", name):
            continue
        with awake():
            found = part()
        result |= {name: found["pairs"], f"{name}_summary": found["summary"]} if "pairs" in found else {name: found}
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
