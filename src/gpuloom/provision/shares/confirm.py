"""The p99 of every replica of a plan, exactly: every batch size beside its neighbours, then the queue itself.

Replicas of one service on equal GPUs are asked once. With a recorded trace each has its own part of it, and is asked.
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


def batch_times(model: InterferenceModel, residents: Sequence[Placed], margin: float) -> list[BatchTimes]:
    """Of each service on one GPU, for batches of 1 to its own, the others busy with full batches."""
    rows, of = [], []
    for at, one in enumerate(residents):
        for size in range(1, int(one.batch) + 1):
            rows.append([*residents[:at], one._replace(batch=size), *residents[at + 1 :]])
            of.append(at)
    busy, load = with_margin(model.latencies(crowd_of(model, rows)), margin)
    found, owner = [], np.array(of)
    for seat in range(len(residents)):
        mine = np.maximum.accumulate(busy[owner == seat, seat])
        found.append(BatchTimes.of(mine, np.maximum.accumulate(mine + load[owner == seat, seat])))
    return found


def times_on(
    replicas: Sequence[Replica], workloads: Mapping[str, str], model: InterferenceModel, margin: float = 0.0
) -> dict[Replica, BatchTimes]:
    """Of the replicas of a plan of shares; equal GPUs are asked once."""
    found: dict[Replica, BatchTimes] = {}
    known: dict[tuple[Placed, ...], list[BatchTimes]] = {}
    for residents in on_gpus(replicas).values():
        placed = tuple(Placed(workloads[one.service], one.grant.batch or 1, one.grant.share_pct) for one in residents)
        if placed not in known:
            known[placed] = batch_times(model, placed, margin)
        found |= zip(residents, known[placed], strict=True)
    return found


def arrivals_of(problem: Problem, service: str, rate_rps: float, turn: int = 0, of: int = 1) -> Arrivals:
    """At one of the replicas, which together get all requests: dealt at random if they come at random, else in turn."""
    if problem.pattern is Pattern.POISSON:
        return Poisson(rate_rps)
    if problem.pattern is Pattern.REGULAR:
        return Regular(rate_rps)
    moments = np.cumsum(problem.demand.gaps_of(service)) * (1000.0 / (rate_rps * of))
    mine = moments[turn::of]
    return Recorded(mine if len(mine) else moments[:1])  # more replicas than requests: one that is asked once


DELAYS = (0.0, 0.25, 0.5)
"""Queue delays that are tried, in parts of a full batch's time."""


@dataclass(frozen=True, slots=True)
class Exactly:
    """Remembers what it was asked: a service of a thousand replicas has a handful of different neighbourhoods."""

    problem: Problem
    _times: dict[tuple[Placed, ...], list[BatchTimes]] = field(default_factory=dict)
    _found: dict[tuple[object, ...], tuple[float, float]] = field(default_factory=dict)

    def of(
        self, residents: tuple[Placed, ...], seat: int, service: Service, turn: int, count: int
    ) -> tuple[float, float]:
        """p99 and queue delay of the replica on that seat, whose turn it is among `count`."""
        key = (residents, seat, service.id, turn if self.problem.pattern is Pattern.TRACE else 0)
        if key not in self._found:
            if residents not in self._times:
                self._times[residents] = batch_times(self.problem.offer.model, residents, self.problem.margin)
            times, batch = self._times[residents][seat], int(residents[seat].batch)
            self._found[key] = with_delay(self.problem, service, times, batch, turn, count)
        return self._found[key]


def with_delay(
    problem: Problem, service: Service, times: BatchTimes, batch: int, turn: int, of: int
) -> tuple[float, float]:
    """The p99 and the queue delay: the shortest delay with which the SLO is kept, else that with the lowest p99."""
    found = []
    for part in DELAYS if batch > 1 else (0.0,):
        delay_ms = part * float(times.busy_ms[-1])
        p99 = p99_ms(problem, service.id, times, Batching(batch, delay_ms), service.rate_rps / of, turn, of)
        if p99 <= service.slo_p99_ms:
            return p99, delay_ms
        found.append((p99, delay_ms))
    return min(found)


def p99_ms(
    problem: Problem, service: str, times: BatchTimes, batching: Batching, rate_rps: float, turn: int = 0, of: int = 1
) -> float:
    """Of the replica whose turn it is among `of`."""
    percent = EVERY if problem.pattern is Pattern.REGULAR else PERCENT
    return latency_of(times, batching, arrivals_of(problem, service, rate_rps, turn, of)).percentile_ms(percent)
