"""What services cost at least where several types of GPU are on offer: for each service by type, and for all together.

On each type services have sets of values that sum to at most 1 on any GPU (`shares.bound`, `mig.values`): a type needs
at least as many GPUs as the values of its services sum to, in every set. Which service goes to which type is an integer
program (HiGHS), with the price of the GPUs as the cost. Whatever it could not exclude counts, so its own bound is the
answer. It is a bound for plans that keep each service on one type.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import inf

import numpy as np

from gpuloom.perf.arrays import Floats
from gpuloom.provision.demand import Demand
from gpuloom.provision.plan import ServicePlan
from gpuloom.provision.supply import Supply

FEW = 128
"""Services up to which each goes to one type as a whole; beyond, parts of it may, which only lowers the bound."""
NODES = 500
"""Of the search: not seconds, so that every machine finds the same."""
_ROUNDING = 1e-6


def values_on(demand: Demand, supply: Supply) -> list[Floats] | None:
    """Sets of values, infinite for whom the type has no profile or no room; None if nothing is known."""
    known = np.array([service.workload in supply.models for service in demand.services])
    nothing = np.full(len(known), inf)
    if not known.any():
        return [nothing]
    services = (service for service, is_known in zip(demand.services, known, strict=True) if is_known)
    known_sets = supply.values(demand.only(services))
    if known_sets is None:
        return None
    sets = []
    for values in known_sets:
        sets.append(nothing.copy())
        sets[-1][known] = values
    return sets


def costs_of(demand: Demand, supplies: Sequence[Supply]) -> Floats:
    """What each service costs at least on each type: a row for each supply; infinite where it cannot be served.

    Where nothing is known (a trace) a service costs a GPU.
    """
    rows = []
    for supply in supplies:
        sets = values_on(demand, supply)
        known = [service.workload in supply.models for service in demand.services]
        rows.append((np.where(known, 1.0, inf) if sets is None else sets[0]) * supply.cost_per_hour)
    return np.array(rows)


def bounded(plan: ServicePlan, demand: Demand, supplies: Sequence[Supply]) -> ServicePlan:
    """With its lower bounds, in GPUs of any type and in cost; None if a type has nothing to say."""
    gone = {unplaced.service for unplaced in plan.unplaced}
    placed = [service for service in demand.services if service.id not in gone]
    if not placed:
        return replace(plan, lower_bound_gpus=0, lower_bound_cost=0.0)
    values = [sets for supply in supplies if (sets := values_on(demand.only(placed), supply)) is not None]
    if len(values) < len(supplies):
        return replace(plan, lower_bound_gpus=None, lower_bound_cost=None)
    gpus = least(values, [1.0] * len(supplies))
    cost = least(values, [supply.cost_per_hour for supply in supplies])
    return replace(plan, lower_bound_gpus=round(gpus), lower_bound_cost=round(cost, 2))


def least(values: Sequence[Sequence[Floats]], price: Sequence[float]) -> float:
    """The least that GPUs of these prices can cost, as far as it is proved. Every service is finite on some type."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import block_diag, coo_matrix, csr_matrix, hstack, vstack

    types, services = len(values), len(values[0][0])
    served = [np.flatnonzero(np.isfinite(sets[0])) for sets in values]
    sums = [np.unique(np.array(sets)[:, who], axis=0) for sets, who in zip(values, served, strict=True)]
    whose = np.concatenate(served)
    count = len(whose)
    one_home = coo_matrix((np.ones(count), (whose, np.arange(count))), shape=(services, count))
    limits = vstack(
        [
            hstack(
                [
                    block_diag([-np.ones((len(rows), 1)) for rows in sums]),
                    block_diag([csr_matrix(rows) for rows in sums]),
                ]
            ),
            hstack([csr_matrix((services, types)), one_home]),
        ]
    ).tocsr()
    count_sums = sum(map(len, sums))
    low = np.concatenate([np.full(count_sums, -inf), np.ones(services)])
    high = np.concatenate([np.full(count_sums, _ROUNDING), np.ones(services)])
    solved = milp(
        np.concatenate([price, np.zeros(count)]),
        integrality=np.concatenate([np.ones(types), np.full(count, float(services <= FEW))]),
        bounds=Bounds(0.0, np.concatenate([np.full(types, inf), np.ones(count)])),
        constraints=LinearConstraint(limits, low, high),
        options={"node_limit": NODES, "mip_rel_gap": 1e-6},
    )
    return _payable(0.0 if solved.mip_dual_bound is None else float(solved.mip_dual_bound), price)


def _payable(cost: float, price: Sequence[float]) -> float:
    """The least that whole GPUs can cost that is no less."""
    first, rest = price[0], price[1:]
    enough = int(np.ceil(cost / first - _ROUNDING))
    if not rest:
        return max(enough, 0) * first
    return min(count * first + _payable(max(cost - count * first, 0.0), rest) for count in range(enough + 1))
