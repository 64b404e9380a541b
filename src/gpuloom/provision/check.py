"""Check a provisioning plan by event simulation, with measured times where there are any, not the planner's own model.

Where pairs were measured (`perf.sharing.measured`), batches of shares take as long as there. Neighbours count as always
busy with full batches, which is more than they ever do. On MIG instances batches take as long as was measured there,
with as many processes inside. Every replica is a queue of its own with Triton's batcher; a service's p99 is over all
its replicas, and its interval over independent runs. A trace is one run, and has no interval.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

from gpuloom.errors import InputError
from gpuloom.perf.arrays import Floats
from gpuloom.perf.queueing.batching import Batching, BatchTimes
from gpuloom.perf.queueing.event_run import serve
from gpuloom.perf.sharing.measured import measured_model
from gpuloom.provision.demand import Demand, Pattern
from gpuloom.provision.plan import Replica, ServicePlan
from gpuloom.provision.supply import SharedGpus, Supply
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
    def undecided(self) -> bool:
        """Whether the SLO lies in the interval: more runs could tell."""
        return abs(self.p99_ms - self.slo_ms) < (self.p99_within_ms or 0.0)


def world_of(
    plan: ServicePlan,
    demand: Demand,
    supplies: Sequence[Supply],
    measured: MeasuredServices | None,
    figures: Mapping[str, Mapping[str, Any]],
) -> Iterator[tuple[Supply, str | None]]:
    """The types of GPU that a plan has, each as it was measured, as far as it was; and what is only assumed of it.

    `figures` are those that ship, by type: of these types `measured` may speak, of no others.
    """
    for supply in supplies:
        if supply.name in plan.counts:
            yield _as_measured(supply, plan, demand, measured, figures)


def _as_measured(
    supply: Supply,
    plan: ServicePlan,
    demand: Demand,
    measured: MeasuredServices | None,
    figures: Mapping[str, Mapping[str, Any]],
) -> tuple[Supply, str | None]:
    if not isinstance(supply, SharedGpus):
        return supply, f"{supply.name}: the check simulates the measured points that the plan is made from"
    if measured is None or supply.name not in figures:
        why = "no --measured FILE" if measured is None else f"{supply.name} is not what --measured was measured on"
        return supply, f"{why}: the check simulates the planner's own predictions"
    residents = {replica.service for replica in plan.replicas if plan.type_of(replica.grant.gpu) == supply.name}
    models = {service.workload for service in demand.services if service.id in residents}
    if unknown := models - set(measured.solo_ms):
        raise InputError(f"--measured has no solo table of {min(unknown)}: expected one of every model")
    world = measured_model(measured, figures[supply.name])
    if unknown := models - set(world.names):
        raise InputError(f"--measured has no use of L2 of {min(unknown)}, or no figures ship of it: expected both")
    return supply.in_world(world), None


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
    for service, replicas in sorted(plan.by_service().items()):
        timed = [(replica, times[replica]) for replica in replicas]
        if demand.pattern is Pattern.TRACE:
            verdicts.append(_verdict(service, demand, [_replayed(demand, timed)]))
            continue
        for more in MORE:
            seen = [_run(demand.pattern, timed, more * requests, generator) for _ in range(runs)]
            verdict = _verdict(service, demand, seen)
            if not verdict.undecided:
                break
        verdicts.append(verdict)
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
    counted_ms = []
    for replica, times in replicas:
        count, gap_ms = max(round(seconds * replica.rate_rps), 1), 1000.0 / replica.rate_rps
        if pattern is Pattern.POISSON:
            moments = np.cumsum(generator.exponential(gap_ms, count))
        else:
            moments = np.asarray((np.arange(count) + generator.uniform()) * gap_ms, float)
        latencies_ms = _served(moments, replica, times)
        counted_ms.append(latencies_ms[int(SETTLING * len(latencies_ms)) :])
    return np.concatenate(counted_ms)


def _replayed(demand: Demand, replicas: Sequence[tuple[Replica, BatchTimes]]) -> Floats:
    """Latencies of all requests of a trace, dealt in turn."""
    rate_rps = sum(replica.rate_rps for replica, _ in replicas)
    moments = np.cumsum(demand.gaps_of(replicas[0][0].service)) * (1000.0 / rate_rps)
    return np.concatenate(
        [_served(moments[turn :: len(replicas)], replica, times) for turn, (replica, times) in enumerate(replicas)]
    )


def _served(moments: Floats, replica: Replica, times: BatchTimes) -> Floats:
    return serve(moments, times, Batching(replica.grant.batch or 1, replica.queue_delay_ms)).latencies_ms


def _interval(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean, and half the width of its 95 % interval: None for one value."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return mean, None
    return mean, T_95.get(len(values), 2.0) * float(np.std(values, ddof=1)) / sqrt(len(values))
