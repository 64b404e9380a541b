"""Finish-time fairness: how many jobs were there in the mean over a life, and what a share of that would have been."""

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuloom.sim.fairness import finish_time_fairness, mean_live
from gpuloom.sim.metrics import Outcomes


def test_three_jobs_by_hand() -> None:
    """a lives from 0 to 10, b from 4 to 8, c from 8 to 12."""
    assert mean_live([0.0, 4.0, 8.0], [10.0, 4.0, 4.0]) == [
        pytest.approx(1 + (4 + 2) / 10),
        pytest.approx(2.0),
        pytest.approx(1.5),
    ]


def test_fairness_of_the_same_three_by_hand() -> None:
    """Alone on everything each would have taken 4 s, and half of it is half as fast."""
    rows = Outcomes(["b", "a", "c"], array("d", [4.0, 0.0, 8.0]), array("d", [4.0, 10.0, 4.0]))
    assert finish_time_fairness(rows, lambda _, parts: 4.0 * parts) == {
        "b": pytest.approx(4 / 8),
        "a": pytest.approx(10 / 6.4),
        "c": pytest.approx(4 / 6),
    }


def test_every_job_is_asked_for_by_its_own_id() -> None:
    rows = Outcomes(["x", "y"], array("d", [0.0, 100.0]), array("d", [10.0, 30.0]))
    alone_s = {"x": 5.0, "y": 60.0}
    assert finish_time_fairness(rows, lambda job_id, parts: alone_s[job_id] * parts) == {"x": 2.0, "y": 0.5}


def test_one_that_leaves_when_another_comes_was_never_with_it() -> None:
    assert mean_live([0.0, 10.0], [10.0, 5.0]) == [1.0, 1.0]


def test_nobody_and_nothing() -> None:
    assert mean_live([], []) == []
    assert mean_live([5.0], [0.0]) == [1.0], "it was there, if only for a moment"
    assert finish_time_fairness(Outcomes(), lambda _job_id, _parts: 1.0) == {}


lives = st.lists(st.tuples(st.integers(0, 300), st.integers(1, 200)), min_size=1, max_size=12)


@given(lives)
def test_it_is_what_counting_second_by_second_gives(rows: list[tuple[int, int]]) -> None:
    found = mean_live([float(begin) for begin, _ in rows], [float(took) for _, took in rows])
    for (begin, took), live in zip(rows, found, strict=True):
        counted = [
            sum(other <= second < other + lasted for other, lasted in rows) for second in range(begin, begin + took)
        ]
        assert live == pytest.approx(sum(counted) / took)


@given(lives)
def test_the_order_of_the_rows_does_not_matter(rows: list[tuple[int, int]]) -> None:
    one, other = (
        dict(zip(them, mean_live([begin for begin, _ in them], [took for _, took in them]), strict=True))
        for them in (rows, rows[::-1])
    )
    assert one == pytest.approx(other)
