"""A new plan near an old one: rates or promises changed, services came or went, and nobody moves who need not.

Replicas stay on their GPUs; shares and batches change in place. Where a GPU is no longer enough, the one goes whose
going is enough (the smallest such), else the largest first. Whoever must go, or is new, goes where it fits best, and
only then to a new GPU. What could be saved by moving more is not looked for: that is `provision`.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpuloom.errors import InputError
from gpuloom.perf.interference import Ints
from gpuloom.provision.candidates import Beside, alone, least_units
from gpuloom.provision.gpuloom import ROUNDS, again, as_plan, bound_of, late_more_often, law_of, replicas_of
from gpuloom.provision.items import Grid, Items, items_of
from gpuloom.provision.packing import TYPICAL, Groups, Needs, guess, insert_all, join
from gpuloom.provision.patterns import settle_both
from gpuloom.provision.plan import Replica, ServicePlan
from gpuloom.provision.problem import Problem
from gpuloom.provision.replicas import Split, split, units_for
from gpuloom.provision.settle import EMPTY, Settled, World
from gpuloom.provision.trace_rates import rates_of


@dataclass(frozen=True, slots=True)
class Move:
    service: str
    number: int
    from_gpu: int | None
    """In the old plan; None: it is new."""
    to_gpu: int | None
    """In the new plan; None: it is gone."""


@dataclass(frozen=True, slots=True)
class Replanned:
    plan: ServicePlan
    moves: tuple[Move, ...]
    renumbered: tuple[tuple[int, int], ...]
    """GPUs that only changed their number, because others were given back: old and new."""


def replan(problem: Problem, previous: ServicePlan) -> Replanned:
    if previous.gpu_type != problem.offer.name:
        raise InputError(f"the old plan is for {previous.gpu_type}, not {problem.offer.name}: expected the same GPUs")
    problem = replace(problem, services=tuple(sorted(problem.services, key=lambda service: service.id)))
    law = law_of(problem)
    grid = Grid.of(problem.offer, law, problem.margin)
    asked = split(problem.services, rates_of(problem, grid), problem.offer, grid, law)
    asked = replace(asked, replicas=_replicas(asked, previous, problem, grid))
    for _ in range(ROUNDS):
        items = items_of(asked.services, asked.replicas, asked.rate_per_ms, problem.offer.model)
        world = World(problem.offer, law, items, grid, problem.margin)
        settled, old = _settled(world, asked, previous)
        found = replicas_of(problem, asked, world, settled, exact=True)
        often = late_more_often(problem, asked, found)
        if often is None:
            break
        now = split(asked.services, asked.rate_per_ms * often, problem.offer, grid, law)
        asked = again(asked, now)
        asked = replace(asked, replicas=_replicas(asked, previous, problem, grid))
    replicas = _numbered(found, previous, old)
    plan = as_plan(problem, asked, replicas, bound_of(asked, problem))
    same = tuple((gpu, new) for new, gpu in enumerate(old) if gpu is not None and gpu != new)
    return Replanned(plan, _moves(plan, previous, old), same)


def _replicas(asked: Split, previous: ServicePlan, problem: Problem, grid: Grid) -> tuple[int, ...]:
    """As many as before, if that is enough."""
    had = Counter(replica.service for replica in previous.replicas)
    law = law_of(problem)
    found = []
    for at, service in enumerate(asked.services):
        count = had[service.id]
        one = (service,), asked.rate_per_ms[at : at + 1]
        enough = count and units_for(*one, count, problem.offer.model, grid, law)[0] <= grid.units
        found.append(count if enough else max(asked.replicas[at], count))
    return tuple(found)


def _settled(world: World, asked: Split, previous: ServicePlan) -> tuple[Settled, list[int | None]]:
    """The new GPUs, and which old one each is."""
    columns = np.arange(len(world.grid.batches))
    count = len(world.items)
    least = least_units(world.items, world.grid, world.law, alone(count), columns)
    needs = Needs(least, guess(world, least, Beside(np.zeros(count), np.full(count, TYPICAL))))
    groups, old, loose = _stay(world.items, asked, previous)
    kept = [_thinned(world, needs, group, least, loose) for group in groups]
    held = [(gpu, part) for gpu, part in zip(old, kept, strict=True) if part is not None]
    nobody = np.full((0, 1), EMPTY, np.intp)
    empty = Settled(nobody, nobody, nobody, np.ones(0, bool))
    settled = insert_all(world, needs, join([empty, *(part for _, part in held)]), loose)
    numbers: list[int | None] = [gpu for gpu, _ in held]
    return settled, numbers + [None] * (len(settled.seats) - len(numbers))


def _stay(items: Items, asked: Split, previous: ServicePlan) -> tuple[Groups, list[int], list[int]]:
    """Items on the GPUs where they were, those GPUs, and items that are new."""
    waiting: dict[str, list[int]] = {}
    for at in reversed(range(len(items))):
        waiting.setdefault(asked.services[items.service[at]].id, []).append(at)
    on: dict[int, list[int]] = {}
    for replica in sorted(previous.replicas, key=lambda one: (one.grant.gpu, one.service, one.number)):
        if waiting.get(replica.service):
            on.setdefault(replica.grant.gpu, []).append(waiting[replica.service].pop())
    loose = sorted(at for left in waiting.values() for at in left)
    return list(on.values()), list(on), loose


def _thinned(world: World, needs: Needs, group: list[int], least: Ints, loose: list[int]) -> Settled | None:
    """The GPU with as few fewer items as it takes; those that go are added to the loose ones."""
    while group:
        found = settle_both(world, [group], least)
        if found.fits[0] and _memory(world, group) <= world.offer.mem_mib:
            return found
        without = [[one for one in group if one != at] for at in group]
        tried = settle_both(world, [rest or [at] for rest, at in zip(without, group, strict=True)], least)
        enough = [
            at
            for at, rest, fits in zip(group, without, tried.fits, strict=True)
            if rest and fits and _memory(world, rest) <= world.offer.mem_mib
        ]
        units = needs.guess.units
        goes = min(enough, key=lambda at: (units[at], at)) if enough else max(group, key=lambda at: (units[at], -at))
        loose.append(goes)
        group = [at for at in group if at != goes]
    return None


def _memory(world: World, group: Sequence[int]) -> int:
    return int(world.items.mem_mib[group].sum())


def _numbered(found: list[Replica], previous: ServicePlan, old: list[int | None]) -> list[Replica]:
    """Who stayed keeps its number; the others get the lowest that are free."""
    before: dict[tuple[str, int | None], list[int]] = {}
    for replica in sorted(previous.replicas, key=lambda one: -one.number):
        before.setdefault((replica.service, replica.grant.gpu), []).append(replica.number)
    count = Counter(replica.service for replica in found)
    given: dict[int, int] = {}
    for at, replica in enumerate(found):
        stays = before.get((replica.service, old[replica.grant.gpu]))
        if stays:
            given[at] = stays.pop()
    taken = {(found[at].service, number) for at, number in given.items()}
    numbered = []
    for at, replica in enumerate(found):
        number = given.get(at)
        if number is None:
            most = count[replica.service] + len(previous.replicas)
            number = next(one for one in range(most + 1) if (replica.service, one) not in taken)
            taken.add((replica.service, number))
        numbered.append(replace(replica, number=number))
    return numbered


def _moves(plan: ServicePlan, previous: ServicePlan, old: list[int | None]) -> tuple[Move, ...]:
    was = {(one.service, one.number): one.grant.gpu for one in previous.replicas}
    now = {(one.service, one.number): one.grant.gpu for one in plan.replicas}
    moves = [Move(*key, was.get(key), gpu) for key, gpu in now.items() if was.get(key, -1) != old[gpu]]
    return (*moves, *(Move(*key, gpu, None) for key, gpu in was.items() if key not in now))
