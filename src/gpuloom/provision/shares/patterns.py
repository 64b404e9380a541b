"""Few services: every group that may share a GPU is settled, and the fewest groups that hold all are chosen exactly.

Here the number of replicas is chosen too: an item stands for "a replica of this service, if it has k of them", and a
group may hold the same item several times. Which groups to take, and which k, is a set partition (HiGHS). Exact but for
the max batches: those are chosen for typical neighbours, then once more for the group's own.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpuloom.perf.sharing.interference import Floats, Ints
from gpuloom.provision.shares.candidates import Beside, Choice, alone, choose, least_units
from gpuloom.provision.shares.items import Items
from gpuloom.provision.shares.packing import MOST_SEATS, TYPICAL, Groups, guess, seats_of
from gpuloom.provision.shares.settle import EMPTY, Settled, World, beside, settle

MOST_GROUPS = 12_000
NODES = 2_000
"""Of the search: not seconds, so that every machine finds the same."""


@dataclass(frozen=True, slots=True)
class Options:
    """Which service and how many replicas each item of the world stands for."""

    service: tuple[int, ...]
    replicas: tuple[int, ...]


def fewest(world: World, options: Options) -> Settled | None:
    """The chosen GPUs; None if there are too many groups to look at."""
    columns = np.arange(len(world.grid.batches))
    least = least_units(world.items, world.grid, world.law, alone(len(world.items)), columns)
    groups = []
    for group in _groups(world, options, least.min(axis=1)):
        groups.append(group)
        if len(groups) > MOST_GROUPS:
            return None
    settled = settle_both(world, groups, least, typical_choice(world, least))
    settled = settled.rows(settled.fits)
    chosen = _partition(settled, options)
    return None if chosen is None else settled.rows(chosen)


def _groups(world: World, options: Options, units: Ints) -> Iterator[list[int]]:
    """All groups that would fit if nobody disturbed anybody, items in order."""
    items, whole, mem_mib = world.items, world.offer.units, world.offer.mem_mib

    def grow(group: list[int], first: int, left: int, mem_left: int) -> Iterator[list[int]]:
        for at in range(first, len(items)):
            if units[at] > left or items.mem_mib[at] > mem_left or not _allowed(group, at, options):
                continue
            longer = [*group, at]
            yield longer
            if len(longer) < MOST_SEATS:
                yield from grow(longer, at, left - int(units[at]), mem_left - int(items.mem_mib[at]))

    return grow([], 0, whole, mem_mib)


def _allowed(group: Sequence[int], at: int, options: Options) -> bool:
    """Replicas of one service agree on their number, and are not more than it."""
    same = [one for one in group if options.service[one] == options.service[at]]
    return all(one == at for one in same) and len(same) < options.replicas[at]


def typical_choice(world: World, least: Ints) -> Choice:
    """What items need beside neighbours of which nothing is known."""
    return guess(world, least, Beside(np.zeros(len(world.items)), np.full(len(world.items), TYPICAL)))


def settle_both(world: World, groups: Groups, least: Ints, typical: Choice) -> Settled:
    """With batches for typical neighbours, and with batches for their own; of both the better."""
    seats = seats_of(groups)
    at, here = np.maximum(seats, 0), seats != EMPTY
    batch = np.where(here, typical.batch[at], 0)
    first = settle(world, seats, batch, least[at, batch])
    own = choose(take(world.items, at.ravel()), world.grid, world.law, beside(world, first))
    better = np.where(
        here & (own.units <= world.grid.units).reshape(seats.shape), own.batch.reshape(seats.shape), batch
    )
    second = settle(world, seats, better, least[at, better])
    wins = second.fits & (~first.fits | (second.total < first.total))
    return Settled(
        seats,
        np.where(wins[:, None], second.batch, first.batch),
        np.where(wins[:, None], second.units, first.units),
        first.fits | second.fits,
    )


def take(items: Items, at: Ints) -> Items:
    """Some items, each perhaps several times."""
    return replace(
        items,
        service=tuple(items.service[one] for one in at),
        number=tuple(items.number[one] for one in at),
        **{name: getattr(items, name)[at] for name in ("model", "rate_per_ms", "slo_ms", "mem_mib", "most_batch")},
    )


def _partition(settled: Settled, options: Options) -> Ints | None:
    """Rows (some several times) that hold every service with one of its numbers of replicas."""
    from scipy.optimize import Bounds, LinearConstraint, milp  # slow to import, and large plans do not need it
    from scipy.sparse import csr_matrix, hstack, vstack

    held = _held(settled, len(options.service))
    count, groups = len(options.service), len(settled.seats)
    services = sorted(set(options.service))
    numbers = -np.diag(np.array(options.replicas, float))
    one_each = np.array([[float(one == service) for one in options.service] for service in services])
    rows = vstack(
        [hstack([csr_matrix(held), csr_matrix(numbers)]), hstack([csr_matrix((len(services), groups)), one_each])]
    )
    wanted = np.concatenate([np.zeros(count), np.ones(len(services))])
    most = np.concatenate([np.full(groups, float(max(options.replicas))), np.ones(count)])
    cost = np.concatenate([np.ones(groups), np.zeros(count)])
    found = milp(
        cost,
        integrality=np.ones(groups + count),
        bounds=Bounds(0.0, most),
        constraints=LinearConstraint(rows, wanted, wanted),
        options={"node_limit": NODES, "mip_rel_gap": 1e-7},
    )
    if found.x is None:
        return None
    return np.repeat(np.arange(groups), np.round(found.x[:groups]).astype(np.intp))


def _held(settled: Settled, items: int) -> Floats:
    """How often each group holds each item."""
    held = np.zeros((items, len(settled.seats)))
    row, seat = np.nonzero(settled.seats != EMPTY)
    np.add.at(held, (settled.seats[row, seat], row), 1.0)
    return held
