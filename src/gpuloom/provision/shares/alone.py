"""Ours, blind: shares and batches as if nobody slowed anybody down; the plan's p99s are then those beside the others.

What ours costs more than this is the price of keeping promises beside neighbours; what this breaks is why.
"""

from collections import Counter
from dataclasses import dataclass, replace

from gpuloom.perf.sharing.interference import Crowd, InterferenceModel, Latencies, Placed
from gpuloom.provision.demand import Problem
from gpuloom.provision.plan import Replica, ServicePlan, on_gpus
from gpuloom.provision.shares.confirm import Exactly
from gpuloom.provision.shares.planner import provision as plan_with


@dataclass(frozen=True, slots=True)
class Blind:
    """A model of which only what it says of a service alone is believed."""

    model: InterferenceModel

    @property
    def names(self) -> tuple[str, ...]:
        return self.model.names

    def latencies(self, crowd: Crowd) -> Latencies:
        each = Crowd(
            crowd.model.reshape(-1, 1), crowd.batch.reshape(-1, 1), crowd.share_pct.reshape(-1, 1), crowd.device
        )
        alone = self.model.latencies(each)
        parts = (alone.load_ms, alone.gpu_ms, alone.feedback_ms, alone.low_ms, alone.high_ms)
        return Latencies(*(part.reshape(crowd.model.shape) for part in parts))


def provision(problem: Problem) -> ServicePlan:
    plan = plan_with(replace(problem, offer=replace(problem.offer, model=Blind(problem.offer.model))))
    return replace(plan, strategy="alone", lower_bound_gpus=None, replicas=_as_seen(problem, plan))


def _as_seen(problem: Problem, plan: ServicePlan) -> tuple[Replica, ...]:
    """The same replicas with the p99 that they have beside each other."""
    exactly, count = Exactly(problem), Counter(replica.service for replica in plan.replicas)
    services = {service.id: service for service in problem.services}
    seen: dict[Replica, float] = {}
    for residents in on_gpus(plan.replicas).values():
        placed = tuple(
            Placed(services[one.service].workload, one.grant.batch or 1, one.grant.share_pct) for one in residents
        )
        for seat, one in enumerate(residents):
            seen[one], _ = exactly.of(placed, seat, services[one.service], one.number, count[one.service])
    return tuple(replace(replica, predicted_p99_ms=seen[replica]) for replica in plan.replicas)
