"""How much work is left: as a distribution that gets better with every job that ends, and as one figure to rank by."""

from math import exp, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuloom.perf.goodput.remaining import (
    AHEAD,
    LEAST_LEFT,
    PRIOR_SPREAD,
    QUANTILES,
    Lengths,
    index,
    lognormal_left,
    pareto_left,
)

amounts = st.lists(st.floats(0.01, 1e6), min_size=1, max_size=30)


def test_before_anybody_has_ended_the_furthest_of_a_name_is_half_way() -> None:
    lengths = Lengths()
    assert lengths.left("bert", 30.0, 100.0).tolist() == [AHEAD * 100.0 - 30.0]
    assert lengths.left("bert", 100.0, 100.0).tolist() == [100.0]


def test_a_job_without_a_name_has_as_much_before_it_as_behind_it() -> None:
    left = pareto_left(100.0)
    assert Lengths().left(None, 100.0, 5000.0).tolist() == left.tolist()
    assert np.interp(0.5, QUANTILES, left) == pytest.approx(100.0, rel=0.02), "half of them go twice as far"
    assert pareto_left(200.0) == pytest.approx(2 * left)


def test_jobs_that_end_say_how_long_the_next_one_is() -> None:
    lengths = Lengths()
    for work in (90.0, 100.0, 110.0):
        lengths.add("bert", work)
    left = lengths.left("bert", 0.0, 40.0)
    assert float(np.median(left)) == pytest.approx(100.0, rel=0.05)
    assert float(np.median(lengths.left("bert", 60.0, 60.0))) == pytest.approx(45.0, rel=0.2)
    assert len(lengths.left("ncf", 1.0, 1.0)) == 1, "of another name it says nothing"


def test_alike_lengths_make_it_surer_of_all_names_and_unlike_ones_less() -> None:
    alike, unlike = Lengths(), Lengths()
    assert alike.spread() == PRIOR_SPREAD
    for number in range(20):
        alike.add("bert", 100.0)
        unlike.add("bert", 100.0 * 4 ** (number % 2))
    assert alike.spread() < 0.1 < PRIOR_SPREAD < 0.6 < unlike.spread()
    assert alike.spread() == pytest.approx((2 * PRIOR_SPREAD**2 / (2 + 19)) ** 0.5)


def test_a_single_job_of_a_name_says_nothing_about_the_spread() -> None:
    lengths = Lengths()
    for name in ("bert", "ncf", "yolov3"):
        lengths.add(name, 100.0)
    assert lengths.spread() == PRIOR_SPREAD


def test_work_of_nothing_is_no_lesson() -> None:
    lengths = Lengths()
    lengths.add("bert", 0.0)
    assert lengths.finished == {}


def test_who_has_outlived_all_expectations_is_not_taken_to_be_done() -> None:
    left = lognormal_left(log(100.0), 0.1, 1e5)
    assert left.tolist() == [pytest.approx(LEAST_LEFT * 1e5)]


def test_the_spread_is_learned_as_if_all_had_been_known_at_once() -> None:
    lengths, dice = Lengths(), np.random.default_rng(1)
    rows = {name: np.exp(dice.normal(3.0, 0.5, size=9)) for name in ("a", "b")}
    for work in zip(*rows.values(), strict=True):
        for name, one in zip(rows, work, strict=True):
            lengths.add(name, float(one))
    squares = sum(float(((logs - logs.mean()) ** 2).sum()) for logs in map(np.log, rows.values()))
    assert lengths.spread() == pytest.approx(((2 * PRIOR_SPREAD**2 + squares) / (2 + 16)) ** 0.5)


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.floats(1.0, 1e6)), max_size=30))
def test_in_which_order_names_came_leaves_no_trace_not_even_in_the_last_digit(rows: list[tuple[str, float]]) -> None:
    """Memory keeps lengths by name: whoever takes it over must conclude the same."""
    as_they_came, by_name = Lengths(), Lengths()
    for row in rows:
        as_they_came.add(*row)
    for row in sorted(rows, key=lambda row: row[0]):
        by_name.add(*row)
    assert as_they_came.spread() == by_name.spread()


@given(st.floats(-2.0, 12.0), st.floats(0.01, 2.0), st.floats(0.0, 1e6))
def test_what_is_left_is_positive_and_in_order(mean: float, spread: float, done: float) -> None:
    left = lognormal_left(mean, spread, done)
    assert (left > 0).all()
    assert (np.diff(left) >= 0).all()
    assert np.isfinite(left).all()


@given(st.floats(-2.0, 8.0), st.floats(0.05, 1.0), st.floats(0.0, 0.9))
def test_quantiles_of_what_is_left_are_those_of_the_length_given_what_is_done(
    mean: float, spread: float, part: float
) -> None:
    from scipy.special import ndtr

    done = part * exp(mean)
    lengths = lognormal_left(mean, spread, done) + done
    past = float(ndtr((log(done) - mean) / spread)) if done else 0.0
    beyond = (ndtr((np.log(lengths) - mean) / spread) - past) / (1 - past)
    far = lengths > done * (1 + LEAST_LEFT) * (1 + 1e-9)
    assert beyond[far] == pytest.approx(QUANTILES[far], abs=1e-6)


def by_trying_every_stop(left: list[float]) -> float:
    """Serve until the amount of the k-th: what is spent on the average over the chance that it is done by then."""
    return min(
        sum(min(one, stop) for one in left) / sum(one <= stop for one in left)
        for stop in left
    )  # fmt: skip


@given(amounts)
def test_the_index_is_the_best_of_all_stops(left: list[float]) -> None:
    ordered = sorted(left)
    assert index(ordered) == pytest.approx(by_trying_every_stop(ordered))


@given(amounts)
def test_the_index_is_never_more_than_the_mean(left: list[float]) -> None:
    assert index(sorted(left)) <= sum(left) / len(left) * (1 + 1e-9)


def test_two_kinds_of_jobs_by_hand() -> None:
    """Half need 10, half 1000: serving 10 costs 10 a try and ends every other one."""
    assert index([10.0, 1000.0]) == pytest.approx(20.0)
    assert index([10.0]) == 10.0
