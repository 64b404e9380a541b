"""FFD+: iGniter's batches and least shares, first fit decreasing, as if nobody disturbed anybody."""

from gpuloom.provision.demand import Problem
from gpuloom.provision.peers.igniter_rules import Placement, as_plan, first_fit, workloads
from gpuloom.provision.plan import ServicePlan


def provision(problem: Problem) -> ServicePlan:
    placeable, unplaced = workloads(problem.services, problem.offer.igniter)
    gpus: Placement = []
    for workload in sorted(placeable, key=lambda workload: -workload.lower_pct):
        first_fit(gpus, workload, workload.lower_pct)
    return as_plan("ffd", problem.offer, gpus, unplaced)
