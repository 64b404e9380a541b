"""Linear interpolation between scattered points, over scipy's Delaunay triangulation; never beyond the points.

The values are those of scipy's LinearNDInterpolator, whose module takes half as long again to import. Points on a grid
have no unique triangulation, so which simplex a point is in is left to scipy too: another choice is up to 8 % off.
"""

import numpy as np
from numpy.typing import ArrayLike

from gpuloom.perf.arrays import Floats


class Surface:
    """Straight between `points` (n x d) with `values` (n x k); outside of their hull, the value of the nearest."""

    def __init__(self, points: ArrayLike, values: ArrayLike) -> None:
        from scipy.spatial import Delaunay

        self._triangles = Delaunay(np.asarray(points, dtype=float))
        self._values = np.asarray(values, dtype=float)

    def at(self, point: ArrayLike) -> Floats:
        where = np.asarray(point, dtype=float)
        simplex = int(self._triangles.find_simplex(where))
        if simplex < 0:
            return self._nearest(where)
        transform = self._triangles.transform[simplex]
        weights = (transform[:-1] * (where - transform[-1])).sum(axis=1)
        corners = self._values[self._triangles.simplices[simplex]]
        return np.asarray((weights[:, None] * corners[:-1]).sum(axis=0) + (1.0 - weights.sum()) * corners[-1])

    def _nearest(self, where: Floats) -> Floats:
        """Each axis is measured by its spread."""
        points = self._triangles.points
        distance = (((points - where) / (np.ptp(points, axis=0) + 1.0)) ** 2).sum(axis=1)
        return np.asarray(self._values[distance.argmin()])
