"""What is placed: replicas of services as arrays, and how long each model's batches take alone, on a grid."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gpuloom.perf.arrays import Floats, Ints
from gpuloom.perf.sharing.interference import Crowd, InterferenceModel, Latencies
from gpuloom.provision.offer import Offer
from gpuloom.provision.shares.laws import Law
from gpuloom.work.model import Service

NO_LIMIT = 1_000_000
"""Batches of a service that names no largest: beyond those of every law."""
TimesOf = Callable[[Offer, Ints, Floats, Floats, float], tuple[Floats, Floats]]
"""Busy and loading times of models (by index), batches and shares, with a margin."""


@dataclass(frozen=True, slots=True)
class Items:
    """One entry for each replica."""

    service: tuple[int, ...]
    """Which of the planner's services."""
    model: Ints
    """Which of the interference model's names."""
    rate_per_ms: Floats
    """As the law is asked: for a trace, that of Poisson arrivals that need as much."""
    slo_ms: Floats
    mem_mib: Ints
    """0 where it is unknown."""
    most_batch: Ints
    """The largest batch that the service allows."""

    def __len__(self) -> int:
        return len(self.service)

    def take(self, which: Ints) -> "Items":
        """Some items, each perhaps several times."""
        return Items(
            tuple(self.service[item] for item in which),
            self.model[which],
            self.rate_per_ms[which],
            self.slo_ms[which],
            self.mem_mib[which],
            self.most_batch[which],
        )


def items_of(services: Sequence[Service], replicas: Sequence[int], rates: Floats, model: InterferenceModel) -> Items:
    """`rates` in requests per ms, of whole services; each replica gets an equal part."""
    owner = np.repeat(np.arange(len(services)), replicas)
    index = {name: column for column, name in enumerate(model.names)}
    return Items(
        tuple(owner.tolist()),
        np.array([index[service.workload] for service in services], np.intp)[owner],
        (rates / np.maximum(np.array(replicas), 1))[owner],
        np.array([service.slo_p99_ms for service in services])[owner],
        np.array([service.mem_mib or 0 for service in services], np.intp)[owner],
        np.array([service.max_batch or NO_LIMIT for service in services], np.intp)[owner],
    )


@dataclass(frozen=True, slots=True)
class Grid:
    """Times with the margin, by model, max batch (of the law) and units of share from 1."""

    busy_ms: Floats
    """For how long a batch occupies the server."""
    load_ms: Floats
    """For how long its inputs are loaded before that."""
    batches: Floats
    units: int
    before_ms: Floats
    """As `busy_ms`, of the batch smaller by one (for batch 1: itself)."""

    @classmethod
    def of(cls, offer: Offer, law: Law, margin: float) -> "Grid":
        """Alone on the GPU."""
        return cls._made(offer, law, margin, _alone)

    @classmethod
    def shared(cls, offer: Offer, law: Law, margin: float) -> "Grid":
        """The same beside one neighbour, the gentlest there is: batches of 1 on one unit, of whichever model."""
        return cls._made(offer, law, margin, _beside_gentlest)

    @classmethod
    def _made(cls, offer: Offer, law: Law, margin: float, times_of: TimesOf) -> "Grid":
        batches = np.array(law.batches, float)
        shape = (len(offer.model.names), len(batches), offer.units)
        model, batch, share = np.broadcast_arrays(
            np.arange(shape[0])[:, None, None],
            batches[:, None],
            np.arange(1, offer.units + 1) * offer.unit_pct,
        )
        busy, load = times_of(offer, model, batch, share, margin)
        before, _ = times_of(offer, model, np.maximum(batch - 1.0, 1.0), share, margin)
        return cls(busy, load, batches, offer.units, before)


def with_margin(latencies: Latencies, margin: float) -> tuple[Floats, Floats]:
    """How long each seat is busy with a batch and how long its loading takes before that, error bar included."""
    total = latencies.total_ms
    factor = 1.0 + margin * (latencies.high_ms / total - 1.0)
    busy = np.maximum(latencies.gpu_ms + latencies.feedback_ms, latencies.load_ms)
    return np.asarray(busy * factor), np.asarray((total - latencies.gpu_ms - latencies.feedback_ms) * factor)


def _alone(offer: Offer, index: Ints, batch: Floats, share_pct: Floats, margin: float) -> tuple[Floats, Floats]:
    crowd = Crowd(index.reshape(-1, 1), batch.reshape(-1, 1), share_pct.reshape(-1, 1))
    busy, load = with_margin(offer.model.latencies(crowd), margin)
    return busy.reshape(index.shape), load.reshape(index.shape)


def _beside_gentlest(
    offer: Offer, index: Ints, batch: Floats, share_pct: Floats, margin: float
) -> tuple[Floats, Floats]:
    """Whoever has the whole GPU has no neighbour."""
    busy, load = _alone(offer, index, batch, share_pct, margin)
    beside = []
    for neighbour in range(len(offer.model.names)):
        crowd = Crowd(
            np.stack([index.ravel(), np.full(index.size, neighbour)], axis=1),
            np.stack([batch.ravel(), np.ones(index.size)], axis=1),
            np.stack([share_pct.ravel(), np.full(index.size, offer.unit_pct)], axis=1),
        )
        beside.append(with_margin(offer.model.latencies(crowd), margin)[0][:, 0].reshape(index.shape))
    return np.where(share_pct < 100.0, np.maximum(np.min(beside, axis=0), busy), busy), load
