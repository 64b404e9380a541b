"""How many replicas each service gets, and which services no number of them can serve.

As few as a GPU each is enough for; more where they need less share together. Rates are split evenly: one is a copy of
the other, and losing one costs as much as losing another.
"""

from dataclasses import dataclass

import numpy as np

from gpuloom.perf.sharing.interference import Floats, InterferenceModel, Ints
from gpuloom.provision.demand import Offer
from gpuloom.provision.plan import Unplaced
from gpuloom.provision.shares.candidates import alone, least_units
from gpuloom.provision.shares.items import MOST_REPLICAS, Grid, items_of
from gpuloom.provision.shares.laws import Law
from gpuloom.work.model import Service

MORE = 2
"""Replicas beyond the fewest that are looked at, where one would take more than half a GPU."""

SELDOM = 10**12
"""Replicas among which any rate is next to nothing."""


@dataclass(frozen=True, slots=True)
class Split:
    services: tuple[Service, ...]
    """Those that can be served."""
    replicas: tuple[int, ...]
    rate_per_ms: Floats
    unplaced: tuple[Unplaced, ...]


def split(services: tuple[Service, ...], rates: Floats, offer: Offer, grid: Grid, law: Law) -> Split:
    """`rates` in requests per ms, as the law is asked."""
    once = units_for(services, rates, 1, offer.model, grid, law)
    best, can = np.ones(len(services), np.intp), np.ones(len(services), bool)
    hard = np.flatnonzero(once > grid.units)
    if len(hard):
        these, rate = tuple(services[at] for at in hard), rates[hard]
        can[hard] = units_for(these, rate, MOST_REPLICAS, offer.model, grid, law) <= grid.units
        best[hard] = np.where(can[hard], _fewest(these, rate, offer.model, grid, law), 1)
    large = np.flatnonzero(can & (once > grid.units / 2))
    some, volume = tuple(services[at] for at in large), np.full(len(large), np.iinfo(np.int64).max)
    fewest, chosen = best[large], best[large]
    for more in range(MORE + 1) if len(large) else ():
        other = _volume(some, rates[large], fewest + more, offer.model, grid, law)
        chosen, volume = np.where(other < volume, fewest + more, chosen), np.minimum(other, volume)
    best[large] = chosen
    seldom = () if can.all() else units_for(services, rates, SELDOM, offer.model, grid, law) <= grid.units
    lost = [Unplaced(services[at].id, _why(services[at], offer, grid, bool(seldom[at]))) for at in np.flatnonzero(~can)]
    kept = [int(at) for at in np.flatnonzero(can)]
    for at in list(kept):
        mem = services[at].mem_mib
        if mem is not None and mem > offer.mem_mib:
            lost.append(Unplaced(services[at].id, f"it needs {mem:,} MiB, but a {offer.name} has {offer.mem_mib:,}"))
            kept.remove(at)
    return Split(
        tuple(services[at] for at in kept),
        tuple(int(best[at]) for at in kept),
        rates[kept],
        tuple(sorted(lost, key=lambda one: one.service)),
    )


def units_for(
    services: tuple[Service, ...], rates: Floats, count: int | Ints, model: InterferenceModel, grid: Grid, law: Law
) -> Ints:
    """Least units of one replica alone, if there are `count` of them."""
    items = items_of(services, [1] * len(services), rates / count, model)
    return np.asarray(least_units(items, grid, law, alone(len(items)), np.arange(len(grid.batches))).min(axis=1))


def _volume(
    services: tuple[Service, ...], rates: Floats, counts: Ints, model: InterferenceModel, grid: Grid, law: Law
) -> Ints:
    """Units of all replicas; beyond all bounds if one does not fit on a GPU."""
    units = units_for(services, rates, counts, model, grid, law)
    return np.where(units > grid.units, np.iinfo(np.int64).max, units * counts)


def _fewest(services: tuple[Service, ...], rates: Floats, model: InterferenceModel, grid: Grid, law: Law) -> Ints:
    """By doubling, then bisection; more than the most where none is enough. One is known not to be."""

    def too_few(counts: Ints) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        return np.asarray(units_for(services, rates, counts, model, grid, law) > grid.units)

    low, high = np.ones(len(services), np.intp), np.full(len(services), 2, np.intp)
    while (more := too_few(high) & (high <= MOST_REPLICAS)).any():
        low, high = np.where(more, high, low), np.where(more, 2 * high, high)
    while (high - low > 1).any():
        middle = (low + high + 1) // 2
        more = too_few(middle) & (high - low > 1)
        low, high = np.where(more, middle, low), np.where(more | (high - low <= 1), high, middle)
    return high


def _why(service: Service, offer: Offer, grid: Grid, many: bool) -> str:
    if many:
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
