"""Which Poisson arrivals need as much as a recorded trace: those stand for it where the planner reads its tables.

The trace is run through the queue of the service alone on a GPU, with the share and batch of ever higher Poisson rates,
until its p99 is within the SLO. Only a start: the plan is confirmed with the trace itself.
"""

import numpy as np

from gpuloom.perf.arrays import Floats
from gpuloom.perf.queueing.batching import Batching, BatchTimes
from gpuloom.perf.sharing.interference import Placed
from gpuloom.provision.demand import Pattern, Problem
from gpuloom.provision.shares.candidates import alone, choose
from gpuloom.provision.shares.confirm import batch_times, p99_ms
from gpuloom.provision.shares.items import Grid, items_of
from gpuloom.provision.shares.laws import PoissonLaw
from gpuloom.work.model import Service

STEPS = np.geomspace(0.5, 4.0, 13)
"""Rates that are tried, in parts of the service's own."""


def rates_of(problem: Problem, grid: Grid) -> Floats:
    """Requests per ms of each service, as the law is asked."""
    rates = np.array([service.rate_rps / 1000.0 for service in problem.services])
    if problem.pattern is not Pattern.TRACE:
        return rates
    return np.array([_rate(problem, grid, service) for service in problem.services])


def _rate(problem: Problem, grid: Grid, service: Service) -> float:
    """The first step that is enough; where no share of one GPU is, replicas have to do it: from its own rate on."""
    own = service.rate_rps / 1000.0
    for step in STEPS:
        items = items_of((service,), [1], np.array([own * step]), problem.offer.model)
        choice = choose(items, grid, PoissonLaw(sure=False), alone(1))
        if choice.units[0] > grid.units:
            return float(own * max(step, 1.0))
        times, batch = _times(problem, grid, service, int(choice.batch[0]), int(choice.units[0]))
        if p99_ms(problem, service.id, times, Batching(batch), service.rate_rps) <= service.slo_p99_ms:
            return float(own * step)
    return float(own * STEPS[-1])


def _times(problem: Problem, grid: Grid, service: Service, column: int, units: int) -> tuple[BatchTimes, int]:
    """Alone with so many units, and the max batch of that column."""
    batch = int(grid.batches[column])
    placed = Placed(service.workload, batch, units * problem.offer.unit_pct)
    return batch_times(problem.offer.model, [placed], problem.margin)[0], batch
