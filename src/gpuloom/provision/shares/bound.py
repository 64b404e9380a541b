"""How few GPUs can be enough: a lower bound for every plan whose predictions keep the promises.

1. A replica either has a GPU for itself, and may count as the whole of it; or it has a neighbour. Then it needs at
   least the share that it would need beside the gentlest neighbour there is, batches of 1 on one unit: every term that
   neighbours add to a batch's time (launches, cache, clock, link, error bar) grows with their number and with what they
   do, and the p99 does not fall when all batches take longer. (The last is not proven for batching queues; a property
   test looks for a counterexample.) So each of k replicas counts at least u_k units, the least for a k-th of the rate
   beside that neighbour, or a whole GPU. For u_k the times of smaller batches, the loading and the table's error are
   all taken on the low side.
2. A *dual feasible function* f gives to the shares on any one GPU values that sum to at most 1. So the values of all
   replicas sum to at most the number of GPUs, and a service adds at least the minimum over k of k f(u_k). Used: the
   share itself; those of Martello and Toth (1990), by which large items count in full and small ones not at all; those
   of Fekete and Schepers (2001), which round; and means of the first with one of the others, which are dual feasible
   too.
3. Where several k are looked at together, u_k is at least that of the largest, and k at least the smallest. Beyond
   them f(u_k) is at least that of a replica that is hardly ever asked, since f does not fall;
   and the part that is the share itself is at least the rate over the highest throughput of a GPU.
4. Memory is a share as well: its sum over the GPU's.
"""

from collections.abc import Callable, Iterator
from math import ceil

import numpy as np

from gpuloom.perf.arrays import Floats, Ints
from gpuloom.provision.offer import Offer
from gpuloom.provision.shares.candidates import alone, least_units
from gpuloom.provision.shares.items import Grid, items_of
from gpuloom.provision.shares.laws import Law
from gpuloom.work.model import Service

Blocks = tuple[tuple[int, int], ...]
BLOCKS: Blocks = ((1, 1), (2, 2), (3, 4), (5, 8), (9, 16))
"""Numbers of replicas that are looked at together: the fewest of them, each as small as with the most."""
EACH: Blocks = tuple((count, count) for count in range(1, 17))
"""For few services there is time to look at each."""
FEW = 64
"""Services for which EACH is used."""
MANY = 17
"""The fewest replicas beyond the blocks."""
MIXES = (1.0, 0.8, 0.6, 0.4, 0.2, 0.0)
"""Parts of the share itself in a mean with another function."""
HARDLY = 1e-3
"""Part of the rate at which a replica counts as hardly ever asked; lower rates need no more."""
_ROUNDING = 1e-9
Dual = Callable[[Floats], Floats]


def lower_bound(services: tuple[Service, ...], rates: Floats, offer: Offer, grid: Grid, law: Law) -> int:
    """`rates` in requests per ms; the grid is that of shared GPUs."""
    best = max(float(values.sum()) for values in values_of(services, rates, offer, grid, law))
    return max(1, ceil(best - _ROUNDING))


def values_of(services: tuple[Service, ...], rates: Floats, offer: Offer, grid: Grid, law: Law) -> Iterator[Floats]:
    """Values of all services that sum to at most 1 on any GPU, by one function after the other: the share itself first.

    Their sum over *some* services is as much a bound for those, so that types of GPU can be weighed against each other.
    """
    blocks = BLOCKS if len(services) > FEW else EACH
    shares = np.array([_units(services, rates / most, offer, grid, law) for _, most in blocks]) / grid.units
    seldom = _units(services, rates * HARDLY, offer, grid, law) / grid.units
    beyond = np.maximum(MANY * seldom, rates / _throughput(services, offer, grid))
    for own in MIXES:
        for dual in duals(grid.units)[: 1 if own == 1.0 else None]:
            yield _values(blocks, shares, seldom, beyond, own, dual)
    yield np.array([(service.mem_mib or 0) / offer.mem_mib for service in services])


def duals(units: int) -> list[Dual]:
    """Of shares as parts of a GPU, which are multiples of 1 / units."""
    large = [_large_in_full(small / units) for small in range(1, units // 2 + 1)]
    return large + [_rounding(steps) for steps in range(1, 8)]


def _large_in_full(small: float) -> Dual:
    """Shares beside which nothing of that size fits count as a whole GPU, smaller ones as nothing."""

    def dual(share: Floats) -> Floats:
        return np.where(share > 1.0 - small + _ROUNDING, 1.0, np.where(share < small - _ROUNDING, 0.0, share))

    return dual


def _rounding(steps: int) -> Dual:
    """Down to a multiple of 1 / steps, where steps + 1 times the share is no whole number."""

    def dual(share: Floats) -> Floats:
        stretched = (steps + 1) * share
        whole = np.abs(stretched - np.round(stretched)) < _ROUNDING
        return np.where(whole, share, np.floor(stretched) / steps)

    return dual


def _values(blocks: Blocks, shares: Floats, seldom: Floats, beyond: Floats, own: float, dual: Dual) -> Floats:
    """With `own` parts of the share itself, the others of the dual function; shares above 1 cannot be.

    `shares` of one replica, a row for each block; `seldom` that of one hardly ever asked; `beyond`: what MANY or more
    replicas take together.
    """
    fewest = np.array([first for first, _ in blocks])[:, None]
    values = fewest * (own * shares + (1.0 - own) * dual(np.minimum(shares, 1.0)))
    few = np.where(shares > 1.0 + _ROUNDING, np.inf, values).min(axis=0)
    many = own * beyond + (1.0 - own) * MANY * dual(np.minimum(seldom, 1.0))
    return np.asarray(np.minimum(few, many))


def _units(services: tuple[Service, ...], rates: Floats, offer: Offer, grid: Grid, law: Law) -> Ints:
    """No more than the least units of a single replica, with its best batch."""
    items = items_of(services, [1] * len(services), rates, offer.model)
    columns = np.arange(len(grid.batches))
    return np.asarray(least_units(items, grid, law, alone(len(items)), columns, bound=True).min(axis=1))


def _throughput(services: tuple[Service, ...], offer: Offer, grid: Grid) -> Floats:
    """Requests per ms of a whole GPU, at the share and batch with the most for each unit."""
    each = (grid.batches[:, None] / grid.busy_ms) / (np.arange(1, grid.units + 1) / grid.units)
    index = [offer.model.names.index(service.workload) for service in services]
    return np.asarray(each.max(axis=(1, 2))[index])
