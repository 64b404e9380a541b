"""How much work is left by the path of a job's metric: the flatter it is, the less, as finished jobs have shown.

Flatness is how much the metric moved over the second half of the work done, relative to all that it has moved; only
ratios count, so accuracies, losses and error rates of any scale will do. A line from its logarithm to that of work left
over work done is fitted to what finished jobs, of whatever name, were like on their way. Before there are any it says
what is said without it: as much is left as was done. What the line misses by is the spread of the distribution.
"""

from collections.abc import Container, Mapping, Sequence
from math import exp, log, sqrt
from typing import Any

import numpy as np

from gpuloom.perf.arrays import Floats
from gpuloom.perf.goodput.remaining import MOST_LOG, QUANTILES

APART = 1.05
"""Points of a path are so many times as far as the one before: however long a job is, they are few."""
PARTS = (0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.95)
"""Of a finished job's work: where it is looked at."""
FLAT = 0.01
"""Flatter than this is all the same."""
USUAL = -2.0
"""About the logarithm of flatness that jobs have half-way."""
RIDGE = 6.0
PRIOR_LESSONS, PRIOR_SPREAD = 20.0, 1.5
"""The spread without any lesson, and how many lessons that counts like."""

Point = tuple[float, float]
"""Work done, and the metric then."""


class Paths:
    def __init__(self) -> None:
        self._points: dict[str, list[Point]] = {}
        self._sums = [0.0] * 6
        """Over all lessons: 1, x, y, x², xy, y²; x is flatness, y is what was left, as logarithms."""

    def see(self, job_id: str, done: float, metric: float | None) -> None:
        points = self._points.setdefault(job_id, [])
        if metric is not None and done > 0 and (not points or done >= APART * points[-1][0]):
            points.append((done, metric))

    def finish(self, job_id: str, work: float) -> None:
        """It has ended with so much work: what it was like on its way is learned from."""
        points = self._points.pop(job_id, [])
        for part in PARTS:
            x = flatness(points, part * work)
            if x is not None:
                y = log((1.0 - part) / part)
                self._sums = [old + new for old, new in zip(self._sums, (1.0, x, y, x * x, x * y, y * y), strict=True)]

    def keep(self, live: Container[str]) -> None:
        self._points = {job_id: points for job_id, points in self._points.items() if job_id in live and points}

    def left(self, job_id: str, done: float) -> Floats | None:
        """Equally likely amounts of work left, in order; None if its path, or those of others, tell nothing."""
        x = flatness(self._points.get(job_id, ()), done)
        if x is None or not self._sums[0]:
            return None
        from scipy.special import ndtri

        (at_usual, slope), spread = self._line()
        logs = log(done) + at_usual + slope * x + spread * ndtri(QUANTILES)
        return np.asarray(np.exp(np.minimum(logs, MOST_LOG)))

    def _line(self) -> tuple[tuple[float, float], float]:
        n, sum_x, sum_y, sum_xx, sum_xy, sum_yy = self._sums
        a, b, c = n + RIDGE, sum_x, sum_xx + RIDGE
        det = a * c - b * b
        at_usual, slope = (c * sum_y - b * sum_xy) / det, (a * sum_xy - b * sum_y) / det
        missed = sum_yy - at_usual * sum_y - slope * sum_xy
        spread = sqrt((max(missed, 0.0) + PRIOR_LESSONS * PRIOR_SPREAD**2) / (n + PRIOR_LESSONS))
        return (at_usual, slope), spread

    def remember(self) -> dict[str, Any]:
        return {"points": self._points, "sums": self._sums}

    def restore(self, memory: Mapping[str, Any]) -> None:
        self._points = {
            job_id: [(float(done), float(metric)) for done, metric in points]
            for job_id, points in dict(memory["points"]).items()
        }
        sums = [float(one) for one in memory["sums"]]
        if len(sums) != len(self._sums):
            raise ValueError("sums of lessons: there are six")
        self._sums = sums


def flatness(points: Sequence[Point], done: float) -> float | None:
    """Logarithm, less the usual one; None where the path is too short."""
    if len(points) < 3 or points[0][0] > done / 2:
        return None
    works, metrics = zip(*points, strict=True)
    now, half = np.interp((done, done / 2), works, metrics).tolist()
    moved = abs(now - metrics[0])
    ratio = abs(now - half) / moved if moved > 0 else 0.0
    return log(min(ratio, exp(3.0)) + FLAT) - USUAL
