"""Check a provisioning plan by event simulation, with measured times where there are any, not the planner's own model.

Measured: latency alone by batch and share (a table for each model; below and above its shares it goes on as the fitted
curve does), and the slowdown beside others by gpu-lets' regression on *measured* use of L2 and memory, fitted to the
measured pairs. Nobody has measured more than two models, or two copies of one, side by side: there uses add up.
Neighbours count as always busy with full batches, which is more than they ever do. On MIG instances batches take as
long as was measured there, with as many processes inside. Every replica is a queue of its own with Triton's batcher; a
service's p99 is over all its replicas, and its interval over independent runs. A trace is one run, and has no interval.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt

import numpy as np

from gpuloom.perf.queueing.batching import Batching, BatchTimes
from gpuloom.perf.queueing.event_run import serve
from gpuloom.perf.sharing.alone_table import SoloTable
from gpuloom.perf.sharing.gpulets import GpuletsModel, fit_gpulets, measured_services
from gpuloom.perf.sharing.interference import Crowd, Floats, Latencies
from gpuloom.perf.sharing.model import SharingModel
from gpuloom.perf.sharing.pairs import Pairs
from gpuloom.provision.demand import Demand, Pattern
from gpuloom.provision.plan import Replica, ServicePlan
from gpuloom.work.measured.service_pairs import MeasuredServices

REQUESTS, RUNS = 20_000, 8
FEWEST = 200
"""Requests of the replica that gets fewest: all run for as long, so that each counts by its rate."""
MORE = (1, 4, 16)
"""Times the requests that are simulated, where fewer left it open."""
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
    """Mean over the runs, and half the width of its 95 % interval; None if there was one run."""
    p99_within_ms: float | None
    violations: float
    """Part of the requests above the SLO, and half the width of its interval."""
    violations_within: float | None
    longest_ms: float
    requests: int

    @property
    def held(self) -> bool:
        """Whether the whole interval is within the SLO."""
        return self.p99_ms + (self.p99_within_ms or 0.0) <= self.slo_ms

    @property
    def open(self) -> bool:
        """Whether the SLO lies in the interval: more runs could tell."""
        return abs(self.p99_ms - self.slo_ms) < (self.p99_within_ms or 0.0)


def verify(
    plan: ServicePlan,
    demand: Demand,
    times: Mapping[Replica, BatchTimes],
    generator: np.random.Generator,
    requests: int = REQUESTS,
    runs: int = RUNS,
) -> list[Verdict]:
    """A verdict on each service that the plan serves, by name. `times` are those of the world that it is put into.

    `requests`: of one service in one run, or more, until its least asked replica has had FEWEST. Where the interval has
    the SLO in it, nothing is known yet: then up to MORE times as many are simulated. A trace is run once.
    """
    verdicts = []
    for service, mine in sorted(plan.by_service().items()):
        replicas = [(replica, times[replica]) for replica in mine]
        if demand.pattern is Pattern.TRACE:
            verdicts.append(_verdict(service, demand, [_replayed(demand, replicas)]))
            continue
        for more in MORE:
            seen = [_run(demand.pattern, replicas, more * requests, generator) for _ in range(runs)]
            found = _verdict(service, demand, seen)
            if not found.open:
                break
        verdicts.append(found)
    return verdicts


def _verdict(service: str, demand: Demand, seen: Sequence[Floats]) -> Verdict:
    """`seen`: latencies of each run."""
    slo_ms = demand.slo_ms[service]
    p99, within = _interval([float(np.percentile(run, 99.0, method="higher")) for run in seen])
    late, late_within = _interval([float((run > slo_ms).mean()) for run in seen])
    longest, count = max(float(run.max()) for run in seen), sum(map(len, seen))
    return Verdict(service, slo_ms, p99, within, late, late_within, longest, count)


def _run(
    pattern: Pattern, replicas: Sequence[tuple[Replica, BatchTimes]], requests: int, generator: np.random.Generator
) -> Floats:
    """Latencies of one run of one service; those of the first part, in which queues settle, are not counted."""
    rates = [replica.rate_rps for replica, _ in replicas]
    seconds = max(requests / sum(rates), FEWEST / min(rates))
    found = []
    for replica, times in replicas:
        count, gap_ms = max(round(seconds * replica.rate_rps), 1), 1000.0 / replica.rate_rps
        if pattern is Pattern.POISSON:
            moments = np.cumsum(generator.exponential(gap_ms, count))
        else:
            moments = np.asarray((np.arange(count) + generator.uniform()) * gap_ms, float)
        latencies = _served(moments, replica, times)
        found.append(latencies[int(SETTLING * len(latencies)) :])
    return np.concatenate(found)


def _replayed(demand: Demand, replicas: Sequence[tuple[Replica, BatchTimes]]) -> Floats:
    """Latencies of all requests of a trace, dealt in turn."""
    rate_rps = sum(replica.rate_rps for replica, _ in replicas)
    moments = np.cumsum(demand.gaps_of(replicas[0][0].service)) * (1000.0 / rate_rps)
    return np.concatenate(
        [_served(moments[at :: len(replicas)], replica, times) for at, (replica, times) in enumerate(replicas)]
    )


def _served(moments: Floats, replica: Replica, times: BatchTimes) -> Floats:
    return serve(moments, times, Batching(replica.grant.batch or 1, replica.queue_delay_ms)).latencies_ms


def _interval(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean, and half the width of its 95 % interval: None for one value."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return mean, None
    return mean, T_95.get(len(values), 2.0) * float(np.std(values, ddof=1)) / sqrt(len(values))
