"""A new plan of shares near an old one: who was on a GPU stays there.

Replicas stay on their GPUs; shares and batches change in place. Where a GPU is no longer enough, the replica goes whose
going is enough (the smallest such), else the largest first. Whoever must go, or is new, goes where it fits best, and
only then to a new GPU. All GPUs are looked at in one call.
"""

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from gpuloom.perf.arrays import Ints
from gpuloom.provision.demand import Problem
from gpuloom.provision.plan import Old, ServicePlan
from gpuloom.provision.shares.candidates import alone, least_units
from gpuloom.provision.shares.items import Grid, Items, items_of
from gpuloom.provision.shares.packing import Groups, Needs, insert_all, join
from gpuloom.provision.shares.patterns import settle_both, typical_choice
from gpuloom.provision.shares.planner import ROUNDS, as_plan, by_name, law_of, rate_factors, replicas_of
from gpuloom.provision.shares.replicas import Split, split, split_again, units_for
from gpuloom.provision.shares.settle import EMPTY, Setting, Settled
from gpuloom.provision.shares.trace_rates import rates_of


def stay(problem: Problem, previous: ServicePlan) -> tuple[ServicePlan, Old]:
    """The new plan, and which old GPU each of its GPUs is."""
    problem = by_name(problem)
    law = law_of(problem)
    grid = Grid.of(problem.offer, law, problem.margin)
    demand_split = split(problem.services, rates_of(problem, grid), problem.offer, grid, law)
    demand_split = _as_many_as_before(demand_split, previous, problem, grid)
    for turn in range(ROUNDS):
        items = items_of(demand_split.services, demand_split.replicas, demand_split.rate_per_ms, problem.offer.model)
        setting = Setting(problem.offer, law, items, grid, problem.margin)
        settled, old = _settled(setting, demand_split, previous)
        replicas = replicas_of(problem, demand_split, setting, settled)
        factors = rate_factors(problem, demand_split, replicas, turn)
        if factors is None:
            break
        demand_split = split_again(demand_split, demand_split.rate_per_ms * factors, problem.offer, grid, law)
        demand_split = _as_many_as_before(demand_split, previous, problem, grid)
    return as_plan(problem, demand_split, replicas), old


def _as_many_as_before(demand_split: Split, previous: ServicePlan, problem: Problem, grid: Grid) -> Split:
    """With as many replicas as each service had, if that is enough; else no fewer."""
    had = Counter(replica.service for replica in previous.replicas)
    before = np.array([had[service.id] for service in demand_split.services], np.intp)
    units = units_for(
        demand_split.services,
        demand_split.rate_per_ms,
        np.maximum(before, 1),
        problem.offer.model,
        grid,
        law_of(problem),
    )
    enough = (before > 0) & (units <= grid.units)
    replicas = np.where(enough, before, np.maximum(before, np.array(demand_split.replicas, np.intp)))
    return replace(demand_split, replicas=tuple(replicas.tolist()))


def _settled(setting: Setting, demand_split: Split, previous: ServicePlan) -> tuple[Settled, Old]:
    """The new GPUs, and which old one each is."""
    columns = np.arange(len(setting.grid.batches))
    least = least_units(setting.items, setting.grid, setting.law, alone(len(setting.items)), columns)
    needs = Needs(least, typical_choice(setting, least))
    groups, gpus, loose = _as_they_were(setting.items, demand_split, previous)
    thinned = _thinned(setting, needs, groups)
    settled = insert_all(setting, needs, thinned.settled, [*loose, *thinned.loose])
    numbers: Old = [gpus[group] for group in thinned.groups]
    return settled, numbers + [None] * (len(settled.seats) - len(numbers))


def _as_they_were(items: Items, demand_split: Split, previous: ServicePlan) -> tuple[Groups, list[int], list[int]]:
    """Items on the GPUs where they were, those GPUs, and items that are new."""
    waiting: dict[str, list[int]] = {}
    for item in reversed(range(len(items))):
        waiting.setdefault(demand_split.services[items.service[item]].id, []).append(item)
    on_gpu: dict[int, list[int]] = {}
    for replica in sorted(previous.replicas, key=lambda old: (old.grant.gpu, old.service, old.number)):
        if waiting.get(replica.service):
            on_gpu.setdefault(replica.grant.gpu, []).append(waiting[replica.service].pop())
    loose = sorted(item for unplaced in waiting.values() for item in unplaced)
    return list(on_gpu.values()), list(on_gpu), loose


@dataclass(frozen=True, slots=True)
class _Thinned:
    settled: Settled
    groups: list[int]
    """Which group each of its GPUs is."""
    loose: list[int]
    """Items that had to go."""


def _thinned(setting: Setting, needs: Needs, groups: Groups) -> _Thinned:
    """The GPUs with as few fewer items as it takes; one on which nobody can stay is given back."""
    nobody = np.full((0, 1), EMPTY, np.intp)
    done, kept, loose = [Settled(nobody, nobody, nobody, np.ones(0, bool))], list[int](), list[int]()
    left = {index: group for index, group in enumerate(groups) if group}
    while left:
        tried = _fitting(setting, needs, list(left.values()))
        done.append(tried.rows(tried.fits))
        kept += [index for index, fits in zip(left, tried.fits, strict=True) if fits]
        left = {index: group for (index, group), fits in zip(left.items(), tried.fits, strict=True) if not fits}
        for index, leaver in zip(list(left), _leavers(setting, needs, list(left.values())), strict=True):
            loose.append(leaver)
            left[index] = [item for item in left[index] if item != leaver]
        left = {index: group for index, group in left.items() if group}
    in_order = np.argsort(np.array(kept, np.intp))
    return _Thinned(join(done).rows(in_order), sorted(kept), loose)


def _leavers(setting: Setting, needs: Needs, groups: Groups) -> list[int]:
    """Of each group the item whose going is enough (the smallest such), else the largest."""
    trials = [(index, leaver) for index, group in enumerate(groups) for leaver in group if len(group) > 1]
    rests = [[item for item in groups[index] if item != leaver] for index, leaver in trials]
    enough: dict[int, list[int]] = {}
    for (index, leaver), fits in zip(trials, _fitting(setting, needs, rests).fits if rests else (), strict=True):
        if fits:
            enough.setdefault(index, []).append(leaver)
    units: Ints = needs.guess.units
    return [
        min(enough[index], key=lambda item: (units[item], item))
        if index in enough
        else max(group, key=lambda item: (units[item], -item))
        for index, group in enumerate(groups)
    ]


def _fitting(setting: Setting, needs: Needs, groups: Groups) -> Settled:
    """Each group on a GPU; it fits if its memory does too."""
    settled = settle_both(setting, groups, needs.alone, needs.guess)
    memory = np.array([setting.items.mem_mib[group].sum() <= setting.offer.mem_mib for group in groups], bool)
    return replace(settled, fits=settled.fits & memory)
