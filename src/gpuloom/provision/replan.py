"""A new plan near an old one: rates or promises changed, services came or went, and nobody moves who need not.

Every service stays on the type of GPU that it has (`replan_shares`, `replan_mig` say what stays there); a new one goes
to the type where it costs least, and so does one that its type can no longer serve. What could be saved by moving more
is not looked for: that is planning anew.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpuloom.errors import InputError
from gpuloom.gpus.grant import Device
from gpuloom.perf.sharing.interference import Floats
from gpuloom.provision.demand import Demand
from gpuloom.provision.plan import Replica, ServicePlan, joined, part_of
from gpuloom.provision.shares.stay import Old
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
        lost = {one.service for one in plan.unplaced}
        if not lost:
            break
        for at, service in enumerate(demand.services):
            if service.id in lost:
                costs[homes[at], at] = np.inf
                if np.isfinite(costs[:, at]).any():
                    homes[at] = int(costs[:, at].argmin())
        plan, old = _stay(demand, supplies, homes, previous)
    if len(supplies) > 1:
        plan = bounded(plan, demand, supplies)
    plan = replace(plan, replicas=tuple(_numbered(plan.replicas, previous, old)))
    same = tuple((gpu, new) for new, gpu in enumerate(old) if gpu is not None and gpu != new)
    return Replanned(plan, _moves(plan, previous, old), same)


def _homes(demand: Demand, costs: Floats, names: Sequence[str], previous: ServicePlan) -> list[int]:
    """The supply of each service: that of its first replica in the old plan, else the cheapest."""
    had = {one.service: names.index(previous.type_of(one.grant.gpu)) for one in reversed(previous.replicas)}
    homes = [had.get(service.id, int(costs[:, at].argmin())) for at, service in enumerate(demand.services)]
    return [
        home if np.isfinite(costs[home, at]) or not np.isfinite(costs[:, at]).any() else int(costs[:, at].argmin())
        for at, home in enumerate(homes)
    ]


def _stay(
    demand: Demand, supplies: Sequence[Supply], homes: Sequence[int], previous: ServicePlan
) -> tuple[ServicePlan, Old]:
    parts: list[ServicePlan] = []
    old: Old = []
    for at, supply in enumerate(supplies):
        mine = [service for service, home in zip(demand.services, homes, strict=True) if home == at]
        if mine:
            before, gpus = part_of(previous, supply.name, frozenset(service.id for service in mine))
            part, was = supply.stay(demand.only(mine), before)
            parts.append(part)
            old += [None if gpu is None else gpus[gpu] for gpu in was]
    return joined(parts), old


def _numbered(found: Sequence[Replica], previous: ServicePlan, old: Old) -> list[Replica]:
    """Who stayed keeps its number; the others get the lowest that are free."""
    before: dict[tuple[str, Device], list[int]] = {}
    for replica in sorted(previous.replicas, key=lambda one: -one.number):
        before.setdefault((replica.service, replica.grant.device), []).append(replica.number)
    given: dict[int, int] = {}
    for at, replica in enumerate(found):
        was = old[replica.grant.gpu]
        stays = None if was is None else before.get((replica.service, (was, replica.grant.instance)))
        if stays:
            given[at] = stays.pop()
    taken = {(found[at].service, number) for at, number in given.items()}
    lowest: Counter[str] = Counter()
    numbered = []
    for at, replica in enumerate(found):
        number = given.get(at)
        if number is None:
            while (replica.service, lowest[replica.service]) in taken:
                lowest[replica.service] += 1
            number = lowest[replica.service]
            taken.add((replica.service, number))
        numbered.append(replace(replica, number=number))
    return numbered


def _moves(plan: ServicePlan, previous: ServicePlan, old: Old) -> tuple[Move, ...]:
    was = {(one.service, one.number): one.grant.device for one in previous.replicas}
    now = {(one.service, one.number): one.grant.device for one in plan.replicas}
    moves = [Move(*key, was.get(key), to) for key, to in now.items() if was.get(key) != (old[to[0]], to[1])]
    return (*moves, *(Move(*key, device, None) for key, device in was.items() if key not in now))
