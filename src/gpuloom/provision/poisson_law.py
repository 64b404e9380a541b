"""The p99 of a batching server with Poisson arrivals from a table: thousands in one array operation.

A batch of b keeps a server busy for about floor + slope b. In units of the time of a full batch, the latency without a
queue delay then depends on three numbers only: the max batch, the floor's part of a full batch's time, and the load
(rate x time of a full batch / max batch). `perf.queueing` computed the table (benchmarks/make_queue_table.py, which
also measured how far off the table is between its points); linear between the points, in the load on 1 / (1 - load).
Times that lie below the straight line from a batch of 1 to a full one, as ours do, only make it safer.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from gpuloom.perf.sharing.interference import Floats, Ints
from gpuloom.work.measured.queue_figures import load_queue_figures


@dataclass(frozen=True, slots=True)
class PoissonTable:
    batches: Floats
    floor_parts: Floats
    loads: Floats
    p99: Floats
    """By batch, floor part and load, in units of the time of a full batch."""
    above: float
    """The logarithm of how far the table is above the truth at most, and below it."""
    below: float
    row_of: Ints
    """The row of each batch."""

    @classmethod
    def from_figures(cls, figures: Mapping[str, Any]) -> "PoissonTable":
        batches, parts, loads = (np.array(figures[name], float) for name in ("batches", "floor_parts", "loads"))
        row_of = np.searchsorted(batches, np.arange(batches[-1] + 1))
        return cls(batches, parts, loads, np.array(figures["p99"], float), figures["above"], figures["below"], row_of)

    def ratio(self, batch: Floats, floor_part: Floats, load: Floats) -> Floats:
        """p99 over the time of a full batch; infinite beyond the largest load. Batches must be ones of the table."""
        row = self.row_of[batch.astype(np.intp)]
        part, across = _between(self.floor_parts, floor_part)
        column, along = _between(_steep(self.loads), _steep(np.minimum(load, self.loads[-1])))
        flat, width, depth = self.p99.ravel(), len(self.loads), len(self.floor_parts)
        at = (row * depth + part) * width + column
        low = flat[at] + along * (flat[at + 1] - flat[at])
        high = flat[at + width] + along * (flat[at + width + 1] - flat[at + width])
        return np.where(load > self.loads[-1], np.inf, low + across * (high - low))


@lru_cache
def shipped_table() -> PoissonTable:
    return PoissonTable.from_figures(load_queue_figures())


def _steep(load: Floats) -> Floats:
    return np.asarray(1.0 / (1.0 - load))


def _between(knots: Floats, at: Floats) -> tuple[np.ndarray[tuple[int, ...], np.dtype[np.intp]], Floats]:
    low = np.clip(np.searchsorted(knots, at, side="right") - 1, 0, len(knots) - 2)
    return low, np.asarray(np.clip((at - knots[low]) / (knots[low + 1] - knots[low]), 0.0, 1.0))
