"""Probes as MISO's authors assumed them: off by about 0.016 either way, the same for the same seed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.sim.worlds.probes import AuthorsError
from gpuloom.work.model import Job, TraceJob

ENTRY = TraceJob(Job("a"), 60.0)
truths = st.dictionaries(st.sampled_from(["7g.40gb", "4g.20gb", "3g.20gb", "2g.10gb", "1g.5gb"]), st.floats(0.02, 1.0))


@settings(deadline=None, max_examples=60)
@given(st.lists(truths, min_size=1, max_size=7), st.integers(0, 1000))
def test_an_estimate_is_near_the_truth_and_within_its_interval(truth: list[dict[str, float]], seed: int) -> None:
    answers = AuthorsError(seed).predict([ENTRY] * len(truth), truth)
    assert [set(answer) for answer in answers] == [set(speeds) for speeds in truth]
    for answer, speeds in zip(answers, truth, strict=True):
        for profile, (speed, low, high) in answer.items():
            assert 0.01 <= low <= speed <= high
            assert 0.01 <= speed <= 1.0
            assert abs(speed - speeds[profile]) <= 0.016 + 8 * 0.0032
    assert AuthorsError(seed).predict([ENTRY] * len(truth), truth) == answers


def test_the_error_is_the_documented_one() -> None:
    truth = [{"3g.20gb": 0.5}] * 4000
    answers = AuthorsError(3).predict([ENTRY] * 4000, truth)
    off = np.array([answer["3g.20gb"].speed - 0.5 for answer in answers])
    assert np.abs(off).mean() == pytest.approx(0.016, abs=0.0005)
    assert np.abs(off).std() == pytest.approx(0.0032, abs=0.0003)
    assert abs(off.mean()) < 0.001, "either way alike"
    held = [answer["3g.20gb"].low <= 0.5 <= answer["3g.20gb"].high for answer in answers]
    assert 0.95 < np.mean(held) < 1.0, "two standard deviations"


def test_one_draw_after_the_other_and_another_seed_another() -> None:
    prober = AuthorsError(1)
    first, second = (prober.predict([ENTRY], [{"3g.20gb": 0.5}]) for _ in range(2))
    assert first != second
    assert AuthorsError(2).predict([ENTRY], [{"3g.20gb": 0.5}]) != first
