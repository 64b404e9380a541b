"""The surface goes through its points, is straight between them and stays at the nearest one beyond."""

from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.interpolate import LinearNDInterpolator

from gpuloom.perf.arrays import Floats
from gpuloom.perf.goodput.surface import Surface

GRID = [(x, y, z) for x in (0, 1, 4) for y in (0, 2, 3) for z in (10, 20, 40)]


def plane(x: float, y: float, z: float) -> tuple[float, float]:
    return 1.0 + 2 * x + 3 * y - 0.1 * z, x - y


SURFACE = Surface(GRID, [plane(*point) for point in GRID])


@pytest.mark.parametrize("point", GRID)
def test_goes_through_its_points(point: tuple[int, int, int]) -> None:
    assert SURFACE.at(point) == pytest.approx(plane(*point))


@settings(deadline=None)
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


@lru_cache
def scattered(seed: int) -> tuple[Floats, Floats, Surface, LinearNDInterpolator]:
    generator = np.random.default_rng(seed)
    points, values = generator.uniform(0, 10, (40, 3)), generator.uniform(1, 5, (40, 2))
    return points, values, Surface(points, values), LinearNDInterpolator(points, values)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 7), st.lists(st.floats(0, 10), min_size=3, max_size=3))
def test_between_scattered_points_it_is_scipys_interpolator(seed: int, where: list[float]) -> None:
    _, values, surface, scipys = scattered(seed)
    expected, found = scipys(np.array([where]))[0], surface.at(where)
    assert values.min() - 1e-9 <= found.min() <= found.max() <= values.max() + 1e-9
    if np.isfinite(expected).all():
        assert found == pytest.approx(expected, abs=1e-6)
    else:
        assert found.tolist() in values.tolist(), "beyond the hull, one of the points"


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 7), st.integers(0, 39))
def test_scattered_points_are_met(seed: int, index: int) -> None:
    points, values, surface, _ = scattered(seed)
    assert surface.at(points[index]) == pytest.approx(values[index], abs=1e-6)
