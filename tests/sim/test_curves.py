"""Curves keep their integral however often they are merged, and never grow."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuloom.sim.curves import BUCKETS, Curves

steps = st.lists(st.tuples(st.floats(1e-3, 1e5), st.floats(0, 1e3)), min_size=1, max_size=50)


@given(steps=steps, start_s=st.floats(0, 1e6))
def test_the_points_add_up_to_the_integral(steps: list[tuple[float, float]], start_s: float) -> None:
    curves, now_s, area = Curves(2, start_s), start_s, 0.0
    for length_s, value in steps:
        area += value * (now_s + length_s - now_s)
        now_s += length_s
        curves.advance(now_s, (value, 1.0))
    assert curves.totals[0] == pytest.approx(area, rel=1e-6, abs=1e-6)
    points = curves.points(0)
    ends = [begin for begin, _ in points[1:]] + [now_s]
    summed = sum(value * (end - begin) for (begin, value), end in zip(points, ends, strict=True))
    assert summed == pytest.approx(area, rel=1e-6, abs=1e-6)
    assert all(value == pytest.approx(1.0) for _, value in curves.points(1))
    assert len(points) <= BUCKETS + 1


def test_nothing_has_no_points() -> None:
    assert Curves(1, 5.0).points(0) == []
