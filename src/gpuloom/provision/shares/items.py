"""What is placed: replicas of services as arrays, and how long each model's batches take alone, on a grid."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gpuloom.perf.sharing.interference import Crowd, Floats, InterferenceModel, Ints, Latencies
from gpuloom.provision.demand import Offer
from gpuloom.provision.shares.laws import Law
from gpuloom.work.model import Service

MOST_REPLICAS = 10_000


@dataclass(frozen=True, slots=True)
class Items:
    """One entry for each replica."""

    service: tuple[int, ...]
    """Which of the planner's services."""
    number: tuple[int, ...]
    """From 0 among the replicas of its service."""
    model: Ints
    rate_per_ms: Floats
    """As the law is asked: for a trace, that of Poisson arrivals that need as much."""
    slo_ms: Floats
    mem_mib: Ints
    """0 where it is unknown."""
    most_batch: Ints

    def __len__(self) -> int:
        return len(self.service)


def items_of(services: Sequence[Service], replicas: Sequence[int], rates: Floats, model: InterferenceModel) -> Items:
    """`rates` in requests per ms, of whole services; each replica gets an equal part."""
    at = np.repeat(np.arange(len(services)), replicas)
    index = {name: column for column, name in enumerate(model.names)}
    number = np.concatenate([np.arange(count) for count in replicas]) if len(at) else at
    return Items(
        tuple(at.tolist()),
        tuple(number.tolist()),
        np.array([index[one.workload] for one in services], np.intp)[at],
        (rates / np.maximum(np.array(replicas), 1))[at],
        np.array([one.slo_p99_ms for one in services])[at],
        np.array([one.mem_mib or 0 for one in services], np.intp)[at],
        np.array([one.max_batch or 1_000_000 for one in services], np.intp)[at],
    )


@dataclass(frozen=True, slots=True)
class Grid:
    """Times alone with the margin, by model, max batch (of the law) and units of share from 1."""

    busy_ms: Floats
    load_ms: Floats
    batches: Floats
    units: int
    before_ms: Floats
    """Of the batch smaller by one (for batch 1: itself)."""

    @classmethod
    def of(cls, offer: Offer, law: Law, margin: float) -> "Grid":
        return cls._made(offer, law, margin, _alone)

    @classmethod
    def shared(cls, offer: Offer, law: Law, margin: float) -> "Grid":
        """The same beside one neighbour, the gentlest there is: batches of 1 on one unit, of whichever model."""
        return cls._made(offer, law, margin, _beside_gentlest)

    @classmethod
    def _made(cls, offer: Offer, law: Law, margin: float, ask: "Ask") -> "Grid":
        batches = np.array(law.batches, float)
        shape = (len(offer.model.names), len(batches), offer.units)
        model, batch, share = np.broadcast_arrays(
            np.arange(shape[0])[:, None, None],
            batches[:, None],
            np.arange(1, offer.units + 1) * offer.unit_pct,
        )
        busy, load = ask(offer, model, batch, share, margin)
        before, _ = ask(offer, model, np.maximum(batch - 1.0, 1.0), share, margin)
        return cls(busy, load, batches, offer.units, before)


def with_margin(found: Latencies, margin: float) -> tuple[Floats, Floats]:
    """How long each seat is busy with a batch and how long its loading takes before that, error bar included."""
    total = found.total_ms
    factor = 1.0 + margin * (found.high_ms / total - 1.0)
    busy = np.maximum(found.gpu_ms + found.feedback_ms, found.load_ms)
    return np.asarray(busy * factor), np.asarray((total - found.gpu_ms - found.feedback_ms) * factor)


Ask = Callable[[Offer, Ints, Floats, Floats, float], tuple[Floats, Floats]]


def _alone(offer: Offer, index: Ints, batch: Floats, share_pct: Floats, margin: float) -> tuple[Floats, Floats]:
    crowd = Crowd(index.reshape(-1, 1), batch.reshape(-1, 1), share_pct.reshape(-1, 1))
    busy, load = with_margin(offer.model.latencies(crowd), margin)
    return busy.reshape(index.shape), load.reshape(index.shape)


def _beside_gentlest(
    offer: Offer, index: Ints, batch: Floats, share_pct: Floats, margin: float
) -> tuple[Floats, Floats]:
    """Whoever has the whole GPU has no neighbour."""
    busy, load = _alone(offer, index, batch, share_pct, margin)
    found = []
    for neighbour in range(len(offer.model.names)):
        crowd = Crowd(
            np.stack([index.ravel(), np.full(index.size, neighbour)], axis=1),
            np.stack([batch.ravel(), np.ones(index.size)], axis=1),
            np.stack([share_pct.ravel(), np.full(index.size, offer.unit_pct)], axis=1),
        )
        found.append(with_margin(offer.model.latencies(crowd), margin)[0][:, 0].reshape(index.shape))
    return np.where(share_pct < 100.0, np.maximum(np.min(found, axis=0), busy), busy), load
