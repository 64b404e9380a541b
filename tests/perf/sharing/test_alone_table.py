"""A measured table: met at its points, straight between them, silent beyond them."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.errors import InputError
from gpuloom.perf.sharing.alone_table import AloneTable

BATCHES, SHARES = (1, 2, 8, 32), (10.0, 25.0, 50.0, 100.0)
times = st.lists(st.floats(0.1, 500.0), min_size=16, max_size=16)
batches, shares = st.floats(0.5, 64.0), st.floats(1.0, 100.0)


def grid(values: list[float]) -> dict[tuple[int, float], float]:
    return dict(zip(product(BATCHES, SHARES), values, strict=True))


def ask(table: AloneTable, batch: float, share_pct: float) -> float:
    return float(table(np.array([batch]), np.array([share_pct]))[0])


def affine(batch: float, share_pct: float) -> float:
    """Of the kind that is exact between the points: linear in the batch, in 1 / share, and in both."""
    return 3.0 + 2.0 * batch + 40.0 / share_pct + 15.0 * batch / share_pct


@settings(deadline=None, max_examples=40)
@given(times)
def test_it_is_met_at_its_points(values: list[float]) -> None:
    measured = grid(values)
    table = AloneTable.of(measured)
    assert table.points == 16
    for (batch, share_pct), ms in measured.items():
        assert ask(table, batch, share_pct) == pytest.approx(ms, rel=1e-9)


@settings(deadline=None, max_examples=60)
@given(st.floats(1.0, 32.0), st.floats(10.0, 100.0))
def test_what_is_straight_in_the_batch_and_in_1_over_the_share_stays_so(batch: float, share_pct: float) -> None:
    table = AloneTable.of({point: affine(*point) for point in product(BATCHES, SHARES)})
    assert ask(table, batch, share_pct) == pytest.approx(affine(batch, share_pct))


@settings(deadline=None, max_examples=60)
@given(times, batches, shares)
def test_beyond_its_edges_the_edge_counts(values: list[float], batch: float, share_pct: float) -> None:
    table = AloneTable.of(grid(values))
    inside = table.within(np.array([batch]), np.array([share_pct]))
    assert BATCHES[0] <= inside[0][0] <= BATCHES[-1]
    assert SHARES[0] <= inside[1][0] <= SHARES[-1]
    assert ask(table, batch, share_pct) == ask(table, float(inside[0][0]), float(inside[1][0]))
    assert min(values) * (1 - 1e-12) <= ask(table, batch, share_pct) <= max(values) * (1 + 1e-12)


@settings(deadline=None, max_examples=60)
@given(times, batches, shares, st.floats(1.0, 4.0))
def test_evened_out_more_sms_never_take_longer_and_more_items_never_less(
    values: list[float], batch: float, share_pct: float, factor: float
) -> None:
    table = AloneTable.of(grid(values), monotone=True)
    now = ask(table, batch, share_pct)
    assert ask(table, batch, share_pct * factor) <= now * (1 + 1e-9)
    assert ask(table, batch * factor, share_pct) >= now * (1 - 1e-9)


@settings(deadline=None, max_examples=30)
@given(times)
def test_what_is_even_already_is_left_as_it_is(values: list[float]) -> None:
    even = AloneTable.of(grid(values), monotone=True)
    measured = {
        (batch, share_pct): float(even.values[row, column])
        for (row, batch), (column, share_pct) in product(enumerate(BATCHES), enumerate(SHARES))
    }
    assert np.array_equal(AloneTable.of(measured, monotone=True).values, even.values)


def test_noise_is_evened_out_and_one_point_is_a_table() -> None:
    noisy = AloneTable.of({(1, 20.0): 5.0, (1, 40.0): 6.0, (2, 20.0): 4.0, (2, 40.0): 3.0}, monotone=True)
    assert (np.diff(noisy.values, axis=1) <= 0).all()
    assert (np.diff(noisy.values, axis=0) >= 0).all()
    assert AloneTable.of({(4, 50.0): 3.0})(np.array([1.0]), np.array([90.0])) == [3.0]


def test_a_share_that_not_every_batch_has_is_left_out() -> None:
    table = AloneTable.of({(1, 20.0): 5.0, (1, 40.0): 3.0, (2, 20.0): 9.0, (2, 80.0): 2.0})
    assert table.shares_pct.tolist() == [20.0]
    assert table.values.tolist() == [[5.0], [9.0]]
    with pytest.raises(InputError, match="no share at which all its batches"):
        AloneTable.of({(1, 20.0): 3.0, (2, 40.0): 4.0})
