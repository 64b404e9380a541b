"""A service and a job on one device, for kernel_sharing.py: how they are run, recorded and compared.

In each round a pair runs alone, under each mode, and once more with every kernel recorded, in random order: ratios are
of one round, since the machine's speed changes by the minute.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gpuloom.kernels import FLOOR, SLOWDOWN
from gpuloom.kernels.core import Policy, Region
from gpuloom.kernels.profile import Profile, write_profile
from gpuloom.kernels.record import Record, read_records, runs_of
from gpuloom.kernels.replay import Task, replay
from gpuloom.kernels.session import Settings, environment, recording, switch

HIGH, LOW = 0, 5
PAUSES = {"steady": 2.0, "random": 2.0, "none": 0.0}
"""Between two requests of a service: their mean, of its exclusive latency."""
LONGEST_RUN_S = 0.6
"""Short, so that the runs of one round meet the same machine."""
RECORDED_S = 0.25
LEARNING = 40
"""Requests of a replay that are not counted: a real queue has learnt from the rounds before."""
Span = tuple[int, int]
Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class Network:
    name: str
    batch: int
    ahead: int = 4
    """Inferences that it launches before it waits, as a job."""

    def __str__(self) -> str:
        return f"{self.name}-{self.batch}"


@dataclass(frozen=True, slots=True)
class Mode:
    name: str
    policy: Policy
    slowdown: float = SLOWDOWN
    nice: int = 0


class Host:
    """A tenants' process."""

    def __init__(self, env: dict[str, str]) -> None:
        command = [sys.executable, str(Path(__file__).with_name("kernel_tenants.py"))]
        self._process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, do: str, **order: object) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": do} | order) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("a tenants' process ended")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def make(self, tenant: str, network: Network, priority: int, profile: Path | None = None) -> dict[str, Any]:
        file = str(profile) if profile else None
        return self.ask(
            "make", tenant=tenant, network=network.name, batch=network.batch, priority=priority, profile=file
        )

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


@contextmanager
def hosting(env: dict[str, str]) -> Iterator[Host]:
    host = Host(env)
    try:
        yield host
    finally:
        host.close()


@dataclass(slots=True)
class Run:
    """The service beside the job."""

    latencies_ms: list[float]
    lasted_ns: int
    during: int
    """Inferences of the job that ended meanwhile."""
    low_ran_ns: int | None
    """What the job had of the device meanwhile; None: where nothing is gated, nothing is counted."""
    job_ms: float
    """How long the whole job took."""


@dataclass(slots=True)
class Recorded:
    """The service alone and the job alone, each kernel recorded."""

    latencies_ms: list[float]
    service: Profile
    job: Profile
    inference_ns: float
    """Of the job, on the device."""


@dataclass(slots=True)
class Results:
    """Of all rounds, in their order."""

    alone: list[list[float]] = field(default_factory=list)
    runs: dict[str, list[Run]] = field(default_factory=dict)
    recorded: list[Recorded] = field(default_factory=list)


