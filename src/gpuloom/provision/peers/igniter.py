"""iGniter's provisioning (TPDS'23, Algorithms 1 and 2), as published: the peer.

Largest share first; on every open GPU the workload is added and whoever would then miss T gets a unit more, until all
keep it; the GPU whose total grows least takes it. The plan depends on the order of equal shares in the input. It knows
nothing of memory, and of arrivals only their rate.
"""

from collections.abc import Sequence

from gpuloom.perf.sharing.igniter import IgniterModel
from gpuloom.perf.sharing.interference import predict
from gpuloom.provision.demand import Problem
from gpuloom.provision.peers.igniter_rules import Placement, Workload, as_plan, workloads
from gpuloom.provision.plan import ServicePlan

_FULL_PCT = 100.0 + 1e-9


def provision(problem: Problem) -> ServicePlan:
    offer = problem.offer
    found, unplaced = workloads(problem.services, offer.igniter)
    gpus: Placement = []
    for one in sorted(found, key=lambda one: -one.lower_pct):
        place(one, gpus, offer.igniter)
    return as_plan("igniter", offer, gpus, unplaced)


def place(one: Workload, gpus: Placement, model: IgniterModel) -> None:
    best, least = -1, float("inf")
    grown: list[float] = []
    for at, residents in enumerate(gpus):
        before = sum(share for _, share in residents)
        if before + one.lower_pct > _FULL_PCT:
            continue
        shares = grow([*(who for who, _ in residents), one], [*(share for _, share in residents), one.lower_pct], model)
        if shares is not None and sum(shares) - before < least - 1e-9:
            best, least, grown = at, sum(shares) - before, shares
    if best < 0:
        gpus.append([(one, one.lower_pct)])
    else:
        whose = [*(who for who, _ in gpus[best]), one]
        gpus[best] = list(zip(whose, grown, strict=True))


def grow(whose: Sequence[Workload], shares: list[float], model: IgniterModel) -> list[float] | None:
    """Shares with which all keep T, or None if they do not fit on one GPU."""
    while sum(shares) <= _FULL_PCT:
        predicted = predict(model, [one.at(share) for one, share in zip(whose, shares, strict=True)])
        late = [latency.total_ms > one.target_ms for one, latency in zip(whose, predicted, strict=True)]
        if not any(late):
            return shares
        shares = [share + model.hardware.share_unit_pct * is_late for share, is_late in zip(shares, late, strict=True)]
    return None
