"""iGniter's provisioning (TPDS'23, Algorithms 1 and 2), as published: the peer.

Largest share first; on every open GPU the workload is added and whoever would then miss T gets a unit more, until all
keep it; the GPU whose total grows least takes it. The plan depends on the order of equal shares in the input. It knows
nothing of memory, and of arrivals only their rate.
"""

from collections.abc import Sequence

from gpuloom.perf.sharing.igniter import IgniterModel
from gpuloom.perf.sharing.interference import predict
from gpuloom.provision.demand import Problem
from gpuloom.provision.peers.igniter_rules import FULL_PCT, Placement, Workload, as_plan, workloads
from gpuloom.provision.plan import ServicePlan


def provision(problem: Problem) -> ServicePlan:
    offer = problem.offer
    placeable, unplaced = workloads(problem.services, offer.igniter)
    gpus: Placement = []
    for workload in sorted(placeable, key=lambda workload: -workload.lower_pct):
        place(workload, gpus, offer.igniter)
    return as_plan("igniter", offer, gpus, unplaced)


def place(workload: Workload, gpus: Placement, model: IgniterModel) -> None:
    """On the GPU whose total grows least; where none has room, on a further one."""
    best, least = -1, float("inf")
    grown: list[tuple[Workload, float]] = []
    for gpu, residents in enumerate(gpus):
        before = sum(share for _, share in residents)
        if before + workload.lower_pct > FULL_PCT:
            continue
        whose = [*(resident for resident, _ in residents), workload]
        shares = grow(whose, [*(share for _, share in residents), workload.lower_pct], model)
        if shares is not None and sum(shares) - before < least - 1e-9:
            best, least, grown = gpu, sum(shares) - before, list(zip(whose, shares, strict=True))
    if best < 0:
        gpus.append([(workload, workload.lower_pct)])
    else:
        gpus[best] = grown


def grow(whose: Sequence[Workload], shares: list[float], model: IgniterModel) -> list[float] | None:
    """Shares with which all keep T, or None if they do not fit on one GPU."""
    while sum(shares) <= FULL_PCT:
        predicted = predict(model, [workload.placed(share) for workload, share in zip(whose, shares, strict=True)])
        late = [latency.total_ms > workload.target_ms for workload, latency in zip(whose, predicted, strict=True)]
        if not any(late):
            return shares
        shares = [share + model.hardware.share_unit_pct * is_late for share, is_late in zip(shares, late, strict=True)]
    return None
