"""A measured table over batch and share, asked between its points: in place of a fitted curve, where one was measured.

Latency is close to linear in the batch and in 1 / share, so that is how it is interpolated; use of L2 and memory is
taken the same way. Beyond its edges a table says nothing: `within` moves a point to the nearest one that it knows.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gpuloom.errors import InputError
from gpuloom.perf.arrays import Floats, Ints


@dataclass(frozen=True, slots=True)
class AloneTable:
    batches: Floats
    """Rising."""
    shares_pct: Floats
    """Rising."""
    values: Floats
    """A row for each batch, a column for each share."""

    @classmethod
    def of(cls, measured: Mapping[tuple[int, float], float], *, monotone: bool = False) -> "AloneTable":
        """From points by (batch, share); shares that not every batch has are left out.

        `monotone` evens out noise: more SMs never take longer, more items never less.
        """
        batches = sorted({batch for batch, _ in measured})
        shares = sorted({share for _, share in measured if all((batch, share) in measured for batch in batches)})
        if not shares:
            raise InputError(
                "a measured table has no share at which all its batches were measured: expected one or more"
            )
        values = np.array([[measured[batch, share] for share in shares] for batch in batches])
        if monotone:
            values = np.maximum.accumulate(np.minimum.accumulate(values, axis=1), axis=0)
        return cls(np.array(batches, float), np.array(shares, float), values)

    @property
    def points(self) -> int:
        """What it cost: one run for each."""
        return int(self.values.size)

    def within(self, batch: Floats, share_pct: Floats) -> tuple[Floats, Floats]:
        return (
            np.clip(batch, self.batches[0], self.batches[-1]),
            np.clip(share_pct, self.shares_pct[0], self.shares_pct[-1]),
        )

    def __call__(self, batch: Floats, share_pct: Floats) -> Floats:
        batch, share_pct = self.within(batch, share_pct)
        row, down = _between(self.batches, batch)
        column, across = _between(-1.0 / self.shares_pct, -1.0 / share_pct)
        below, right = np.minimum(row + 1, len(self.batches) - 1), np.minimum(column + 1, len(self.shares_pct) - 1)
        upper = (1.0 - across) * self.values[row, column] + across * self.values[row, right]
        lower = (1.0 - across) * self.values[below, column] + across * self.values[below, right]
        return np.asarray((1.0 - down) * upper + down * lower)


def _between(knots: Floats, values: Floats) -> tuple[Ints, Floats]:
    """The knot at or below each value, and how far it is to the next."""
    low = np.clip(np.searchsorted(knots, values, side="right") - 1, 0, max(len(knots) - 2, 0))
    if len(knots) == 1:
        return low, np.zeros_like(values)
    return low, np.asarray(np.clip((values - knots[low]) / (knots[low + 1] - knots[low]), 0.0, 1.0))
