"""Check a provisioning plan by event simulation, with measured times where there are any, not the planner's own model.

Measured: latency alone by batch and share (a table for each model; below and above its shares it goes on as the fitted
curve does), and the slowdown beside others by gpu-lets' regression on *measured* use of L2 and memory, fitted to the
measured pairs. Nobody has measured more than two models, or two copies of one, side by side: there uses add up.
Neighbours count as always busy with full batches, which is more than they ever do. Every replica is a queue of its own
with Triton's batcher; a service's p99 is over all its replicas, and its interval over independent runs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import sqrt

import numpy as np

from gpuloom.perf.batch_queue_sim import serve
from gpuloom.perf.batching import Batching, BatchTimes
from gpuloom.perf.gpulets_model import GpuletsModel, fit_gpulets, measured_services
from gpuloom.perf.interference import Crowd, Floats, InterferenceModel, Latencies, Placed
from gpuloom.perf.pair_errors import Pairs
from gpuloom.perf.sharing_model import SharingModel
from gpuloom.perf.solo_table import SoloTable
from gpuloom.provision.confirm import batch_times
from gpuloom.provision.plan import Replica, ServicePlan
from gpuloom.provision.problem import Pattern, Problem
from gpuloom.work.service_pairs import MeasuredServices

REQUESTS, RUNS = 20_000, 8
SETTLING = 0.05
"""Part of a run that is not counted."""
T_95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}
"""Student's t for a 95 % interval, by runs."""


@dataclass(frozen=True, slots=True)
class MeasuredModel:
    """What was measured, as far as it was."""

    alone: SharingModel
    """With the measured tables: asked only for services that are alone."""
    beside: GpuletsModel
    names: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", self.alone.names)

    def latencies(self, crowd: Crowd) -> Latencies:
        shape = crowd.model.shape
        each = Crowd(crowd.model.reshape(-1, 1), crowd.batch.reshape(-1, 1), crowd.share_pct.reshape(-1, 1))
        solo = self.alone.latencies(each)
        there = {name: at for at, name in enumerate(self.beside.names)}
        column = np.array([*(there[name] for name in self.names), -1])[crowd.model]
        known = Crowd(column, crowd.batch, crowd.share_pct)
        slowdown = self.beside.latencies(known).total_ms / GpuletsModel(self.beside.services).latencies(known).total_ms
        slowdown = np.maximum(slowdown, 1.0)
        load, gpu, feedback = (part.reshape(shape) for part in (solo.load_ms, solo.gpu_ms, solo.feedback_ms))
        total = (load + gpu + feedback) * slowdown
        return Latencies(load, total - load - feedback, feedback, total, total)


def measured_tables(measured: MeasuredServices) -> dict[str, SoloTable]:
    return {name: SoloTable.of(solo, monotone=True) for name, solo in measured.solo_ms.items()}


def measured_model(measured: MeasuredServices, figures: Mapping[str, object]) -> MeasuredModel:
    """`figures` are those that ship: how bytes and time go together, and the curves beyond the tables' edges."""
    services = measured_services(measured)
    pairs = Pairs.of(measured.pairs, tuple(services))
    beside = fit_gpulets(services, pairs.crowd, pairs.measured_ms)
    return MeasuredModel(SharingModel.from_figures(figures, measured_tables(measured)), beside)


@dataclass(frozen=True, slots=True)
class Verdict:
    service: str
    slo_ms: float
    p99_ms: float
    """Mean over the runs, and half the width of its 95 % interval."""
    p99_within_ms: float
    violations: float
    """Part of the requests above the SLO, and half the width of its interval."""
    violations_within: float
    longest_ms: float
    requests: int

    @property
    def held(self) -> bool:
        """Whether the whole interval is within the SLO."""
        return self.p99_ms + self.p99_within_ms <= self.slo_ms


def verify(
    plan: ServicePlan,
    problem: Problem,
    model: InterferenceModel,
    generator: np.random.Generator,
    requests: int = REQUESTS,
    runs: int = RUNS,
) -> list[Verdict]:
    """A verdict on each service that the plan serves, by name. `requests` are those of one service in one run."""
    times = _times(plan, problem, model)
    slo_ms = problem.slo_ms
    verdicts = []
    for service in sorted({replica.service for replica in plan.replicas}):
        replicas = [(replica, times[replica]) for replica in plan.of(service)]
        # A trace is one run: there is nothing to draw, and no interval.
        times_run = 1 if problem.pattern is Pattern.TRACE else runs
        seen = [_run(problem, replicas, requests, generator) for _ in range(times_run)]
        p99, within = _interval([float(np.percentile(run, 99.0, method="higher")) for run in seen])
        late, late_within = _interval([float((run > slo_ms[service]).mean()) for run in seen])
        longest, count = max(float(run.max()) for run in seen), sum(map(len, seen))
        verdicts.append(Verdict(service, slo_ms[service], p99, within, late, late_within, longest, count))
    return verdicts


def _times(plan: ServicePlan, problem: Problem, model: InterferenceModel) -> dict[Replica, BatchTimes]:
    workload = {service.id: service.workload for service in problem.services}
    found: dict[Replica, BatchTimes] = {}
    on: dict[int, list[Replica]] = {}
    for replica in plan.replicas:
        on.setdefault(replica.grant.gpu, []).append(replica)
    for residents in on.values():
        placed = [Placed(workload[one.service], one.grant.batch or 1, one.grant.share_pct) for one in residents]
        found |= dict(zip(residents, batch_times(model, placed, 0.0), strict=True))
    return found


def _run(
    problem: Problem, replicas: list[tuple[Replica, BatchTimes]], requests: int, generator: np.random.Generator
) -> Floats:
    """Latencies of one run of one service."""
    rate = sum(replica.rate_rps for replica, _ in replicas)
    found = []
    for at, (replica, times) in enumerate(replicas):
        count = max(int(requests * replica.rate_rps / rate), 200)
        moments = _moments(problem, replica, len(replicas), at, count, generator)
        batching = Batching(replica.grant.batch or 1, replica.queue_delay_ms)
        latencies = serve(moments, times, batching).latencies_ms
        found.append(latencies[int(SETTLING * len(latencies)) :])
    return np.concatenate(found)


def _moments(
    problem: Problem, replica: Replica, of: int, at: int, count: int, generator: np.random.Generator
) -> Floats:
    gap_ms = 1000.0 / replica.rate_rps
    if problem.pattern is Pattern.POISSON:
        return np.cumsum(generator.exponential(gap_ms, count))
    if problem.pattern is Pattern.REGULAR:
        return np.asarray((np.arange(count) + generator.uniform()) * gap_ms)
    gaps = problem.gaps[replica.service if replica.service in problem.gaps else ""]
    return np.asarray(np.cumsum(gaps)[at::of] * (gap_ms / of))


def _interval(values: list[float]) -> tuple[float, float]:
    """Mean, and half the width of its 95 % interval."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return mean, 0.0
    return mean, T_95.get(len(values), 2.0) * float(np.std(values, ddof=1)) / sqrt(len(values))
