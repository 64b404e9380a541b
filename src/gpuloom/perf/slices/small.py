"""2g and 1g, on which no mix was measured: straight lines through the speeds of the workloads that were.

1g has 14 of 98 SMs, which is what MPS at 14 % gives: its speed follows the *solo share*, the speed that a job alone on
the GPU keeps at 14 % (R² 0.99, and 0.98 on models left out; from the speeds on 4g and 3g, as MISO does it, 0.84). 2g
follows the solo share and the speed on 3g (R² 0.98; 0.97 on models left out; MISO's 0.96). Speeds, never latencies.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gpuloom.errors import InputError
from gpuloom.perf.arrays import Floats

SLOWEST = 0.01
FEWEST = 4


class SmallPoint(NamedTuple):
    """A measured workload; NaN where it ran out of memory."""

    solo_share: float
    on_3g: float
    on_2g: float
    on_1g: float


@dataclass(frozen=True, slots=True)
class SmallSlices:
    coefficients: Floats
    """Two rows, 2g and 1g: constant, times the solo share, times the speed on 3g."""

    def __call__(self, solo_share: Floats, on_3g: Floats) -> tuple[Floats, Floats]:
        """Speed on 2g and on 1g: never above 3g, nor 1g above 2g."""
        inputs = np.column_stack([np.ones_like(solo_share), solo_share, on_3g])
        on_2g, on_1g = (inputs @ self.coefficients.T).T
        on_2g = np.clip(on_2g, SLOWEST, on_3g)
        return on_2g, np.clip(on_1g, SLOWEST, on_2g)


def fit_small(points: Sequence[SmallPoint]) -> SmallSlices:
    share, on_3g, on_2g, on_1g = np.array(points).T
    ones = np.ones_like(share)
    return SmallSlices(
        np.array(
            [
                _line(np.column_stack([ones, share, on_3g]), on_2g),
                [*_line(np.column_stack([ones, share]), on_1g), 0.0],
            ]
        )
    )


def _line(inputs: Floats, speeds: Floats) -> Floats:
    known = np.isfinite(speeds)
    if np.count_nonzero(known) < FEWEST:
        raise InputError(f"too few workloads with measured speeds on 2g and 1g to train on: expected {FEWEST} of each")
    return np.asarray(np.linalg.lstsq(inputs[known], speeds[known], rcond=None)[0])
