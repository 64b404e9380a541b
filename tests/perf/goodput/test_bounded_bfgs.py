"""Minima known by heart are found, inside the bounds and on them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuloom.perf.goodput.bounded_bfgs import Floats, minimise

ANYWHERE = np.array([-np.inf, -np.inf]), np.array([np.inf, np.inf])


def valley(x: Floats) -> tuple[float, Floats]:
    """Rosenbrock's: a bent valley with its floor at (1, 1)."""
    a, b = 1 - x[0], x[1] - x[0] ** 2
    return float(a * a + 100 * b * b), np.array([-2 * a - 400 * x[0] * b, 200 * b])


def test_follows_a_bent_valley() -> None:
    assert minimise(valley, np.array([-1.2, 1.0]), *ANYWHERE) == pytest.approx([1.0, 1.0], abs=1e-2)


@given(st.floats(-5, 5), st.floats(-5, 5), st.floats(0.01, 100), st.floats(-5, 5), st.floats(-5, 5))
def test_a_bowl_ends_at_its_bottom_or_at_the_bounds(x: float, y: float, steep: float, left: float, down: float) -> None:
    """A bowl around (x, y) with axes of unlike steepness, from a start at the corner of its box."""

    def bowl(at: Floats) -> tuple[float, Floats]:
        off = at - (x, y)
        return float(off[0] ** 2 + steep * off[1] ** 2), np.array([2 * off[0], 2 * steep * off[1]])

    low = np.array([left, down])
    found = minimise(bowl, low + 1, low, low + 2)
    best = np.clip([x, y], low, low + 2)
    assert bowl(found)[0] <= bowl(best)[0] * (1 + 1e-5) + 1e-4, "it stops at gains of a millionth"
    assert ((found >= low) & (found <= low + 2)).all()


def test_a_kink_is_passed() -> None:
    """The root of a mean square has one where everything is explained."""

    def funnel(x: Floats) -> tuple[float, Floats]:
        length = float(np.sqrt(x @ x))
        return length, x / length if length else np.zeros(2)

    assert minimise(funnel, np.array([3.0, -4.0]), *ANYWHERE) == pytest.approx([0.0, 0.0], abs=1e-3)


def test_at_a_minimum_it_stays() -> None:
    assert minimise(valley, np.array([1.0, 1.0]), *ANYWHERE) == pytest.approx([1.0, 1.0])
