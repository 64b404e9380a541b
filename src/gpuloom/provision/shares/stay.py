"""A new plan of shares near an old one: who was on a GPU stays there.

Replicas stay on their GPUs; shares and batches change in place. Where a GPU is no longer enough, the one goes whose
going is enough (the smallest such), else the largest first. Whoever must go, or is new, goes where it fits best, and
only then to a new GPU. All GPUs are looked at in one call.
"""

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from gpuloom.perf.sharing.interference import Ints
from gpuloom.provision.demand import Pattern, Problem
from gpuloom.provision.plan import ServicePlan
from gpuloom.provision.shares.candidates import alone, least_units
from gpuloom.provision.shares.items import Grid, Items, items_of
from gpuloom.provision.shares.packing import Groups, Needs, insert_all, join
from gpuloom.provision.shares.patterns import settle_both, typical_choice
from gpuloom.provision.shares.planner import (
    CONFIRMED,
    ROUNDS,
    again,
    as_plan,
    bound_of,
    late_more_often,
    law_of,
    replicas_of,
)
from gpuloom.provision.shares.replicas import Split, split, units_for
from gpuloom.provision.shares.settle import EMPTY, Settled, World
from gpuloom.provision.shares.trace_rates import rates_of

Old = list[int | None]
"""For each GPU of a new plan the number it had in the old one; None: it is new."""


def stay(problem: Problem, previous: ServicePlan) -> tuple[ServicePlan, Old]:
    problem = replace(problem, services=tuple(sorted(problem.services, key=lambda service: service.id)))
    law = law_of(problem)
    exact = problem.pattern is Pattern.TRACE or len(problem.services) <= CONFIRMED
    grid = Grid.of(problem.offer, law, problem.margin)
    asked = split(problem.services, rates_of(problem, grid), problem.offer, grid, law)
    asked = replace(asked, replicas=_replicas(asked, previous, problem, grid))
    for _ in range(ROUNDS):
        items = items_of(asked.services, asked.replicas, asked.rate_per_ms, problem.offer.model)
        world = World(problem.offer, law, items, grid, problem.margin)
        settled, old = _settled(world, asked, previous)
        found = replicas_of(problem, asked, world, settled, exact)
        often = late_more_often(problem, asked, found)
        if often is None:
            break
        now = split(asked.services, asked.rate_per_ms * often, problem.offer, grid, law)
        asked = again(asked, now)
        asked = replace(asked, replicas=_replicas(asked, previous, problem, grid))
    return as_plan(problem, asked, found, bound_of(asked, problem)), old


def _replicas(asked: Split, previous: ServicePlan, problem: Problem, grid: Grid) -> tuple[int, ...]:
    """As many as before, if that is enough."""
    had = Counter(replica.service for replica in previous.replicas)
    before = np.array([had[service.id] for service in asked.services], np.intp)
    one = asked.services, asked.rate_per_ms, np.maximum(before, 1)
    units = units_for(*one, problem.offer.model, grid, law_of(problem))
    enough = (before > 0) & (units <= grid.units)
    return tuple(np.where(enough, before, np.maximum(before, np.array(asked.replicas, np.intp))).tolist())


def _settled(world: World, asked: Split, previous: ServicePlan) -> tuple[Settled, Old]:
    """The new GPUs, and which old one each is."""
    columns = np.arange(len(world.grid.batches))
    least = least_units(world.items, world.grid, world.law, alone(len(world.items)), columns)
    needs = Needs(least, typical_choice(world, least))
    groups, gpus, loose = _stay(world.items, asked, previous)
    thinned = _thinned(world, needs, groups)
    settled = insert_all(world, needs, thinned.settled, [*loose, *thinned.loose])
    numbers: Old = [gpus[group] for group in thinned.groups]
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


@dataclass(frozen=True, slots=True)
class _Thinned:
    settled: Settled
    groups: list[int]
    """Which group each of its GPUs is."""
    loose: list[int]
    """Items that had to go."""


def _thinned(world: World, needs: Needs, groups: Groups) -> _Thinned:
    """The GPUs with as few fewer items as it takes; one on which nobody can stay is given back."""
    nobody = np.full((0, 1), EMPTY, np.intp)
    done, which, loose = [Settled(nobody, nobody, nobody, np.ones(0, bool))], list[int](), list[int]()
    left = {at: group for at, group in enumerate(groups) if group}
    while left:
        found = _fitting(world, needs, list(left.values()))
        done.append(found.rows(found.fits))
        which += [at for at, fits in zip(left, found.fits, strict=True) if fits]
        left = {at: group for (at, group), fits in zip(left.items(), found.fits, strict=True) if not fits}
        for at, goes in zip(list(left), _going(world, needs, list(left.values())), strict=True):
            loose.append(goes)
            left[at] = [one for one in left[at] if one != goes]
        left = {at: group for at, group in left.items() if group}
    in_order = np.argsort(np.array(which, np.intp))
    return _Thinned(join(done).rows(in_order), sorted(which), loose)


def _going(world: World, needs: Needs, groups: Groups) -> list[int]:
    """Of each group the item whose going is enough (the smallest such), else the largest."""
    trials = [(at, goes) for at, group in enumerate(groups) for goes in group if len(group) > 1]
    rests = [[one for one in groups[at] if one != goes] for at, goes in trials]
    enough: dict[int, list[int]] = {}
    for (at, goes), fits in zip(trials, _fitting(world, needs, rests).fits if rests else (), strict=True):
        if fits:
            enough.setdefault(at, []).append(goes)
    units: Ints = needs.guess.units
    return [
        min(enough[at], key=lambda one: (units[one], one))
        if at in enough
        else max(group, key=lambda one: (units[one], -one))
        for at, group in enumerate(groups)
    ]


def _fitting(world: World, needs: Needs, groups: Groups) -> Settled:
    """Each group on a GPU; it fits if its memory does too."""
    found = settle_both(world, groups, needs.alone, needs.guess)
    memory = np.array([world.items.mem_mib[group].sum() <= world.offer.mem_mib for group in groups], bool)
    return replace(found, fits=found.fits & memory)
