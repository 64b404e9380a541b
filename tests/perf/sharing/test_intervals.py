"""Error bars: what was missed on models left out, wider in a crowd, and kept in figures."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.perf.arrays import Floats
from gpuloom.perf.sharing.intervals import CELLS, LEVEL, Intervals, intervals_of

errors_of_seeds = st.builds(
    lambda seed, count, bias, size: np.random.default_rng(seed).normal(bias, size, count),
    st.integers(0, 1000),
    st.integers(30, 300),
    st.floats(-0.1, 0.1),
    st.floats(0.001, 0.2),
)


def test_an_interval_is_what_was_missed() -> None:
    parts, errors = np.repeat([0.1, 0.5, 0.9], 100), np.tile(np.linspace(-0.1, 0.1, 100), 3) * np.repeat([1, 2, 3], 100)
    intervals = intervals_of(parts, errors)
    low, high = intervals(np.array([0.05, 0.95, 0.95]), np.array([2, 2, 8]))
    assert np.log(high) == pytest.approx([0.09, 0.27, 0.54], abs=1e-6)
    assert np.log(low) == pytest.approx([-0.09, -0.27, -0.54], abs=1e-6)
    assert Intervals.from_figures(intervals.to_figures()) == intervals


@settings(deadline=None, max_examples=40)
@given(errors_of_seeds, st.integers(0, 100))
def test_they_hold_the_errors_that_they_are_made_of(errors: Floats, seed: int) -> None:
    parts = np.random.default_rng(seed).uniform(0.0, 1.0, len(errors))
    low, high = intervals_of(parts, errors)(parts, np.full(len(errors), 2))
    held = (np.log(low) <= errors + 1e-12) & (errors <= np.log(high) + 1e-12)
    assert held.mean() >= LEVEL - 2 * CELLS / len(errors), "less than a row at either end of each cell"
    assert (low <= 1.0).all()
    assert (high >= 1.0).all()


@settings(deadline=None, max_examples=40)
@given(errors_of_seeds, st.floats(0.0, 1.0), st.integers(1, 16))
def test_they_widen_with_the_root_of_the_crowd(errors: Floats, part: float, processes: int) -> None:
    intervals = intervals_of(np.linspace(0.0, 1.0, len(errors)), errors)
    pair, crowd = (np.log(intervals(np.array([part]), np.array([n]))) for n in (2, processes))
    assert crowd == pytest.approx(pair * max(processes / 2, 1.0) ** 0.5)


def test_a_cell_without_errors_takes_those_of_all() -> None:
    """Where all parts are the same, two of the three cells are empty."""
    intervals = intervals_of(np.full(50, 0.4), np.linspace(-0.2, 0.3, 50))
    assert len(set(intervals.low)) == len(set(intervals.high)) == 1
    assert intervals.high[0] == pytest.approx(np.quantile(np.linspace(-0.2, 0.3, 50), 0.95))


def test_figures_are_plain_json_and_nothing_stated_is_no_width() -> None:
    intervals = intervals_of(np.linspace(0.0, 1.0, 90), np.sin(np.arange(90.0)))
    assert Intervals.from_figures(json.loads(json.dumps(intervals.to_figures()))) == intervals
    low, high = Intervals()(np.array([0.2, 0.9]), np.array([1, 8]))
    assert low.tolist() == high.tolist() == [1.0, 1.0]