class Pair:
    """A service and a job, in one process or in two, and a process beside them that records each alone."""

    def __init__(
        self, service: Network, job: Network, pauses: str, shared: Region, hosts: tuple[Host, Host, Host], folder: Path
    ) -> None:
        self.service, self.job, self.pauses, self._shared = service, job, pauses, shared
        self.high, self.low, self._recorder = hosts
        self._folder = folder
        self._recorder.make("high", service, HIGH)
        self._recorder.make("low", job, LOW)
        alone = self._recorder.ask("serve", tenant="high", pauses_ms=[1.0] * 20)["latencies_ms"]
        self.exclusive_ms = float(np.median(alone))
        self.requests, self.inferences, self._recorded_inferences = 20, 0, 3 * job.ahead
        self._fit_recording()
        recorded = self.recorded([self.record(1)])[0]
        profiles = {"high": recorded.service, "low": recorded.job}
        for name, profile in profiles.items():
            write_profile(profile, folder / name)
        self.launches = self.high.make("high", service, HIGH, folder / "high")["launches"]
        self.low.make("low", job, LOW, folder / "low")

    def _fit_recording(self) -> None:
        began = time.monotonic()
        self._job_alone()
        batches = RECORDED_S / (time.monotonic() - began) * self._recorded_inferences / self.job.ahead
        self._recorded_inferences = self.job.ahead * int(np.clip(batches, 3, 50))

    def _job_alone(self) -> None:
        self._recorder.ask("start", tenant="low", inferences=self._recorded_inferences, ahead=self.job.ahead)
        self._recorder.ask("join", tenant="low", stop=False)

    def size(self) -> None:
        """How many requests fit into a run under default sharing, and how long the job is: what it does meanwhile."""
        self.requests = 8
        trial = self.run(None, 1)
        cycle_ms = float(np.mean(trial.latencies_ms)) + PAUSES[self.pauses] * self.exclusive_ms
        self.requests = int(np.clip(LONGEST_RUN_S * 1000 / cycle_ms, 6, 100))
        self.inferences = self.run(None, 2).during + self.job.ahead

    def _serve(self, host: Host, seed: int) -> dict[str, Any]:
        """A run of the service. Its first request is not counted: it ends a silence that nobody could foresee."""
        draw, count = np.random.default_rng(seed), self.requests + 1
        shape = draw.exponential(1.0, count) if self.pauses == "random" else draw.uniform(0.95, 1.05, count)
        pauses_ms = [float(PAUSES[self.pauses] * self.exclusive_ms * one) for one in shape]
        served = host.ask("serve", tenant="high", pauses_ms=pauses_ms)
        return served | {"latencies_ms": served["latencies_ms"][1:]}

    def prepare(self, mode: Mode) -> None:
        switch(self._shared, mode.policy)
        for _, slot in self._shared.taken():
            slot.slowdown_ppm = round(mode.slowdown * 1e6)
        if self.low is not self.high:
            self.low.ask("nice", value=mode.nice)

    def alone(self, seed: int) -> list[float]:
        found: list[float] = self._serve(self.high, seed)["latencies_ms"]
        return found

    def run(self, inferences: int | None, seed: int) -> Run:
        """The service beside the job of so many inferences; None: for as long as the service lasts."""
        began = self.low.ask("start", tenant="low", inferences=inferences, ahead=self.job.ahead)["began_ns"]
        counted_ns = self._low_ran_ns()
        served = self._serve(self.high, seed)
        counted_ns = self._low_ran_ns() - counted_ns
        finished = self.low.ask("join", tenant="low", stop=inferences is None)["finished_ns"]
        during = sum(at <= served["ended_ns"] for at in finished)
        return Run(
            served["latencies_ms"], served["ended_ns"] - began, during, counted_ns or None, (finished[-1] - began) / 1e6
        )

    def _low_ran_ns(self) -> int:
        return sum(int(slot.ran_ns) for _, slot in self._shared.taken() if slot.priority == LOW)

    def record(self, seed: int) -> tuple[list[float], Span, Span]:
        """Latencies of the service alone, and when it and the job alone ran: the kernels are in the recorder's file."""
        began = time.monotonic_ns()
        served = self._serve(self._recorder, seed)["latencies_ms"]
        between = time.monotonic_ns()
        self._job_alone()
        return served, (began, between), (between, time.monotonic_ns())

    def recorded(self, spans: Sequence[tuple[list[float], Span, Span]]) -> list[Recorded]:
        self._recorder.ask("flush")
        records = [one for path in sorted(self._folder.glob("record.*")) for one in read_records(path)]
        found = []
        for served, high, low in spans:
            service, job = _profile(records, high, str(self.service)), _profile(records, low, str(self.job))
            ran_ns = sum(one.ran_ns for one in job.launches())
            found.append(Recorded(served, service, job, ran_ns / self._recorded_inferences))
        return found


def _profile(records: list[Record], span: Span, name: str) -> Profile:
    kernels, runs = runs_of([one for one in records if span[0] <= one.launched_ns < span[1]])
    return Profile(name, kernels, tuple(runs))


@contextmanager
def pair_of(
    service: Network, job: Network, pauses: str, shared: Region, region: Path, processes: int
) -> Iterator[Pair]:
    env = environment(Settings(region, HIGH, None, SLOWDOWN, FLOOR), os.environ)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder, ExitStack() as stack:
        recorder = stack.enter_context(hosting(recording(Path(folder) / "record", os.environ)))
        tenants = [stack.enter_context(hosting(env)) for _ in range(processes)]
        yield Pair(service, job, pauses, shared, (tenants[0], tenants[-1], recorder), Path(folder))


