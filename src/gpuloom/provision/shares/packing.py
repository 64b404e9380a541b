"""Which items share a GPU: best fit on guessed shares, then the true ones, then repair and improvement.

How much an item needs depends on whom it sits beside. So it is guessed (alone at first, later as its last neighbours
made it), packed by best fit decreasing, settled, and guessed again. A GPU on which the true shares are too much gives
up its smallest items; they go where they fit best, or to GPUs of their own. In the end the emptiest GPUs are dissolved
while their items fit elsewhere. All ties are broken by the items' order.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpuloom.perf.arrays import Ints
from gpuloom.provision.shares.candidates import Beside, Choice, alone, choose, least_units
from gpuloom.provision.shares.settle import EMPTY, Setting, Settled, beside, settle

MOST_SEATS = 16
"""Services on one GPU."""
GUESSES = 3
TYPICAL = 1.05
"""How much longer batches take beside neighbours, before any are known."""
TRIES = 6
"""GPUs that are tried for an item, the best fits."""
Groups = list[list[int]]
"""Items of each GPU."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What items need: alone, the least there is, and as guessed."""

    alone: Ints
    """By item and column of the grid."""
    guess: Choice

    def start(self, seats: Ints, batch: Ints) -> Ints:
        """Units that are too few for sure, or just enough."""
        return np.asarray(self.alone[np.maximum(seats, 0), batch])


def pack(setting: Setting, patience: int) -> tuple[Settled, Needs]:
    """Every item on a GPU, each GPU settled. Items must fit alone. `patience`: GPUs that may resist being dissolved."""
    columns = np.arange(len(setting.grid.batches))
    least = least_units(setting.items, setting.grid, setting.law, alone(len(setting.items)), columns)
    near = typical(len(setting.items))
    for guesses_left in reversed(range(GUESSES)):
        needs = Needs(least, guess(setting, least, near))
        tried = settle_groups(setting, needs, best_fit(setting, needs.guess.units))
        if guesses_left:
            near = _seen(setting, tried, near)
    settled = insert_all(setting, needs, *drop_excess(setting, needs, tried))
    return dissolve(setting, needs, settled, patience), needs


def typical(count: int) -> Beside:
    """Neighbours of whom nothing is known."""
    return Beside(np.zeros(count), np.full(count, TYPICAL))


def guess(setting: Setting, least: Ints, near: Beside) -> Choice:
    """As beside those neighbours; alone where even a whole GPU would not be enough beside them."""
    choice = choose(setting.items, setting.grid, setting.law, near)
    batch = np.where(choice.units > setting.grid.units, np.argmin(least, axis=1), choice.batch)
    return Choice(batch, np.minimum(choice.units, setting.grid.units))


def best_fit(setting: Setting, units: Ints, only: Sequence[int] | None = None) -> Groups:
    """Decreasing; respects memory and seats. Each goes to the GPU with the least room that is enough."""
    items, whole = setting.items, setting.offer.units
    order = sorted(range(len(items)) if only is None else only, key=lambda item: (-int(units[item]), item))
    groups: Groups = []
    mem_used: list[int] = []
    open_: list[tuple[int, int]] = []  # (units left, group), ascending
    for item in order:
        need, need_mib = min(int(units[item]), whole), int(items.mem_mib[item])
        spot = bisect_left(open_, (need, -1))
        while spot < len(open_) and mem_used[open_[spot][1]] + need_mib > setting.offer.mem_mib:
            spot += 1
        if spot == len(open_):
            room, group = whole, len(groups)
            groups.append([item])
            mem_used.append(need_mib)
        else:
            room, group = open_.pop(spot)
            groups[group].append(item)
            mem_used[group] += need_mib
        if room > need and len(groups[group]) < MOST_SEATS:
            insort(open_, (room - need, group))
    return groups


def seats_of(groups: Groups) -> Ints:
    """A row for each group."""
    width = max((len(group) for group in groups), default=1)
    seats = np.full((len(groups), width), EMPTY, np.intp)
    for row, group in enumerate(groups):
        seats[row, : len(group)] = group
    return seats


def settle_groups(setting: Setting, needs: Needs, groups: Groups) -> Settled:
    seats = seats_of(groups)
    batch = np.where(seats == EMPTY, 0, needs.guess.batch[np.maximum(seats, 0)])
    return settle(setting, seats, batch, needs.start(seats, batch))


def _seen(setting: Setting, settled: Settled, before: Beside) -> Beside:
    """What neighbours did, by item; where the GPU was too small, as before."""
    add, times = before.add_ms.copy(), before.times.copy()
    rows = settled.rows(settled.fits)
    now, here = beside(setting, rows), rows.seats.ravel() != EMPTY
    item = rows.seats.ravel()[here]
    add[item], times[item] = now.add_ms[here], now.times[here]
    return Beside(add, times)


def drop_excess(setting: Setting, needs: Needs, settled: Settled) -> tuple[Settled, list[int]]:
    """GPUs that are too small give up their smallest item, until they are not; and the items given up."""
    loose: list[int] = []
    done = [settled.rows(settled.fits)]
    groups = [group_of(row) for row in settled.seats[~settled.fits]]
    while groups:
        for group in groups:
            if len(group) == 1:
                raise ValueError(f"item {group[0]} does not fit on a GPU of its own")
            loose.append(min(group, key=lambda item: (int(needs.guess.units[item]), -item)))
            group.remove(loose[-1])
        thinner = settle_groups(setting, needs, groups)
        done.append(thinner.rows(thinner.fits))
        groups = [group for group, fits in zip(groups, thinner.fits, strict=True) if not fits]
    return join(done), loose


def group_of(row: Ints) -> list[int]:
    """The items on a row of seats."""
    return [int(item) for item in row if item != EMPTY]


