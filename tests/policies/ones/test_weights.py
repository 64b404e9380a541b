"""Weights: less left counts more, alike counts alike, and the scale of time plays no part."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuloom.policies.ones.weights import rank_weights, soft_ranks

works = st.lists(st.floats(1.0, 1e6), min_size=1, max_size=40).map(np.array)
softness = st.floats(0.05, 3.0)
exponents = st.floats(0.1, 0.9)


@given(works, softness, exponents)
def test_less_left_never_counts_less_and_the_mean_is_1(left: np.ndarray, soft: float, exponent: float) -> None:
    weights = rank_weights(soft_ranks(left, soft), exponent)
    assert weights.mean() == pytest.approx(1.0)
    assert (weights > 0).all()
    assert (np.diff(weights[np.argsort(left)]) <= 1e-9).all()


@given(works, softness)
def test_ranks_lie_between_the_last_and_the_first_and_keep_their_sum(left: np.ndarray, soft: float) -> None:
    ranks, jobs = soft_ranks(left, soft), len(left)
    assert (ranks >= 1 - 1e-9).all()
    assert (ranks <= jobs + 1e-9).all()
    assert ranks.sum() == pytest.approx(jobs * (jobs + 1) / 2)


@given(works, softness, st.floats(0.001, 1000.0))
def test_the_unit_of_work_plays_no_part(left: np.ndarray, soft: float, unit: float) -> None:
    assert soft_ranks(left * unit, soft) == pytest.approx(soft_ranks(left, soft), rel=1e-6)


def test_far_apart_ranks_are_whole_numbers() -> None:
    assert soft_ranks(np.array([1e9, 1.0, 1e4]), 0.5) == pytest.approx([1.0, 3.0, 2.0], abs=1e-6)


def test_many_jobs_are_ranked_as_few_are() -> None:
    left = np.random.default_rng(1).lognormal(5.0, 2.0, 700)
    logs = np.log(left)
    apart = np.clip((logs[None, :] - logs[:, None]) / 0.5, -30.0, 30.0)
    assert np.array_equal(soft_ranks(left, 0.5), (1.0 / (1.0 + np.exp(-apart))).sum(axis=1) + 0.5)


def test_those_alike_share_their_ranks() -> None:
    assert soft_ranks(np.array([7.0, 7.0, 7.0, 7.0]), 0.5).tolist() == [2.5] * 4
    almost = soft_ranks(np.array([100.0, 101.0]), 0.5)
    assert almost == pytest.approx([1.5, 1.5], abs=0.01)
    assert almost[0] > almost[1], "but not quite"


def test_the_softer_the_closer() -> None:
    apart = [float(np.ptp(soft_ranks(np.array([10.0, 20.0]), soft))) for soft in (0.1, 0.5, 1.0, 3.0)]
    assert apart == sorted(apart, reverse=True)


def test_with_a_small_exponent_all_count_about_alike_and_with_a_large_one_the_last_hardly() -> None:
    ranks = np.arange(1.0, 9.0)
    spans = [float(np.ptp(rank_weights(ranks, exponent))) for exponent in (0.01, 0.4, 0.65, 0.9)]
    assert spans == sorted(spans)
    assert spans[0] < 0.1
    assert rank_weights(np.array([1.0]), 0.65).tolist() == [1.0]


def test_shares_of_hesrpt_come_out_best() -> None:
    """Of jobs that speed up as n^p the shares that maximise the weighted sum of n^p are those of the paper."""
    exponent, ranks = 0.5, np.arange(1.0, 5.0)
    weights = rank_weights(ranks, exponent)
    best = weights ** (1 / (1 - exponent))  # where the derivatives of w * n^p are equal
    paper = (ranks / 4) ** 2 - ((ranks - 1) / 4) ** 2
    assert best / best.sum() == pytest.approx(paper)
