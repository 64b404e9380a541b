"""The p99 of a batching server with Poisson arrivals from a table: thousands in one array operation.

A batch of b keeps a server busy for about floor + slope b. In units of the time of a full batch, the latency without a
queue delay then depends on three numbers only: the max batch, the floor's part of a full batch's time, and the load
(rate x time of a full batch / max batch). `latency` computed the table (benchmarks/make_queue_table.py, which
also measured how far off the table is between its points); linear between the points, in the load on 1 / (1 - load).
Times that lie below the straight line from a batch of 1 to a full one, as ours do, only make it safer.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpuloom.perf.arrays import Floats, Ints


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
        corner = (row * depth + part) * width + column
        low = flat[corner] + along * (flat[corner + 1] - flat[corner])
        corner += width
        high = flat[corner] + along * (flat[corner + 1] - flat[corner])
        return np.where(load > self.loads[-1], np.inf, low + across * (high - low))


def _steep(load: Floats) -> Floats:
    return np.asarray(1.0 / (1.0 - load))


def _between(knots: Floats, values: Floats) -> tuple[Ints, Floats]:
    low = np.clip(np.searchsorted(knots, values, side="right") - 1, 0, len(knots) - 2)
    return low, np.asarray(np.clip((values - knots[low]) / (knots[low + 1] - knots[low]), 0.0, 1.0))