def compare(pair: Pair, modes: Sequence[Mode], rounds: int, order: random.Random) -> Results:
    """Every mode in every round, and each alone, once plainly and once recorded."""
    results = Results(runs={mode.name: [] for mode in modes})
    spans = []
    share = next(mode for mode in modes if mode.name == "share")
    pair.prepare(share)
    pair.size()
    for number in range(rounds):
        for mode in order.sample(["alone", "record", *modes], len(modes) + 2):
            if isinstance(mode, Mode):
                pair.prepare(mode)
                results.runs[mode.name].append(pair.run(pair.inferences, 100 + number))
            elif mode == "alone":
                pair.prepare(share)
                results.alone.append(pair.alone(100 + number))
            else:
                spans.append(pair.record(100 + number))
    results.recorded = pair.recorded(spans)
    return results


def spread(values: "Sequence[float] | Floats") -> dict[str, float | None]:
    """Over the rounds: the median, its standard error by bootstrap, and the quartiles."""
    array = np.asarray(values, float)
    again = np.random.default_rng(1).choice(array, (400, len(array)))
    error = round(float(np.median(again, axis=1).std()), 3) if len(array) > 1 else None
    low, high = np.quantile(array, [0.25, 0.75])
    return {
        "median": round(float(np.median(array)), 3),
        "standard_error": error,
        "quartile_1": round(float(low), 3),
        "quartile_3": round(float(high), 3),
    }


def summary(pair: Pair, seen: Results) -> dict[str, Any]:
    means = {mode: np.array([np.mean(run.latencies_ms) for run in runs]) for mode, runs in seen.runs.items()}
    exclusive = np.array([np.mean(one) for one in seen.alone])
    row: dict[str, Any] = {
        "high": str(pair.service),
        "low": str(pair.job),
        "launches": pair.launches,
        "requests": pair.requests,
        "low_inferences": pair.inferences,
        "exclusive_ms": round(float(exclusive.mean()), 3),
        "exclusive_p99_ms": round(float(np.quantile(np.concatenate(seen.alone), 0.99)), 3),
    }
    shared = seen.runs["share"]
    parts = {mode: _device_shares(runs, seen.recorded) for mode, runs in seen.runs.items()}
    for mode, runs in seen.runs.items():
        latencies = np.concatenate([run.latencies_ms for run in runs])
        both = list(zip(shared, runs, strict=True))
        row[f"{mode}_ms"] = round(float(means[mode].mean()), 3)
        row[f"{mode}_p99_ms"] = round(float(np.quantile(latencies, 0.99)), 3)
        row[f"{mode}_detail"] = {
            "speedup_vs_share": spread(means["share"] / means[mode]),
            "ratio_to_exclusive": spread(means[mode] / exclusive),
            "low_job_ratio": spread([theirs.job_ms / ours.job_ms for theirs, ours in both]),
            "low_rate_ratio": spread(parts[mode] / parts["share"]),
            "low_device_share": spread(parts[mode]),
        }
    return row


def _device_shares(runs: Sequence[Run], recorded: Sequence[Recorded]) -> Floats:
    """What the job had of the device, in each round."""
    pairs = list(zip(runs, recorded, strict=True))
    return np.array([(run.low_ran_ns or run.during * alone.inference_ns) / run.lasted_ns for run, alone in pairs])


def replayed(pair: Pair, seen: Results, modes: Sequence[Mode]) -> dict[str, Any]:
    """The service's latency relative to exclusive, as replay foresees it in each round from what each did alone, beside
    what was measured in that round. What a request costs the host before its first launch and after its last kernel is
    not in a profile: it is the latency of the recorded run less that of its replay, and does not depend on company."""
    said: dict[str, list[float]] = {mode.name: [] for mode in modes}
    for recorded in seen.recorded:
        service = Task("high", recorded.service, HIGH, LEARNING + pair.requests, SLOWDOWN, FLOOR, pair.launches)
        job = Task("low", recorded.job, LOW, None, SLOWDOWN, FLOOR)
        alone_ms = float(np.mean(recorded.latencies_ms))
        around_ms = alone_ms - _mean_ms(replay([service], Policy.SHARE)[0].latencies_ns)
        for mode in modes:
            beside_ms = _mean_ms(replay([service, job], mode.policy)[0].latencies_ns)
            said[mode.name].append((beside_ms + around_ms) / alone_ms)
    found: dict[str, Any] = {}
    for name, values in said.items():
        measured = [
            float(np.mean(run.latencies_ms) / np.mean(alone))
            for run, alone in zip(seen.runs[name], seen.alone, strict=True)
        ]
        found[name] = round(float(np.median(values)), 3)
        found[f"{name}_error"] = round(float(np.median(values) / np.median(measured)) - 1, 3)
    return found


def _mean_ms(latencies_ns: Sequence[int]) -> float:
    return float(np.mean(latencies_ns[LEARNING:])) / 1e6
