"""How far a predicted latency may be off: 90 % intervals from the errors on models that were left out.

Split conformal prediction, on the logarithm of measured over predicted, apart by how much of the active time is the
*floor*: small batches, whose kernels do not fill the SMs, are predicted less well. Nobody has measured more than two
models side by side; with more the interval widens by the root of n / 2, as errors of one size that add up would make
it. That is an assumption, not a measurement.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from gpuloom.perf.arrays import Floats, Ints

LEVEL = 0.9
CELLS = 3


@dataclass(frozen=True, slots=True)
class Intervals:
    edges: tuple[float, ...] = ()
    """Between the cells, by the floor's part of the active time."""
    low: tuple[float, ...] = (0.0,)
    """Logarithms of the ends of the interval over the prediction: at most 0, and at least 0."""
    high: tuple[float, ...] = (0.0,)

    def __call__(self, floor_part: Floats, n: Ints) -> tuple[Floats, Floats]:
        """Factors from the prediction to both ends, for n processes on the device."""
        cell = np.searchsorted(np.array(self.edges), floor_part)
        wider = np.sqrt(np.maximum(n, 2) / 2.0)
        return np.exp(np.array(self.low)[cell] * wider), np.exp(np.array(self.high)[cell] * wider)

    def to_figures(self) -> dict[str, list[float]]:
        return {name: list(values) for name, values in asdict(self).items()}

    @classmethod
    def from_figures(cls, figures: Mapping[str, Any]) -> "Intervals":
        return cls(tuple(figures["edges"]), tuple(figures["low"]), tuple(figures["high"]))


def intervals_of(floor_part: Floats, log_errors: Floats) -> Intervals:
    """From log(measured / predicted) of pairs that the predictor had not seen."""
    edges = np.quantile(floor_part, np.arange(1, CELLS) / CELLS)
    cell = np.searchsorted(edges, floor_part)
    ends = []
    for number in range(CELLS):
        inside = log_errors[cell == number] if (cell == number).any() else log_errors
        ends.append(np.quantile(inside, [(1.0 - LEVEL) / 2.0, (1.0 + LEVEL) / 2.0]))
    low, high = np.array(ends).T
    return Intervals(
        tuple(map(float, edges)), tuple(map(float, np.minimum(low, 0))), tuple(map(float, np.maximum(high, 0)))
    )
