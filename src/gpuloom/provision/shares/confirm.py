"""The p99 of every replica of a plan, exactly: every batch size beside its neighbours, then the queue itself.

Replicas of one service on equal GPUs are computed once. With a recorded trace each has a part of its own, and is run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from gpuloom.perf.queueing.batching import Batching, BatchTimes
from gpuloom.perf.queueing.latency import Arrivals, Poisson, Recorded, Regular, latency_of
from gpuloom.perf.sharing.interference import InterferenceModel, Placed, crowd_of
from gpuloom.provision.demand import Pattern, Problem
from gpuloom.provision.plan import Replica, on_gpus
from gpuloom.provision.shares.items import with_margin
from gpuloom.work.model import Service

PERCENT = 99.0
EVERY = 99.999
"""Of regular arrivals, of which far fewer are run: the longest."""
DELAYS = (0.0, 0.25, 0.5)
"""Queue delays that are tried, in parts of a full batch's time."""


def batch_times(model: InterferenceModel, residents: Sequence[Placed], margin: float) -> list[BatchTimes]:
    """Of each service on one GPU, for batches of 1 to its own, the others busy with full batches."""
    crowds, owners = [], []
    for seat, resident in enumerate(residents):
        for size in range(1, int(resident.batch) + 1):
            crowds.append([*residents[:seat], resident._replace(batch=size), *residents[seat + 1 :]])
            owners.append(seat)
    busy, load = with_margin(model.latencies(crowd_of(model, crowds)), margin)
    times, owner = [], np.array(owners)
    for seat in range(len(residents)):
        busy_ms = np.maximum.accumulate(busy[owner == seat, seat])
        times.append(BatchTimes.of(busy_ms, np.maximum.accumulate(busy_ms + load[owner == seat, seat])))
    return times


def times_on(
    replicas: Sequence[Replica], workloads: Mapping[str, str], model: InterferenceModel, margin: float = 0.0
) -> dict[Replica, BatchTimes]:
    """Of the replicas of a plan of shares; equal GPUs are computed once."""
    times: dict[Replica, BatchTimes] = {}
    known: dict[tuple[Placed, ...], list[BatchTimes]] = {}
    for residents in on_gpus(replicas).values():
        placed = tuple(
            Placed(workloads[replica.service], replica.grant.batch or 1, replica.grant.share_pct)
            for replica in residents
        )
        if placed not in known:
            known[placed] = batch_times(model, placed, margin)
        times |= zip(residents, known[placed], strict=True)
    return times


def arrivals_of(problem: Problem, service: str, rate_rps: float, turn: int = 0, replicas: int = 1) -> Arrivals:
    """At the replica whose turn it is among so many, which get `rate_rps` each.

    Requests are dealt to them at random if they come at random, else in turn.
    """
    if problem.pattern is Pattern.POISSON:
        return Poisson(rate_rps)
    if problem.pattern is Pattern.REGULAR:
        return Regular(rate_rps)
    moments = np.cumsum(problem.demand.gaps_of(service)) * (1000.0 / (rate_rps * replicas))
    dealt = moments[turn::replicas]
    return Recorded(dealt if len(dealt) else moments[:1])  # where replicas outnumber requests, one gets a single one


@dataclass(frozen=True, slots=True)
class Exactly:
    """Remembers what it computed: a service of a thousand replicas has a handful of different neighbourhoods."""

    problem: Problem
    _times: dict[tuple[Placed, ...], list[BatchTimes]] = field(default_factory=dict)
    _known: dict[tuple[object, ...], tuple[float, float]] = field(default_factory=dict)

    def of(
        self, residents: tuple[Placed, ...], seat: int, service: Service, turn: int, replicas: int
    ) -> tuple[float, float]:
        """p99 and queue delay of the replica on that seat, whose turn it is among so many."""
        key = (residents, seat, service.id, turn if self.problem.pattern is Pattern.TRACE else 0)
        if key not in self._known:
            if residents not in self._times:
                self._times[residents] = batch_times(self.problem.offer.model, residents, self.problem.margin)
            times, batch = self._times[residents][seat], int(residents[seat].batch)
            self._known[key] = with_delay(self.problem, service, times, batch, turn, replicas)
        return self._known[key]


def with_delay(
    problem: Problem, service: Service, times: BatchTimes, batch: int, turn: int, replicas: int
) -> tuple[float, float]:
    """The p99 and the queue delay: the shortest delay with which the SLO is kept, else that with the lowest p99."""
    too_long = []
    for part in DELAYS if batch > 1 else (0.0,):
        delay_ms = part * float(times.busy_ms[-1])
        batching, rate_rps = Batching(batch, delay_ms), service.rate_rps / replicas
        p99 = p99_ms(problem, service.id, times, batching, rate_rps, turn, replicas)
        if p99 <= service.slo_p99_ms:
            return p99, delay_ms
        too_long.append((p99, delay_ms))
    return min(too_long)


def p99_ms(
    problem: Problem,
    service: str,
    times: BatchTimes,
    batching: Batching,
    rate_rps: float,
    turn: int = 0,
    replicas: int = 1,
) -> float:
    """Of the replica whose turn it is among so many, which get `rate_rps` each."""
    percent = EVERY if problem.pattern is Pattern.REGULAR else PERCENT
    return latency_of(times, batching, arrivals_of(problem, service, rate_rps, turn, replicas)).percentile_ms(percent)
