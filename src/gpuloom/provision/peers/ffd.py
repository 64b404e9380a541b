"""FFD+: iGniter's batches and least shares, first fit decreasing, as if nobody disturbed anybody."""

from gpuloom.provision.demand import Problem
from gpuloom.provision.peers.igniter_rules import Placement, as_plan, workloads
from gpuloom.provision.plan import ServicePlan


def provision(problem: Problem) -> ServicePlan:
    found, unplaced = workloads(problem.services, problem.offer.igniter)
    gpus: Placement = []
    for one in sorted(found, key=lambda one: -one.lower_pct):
        fits = (gpu for gpu in gpus if sum(share for _, share in gpu) + one.lower_pct <= 100.0 + 1e-9)
        first = next(fits, None)
        if first is None:
            gpus.append([(one, one.lower_pct)])
        else:
            first.append((one, one.lower_pct))
    return as_plan("ffd", problem.offer, gpus, unplaced)