def join(parts: Sequence[Settled]) -> Settled:
    """The GPUs of all parts, in their order."""
    width = max((part.seats.shape[1] for part in parts), default=1)

    def wide(values: Ints, fill: int) -> Ints:
        return np.pad(values, ((0, 0), (0, width - values.shape[1])), constant_values=fill)

    return Settled(
        np.concatenate([wide(part.seats, EMPTY) for part in parts]),
        np.concatenate([wide(part.batch, 0) for part in parts]),
        np.concatenate([wide(part.units, 0) for part in parts]),
        np.concatenate([part.fits for part in parts]),
    )


def insert_all(setting: Setting, needs: Needs, settled: Settled, loose: list[int]) -> Settled:
    """Loose items on GPUs that have room, the rest on new ones."""
    while loose:
        settled, loose = insert(setting, needs, settled, loose)
        if loose:
            new = settle_groups(setting, needs, best_fit(setting, needs.guess.units, loose))
            opened, loose = drop_excess(setting, needs, new)
            settled = join([settled, opened])
    return settled


def insert(setting: Setting, needs: Needs, settled: Settled, loose: Sequence[int]) -> tuple[Settled, list[int]]:
    """Loose items where they fit best; and those that fit nowhere. All trials of a round are settled in one call."""
    waiting = sorted(loose, key=lambda item: (-int(needs.guess.units[item]), item))
    nowhere: list[int] = []
    while waiting:
        rooms = _Rooms.of(setting, settled)
        trials = [(item, row) for item in waiting for row in rooms.for_item(setting, needs, item)]
        tried = _trials(setting, needs, settled, trials)
        total, fitting = tried.total.tolist(), dict[int, list[int]]()
        for trial, (item, _) in enumerate(trials):
            if tried.fits[trial]:
                fitting.setdefault(item, []).append(trial)
        taken: dict[int, int] = {}  # row: trial
        next_round = []
        for item in waiting:
            free = [trial for trial in fitting.get(item, ()) if trials[trial][1] not in taken]
            if free:
                fullest = max(free, key=lambda trial: (total[trial], -trial))
                taken[trials[fullest][1]] = fullest
            elif item in fitting:
                next_round.append(item)
            else:
                nowhere.append(item)
        settled = _with_trials(settled, tried, taken)
        waiting = next_round
    return settled, nowhere


@dataclass(frozen=True, slots=True)
class _Rooms:
    """What GPUs have left, in order of it."""

    rows: list[int]
    units: list[int]
    seats_taken: list[int]
    mem_mib: list[int]

    @classmethod
    def of(cls, setting: Setting, settled: Settled) -> "_Rooms":
        here = settled.seats != EMPTY
        mem = np.where(here, setting.items.mem_mib[np.maximum(settled.seats, 0)], 0).sum(axis=1)
        units = setting.offer.units - settled.total
        rows = np.lexsort((np.arange(len(units)), units))
        mem_left = setting.offer.mem_mib - mem
        return cls(rows.tolist(), units[rows].tolist(), here.sum(axis=1)[rows].tolist(), mem_left[rows].tolist())

    def for_item(self, setting: Setting, needs: Needs, item: int) -> list[int]:
        """GPUs to try: the least room that is enough as guessed, then ever less room, as long as it may be enough."""
        least, need_mib = int(needs.alone[item].min()), int(setting.items.mem_mib[item])
        enough = bisect_left(self.units, int(needs.guess.units[item]))
        candidates: list[int] = []
        for spot in (*range(enough, len(self.units)), *range(enough - 1, -1, -1)):
            if len(candidates) == TRIES or self.units[spot] < least:
                break
            if self.seats_taken[spot] < MOST_SEATS and self.mem_mib[spot] >= need_mib:
                candidates.append(self.rows[spot])
        return candidates


def _trials(setting: Setting, needs: Needs, settled: Settled, trials: Sequence[tuple[int, int]]) -> Settled:
    """Each trial's GPU with its item added; residents keep their batch and at least their share."""
    rows = np.array([row for _, row in trials], np.intp)
    added = np.array([item for item, _ in trials], np.intp)
    seats, batch, units = (
        np.pad(values[rows], ((0, 0), (0, 1)), constant_values=fill)
        for values, fill in ((settled.seats, EMPTY), (settled.batch, 0), (settled.units, 0))
    )
    trial, seat = np.arange(len(rows)), (settled.seats[rows] != EMPTY).sum(axis=1)
    seats[trial, seat], batch[trial, seat] = added, needs.guess.batch[added]
    units[trial, seat] = needs.alone[added, needs.guess.batch[added]]
    return settle(setting, seats, batch, units)


def _with_trials(settled: Settled, tried: Settled, taken: dict[int, int]) -> Settled:
    """The trials that were taken, in place of the rows that they were taken for."""
    if not taken:
        return settled
    both = join([settled, tried])
    which = np.arange(len(settled.seats))
    for row, trial in taken.items():
        which[row] = len(settled.seats) + trial
    return both.rows(which)


def dissolve(setting: Setting, needs: Needs, settled: Settled, patience: int) -> Settled:
    """Empty the lightest GPUs into the others, as long as that works."""
    resisted: set[tuple[int, ...]] = set()
    while len(settled.seats) > 1 and patience > 0:
        order = np.lexsort((np.arange(len(settled.seats)), settled.total))
        lightest = next((int(row) for row in order if tuple(group_of(settled.seats[row])) not in resisted), None)
        if lightest is None:
            break
        group = group_of(settled.seats[lightest])
        others = settled.rows(np.delete(np.arange(len(settled.seats)), lightest))
        fuller, nowhere = insert(setting, needs, others, group)
        if nowhere:
            resisted.add(tuple(group))
            patience -= 1
        else:
            settled = fuller
    return settled
