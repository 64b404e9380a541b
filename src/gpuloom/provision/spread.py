"""Services over several types of GPU: each on the type where it is cheapest, then moved while the cost falls.

Every service has one type. It starts where it costs least, or all start on one type: whichever plan is cheapest. Then
the services of one GPU, or one service, are tried on another type, and stay there if both parts together cost less. No
plan on a single type is cheaper, for it was looked at. The order of the input does not matter. `spread_bound` has what
every such plan costs at least.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from gpuloom.errors import InputError
from gpuloom.perf.arrays import Floats
from gpuloom.perf.sharing.interference import unknown
from gpuloom.provision.demand import Demand
from gpuloom.provision.plan import ServicePlan, joined, on_gpus
from gpuloom.provision.spread_bound import bounded, costs_of
from gpuloom.provision.supply import Supply

PLANS = 40
"""Parts that are planned while looking for a better spread: not seconds, so that every machine finds the same."""
CENT = 0.005
Homes = tuple[int, ...]
"""The supply of each service, in the order of their names."""


def spread(demand: Demand, supplies: Sequence[Supply]) -> ServicePlan:
    """The cheapest plan found on these types. One that places more services counts as cheaper."""
    check_models(demand, supplies)
    if len(supplies) == 1:
        return supplies[0].plan(demand)  # in the order of the input: the plans of peers depend on it
    demand = in_order(demand)
    costs = costs_of(demand, supplies)
    search = _Search(demand, supplies, costs)
    best = min(_starts(costs), key=search.score)
    while (better := next(search.better(best), None)) is not None:
        best = better
    return bounded(search.plan(best), demand, supplies)


def check_models(demand: Demand, supplies: Sequence[Supply]) -> None:
    """InputError if a service's model is known on no type."""
    for service in demand.services:
        if not any(service.workload in supply.models for supply in supplies):
            known = {name for supply in supplies for name in supply.models}
            names = " or ".join(supply.name for supply in supplies)
            raise InputError(f"service {service.id}: {unknown(service.workload, sorted(known))}, on {names}")


def in_order(demand: Demand) -> Demand:
    """Of their names."""
    return demand.only(sorted(demand.services, key=lambda service: service.id))


def _starts(costs: Floats) -> list[Homes]:
    """Each on its cheapest type; and as many as possible on one."""
    cheapest = costs.argmin(axis=0)
    singles = [np.where(np.isfinite(cost), supply, cheapest) for supply, cost in enumerate(costs)]
    return list(dict.fromkeys(tuple(int(supply) for supply in homes) for homes in (cheapest, *singles)))


@dataclass(slots=True)
class _Search:
    """Remembers the parts that it has planned."""

    demand: Demand
    supplies: Sequence[Supply]
    costs: Floats
    parts: dict[tuple[int, Homes], ServicePlan | None] = field(default_factory=dict)
    """By the supply and its services; None if there are none."""

    def plan(self, homes: Homes) -> ServicePlan:
        parts = [self.part(supply, homes) for supply in range(len(self.supplies))]
        return joined([part for part in parts if part is not None])

    def part(self, supply: int, homes: Homes) -> ServicePlan | None:
        residents = tuple(service for service, home in enumerate(homes) if home == supply)
        key = supply, residents
        if key not in self.parts:
            services = [self.demand.services[service] for service in residents]
            self.parts[key] = self.supplies[supply].plan(self.demand.only(services)) if services else None
        return self.parts[key]

    def score(self, homes: Homes) -> tuple[int, float]:
        plan = self.plan(homes)
        return len(plan.unplaced), plan.cost_per_hour

    def better(self, homes: Homes) -> Iterator[Homes]:
        """Neighbours that are cheaper. A part that has lost services and still costs as much is not worth a look."""
        score = self.score(homes)
        for going, to in self._moves(homes):
            if len(self.parts) >= PLANS:
                return
            other = tuple(to if service in going else home for service, home in enumerate(homes))
            left = {homes[service] for service in going}
            if any(_cost(self.part(supply, other)) < _cost(self.part(supply, homes)) - CENT for supply in left):
                now = self.score(other)
                if now[0] <= score[0] and (now[0] < score[0] or now[1] < score[1] - CENT):
                    yield other

    def _moves(self, homes: Homes) -> Iterator[tuple[frozenset[int], int]]:
        """The services of one GPU, those that pay least for it first; then single services."""
        index = {service.id: number for number, service in enumerate(self.demand.services)}
        groups = [
            frozenset(index[replica.service] for replica in residents)
            for residents in on_gpus(self.plan(homes).replicas).values()
        ]
        paid = {group: sum(self.costs[homes[service], service] for service in group) for group in groups}
        singles = [frozenset([service]) for service in range(len(homes))]
        for going in dict.fromkeys([*sorted(paid, key=lambda group: (paid[group], sorted(group))), *singles]):
            for to in range(len(self.supplies)):
                if all(homes[service] != to and np.isfinite(self.costs[to, service]) for service in going):
                    yield going, to


def _cost(part: ServicePlan | None) -> float:
    return 0.0 if part is None else part.cost_per_hour
