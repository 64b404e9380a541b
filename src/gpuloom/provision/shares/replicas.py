"""How many replicas each service gets, and which services no number of them can serve.

As few as a GPU each is enough for; more where they need less share together. Rates are split evenly: replicas are
copies of each other, and losing any costs as much as losing another.
"""

from dataclasses import dataclass, replace

import numpy as np

from gpuloom.perf.arrays import Bools, Floats, Ints
from gpuloom.perf.sharing.interference import InterferenceModel
from gpuloom.provision.offer import Offer
from gpuloom.provision.plan import MOST_REPLICAS, Unplaced
from gpuloom.provision.shares.candidates import alone, least_units
from gpuloom.provision.shares.items import Grid, items_of
from gpuloom.provision.shares.laws import Law
from gpuloom.work.model import Service

MORE = 2
"""Replicas beyond the fewest that are looked at, where one would take more than half a GPU."""

SELDOM = 10**12
"""Replicas among which any rate is next to nothing."""
BEYOND = np.iinfo(np.int64).max
"""Units in all where a replica does not fit on a GPU."""


@dataclass(frozen=True, slots=True)
class Split:
    """A demand as replicas, and whom no GPU serves."""

    services: tuple[Service, ...]
    """Those that can be served."""
    replicas: tuple[int, ...]
    rate_per_ms: Floats
    """Of whole services, as the law is asked."""
    unplaced: tuple[Unplaced, ...]


def split(services: tuple[Service, ...], rates: Floats, offer: Offer, grid: Grid, law: Law) -> Split:
    """`rates` in requests per ms, as the law is asked."""
    once = units_for(services, rates, 1, offer.model, grid, law)
    fewest, servable = _fewest(services, rates, once, offer.model, grid, law)
    large = np.flatnonzero(servable & (once > grid.units / 2))
    replicas = fewest.copy()
    if len(large):
        some = tuple(services[index] for index in large)
        replicas[large] = _least_volume(some, rates[large], fewest[large], offer.model, grid, law)
    has_memory = np.array([(service.mem_mib or 0) <= offer.mem_mib for service in services], bool)
    served = np.flatnonzero(servable & has_memory)
    refused = [] if servable.all() else _refused(services, rates, servable, offer, grid, law)
    too_large = [
        Unplaced(service.id, f"it needs {service.mem_mib:,} MiB, but a {offer.name} has {offer.mem_mib:,}")
        for service in (services[index] for index in np.flatnonzero(servable & ~has_memory))
    ]
    return Split(
        tuple(services[index] for index in served),
        tuple(int(replicas[index]) for index in served),
        rates[served],
        tuple(sorted([*refused, *too_large], key=lambda unplaced: unplaced.service)),
    )


def split_again(before: Split, rates: Floats, offer: Offer, grid: Grid, law: Law) -> Split:
    """The services of a split at other rates; whom no GPU serves after all joins those unplaced before."""
    now = split(before.services, rates, offer, grid, law)
    return replace(now, unplaced=(*before.unplaced, *now.unplaced))


def units_for(
    services: tuple[Service, ...], rates: Floats, count: int | Ints, model: InterferenceModel, grid: Grid, law: Law
) -> Ints:
    """Least units of one replica alone, if there are `count` of them."""
    items = items_of(services, [1] * len(services), rates / count, model)
    return np.asarray(least_units(items, grid, law, alone(len(items)), np.arange(len(grid.batches))).min(axis=1))


def _fewest(
    services: tuple[Service, ...], rates: Floats, once: Ints, model: InterferenceModel, grid: Grid, law: Law
) -> tuple[Ints, Bools]:
    """The fewest replicas for which a GPU each is enough, and whether any number is. `once`: units of a single one."""
    fewest, servable = np.ones(len(services), np.intp), np.ones(len(services), bool)
    hard = np.flatnonzero(once > grid.units)
    if len(hard):
        some, some_rates = tuple(services[index] for index in hard), rates[hard]
        servable[hard] = units_for(some, some_rates, MOST_REPLICAS, model, grid, law) <= grid.units
        fewest[hard] = np.where(servable[hard], _fewest_above_one(some, some_rates, model, grid, law), 1)
    return fewest, servable


def _fewest_above_one(
    services: tuple[Service, ...], rates: Floats, model: InterferenceModel, grid: Grid, law: Law
) -> Ints:
    """By doubling, then bisection; more than the most where none is enough."""

    def too_few(counts: Ints) -> Bools:
        return np.asarray(units_for(services, rates, counts, model, grid, law) > grid.units)

    low, high = np.ones(len(services), np.intp), np.full(len(services), 2, np.intp)
    while (more := too_few(high) & (high <= MOST_REPLICAS)).any():
        low, high = np.where(more, high, low), np.where(more, 2 * high, high)
    while (high - low > 1).any():
        middle = (low + high + 1) // 2
        more = too_few(middle) & (high - low > 1)
        low, high = np.where(more, middle, low), np.where(more | (high - low <= 1), high, middle)
    return high


def _least_volume(
    services: tuple[Service, ...], rates: Floats, fewest: Ints, model: InterferenceModel, grid: Grid, law: Law
) -> Ints:
    """The number of replicas, from the fewest to MORE beyond, that needs the least share in all."""
    best, least = fewest, np.full(len(services), BEYOND)
    for count in (fewest + more for more in range(MORE + 1)):
        units = units_for(services, rates, count, model, grid, law)
        volume = np.where(units > grid.units, BEYOND, units * count)
        best, least = np.where(volume < least, count, best), np.minimum(volume, least)
    return best


def _refused(
    services: tuple[Service, ...], rates: Floats, servable: Bools, offer: Offer, grid: Grid, law: Law
) -> list[Unplaced]:
    seldom = units_for(services, rates, SELDOM, offer.model, grid, law) <= grid.units
    return [
        Unplaced(services[index].id, _why(services[index], offer, grid, bool(seldom[index])))
        for index in np.flatnonzero(~servable)
    ]


def _why(service: Service, offer: Offer, grid: Grid, seldom: bool) -> str:
    """`seldom`: whether a GPU would be enough if the service were hardly ever asked."""
    if seldom:
        return f"{service.rate_rps:g} requests per second need more than {MOST_REPLICAS:,} replicas on {offer.name}"
    index = offer.model.names.index(service.workload)
    alone_ms = float(grid.busy_ms[index, 0, -1] + grid.load_ms[index, 0, -1])
    if alone_ms > service.slo_p99_ms:
        return (
            f"{service.slo_p99_ms:g} ms cannot be met: one request of {service.workload} alone on a whole {offer.name}"
            f" takes up to {alone_ms:.3g} ms"
        )
    return (
        f"{service.slo_p99_ms:g} ms cannot be met by {service.workload} on {offer.name}: one request alone takes up to"
        f" {alone_ms:.3g} ms, which leaves too little for waiting"
    )
