"""Few services: every group that may share a GPU is settled, and the fewest groups that hold all are chosen exactly.

Here the number of replicas is chosen too: an item stands for "a replica of this service, if it has k of them", and a
group may hold the same item several times. Which groups to take, and which k, is a set partition (HiGHS). Exact but for
the max batches: those are chosen for typical neighbours, then once more for the group's own.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gpuloom.perf.arrays import Floats, Ints
from gpuloom.provision.shares.candidates import Choice, alone, choose, least_units
from gpuloom.provision.shares.packing import MOST_SEATS, Groups, guess, seats_of, typical
from gpuloom.provision.shares.settle import EMPTY, Setting, Settled, beside, settle

MOST_GROUPS = 12_000
"""With more there is no time to settle each."""
NODES = 2_000
"""Of the search: not seconds, so that every machine finds the same."""


@dataclass(frozen=True, slots=True)
class Options:
    """Which service and how many replicas each item of the setting stands for."""

    service: tuple[int, ...]
    replicas: tuple[int, ...]


def fewest(setting: Setting, options: Options) -> Settled | None:
    """The chosen GPUs; None if there are too many groups to look at."""
    columns = np.arange(len(setting.grid.batches))
    least = least_units(setting.items, setting.grid, setting.law, alone(len(setting.items)), columns)
    groups = []
    for group in _groups(setting, options, least.min(axis=1)):
        groups.append(group)
        if len(groups) > MOST_GROUPS:
            return None
    settled = settle_both(setting, groups, least, typical_choice(setting, least))
    settled = settled.rows(settled.fits)
    chosen = _partition(settled, options)
    return None if chosen is None else settled.rows(chosen)


def _groups(setting: Setting, options: Options, units: Ints) -> Iterator[list[int]]:
    """All groups that would fit if nobody disturbed anybody, items in order."""
    items, whole, mem_mib = setting.items, setting.offer.units, setting.offer.mem_mib

    def grow(group: list[int], first: int, left: int, mem_left: int) -> Iterator[list[int]]:
        for item in range(first, len(items)):
            if units[item] > left or items.mem_mib[item] > mem_left or not _allowed(group, item, options):
                continue
            longer = [*group, item]
            yield longer
            if len(longer) < MOST_SEATS:
                yield from grow(longer, item, left - int(units[item]), mem_left - int(items.mem_mib[item]))

    return grow([], 0, whole, mem_mib)


def _allowed(group: Sequence[int], item: int, options: Options) -> bool:
    """Replicas of one service agree on their number, and are not more than it."""
    same_service = [other for other in group if options.service[other] == options.service[item]]
    return all(other == item for other in same_service) and len(same_service) < options.replicas[item]


def typical_choice(setting: Setting, least: Ints) -> Choice:
    """What items need beside neighbours of whom nothing is known."""
    return guess(setting, least, typical(len(setting.items)))


def settle_both(setting: Setting, groups: Groups, least: Ints, choice: Choice) -> Settled:
    """With the batches chosen for typical neighbours, and with batches for their own; of both the better."""
    seats = seats_of(groups)
    item, here = np.maximum(seats, 0), seats != EMPTY
    batch = np.where(here, choice.batch[item], 0)
    first = settle(setting, seats, batch, least[item, batch])
    own = choose(setting.items.take(item.ravel()), setting.grid, setting.law, beside(setting, first))
    better = np.where(
        here & (own.units <= setting.grid.units).reshape(seats.shape), own.batch.reshape(seats.shape), batch
    )
    second = settle(setting, seats, better, least[item, better])
    wins = second.fits & (~first.fits | (second.total < first.total))
    return Settled(
        seats,
        np.where(wins[:, None], second.batch, first.batch),
        np.where(wins[:, None], second.units, first.units),
        first.fits | second.fits,
    )


def _partition(settled: Settled, options: Options) -> Ints | None:
    """Rows (some several times) that hold every service with one of its numbers of replicas.

    Unknown are how often each group is taken, then whether each item's number of replicas is the chosen one.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp  # slow to import, and large plans do not need it
    from scipy.sparse import csr_matrix, hstack, vstack

    held = _held(settled, len(options.service))
    count, groups = len(options.service), len(settled.seats)
    services = sorted(set(options.service))
    numbers = -np.diag(np.array(options.replicas, float))
    one_each = np.array([[float(owner == service) for owner in options.service] for service in services])
    rows = vstack(
        [hstack([csr_matrix(held), csr_matrix(numbers)]), hstack([csr_matrix((len(services), groups)), one_each])]
    )
    wanted = np.concatenate([np.zeros(count), np.ones(len(services))])
    most = np.concatenate([np.full(groups, float(max(options.replicas))), np.ones(count)])
    cost = np.concatenate([np.ones(groups), np.zeros(count)])
    solution = milp(
        cost,
        integrality=np.ones(groups + count),
        bounds=Bounds(0.0, most),
        constraints=LinearConstraint(rows, wanted, wanted),
        options={"node_limit": NODES, "mip_rel_gap": 1e-7},
    )
    if solution.x is None:
        return None
    return np.repeat(np.arange(groups), np.round(solution.x[:groups]).astype(np.intp))


def _held(settled: Settled, items: int) -> Floats:
    """How often each group holds each item."""
    held = np.zeros((items, len(settled.seats)))
    row, seat = np.nonzero(settled.seats != EMPTY)
    np.add.at(held, (settled.seats[row, seat], row), 1.0)
    return held
