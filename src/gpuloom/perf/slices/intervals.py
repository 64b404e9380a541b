"""How far off a prediction may be: 90 % intervals from errors on jobs that the predictor had not seen.

Split conformal prediction in cells: absolute errors are grouped by slice, by how crowded the mix was and whether a
gauge ran along, and by the predicted speed; the interval reaches as far as 90 % of them do. That holds as long as new
jobs err like those, so there are two tables: for families that were trained on, from mixes left out; for all others,
from families left out, with every family counting alike and a stretch that makes it hold for one family more.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gpuloom.perf.arrays import Floats, Ints
from gpuloom.perf.slices.mix import Mix
from gpuloom.perf.speed import Estimate

SLICES = (4, 3, 2, 1)
"""Those with an error: 7g is the unit."""
LEVEL = 0.9
CROWDS = 7
"""With gauge: alone, 2-3, 4-6 jobs; without: alone, 2-3, 4-6, 7."""
FEWEST_ERRORS = 60
"""A cell with fewer takes those of its whole slice."""
STRETCHES = np.arange(0.6, 3.01, 0.05)


@dataclass(frozen=True, slots=True)
class Intervals:
    edges: Floats
    """For each slice the inner edges of the bins of predicted speed; none if there is but one bin."""
    reach: Floats
    """For each slice, crowd and bin: how far the interval reaches to either side."""

    def __call__(self, crowd: int, row: int, speed: float) -> Estimate:
        """A predicted speed on the slice in this row of SLICES, with its interval."""
        reach = float(self.reach[row, crowd, np.searchsorted(self.edges[row], speed)])
        return Estimate(speed, max(0.0, speed - reach), speed + reach)

    def to_arrays(self) -> dict[str, Floats]:
        return {"edges": self.edges, "reach": self.reach}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Floats]) -> "Intervals":
        return cls(arrays["edges"], arrays["reach"])


def crowd_of(mix: Mix) -> int:
    size = mix.size
    group = 0 if size == 1 else 1 if size <= 3 else 2 if size <= 6 else 3
    return group + 3 if mix.bare else group


def intervals_of_known(crowd: Ints, predicted: Floats, truth: Floats, bins: int = 3) -> Intervals:
    """From jobs not seen: the crowd of each, and a column for each of SLICES; a truth that is NaN is unknown."""
    edges = np.quantile(predicted, np.arange(1, bins) / bins, axis=0).T
    reach = np.zeros((len(SLICES), CROWDS, bins))
    for row in range(len(SLICES)):
        known = np.isfinite(truth[:, row])
        errors = np.abs(truth - predicted)[known, row]
        cells = crowd[known] * bins + np.searchsorted(edges[row], predicted[known, row])
        reach[row] = _reaches(errors, np.ones_like(errors), cells, CROWDS * bins).reshape(CROWDS, bins)
    return Intervals(edges, reach)


def intervals_of_strangers(crowd: Ints, families: Ints, predicted: Floats, truth: Floats) -> Intervals:
    """The same from families left out: each counts alike, and the errors of all but one must hold for that one."""
    reach = np.zeros((len(SLICES), CROWDS, 1))
    for row in range(len(SLICES)):
        known = np.isfinite(truth[:, row])
        errors, cells, family = np.abs(truth - predicted)[known, row], crowd[known], families[known]
        weights = 1.0 / np.bincount(family)[family]
        stretch = _stretch(errors, weights, cells, family)
        reach[row, :, 0] = stretch * _reaches(errors, weights, cells, CROWDS)
    return Intervals(np.zeros((len(SLICES), 0)), reach)


def _stretch(errors: Floats, weights: Floats, cells: Ints, family: Ints) -> float:
    """The smallest with which the others' errors hold a family's, in the mean over families, at the asked level."""
    relative = []
    for left_out in np.unique(family):
        out = family == left_out
        if out.all():
            return 1.0
        reach = _reaches(errors[~out], weights[~out], cells[~out], CROWDS)
        relative.append(errors[out] / np.maximum(reach[cells[out]], 1e-9))
    held = [np.mean([(parts <= stretch).mean() for parts in relative]) for stretch in STRETCHES]
    return next((float(s) for s, share in zip(STRETCHES, held, strict=True) if share >= LEVEL), float(STRETCHES[-1]))


def _reaches(errors: Floats, weights: Floats, cells: Ints, count: int) -> Floats:
    reach = np.full(count, _quantile(errors, weights))
    for cell in range(count):
        inside = cells == cell
        if np.count_nonzero(inside) >= FEWEST_ERRORS:
            reach[cell] = _quantile(errors[inside], weights[inside])
    return reach


def _quantile(errors: Floats, weights: Floats) -> float:
    """The error that LEVEL of the weight does not exceed."""
    if not len(errors):
        return 1.0
    order = np.argsort(errors)
    below = np.cumsum(weights[order])
    return float(errors[order][min(np.searchsorted(below, LEVEL * below[-1]), len(errors) - 1)])
