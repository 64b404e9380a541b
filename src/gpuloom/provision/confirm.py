"""The p99 of every replica of a plan, exactly: every batch size beside its neighbours, then the queue itself."""

from collections.abc import Sequence

import numpy as np

from gpuloom.perf.batching import Batching, BatchTimes
from gpuloom.perf.interference import InterferenceModel, Placed, crowd_of
from gpuloom.perf.queueing import Arrivals, Poisson, Recorded, Regular, latency_of
from gpuloom.provision.items import with_margin
from gpuloom.provision.problem import Pattern, Problem

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


def arrivals_of(problem: Problem, service: str, rate_rps: float, replicas: int = 1) -> Arrivals:
    """At one of the replicas, which together get all requests: dealt at random if they come at random, else in turn."""
    if problem.pattern is Pattern.POISSON:
        return Poisson(rate_rps)
    if problem.pattern is Pattern.REGULAR:
        return Regular(rate_rps)
    gaps = problem.gaps[service if service in problem.gaps else ""]
    moments = np.cumsum(gaps) * (1000.0 / (rate_rps * replicas))
    return Recorded(moments[::replicas])


DELAYS = (0.0, 0.25, 0.5)
"""Queue delays that are tried, in parts of a full batch's time."""


def with_delay(
    problem: Problem, service: str, times: BatchTimes, batch: int, rate_rps: float, of: int
) -> tuple[float, float]:
    """The p99 and the queue delay: the shortest delay with which the SLO is kept, else that with the lowest p99."""
    slo_ms = next(one.slo_p99_ms for one in problem.services if one.id == service)
    found = []
    for part in DELAYS if batch > 1 else (0.0,):
        delay_ms = part * float(times.busy_ms[-1])
        p99 = p99_ms(problem, service, times, Batching(batch, delay_ms), rate_rps, of)
        if p99 <= slo_ms:
            return p99, delay_ms
        found.append((p99, delay_ms))
    return min(found)


def p99_ms(problem: Problem, service: str, times: BatchTimes, batching: Batching, rate_rps: float, of: int) -> float:
    """`of`: how many replicas there are."""
    percent = EVERY if problem.pattern is Pattern.REGULAR else PERCENT
    return latency_of(times, batching, arrivals_of(problem, service, rate_rps, of)).percentile_ms(percent)
