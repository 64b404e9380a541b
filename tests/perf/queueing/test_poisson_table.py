"""The tabulated p99: exact at its points, within its stated error between them, infinite beyond its loads."""

from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.perf.queueing.batching import Batching, BatchTimes
from gpuloom.perf.queueing.latency import Poisson, latency_of
from gpuloom.perf.queueing.poisson_table import PoissonTable
from gpuloom.work.measured.queue_figures import load_queue_figures

TABLE = PoissonTable.from_figures(load_queue_figures())
sizes = st.sampled_from([int(batch) for batch in TABLE.batches])
parts = st.floats(0.0, 1.0)


@lru_cache
def exact(batch: int, floor_part: float, load: float) -> float:
    """In units of a full batch's time, here a millisecond."""
    times = BatchTimes.of(floor_part + (1.0 - floor_part) * np.arange(1, batch + 1) / batch)
    return latency_of(times, Batching(batch), Poisson(1000.0 * load * batch)).percentile_ms(99)


def ratio(batch: int, floor_part: float, load: float) -> float:
    return float(TABLE.ratio(np.array([float(batch)]), np.array([floor_part]), np.array([load]))[0])


@settings(deadline=None, max_examples=60)
@given(sizes, st.sampled_from(TABLE.floor_parts.tolist()), st.sampled_from(TABLE.loads.tolist()))
def test_at_its_points_it_is_the_solution(batch: int, floor_part: float, load: float) -> None:
    assert ratio(batch, floor_part, load) == pytest.approx(exact(batch, floor_part, load), rel=2e-4)


@settings(deadline=None, max_examples=60)
@given(sizes, parts, st.floats(0.05, 0.98))
def test_between_its_points_it_errs_no_more_than_it_says(batch: int, floor_part: float, load: float) -> None:
    error = np.log(ratio(batch, floor_part, load) / exact(batch, floor_part, load))
    assert -TABLE.below - 1e-4 <= error <= TABLE.above + 1e-4


@settings(deadline=None, max_examples=60)
@given(sizes, parts, st.floats(0.0, 0.97), st.floats(0.001, 0.5))
def test_more_load_never_takes_less_time(batch: int, floor_part: float, load: float, more: float) -> None:
    assert ratio(batch, floor_part, load + more) >= ratio(batch, floor_part, load) * (1 - 0.003)


def test_beyond_the_largest_load_there_is_no_p99() -> None:
    last = float(TABLE.loads[-1])
    assert np.isfinite(ratio(4, 0.3, last))
    assert ratio(4, 0.3, last + 1e-6) == ratio(4, 0.3, 3.0) == np.inf
    assert ratio(4, 0.3, 0.0) == ratio(4, 0.3, float(TABLE.loads[0])), "below the smallest, that of the smallest"


def test_thousands_at_once_are_each_as_one() -> None:
    generator = np.random.default_rng(2)
    batch = generator.choice(TABLE.batches, 500)
    part, load = generator.uniform(0, 1, 500), generator.uniform(0, 1.1, 500)
    together = TABLE.ratio(batch, part, load)
    each = [ratio(int(b), p, r) for b, p, r in zip(batch, part, load, strict=True)]
    assert together.tolist() == each
    square = TABLE.ratio(batch.reshape(50, 10), part.reshape(50, 10), load.reshape(50, 10))
    assert square.ravel().tolist() == each


def test_a_small_table_is_straight_between_its_points() -> None:
    """In the floor part as it is, in the load on 1 / (1 - load)."""
    table = PoissonTable.from_figures(
        {
            "batches": [1, 4],
            "floor_parts": [0.0, 1.0],
            "loads": [0.0, 0.5, 0.75],
            "p99": [[[1.0, 2.0, 4.0], [1.0, 2.0, 4.0]], [[2.0, 3.0, 9.0], [4.0, 5.0, 11.0]]],
            "above": 0.0,
            "below": 0.0,
        }
    )
    asked = np.array([[4.0, 0.0, 0.5], [4.0, 0.5, 0.5], [1.0, 0.3, 1 / 3], [4.0, 1.0, 2 / 3], [4.0, 0.25, 0.0]]).T
    assert table.ratio(*asked) == pytest.approx([3.0, 4.0, 1.5, 8.0, 2.5])
    assert table.row_of.tolist() == [0, 0, 1, 1, 1], "a batch between two of the table counts as the larger"
