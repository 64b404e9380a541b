"""Which items share a GPU: best fit on guessed shares, then the true ones, then repair and improvement.

How much an item needs depends on whom it sits beside. So it is guessed (alone at first, later as its last neighbours
made it), packed by best fit decreasing, settled, and guessed again. A GPU on which the true shares are too much gives
up its smallest items; they go where they fit best, or to GPUs of their own. In the end the emptiest GPUs are dissolved
while their items fit elsewhere. All ties are broken by the items' order.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpuloom.perf.sharing.interference import Ints
from gpuloom.provision.shares.candidates import Beside, Choice, alone, choose, least_units
from gpuloom.provision.shares.settle import EMPTY, Settled, World, beside, settle

MOST_SEATS = 16
"""Services on one GPU."""
GUESSES = 3
TYPICAL = 1.05
"""How much longer batches take beside neighbours, before any are known."""
TRIES = 6
"""GPUs that are tried for an item, the best fits."""
Groups = list[list[int]]


@dataclass(frozen=True, slots=True)
class Needs:
    """What items need: alone, the least there is, and as guessed."""

    alone: Ints
    """By item and column of the grid."""
    guess: Choice

    def start(self, seats: Ints, batch: Ints) -> Ints:
        return np.asarray(self.alone[np.maximum(seats, 0), batch])


def pack(world: World, patience: int) -> tuple[Settled, Needs]:
    """Every item on a GPU, each GPU settled. Items must fit alone. `patience`: GPUs that may resist being dissolved."""
    columns = np.arange(len(world.grid.batches))
    least = least_units(world.items, world.grid, world.law, alone(len(world.items)), columns)
    near = Beside(np.zeros(len(world.items)), np.full(len(world.items), TYPICAL))
    for last in (*[False] * (GUESSES - 1), True):
        needs = Needs(least, guess(world, least, near))
        tried = settle_groups(world, needs, best_fit(world, needs.guess.units))
        near = near if last else _seen(world, tried, near)
    found = insert_all(world, needs, *drop_excess(world, needs, tried))
    return dissolve(world, needs, found, patience), needs


def guess(world: World, least: Ints, near: Beside) -> Choice:
    """As beside those neighbours; alone where even a whole GPU would not be enough beside them."""
    found = choose(world.items, world.grid, world.law, near)
    batch = np.where(found.units > world.grid.units, np.argmin(least, axis=1), found.batch)
    return Choice(batch, np.minimum(found.units, world.grid.units))


def best_fit(world: World, units: Ints, only: Sequence[int] | None = None) -> Groups:
    """Decreasing; respects memory and seats. Each goes to the GPU with the least room that is enough."""
    items, whole = world.items, world.offer.units
    order = sorted(range(len(items)) if only is None else only, key=lambda at: (-int(units[at]), at))
    groups: Groups = []
    mem: list[int] = []
    open_: list[tuple[int, int]] = []  # (units left, group), ascending
    for at in order:
        need, asks = min(int(units[at]), whole), int(items.mem_mib[at])
        spot = bisect_left(open_, (need, -1))
        while spot < len(open_) and mem[open_[spot][1]] + asks > world.offer.mem_mib:
            spot += 1
        if spot == len(open_):
            groups.append([at])
            mem.append(asks)
            left = (whole - need, len(groups) - 1)
        else:
            room, group = open_.pop(spot)
            groups[group].append(at)
            mem[group] += asks
            left = (room - need, group)
        if left[0] > 0 and len(groups[left[1]]) < MOST_SEATS:
            open_.insert(bisect_left(open_, left), left)
    return groups


def seats_of(groups: Groups) -> Ints:
    width = max((len(group) for group in groups), default=1)
    seats = np.full((len(groups), width), EMPTY, np.intp)
    for row, group in enumerate(groups):
        seats[row, : len(group)] = group
    return seats


def settle_groups(world: World, needs: Needs, groups: Groups) -> Settled:
    seats = seats_of(groups)
    batch = np.where(seats == EMPTY, 0, needs.guess.batch[np.maximum(seats, 0)])
    return settle(world, seats, batch, needs.start(seats, batch))


def _seen(world: World, settled: Settled, before: Beside) -> Beside:
    """What neighbours did, by item; where the GPU was too small, as before."""
    add, times = before.add_ms.copy(), before.times.copy()
    rows = settled.rows(settled.fits)
    now, here = beside(world, rows), rows.seats.ravel() != EMPTY
    at = rows.seats.ravel()[here]
    add[at], times[at] = now.add_ms[here], now.times[here]
    return Beside(add, times)


def drop_excess(world: World, needs: Needs, settled: Settled) -> tuple[Settled, list[int]]:
    """GPUs that are too small give up their smallest item, until they are not; and the items given up."""
    loose: list[int] = []
    done = [settled.rows(settled.fits)]
    groups = [group_of(row) for row in settled.seats[~settled.fits]]
    while groups:
        for group in groups:
            if len(group) == 1:
                raise ValueError(f"item {group[0]} does not fit on a GPU of its own")
            loose.append(min(group, key=lambda at: (int(needs.guess.units[at]), -at)))
            group.remove(loose[-1])
        again = settle_groups(world, needs, groups)
        done.append(again.rows(again.fits))
        groups = [group for group, fits in zip(groups, again.fits, strict=True) if not fits]
    return join(done), loose


def group_of(row: Ints) -> list[int]:
    return [int(at) for at in row if at != EMPTY]


def join(parts: Sequence[Settled]) -> Settled:
    width = max((part.seats.shape[1] for part in parts), default=1)

    def wide(values: Ints, fill: int) -> Ints:
        return np.pad(values, ((0, 0), (0, width - values.shape[1])), constant_values=fill)

    return Settled(
        np.concatenate([wide(part.seats, EMPTY) for part in parts]),
        np.concatenate([wide(part.batch, 0) for part in parts]),
        np.concatenate([wide(part.units, 0) for part in parts]),
        np.concatenate([part.fits for part in parts]),
    )


def insert_all(world: World, needs: Needs, settled: Settled, loose: list[int]) -> Settled:
    """Loose items on GPUs that have room, the rest on new ones."""
    while loose:
        settled, loose = insert(world, needs, settled, loose)
        if loose:
            new = settle_groups(world, needs, best_fit(world, needs.guess.units, loose))
            opened, loose = drop_excess(world, needs, new)
            settled = join([settled, opened])
    return settled


def insert(world: World, needs: Needs, settled: Settled, loose: Sequence[int]) -> tuple[Settled, list[int]]:
    """Loose items where they fit best; and those that fit nowhere. All trials of a round are settled in one call."""
    waiting = sorted(loose, key=lambda at: (-int(needs.guess.units[at]), at))
    nowhere: list[int] = []
    while waiting:
        rooms = _Rooms.of(world, settled)
        trials = [(at, row) for at in waiting for row in rooms.for_item(world, needs, at)]
        tried = _trials(world, needs, settled, trials)
        total, fitting = tried.total.tolist(), dict[int, list[int]]()
        for trial, (at, _) in enumerate(trials):
            if tried.fits[trial]:
                fitting.setdefault(at, []).append(trial)
        placed: dict[int, int] = {}
        again = []
        for at in waiting:
            free = [trial for trial in fitting.get(at, ()) if trials[trial][1] not in placed]
            if free:
                fullest = max(free, key=lambda trial: (total[trial], -trial))
                placed[trials[fullest][1]] = fullest
            elif at in fitting:
                again.append(at)
            else:
                nowhere.append(at)
        settled = _replace(settled, tried, placed)
        waiting = again
    return settled, nowhere


@dataclass(frozen=True, slots=True)
class _Rooms:
    """What GPUs have left, in order of it."""

    rows: list[int]
    room: list[int]
    seats: list[int]
    mem_mib: list[int]

    @classmethod
    def of(cls, world: World, settled: Settled) -> "_Rooms":
        here = settled.seats != EMPTY
        mem = np.where(here, world.items.mem_mib[np.maximum(settled.seats, 0)], 0).sum(axis=1)
        room = world.offer.units - settled.total
        rows = np.lexsort((np.arange(len(room)), room))
        left = world.offer.mem_mib - mem
        return cls(rows.tolist(), room[rows].tolist(), here.sum(axis=1)[rows].tolist(), left[rows].tolist())

    def for_item(self, world: World, needs: Needs, at: int) -> list[int]:
        """GPUs to try: the least room that is enough as guessed, then ever less room, as long as it may be enough."""
        least, mem = int(needs.alone[at].min()), int(world.items.mem_mib[at])
        enough = bisect_left(self.room, int(needs.guess.units[at]))
        found: list[int] = []
        for spot in (*range(enough, len(self.room)), *range(enough - 1, -1, -1)):
            if len(found) == TRIES or self.room[spot] < least:
                break
            if self.seats[spot] < MOST_SEATS and self.mem_mib[spot] >= mem:
                found.append(self.rows[spot])
        return found


def _trials(world: World, needs: Needs, settled: Settled, trials: Sequence[tuple[int, int]]) -> Settled:
    """Each trial's GPU with its item added; residents keep their batch and at least their share."""
    rows = np.array([row for _, row in trials], np.intp)
    added = np.array([at for at, _ in trials], np.intp)
    seats, batch, units = (
        np.pad(values[rows], ((0, 0), (0, 1)), constant_values=fill)
        for values, fill in ((settled.seats, EMPTY), (settled.batch, 0), (settled.units, 0))
    )
    at, end = np.arange(len(rows)), (settled.seats[rows] != EMPTY).sum(axis=1)
    seats[at, end], batch[at, end] = added, needs.guess.batch[added]
    units[at, end] = needs.alone[added, needs.guess.batch[added]]
    return settle(world, seats, batch, units)


def _replace(settled: Settled, tried: Settled, placed: dict[int, int]) -> Settled:
    """The rows of the trials that were taken, in place of the old."""
    if not placed:
        return settled
    both = join([settled, tried])
    at = np.arange(len(settled.seats))
    for row, trial in placed.items():
        at[row] = len(settled.seats) + trial
    return both.rows(at)


def dissolve(world: World, needs: Needs, settled: Settled, patience: int) -> Settled:
    """Empty the lightest GPUs into the others, as long as that works."""
    resisted: set[tuple[int, ...]] = set()
    while len(settled.seats) > 1 and patience > 0:
        order = np.lexsort((np.arange(len(settled.seats)), settled.total))
        row = next((int(at) for at in order if tuple(group_of(settled.seats[at])) not in resisted), None)
        if row is None:
            break
        rest = settled.rows(np.delete(np.arange(len(settled.seats)), row))
        found, left = insert(world, needs, rest, group_of(settled.seats[row]))
        if left:
            resisted.add(tuple(group_of(settled.seats[row])))
            patience -= 1
        else:
            settled = found
    return settled
