"""How much work is left: a distribution, learned from finished jobs of the same name, or from the work done so far.

Lengths of jobs of one name are taken as lognormal: their own mean, and a spread that all names share, since most have
few finished jobs. Before the first of a name has finished all that is known is that its jobs are longer than the one
that has come furthest; that they may be alike is what the name says. A job without a name has, for all that is known,
as much before it as behind it (the tail of a Pareto distribution: half of all jobs that came so far go twice as far).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import fsum, log, sqrt

import numpy as np

from gpuloom.perf.arrays import Floats

PRIOR_SPREAD = 0.3
PRIOR_WEIGHT = 2.0
"""The spread before anybody has finished, and the number of finished jobs that it counts like."""
AHEAD = 2.0
"""Who is furthest of a name that nobody has finished of is taken to be half-way."""
LEAST_LEFT = 0.02
"""Of the work done: nobody is taken to be done."""
MOST_LOG = 600.0
"""Of a length: whatever jobs report, what follows from it stays finite."""
QUANTILES: Floats = np.arange(1, 25) / 24.5
"""Of a distribution in pieces that are equally likely: the upper end of each, for a piece is done when that is."""


@dataclass(slots=True)
class Lengths:
    """Work of finished jobs by name, in each one's own unit."""

    finished: dict[str, list[float]] = field(default_factory=dict)
    _squares: dict[str, float] = field(default_factory=dict)
    """By name: of the deviations from its mean. Kept apart, so that in which order names came leaves no trace."""
    _freedom: int = 0

    def add(self, name: str, work: float) -> None:
        if work <= 0:
            return
        known = self.finished.setdefault(name, [])
        known.append(work)
        self._squares[name] = _squares(known)
        self._freedom += len(known) > 1

    def spread(self) -> float:
        """Standard deviation of the logarithms of lengths within a name."""
        squares = PRIOR_WEIGHT * PRIOR_SPREAD**2 + fsum(self._squares.values())
        return sqrt(squares / (PRIOR_WEIGHT + self._freedom))

    def left(self, name: str | None, done: float, furthest: float) -> Floats:
        """Equally likely amounts of work left, in order. `furthest`: the most that a live job of this name has done."""
        if name is None:
            return pareto_left(done)
        known = self.finished.get(name)
        if not known:
            return np.array([AHEAD * max(furthest, done) - done])
        mean = sum(map(log, known)) / len(known)
        return lognormal_left(mean, self.spread() * sqrt(1 + 1 / len(known)), done)


def lognormal_left(mean: float, spread: float, done: float) -> Floats:
    """Quantiles of what is left of a length with this mean and spread of its logarithm, given that so much is done."""
    from scipy.special import ndtr, ndtri

    past = float(ndtr((log(done) - mean) / spread)) if done > 0 else 0.0
    if past > 1 - 1e-9:
        return np.array([max(done * spread**2, LEAST_LEFT * done)])
    lengths = np.exp(np.minimum(mean + spread * ndtri(past + (1 - past) * QUANTILES), MOST_LOG))
    return np.asarray(np.maximum(lengths - done, LEAST_LEFT * done))


def pareto_left(done: float) -> Floats:
    """As many jobs end before they have done twice as much as after it."""
    return np.asarray(done * (1 / (1 - QUANTILES) - 1))


def index(left: Sequence[float] | Floats) -> float:
    """The least work that a completion costs on average, if one stops in time (in the manner of Gittins)."""
    amounts = np.asarray(left, dtype=float)
    behind = np.arange(len(amounts), 0, -1) - 1
    return float(((np.cumsum(amounts) + amounts * behind) / np.arange(1, len(amounts) + 1)).min())


def _squares(lengths: Sequence[float]) -> float:
    logs = [log(length) for length in lengths]
    mean = sum(logs) / len(logs) if logs else 0.0
    return sum((one - mean) ** 2 for one in logs)
