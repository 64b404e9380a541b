"""gpu-lets+ (ATC'22): a few sizes, at most two on a GPU, slowdown by a regression on both sides' use of the L2.

Highest rate first. A service asks for the size at the knee of its throughput curve at batch 1, up to which more SMs
pay, or a larger one if its rate needs it; what a whole GPU cannot serve goes to a further one. The smallest gpu-let
that is large enough, and on which neither side is predicted late, takes it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpuloom.gpus.grant import Grant
from gpuloom.perf.sharing.gpulets import GpuletsModel, profiled_services
from gpuloom.perf.sharing.interference import Placed, predict, solo_ms
from gpuloom.provision.demand import Problem
from gpuloom.provision.offer import Offer
from gpuloom.provision.plan import MOST_REPLICAS, Replica, ServicePlan, Unplaced
from gpuloom.work.model import Service

SIZES_PCT = (10.0, 20.0, 40.0, 50.0, 60.0, 80.0, 100.0)
MOST_BATCH = 32
COEFFICIENTS = (0.962121, 0.00236750, 0.00431410, 0.0, 0.0)
"""Fitted by `perf.sharing.gpulets.fit_gpulets` to the 750 measured pairs, with the L2 use of iGniter's profiles."""


@dataclass(frozen=True, slots=True)
class Let:
    service: Service
    rate_rps: float
    batch: int
    share_pct: float

    @property
    def placed(self) -> Placed:
        return Placed(self.service.workload, self.batch, self.share_pct)


def provision(problem: Problem) -> ServicePlan:
    model = GpuletsModel(profiled_services(problem.offer.igniter, problem.offer.igniter.names), COEFFICIENTS)
    gpus: list[list[Let]] = []
    unplaced: list[Unplaced] = []
    for service in sorted(problem.services, key=lambda service: -service.rate_rps):
        left, knee = service.rate_rps, knee_pct(model, service.workload)
        whole = fit(service, left, 100.0, model)
        if whole is not None and left > whole.rate_rps * MOST_REPLICAS:
            why = f"{left:g} requests per second need more than {MOST_REPLICAS:,} replicas"
            unplaced.append(Unplaced(service.id, why))
            continue
        for _ in range(MOST_REPLICAS):
            if left <= 1e-9:
                break
            let = _place(service, left, knee, gpus, model)
            if let is None:
                break
            left -= let.rate_rps
        if left > 1e-9:
            unplaced.append(
                Unplaced(service.id, f"no gpu-let serves {left:g} requests per second in {service.slo_p99_ms:g} ms")
            )
    return _as_plan(problem.offer, gpus, unplaced, model)


def knee_pct(model: GpuletsModel, name: str) -> float:
    """The size at which throughput at batch 1 is furthest above the straight line from the smallest to the largest."""
    sizes = np.array(SIZES_PCT)
    throughput = 1.0 / solo_ms(model, name, 1, sizes)
    rise = (throughput - throughput[0]) / (throughput[-1] - throughput[0])
    return float(sizes[np.argmax(rise - (sizes - sizes[0]) / (sizes[-1] - sizes[0]))])


def _place(service: Service, left: float, knee: float, gpus: list[list[Let]], model: GpuletsModel) -> Let | None:
    """Smallest size from the wanted one up that some GPU has left, else a GPU of its own."""
    needed = next(
        (size for size in SIZES_PCT if (let := fit(service, left, size, model)) and let.rate_rps >= left), 100
    )
    for size in SIZES_PCT:
        if size < max(needed, knee):
            continue
        let = fit(service, left, size, model)
        if let is None:
            continue
        for residents in gpus if size < 100.0 else ():
            if len(residents) == 1 and residents[0].share_pct + size <= 100.0 and holds([*residents, let], model):
                residents.append(let)
                return let
        if size == 100.0 or holds([let], model):
            gpus.append([let])
            return let
    return None


def fit(service: Service, rate_rps: float, size_pct: float, model: GpuletsModel) -> Let | None:
    """How much of the rate the size serves alone in half of the SLO, and the batch with the most room on both sides."""
    batches = np.arange(1, (service.max_batch or MOST_BATCH) + 1)[:MOST_BATCH]
    times = solo_ms(model, service.workload, batches, size_pct)
    early, serves = service.slo_p99_ms / 2.0 / times, 1000.0 * batches / times
    if early[0] < 1.0:
        return None
    served = min(rate_rps, float(serves[early >= 1.0].max()))
    return Let(service, served, int(batches[np.argmax(np.minimum(early, serves / served))]), size_pct)


def holds(residents: Sequence[Let], model: GpuletsModel) -> bool:
    predicted = predict(model, [let.placed for let in residents])
    return all(
        latency.total_ms <= let.service.slo_p99_ms / 2 and latency.throughput_per_s >= let.rate_rps - 1e-9
        for let, latency in zip(residents, predicted, strict=True)
    )


def _as_plan(offer: Offer, gpus: list[list[Let]], unplaced: list[Unplaced], model: GpuletsModel) -> ServicePlan:
    replicas: list[Replica] = []
    count: dict[str, int] = {}
    for gpu, residents in enumerate(gpus):
        for let, latency in zip(residents, predict(model, [let.placed for let in residents]), strict=True):
            number = count[let.service.id] = count.get(let.service.id, -1) + 1
            grant = Grant(gpu, share_pct=let.share_pct, mem_mib=let.service.mem_mib, batch=let.batch)
            replicas.append(Replica(let.service.id, number, grant, 0.0, let.rate_rps, 2.0 * latency.total_ms))
    cost = round(len(gpus) * offer.cost_per_hour, 2)
    return ServicePlan("gpulets", offer.name, len(gpus), cost, None, tuple(replicas), tuple(unplaced))
