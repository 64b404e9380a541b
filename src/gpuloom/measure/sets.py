"""Several workloads on one kind of device: the layout that is best for the set, and who sits where.

One device is enumerated, every order of every legal layout; several devices are a small integer program, solved
exactly. A speed is relative to the workload's own on the whole device; a profile that is absent is not for it.
Knows nothing of how speeds came to be known.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from itertools import permutations

import numpy as np
from scipy.optimize import LinearConstraint, milp

from gpuloom.errors import InputError
from gpuloom.gpus.catalogue import base_profiles
from gpuloom.gpus.layouts import best, every, multisets, placements
from gpuloom.gpus.model import GpuModel, Instance, Layout
from gpuloom.perf.arrays import Floats

Speeds = Mapping[str, float]

LITTLE = 1e-4
"""Weight of the sum where the worst counts: of equals the one that does more."""


class Objective(StrEnum):
    SUM = "sum of relative speeds"
    WORST = "speed of the one that is slowed down most"


@dataclass(frozen=True, slots=True)
class Seating:
    """A layout for each device, and the instance of each workload, in their order."""

    layouts: tuple[Layout, ...]
    seats: tuple[tuple[int, Instance], ...]
    """Device and instance."""
    speeds: tuple[float, ...]
    score: float


@lru_cache(maxsize=64)
def orders(model: GpuModel, count: int) -> tuple[tuple[str, ...], ...]:
    """Every way to give so many workloads an instance each of one device: the profile of each."""
    found = {tuple(sorted(i.profile for i in layout)) for layout in every(model) if len(layout) == count}
    return tuple(sorted({order for profiles in found for order in _orders(profiles)}))


def _orders(profiles: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Different ones only: seven equal instances have one."""
    if len(set(profiles)) == 1:
        yield profiles
    else:
        yield from set(permutations(profiles))


def scores(model: GpuModel, speeds: Floats, profiles: Sequence[str], objective: Objective = Objective.SUM) -> Floats:
    """Of every one of `orders`; `speeds`: a row for each workload, a column for each of `profiles`; NaN: not for it."""
    columns = {name: at for at, name in enumerate(profiles)}
    wanted = [order for order in orders(model, len(speeds)) if all(name in columns for name in order)]
    table = np.array([[columns[name] for name in order] for order in wanted], dtype=np.intp).reshape(-1, len(speeds))
    had = speeds[np.arange(len(speeds)), table]
    total = had.sum(axis=1) * (1.0 if objective is Objective.SUM else LITTLE)
    if objective is Objective.WORST:
        total += had.min(axis=1, initial=np.inf)
    found: Floats = np.where(np.isnan(had).any(axis=1), -np.inf, total)
    return found


def seat_on_one(model: GpuModel, speeds: Sequence[Speeds], objective: Objective = Objective.SUM) -> Seating | None:
    """On one device; None if there is no layout in which everybody has an instance that is for it."""
    names = [profile.name for profile in base_profiles(model)]
    table = np.array([[of.get(name, np.nan) for name in names] for of in speeds]).reshape(len(speeds), len(names))
    found = scores(model, table, names, objective)
    if not len(found) or found.max() == -np.inf:
        return None
    order = orders(model, len(speeds))[int(found.argmax())]
    return _seated(model, [order], [0] * len(order), order, speeds, objective)


def seat_on(
    model: GpuModel, devices: int, speeds: Sequence[Speeds], objective: Objective = Objective.SUM
) -> Seating | None:
    """On so many devices of one model."""
    if devices < 1 or not speeds:
        raise InputError(f"{len(speeds)} workloads on {devices} devices: at least one of each is needed")
    if devices == 1:
        return seat_on_one(model, speeds, objective)
    solved = _solve(model, devices, speeds, objective)
    if solved is None:
        return None
    cuts, chosen = solved
    free = {name: [device for device, cut in enumerate(cuts) for _ in range(cut.count(name))] for name in set(chosen)}
    where = [free[name].pop(0) for name in chosen]
    return _seated(model, cuts, where, chosen, speeds, objective)


def _solve(
    model: GpuModel, devices: int, speeds: Sequence[Speeds], objective: Objective
) -> tuple[list[tuple[str, ...]], tuple[str, ...]] | None:
    """Cuts of the devices and everybody's profile: who has which (0 or 1), how often each cut is, the worst speed."""
    by_slices = {profile.slices: profile.name for profile in base_profiles(model)}
    cuts = [tuple(by_slices[count] for count in slices) for slices in multisets(model)]
    names = list(by_slices.values())
    pairs = [(at, name) for at, of in enumerate(speeds) for name in names if name in of]
    size = len(pairs) + len(cuts) + 1
    rows, low, high = [], [], []

    def demand(entries: Mapping[int, float], least: float, most: float) -> None:
        row = np.zeros(size)
        for column, value in entries.items():
            row[column] = value
        rows.append(row)
        low.append(least)
        high.append(most)

    of_pair = list(enumerate(pairs))
    for at, of in enumerate(speeds):
        mine = {column: pair[1] for column, pair in of_pair if pair[0] == at}
        demand(dict.fromkeys(mine, 1.0), 1, 1)
        demand({column: of[name] for column, name in mine.items()} | {size - 1: -1.0}, 0, np.inf)
    for name in names:
        has = {len(pairs) + at: -float(cut.count(name)) for at, cut in enumerate(cuts)}
        demand({column: 1.0 for column, pair in of_pair if pair[1] == name} | has, -np.inf, 0)
    demand({len(pairs) + at: 1.0 for at in range(len(cuts))}, devices, devices)
    gains = np.zeros(size)
    if objective is Objective.SUM:
        gains[: len(pairs)] = [speeds[at][name] for at, name in pairs]
    else:
        gains[: len(pairs)] = [LITTLE * speeds[at][name] for at, name in pairs]
        gains[-1] = 1.0
    whole = np.array([1] * (size - 1) + [0])
    answer = milp(-gains, constraints=LinearConstraint(np.array(rows), low, high), integrality=whole)
    if answer.x is None:
        return None
    counts = np.round(answer.x).astype(int)
    chosen = tuple(pair[1] for column, pair in of_pair if counts[column])
    return [cut for at, cut in enumerate(cuts) for _ in range(counts[len(pairs) + at])], chosen


def _seated(
    model: GpuModel,
    cuts: Sequence[tuple[str, ...]],
    devices: Sequence[int],
    chosen: Sequence[str],
    speeds: Sequence[Speeds],
    objective: Objective,
) -> Seating:
    """Exact instances: the placements that leave most room."""
    layouts = []
    for cut in cuts:
        layout = best(model, placements(model, tuple(sorted(cut))))
        assert layout is not None, "cuts come from legal layouts"
        layouts.append(layout)
    free = [list(layout) for layout in layouts]
    seats = []
    for device, profile in zip(devices, chosen, strict=True):
        instance = next(instance for instance in free[device] if instance.profile == profile)
        free[device].remove(instance)
        seats.append((device, instance))
    got = tuple(of[name] for of, name in zip(speeds, chosen, strict=True))
    return Seating(tuple(layouts), tuple(seats), got, sum(got) if objective is Objective.SUM else min(got))
