"""The numbers of GPUs that are worth most: exactly those that trying everything finds."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.perf.arrays import Floats, Ints
from gpuloom.policies.ones.counts import best_counts


@st.composite
def problems(draw: st.DrawFn) -> tuple[Ints, Floats, int]:
    """Up to five rows; whoever holds something already may value nothing at less than nothing."""
    rows, columns = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    counts = draw(st.lists(st.integers(0, 9), min_size=rows * columns, max_size=rows * columns))
    worth = st.one_of(st.floats(-5.0, 50.0), st.just(-np.inf))
    values = draw(st.lists(worth, min_size=rows * columns, max_size=rows * columns))
    nothing = draw(st.lists(st.floats(-5.0, 0.0), min_size=rows, max_size=rows))
    table = np.column_stack([np.zeros(rows), np.array(counts).reshape(rows, columns)]).astype(np.intp)
    return table, np.column_stack([nothing, np.array(values).reshape(rows, columns)]), draw(st.integers(1, 20))


def by_trying_everything(counts: Ints, values: Floats, gpus: int) -> float:
    rows = range(len(values))
    return max(
        sum(float(values[row, column]) for row, column in zip(rows, chosen, strict=True))
        for chosen in product(range(values.shape[1]), repeat=len(values))
        if sum(int(counts[row, column]) for row, column in zip(rows, chosen, strict=True)) <= gpus
    )


@settings(max_examples=200)
@given(problems())
def test_nothing_is_worth_more(problem: tuple[Ints, Floats, int]) -> None:
    counts, values, gpus = problem
    found = best_counts(counts, values, gpus)
    everybody = np.arange(len(values))
    assert counts[everybody, found.chosen].sum() <= gpus
    assert values[everybody, found.chosen].sum() == pytest.approx(found.value), "the choice is what it is said to be"
    assert found.value == pytest.approx(by_trying_everything(*problem))


def test_by_hand() -> None:
    """Three jobs, four GPUs: two each for the first two beat four for one, and two, one and one."""
    counts = np.array([[0, 1, 2, 4]] * 3)
    values = np.array([[0.0, 1.0, 1.9, 3.0], [0.0, 1.0, 1.8, 2.5], [0.0, 0.7, 0.75, 0.8]])
    found = best_counts(counts, values, 4)
    assert found.chosen.tolist() == [2, 2, 0]
    assert found.value == pytest.approx(3.7)


def test_what_no_gpu_is_there_for_is_not_to_be_had() -> None:
    found = best_counts(np.array([[0, 8]]), np.array([[-3.0, 100.0]]), 4)
    assert (found.chosen.tolist(), found.value) == ([0], -3.0)


def test_no_gpu_is_left_idle_that_somebody_would_gain_from() -> None:
    found = best_counts(np.array([[0, 1]] * 5), np.array([[0.0, 1.0]] * 5), 3)
    assert found.chosen.sum() == 3
