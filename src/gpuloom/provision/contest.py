"""Which plan is cheapest: ours over all types on offer, ours on each alone, and the peers on their best type."""

from collections.abc import Sequence
from dataclasses import replace

from gpuloom.errors import InputError
from gpuloom.provision.demand import Demand
from gpuloom.provision.plan import ServicePlan
from gpuloom.provision.spread import check_models, spread
from gpuloom.provision.strategies import PEERS
from gpuloom.provision.supply import MIG_STRATEGIES, MigGpus, SharedGpus, Supply

Ways = Sequence[Sequence[Supply]]
"""Sets of types, each of which services could be spread over."""


def best_plan(demand: Demand, supplies: Sequence[Supply], strategy: str) -> ServicePlan:
    """Ours mixes types; the others know one, and take the cheapest. The supplies plan by that strategy already."""
    check_models(demand, supplies)
    plan = cheapest(demand, [supplies] if strategy == "gpuloom" else [[supply] for supply in supplies])
    if plan is None:
        raise InputError(f"--strategy {strategy}: knows all models on no single type: expected gpuloom")
    return plan


def contest(demand: Demand, supplies: Sequence[Supply]) -> list[ServicePlan]:
    """The best plan of each contender that knows all models, ours on all types first."""
    check_models(demand, supplies)
    plans = [cheapest(demand, ways) for ways in contenders(supplies)]
    return [plan for plan in plans if plan is not None]


def contenders(supplies: Sequence[Supply]) -> list[Ways]:
    """Ours on all types, ours on each, the others on the cheapest: for each row of the comparison the ways to it."""
    shared = [replace(supply, strategy="gpuloom") for supply in supplies if isinstance(supply, SharedGpus)]
    cut = [replace(supply, strategy="gpuloom") for supply in supplies if isinstance(supply, MigGpus)]
    every: list[Supply] = [*shared, *cut]
    rows: list[Ways] = [[every]]
    rows += [[[supply]] for supply in every if len(every) > 1]
    peers = [supply for supply in shared if supply.offer.of_peers is not None]
    rows += [[[replace(supply, strategy=name)] for supply in peers] for name in PEERS]
    blind = [replace(supply, strategy="alone") for supply in shared if supply not in peers]
    rows += [[[supply] for supply in blind]] if blind else []
    rows += [[[replace(supply, strategy=name)] for supply in cut] for name in list(MIG_STRATEGIES)[1:]]
    return rows


def cheapest(demand: Demand, ways: Ways) -> ServicePlan | None:
    """Of those on whose GPUs all models are known; None if there are none. One that places more counts as cheaper."""
    workloads = set(demand.workloads.values())
    known = [way for way in ways if workloads <= {name for supply in way for name in supply.models}]
    plans = [spread(demand, way) for way in known]
    return min(plans, key=lambda plan: (len(plan.unplaced), plan.cost_per_hour or plan.gpus), default=None)
