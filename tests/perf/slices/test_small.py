"""2g and 1g: lines that are found, never above a larger slice, and too few workloads are refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.errors import InputError
from gpuloom.perf.slices.small import FEWEST, SLOWEST, SmallPoint, SmallSlices, fit_small

coefficients = st.lists(st.floats(-0.5, 0.8), min_size=5, max_size=5)
shares = st.lists(st.tuples(st.floats(0.05, 1.0), st.floats(0.1, 1.0)), min_size=1, max_size=10)


@settings(deadline=None, max_examples=40)
@given(coefficients, st.integers(0, 100))
def test_lines_are_found(line: list[float], seed: int) -> None:
    rng = np.random.default_rng(seed)
    share, on_3g = rng.uniform(0.1, 1.0, 12), rng.uniform(0.3, 1.0, 12)
    on_2g, on_1g = line[0] + line[1] * share + line[2] * on_3g, line[3] + line[4] * share
    on_1g[:3] = np.nan  # out of memory there
    found = fit_small([SmallPoint(*map(float, point)) for point in zip(share, on_3g, on_2g, on_1g, strict=True)])
    assert found.coefficients == pytest.approx(np.array([line[:3], [*line[3:], 0.0]]), abs=1e-6)


@settings(deadline=None, max_examples=60)
@given(coefficients, shares)
def test_no_slice_is_faster_than_a_larger_one(line: list[float], points: list[tuple[float, float]]) -> None:
    solo_share, on_3g = (np.array(column) for column in zip(*points, strict=True))
    on_2g, on_1g = SmallSlices(np.array([line[:3], [*line[3:], 0.0]]))(solo_share, on_3g)
    assert (on_2g <= on_3g).all()
    assert (on_1g <= on_2g).all()
    assert (on_1g >= SLOWEST).all()


def test_too_few_workloads() -> None:
    known = [SmallPoint(0.1 * n, 0.5 + 0.05 * n, 0.4 + 0.02 * n, 0.2 + 0.01 * n) for n in range(1, FEWEST)]
    with pytest.raises(InputError, match=f"expected {FEWEST} of each"):
        fit_small(known)
    unmeasured = [SmallPoint(0.5, 0.7, 0.5, float("nan"))] * FEWEST
    with pytest.raises(InputError, match=f"expected {FEWEST} of each"):
        fit_small(known + unmeasured)
