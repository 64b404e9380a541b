"""A new plan near an old one: rates or promises changed, services came or went, and nobody moves who need not.

Every service stays on the type of GPU that it has (`shares.stay`, `mig.stay` say what stays there); a new one goes to
the type where it costs least, and so does one that its type can no longer serve. What could be saved by moving more is
not looked for: that is planning anew.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpuloom.errors import InputError
from gpuloom.gpus.grant import Device
from gpuloom.perf.arrays import Floats
from gpuloom.provision.demand import Demand
from gpuloom.provision.plan import Old, Replica, ServicePlan, joined, part_of
from gpuloom.provision.spread import check_models, in_order
from gpuloom.provision.spread_bound import bounded, costs_of
from gpuloom.provision.supply import Supply


@dataclass(frozen=True, slots=True)
class Move:
    service: str
    number: int
    was: Device | None
    """In the old plan; None: it is new."""
    now: Device | None
    """In the new plan; None: it is gone."""


@dataclass(frozen=True, slots=True)
class Replanned:
    plan: ServicePlan
    moves: tuple[Move, ...]
    renumbered: tuple[tuple[int, int], ...]
    """GPUs that only changed their number, because others were given back: old and new."""


def replan(demand: Demand, supplies: Sequence[Supply], previous: ServicePlan) -> Replanned:
    check_models(demand, supplies)
    demand = in_order(demand)
    names = [supply.name for supply in supplies]
    for gpu_type in previous.counts if previous.replicas else ():
        if gpu_type not in names:
            raise InputError(f"the old plan is for {gpu_type}, not {' or '.join(names)}: expected the same GPUs")
    costs = costs_of(demand, supplies) if len(supplies) > 1 else np.zeros((1, len(demand.services)))
    homes = _homes(demand, costs, names, previous)
    plan, old = _stay(demand, supplies, homes, previous)
    for _ in supplies[1:]:
        lost = {unplaced.service for unplaced in plan.unplaced}
        if not lost:
            break
        for column, service in enumerate(demand.services):
            if service.id in lost:
                costs[homes[column], column] = np.inf
                if np.isfinite(costs[:, column]).any():
                    homes[column] = int(costs[:, column].argmin())
        plan, old = _stay(demand, supplies, homes, previous)
    if len(supplies) > 1:
        plan = bounded(plan, demand, supplies)
    plan = replace(plan, replicas=tuple(_numbered(plan.replicas, previous, old)))
    same = tuple((gpu, new) for new, gpu in enumerate(old) if gpu is not None and gpu != new)
    return Replanned(plan, _moves(plan, previous, old), same)


def _homes(demand: Demand, costs: Floats, names: Sequence[str], previous: ServicePlan) -> list[int]:
    """The supply of each service: that of its first replica in the old plan, else the cheapest."""
    had = {replica.service: names.index(previous.type_of(replica.grant.gpu)) for replica in reversed(previous.replicas)}
    homes = []
    for service, cost in zip(demand.services, costs.T, strict=True):
        cheapest = int(cost.argmin())
        home = had.get(service.id, cheapest)
        homes.append(home if np.isfinite(cost[home]) or not np.isfinite(cost).any() else cheapest)
    return homes


def _stay(
    demand: Demand, supplies: Sequence[Supply], homes: Sequence[int], previous: ServicePlan
) -> tuple[ServicePlan, Old]:
    parts: list[ServicePlan] = []
    old: Old = []
    for index, supply in enumerate(supplies):
        services = [service for service, home in zip(demand.services, homes, strict=True) if home == index]
        if services:
            before, gpus = part_of(previous, supply.name, frozenset(service.id for service in services))
            part, was = supply.stay(demand.only(services), before)
            parts.append(part)
            old += [None if gpu is None else gpus[gpu] for gpu in was]
    return joined(parts), old


def _numbered(replicas: Sequence[Replica], previous: ServicePlan, old: Old) -> list[Replica]:
    """Who stayed keeps its number; the others get the lowest that are free."""
    before: dict[tuple[str, Device], list[int]] = {}
    for replica in sorted(previous.replicas, key=lambda replica: -replica.number):
        before.setdefault((replica.service, replica.grant.device), []).append(replica.number)
    kept: dict[int, int] = {}
    for seat, replica in enumerate(replicas):
        was = old[replica.grant.gpu]
        stays = None if was is None else before.get((replica.service, (was, replica.grant.instance)))
        if stays:
            kept[seat] = stays.pop()
    taken = {(replicas[seat].service, number) for seat, number in kept.items()}
    lowest: Counter[str] = Counter()
    numbered = []
    for seat, replica in enumerate(replicas):
        number = kept.get(seat)
        if number is None:
            while (replica.service, lowest[replica.service]) in taken:
                lowest[replica.service] += 1
            number = lowest[replica.service]
            taken.add((replica.service, number))
        numbered.append(replace(replica, number=number))
    return numbered


def _moves(plan: ServicePlan, previous: ServicePlan, old: Old) -> tuple[Move, ...]:
    was = {(replica.service, replica.number): replica.grant.device for replica in previous.replicas}
    now = {(replica.service, replica.number): replica.grant.device for replica in plan.replicas}
    moves = [Move(*key, was.get(key), to) for key, to in now.items() if was.get(key) != (old[to[0]], to[1])]
    return (*moves, *(Move(*key, device, None) for key, device in was.items() if key not in now))
