"""Curves keep their integral however often they are merged, and never grow."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.sim.curves import BUCKETS, Curves

steps = st.lists(st.tuples(st.floats(1e-3, 1e5), st.floats(0, 1e3)), min_size=1, max_size=50)


@settings(deadline=None)
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


@settings(deadline=None, max_examples=40)
@given(steps)
def test_a_point_is_the_mean_over_its_stretch(steps: list[tuple[float, float]]) -> None:
    """Against the step function itself: what lies between two points, second by second of it."""
    curves, now_s = Curves(1, 0.0), 0.0
    pieces = []
    for length_s, value in steps:
        pieces.append((now_s, now_s + length_s, value))
        now_s += length_s
        curves.advance(now_s, (value,))
    points = curves.points(0)
    for (begin_s, mean), end_s in zip(points[:50], [begin for begin, _ in points[1:51]] + [now_s], strict=False):
        area = sum(value * max(min(end, end_s) - max(begin, begin_s), 0.0) for begin, end, value in pieces)
        assert mean * (end_s - begin_s) == pytest.approx(area, rel=1e-6, abs=1e-3)
    lowest, highest = min(value for _, value in steps), max(value for _, value in steps)
    assert all(lowest - 1e-6 <= value <= highest + 1e-6 for _, value in points)


@settings(deadline=None, max_examples=20)
@given(st.floats(1.0, 1e7))
def test_a_bucket_covers_twice_as_much_whenever_time_outgrows_them(length_s: float) -> None:
    curves = Curves(1, 0.0)
    curves.advance(length_s, (1.0,))
    assert curves.width_s * BUCKETS >= length_s
    assert curves.width_s == 1.0 or curves.width_s * BUCKETS / 2 < length_s


def test_no_time_is_no_area() -> None:
    curves = Curves(2, 10.0)
    for _ in range(3):
        curves.advance(10.0, (5.0, 7.0))
    assert curves.totals == [0.0, 0.0]
    curves.advance(11.0, (5.0, 7.0))
    assert curves.totals == [5.0, 7.0]
    assert curves.points(1) == [(10.0, 7.0)]
