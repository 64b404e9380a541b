"""Beliefs: what they are learned from, what a run changes, and what running out of memory says."""

from math import inf, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuloom.gpus.catalogue import find
from gpuloom.measure.explore.belief import Belief
from gpuloom.measure.explore.places import Place, shares_of, slices_of
from gpuloom.measure.explore.prior import Knobs, condition, learn, learn_without, scenarios
from gpuloom.work.measured.figures import load_figures
from gpuloom.work.measured.share_figures import load_share_figures
from tests.measure.rows import MODEL

WORKLOADS = list(load_figures().workloads.values())
SHARES = load_share_figures()
PLACES = (*slices_of(MODEL), *shares_of(MODEL, (14.0, 50.0)))
PRIOR = learn(WORKLOADS, SHARES).at(PLACES)
FRESH = Belief(PLACES, PRIOR)


def test_places_are_what_the_device_can_be_cut_into() -> None:
    most = {place.name: place.most for place in PLACES}
    assert most == {
        "1g.5gb": 7, "2g.10gb": 3, "3g.20gb": 2, "4g.20gb": 1, "7g.40gb": 1, "whole 14%": 7, "whole 50%": 2
    }  # fmt: skip
    assert PLACES[0].seat("a").place == "1g.5gb"
    assert slices_of(find("v100")) == ()


def test_a_larger_place_is_expected_to_be_faster() -> None:
    assert list(PRIOR.mean[:5]) == sorted(PRIOR.mean[:5], reverse=True)
    assert np.linalg.eigvalsh(PRIOR.cov).min() > 0


def test_a_family_left_out_is_not_learned_from() -> None:
    without = learn_without(WORKLOADS, SHARES, "bert")
    same = learn([w for w in WORKLOADS if w.model != "bert"], SHARES)
    assert np.array_equal(without.mean, same.mean)
    assert not np.allclose(without.mean, learn(WORKLOADS, SHARES).mean)


def test_nothing_missing_is_the_plain_mean() -> None:
    full = [w for w in WORKLOADS if len(w.speeds) == 5]
    families = [w.model for w in full]
    weights = np.array([1 / families.count(family) for family in families])
    times = [log(w.batch_s * 1e3) for w in full]
    prior = learn(full, SHARES, Knobs(shrink=0, level_sd=0, widen=1))
    assert prior.mean[4] == pytest.approx(np.average(times, weights=weights), abs=1e-6)


@given(st.integers(0, 6), st.floats(0.5, 500))
def test_a_run_is_believed_as_far_as_runs_vary(at: int, step_ms: float) -> None:
    after = FRESH.saw([at], [log(step_ms)])
    assert after.prior.mean[at] == pytest.approx(log(step_ms), abs=0.05)
    assert after.prior.cov[at, at] ** 0.5 == pytest.approx(0.03, rel=0.05)
    assert np.all(np.diag(after.prior.cov) <= np.diag(FRESH.prior.cov) + 1e-9)


@given(st.lists(st.floats(0.5, 500), min_size=2, max_size=2))
def test_the_order_of_runs_does_not_matter(times: list[float]) -> None:
    first = FRESH.saw([0], [log(times[0])]).saw([4], [log(times[1])])
    second = FRESH.saw([4, 0], [log(times[1]), log(times[0])])
    assert first.prior.mean == pytest.approx(second.prior.mean, abs=1e-6)
    assert first.ran == second.ran == {0, 4}


def test_memory_is_a_bound_on_both_sides() -> None:
    ran = FRESH.saw([2], [3.0])
    assert [ran.chance_to_fit(at) for at in (2, 3, 4)] == [1.0] * 3
    assert 0 < ran.chance_to_fit(0) < ran.chance_to_fit(1) < 1
    out = ran.ran_out(0)
    assert out.chance_to_fit(0) == 0
    drawn = out.draws(256)
    assert np.isinf(drawn[:, 0]).all()
    assert np.isfinite(drawn[:, 2:]).all()
    assert np.isinf(drawn[:, 1]).mean() == pytest.approx(1 - out.chance_to_fit(1), abs=0.02)


def test_memory_facts_that_contradict_each_other_break_nothing() -> None:
    for belief in (FRESH.saw([0], [3.0]).ran_out(4), FRESH.ran_out(4).saw([0], [3.0])):
        assert not np.isnan(belief.draws(64)).any()


def test_the_same_belief_says_the_same() -> None:
    assert np.array_equal(FRESH.draws(128), Belief(PLACES, PRIOR).draws(128))
    assert np.array_equal(FRESH.draws(128)[:16], FRESH.draws(16))
    assert FRESH.draws(100).shape == (100, len(PLACES))


def test_other_devices_are_reached_by_their_parts() -> None:
    a30 = slices_of(find("a30"))
    there = learn(WORKLOADS, SHARES).at(a30, elsewhere=True)
    assert list(there.mean[:3]) == sorted(there.mean[:3], reverse=True)
    tiny = Place("tiny", 0.01, 100.0, 100, "tiny")
    assert np.isfinite(learn(WORKLOADS, SHARES).at([tiny]).mean).all()


def test_scenarios_are_what_was_measured() -> None:
    done = scenarios(WORKLOADS, SHARES, PLACES)
    for workload, row in zip(WORKLOADS, done, strict=True):
        for place, ms in zip(PLACES[:5], row, strict=False):
            speed = workload.speeds.get(place.name)
            assert ms == (pytest.approx(workload.batch_s * 1e3 / speed) if speed else inf)


def test_conditioning_by_hand() -> None:
    mean, cov = condition(np.zeros(2), np.array([[2.0, 1.0], [1.0, 2.0]]), np.array([True, False]), np.array([1.0]))
    assert mean == pytest.approx([1.0, 0.5])
    assert cov == pytest.approx(np.array([[0, 0], [0, 1.5]]), abs=1e-6)
