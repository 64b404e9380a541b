"""The predictor with its shipped weights: order does not matter, speeds make sense, and it was measured honestly."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.perf.slices import MpsSpeeds, SlicePredictor
from gpuloom.work.predictor_weights import load_weights

PREDICTOR = SlicePredictor.from_arrays(load_weights().arrays)
FAMILIES = (*sorted(PREDICTOR.families), None, "nobody measured this")
speeds = st.floats(0.05, 1.0)
jobs = st.builds(MpsSpeeds, speeds, speeds, speeds, st.none(), st.sampled_from(FAMILIES))


@settings(max_examples=60, deadline=None)
@given(mix=st.lists(jobs, min_size=1, max_size=7), data=st.data())
def test_permuting_the_jobs_permutes_the_answer(mix: list[MpsSpeeds], data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(mix))))
    straight = PREDICTOR.predict(mix)
    shuffled = PREDICTOR.predict([mix[at] for at in order])
    for place, at in enumerate(order):
        for slices, speed in shuffled[place].speeds.items():
            assert speed == pytest.approx(straight[at][slices], abs=1e-5)


@settings(max_examples=60, deadline=None)
@given(mix=st.lists(jobs, min_size=1, max_size=7))
def test_every_speed_lies_within_its_interval_and_the_whole_gpu_is_one(mix: list[MpsSpeeds]) -> None:
    for answer in PREDICTOR.predict(mix):
        assert answer[7][0] == 1.0
        for speed, low, high in answer.speeds.values():
            assert 0 <= low <= speed <= high


def test_slices_without_the_memory_are_left_out() -> None:
    (answer,) = PREDICTOR.predict([MpsSpeeds(1.0, 0.9, 0.4, mem_mib=15_000)])
    assert set(answer.speeds) == {7, 4, 3}
