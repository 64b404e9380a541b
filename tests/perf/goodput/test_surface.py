"""The surface goes through its points, is straight between them and stays at the nearest one beyond."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuloom.perf.goodput.surface import Surface

GRID = [(x, y, z) for x in (0, 1, 4) for y in (0, 2, 3) for z in (10, 20, 40)]


def plane(x: float, y: float, z: float) -> tuple[float, float]:
    return 1.0 + 2 * x + 3 * y - 0.1 * z, x - y


SURFACE = Surface(GRID, [plane(*point) for point in GRID])


@pytest.mark.parametrize("point", GRID)
def test_goes_through_its_points(point: tuple[int, int, int]) -> None:
    assert SURFACE.at(point) == pytest.approx(plane(*point))


@given(st.floats(0, 4), st.floats(0, 3), st.floats(10, 40))
def test_a_plane_stays_a_plane(x: float, y: float, z: float) -> None:
    assert SURFACE.at((x, y, z)) == pytest.approx(plane(x, y, z), abs=1e-6)


@pytest.mark.parametrize(
    ("outside", "nearest"), [((9, 9, 99), (4, 3, 40)), ((-1, 0, 0), (0, 0, 10)), ((4, 2, 50), (4, 2, 40))]
)
def test_beyond_the_hull_the_nearest_point_counts(
    outside: tuple[float, float, float], nearest: tuple[int, int, int]
) -> None:
    assert np.array_equal(SURFACE.at(outside), SURFACE._values[GRID.index(nearest)])
