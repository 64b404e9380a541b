"""The slice predictor: what must hold for any mix, which slices there are, and weights that can be kept."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.errors import InputError
from gpuloom.gpus.catalogue import find
from gpuloom.perf.slices.intervals import SLICES
from gpuloom.perf.slices.mix import MpsSpeeds, as_mix
from gpuloom.perf.slices.predictor import SLOWEST, SlicePredictor, relative_latencies, speeds_from
from gpuloom.perf.speed import Estimate
from gpuloom.work.measured.predictor_weights import load_weights
from tests.perf.slices.shipped_weights import gauges, mixes, shipped, values

A100 = find("A100-40GB")


@settings(deadline=None, max_examples=60)
@given(mixes.flatmap(lambda mix: st.tuples(st.just(mix), st.permutations(range(len(mix))))), gauges)
def test_permuting_the_jobs_permutes_the_answers(
    case: tuple[list[MpsSpeeds], list[int]], beside: list[MpsSpeeds]
) -> None:
    mix, order = case
    straight = shipped().predict(mix, beside)
    permuted = shipped().predict([mix[seat] for seat in order], beside[::-1])
    assert values(permuted) == pytest.approx(values([straight[seat] for seat in order]), abs=1e-4)
    assert [answer.familiar for answer in permuted] == [mix[seat].family in ("resnet", "bert") for seat in order]


@settings(deadline=None, max_examples=60)
@given(mixes, gauges)
def test_a_larger_slice_is_never_slower(mix: list[MpsSpeeds], beside: list[MpsSpeeds]) -> None:
    for answer in shipped().predict(mix, beside):
        assert list(answer.speeds) == [7, 4, 3, 2, 1]
        assert answer[7] == Estimate(1.0, 1.0, 1.0)
        assert all(larger.speed >= smaller.speed for larger, smaller in pairwise(answer.speeds.values()))
        assert all(0 <= low <= speed <= high < 2 and speed > 0 for speed, low, high in answer.speeds.values())


@settings(deadline=None, max_examples=60)
@given(mixes, st.floats(0.001, 1000.0))
def test_the_unit_of_a_speed_does_not_matter(mix: list[MpsSpeeds], factor: float) -> None:
    scaled = [MpsSpeeds(m.at_100 * factor, m.at_50 * factor, m.at_14 * factor, family=m.family) for m in mix]
    assert values(shipped().predict(scaled)) == pytest.approx(values(shipped().predict(mix)), abs=1e-4)


@settings(deadline=None, max_examples=40)
@given(mixes, gauges)
def test_who_is_unknown_is_predicted_the_same_whatever_it_is_called(
    mix: list[MpsSpeeds], beside: list[MpsSpeeds]
) -> None:
    """A name is used for one thing only: whether the networks were trained on it."""
    untold, strange = (
        [MpsSpeeds(m.at_100, m.at_50, m.at_14, family=family) for m in mix] for family in (None, "never heard of")
    )
    assert values(shipped().predict(untold, beside)) == pytest.approx(values(shipped().predict(strange, beside)))
    bare = SlicePredictor.from_arrays({k: v for k, v in load_weights().arrays.items() if not k.startswith("nets.")})
    assert bare.familiar is None
    answers = bare.predict(mix, beside)
    assert values(answers) == pytest.approx(values(shipped().predict(untold, beside)))
    assert not any(answer.familiar for answer in answers)


def test_strangers_are_less_sure() -> None:
    known = shipped().familiar
    assert known is not None
    strangers = shipped().intervals.reach.mean(axis=(1, 2))
    assert (strangers > known.intervals.reach.mean(axis=(1, 2))).all()


def test_a_job_alone_that_loses_less_at_14_pct_is_faster_on_small_slices() -> None:
    kept = np.linspace(0.2, 0.9, 15)
    answers = [shipped().predict([MpsSpeeds(1.0, share**0.3, share)])[0] for share in kept]
    for slices in (2, 1):
        assert (np.diff([answer[slices].speed for answer in answers]) >= 0).all()
    assert answers[0][1].speed < 0.25 < 0.7 < answers[-1][1].speed


def test_memory_rules_slices_out() -> None:
    def slices(mem_mib: int | None) -> set[int]:
        return set(shipped().predict([MpsSpeeds(1, 0.8, 0.4, mem_mib)])[0].speeds)

    assert slices(None) == slices(4864) == {7, 4, 3, 2, 1}
    assert slices(4865) == {7, 4, 3, 2}
    assert slices(19968) == {7, 4, 3}
    assert slices(30000) == {7}
    assert slices(50000) == set()
    by_name = shipped().predict([MpsSpeeds(1, 0.8, 0.4, 6000)])[0].profiles
    assert set(by_name) == {"1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"}


@settings(deadline=None, max_examples=60)
@given(mixes, st.integers(0, 45_000))
def test_memory_rules_out_and_changes_nothing_else(mix: list[MpsSpeeds], mem_mib: int) -> None:
    free = shipped().predict(mix)
    held = shipped().predict([MpsSpeeds(m.at_100, m.at_50, m.at_14, mem_mib, m.family) for m in mix])
    for answer, unlimited in zip(held, free, strict=True):
        assert set(answer.profiles) == {profile.name for profile in A100.profiles if profile.mem_mib >= mem_mib}
        for name, estimate in answer.profiles.items():
            assert estimate == unlimited.profiles[name] == unlimited[A100.by_name[name].slices]
        assert answer.speeds == {slices: unlimited[slices] for slices in answer.speeds}


def test_other_gpu_models_with_the_same_slices() -> None:
    on_80 = SlicePredictor.from_arrays(load_weights().arrays, find("A100-80GB"))
    answer = on_80.predict([MpsSpeeds(1, 0.8, 0.4, 6000)])[0]
    assert set(answer.speeds) == {7, 4, 3, 2, 1}
    assert "1g.10gb" in answer.profiles
    with pytest.raises(InputError, match="A30-24GB is not cut into 7g"):
        SlicePredictor.from_arrays(load_weights().arrays, find("A30-24GB"))


@pytest.mark.parametrize("count", [0, 8])
def test_a_mix_of_the_wrong_size(count: int) -> None:
    with pytest.raises(ValueError, match="must have 1 to 7"):
        shipped().predict([MpsSpeeds(1, 1, 1)] * count)


def test_weights_that_were_kept_are_the_same_predictor() -> None:
    again = SlicePredictor.from_arrays(shipped().to_arrays())
    for name, array in shipped().to_arrays().items():
        assert np.array_equal(again.to_arrays()[name], array), name
    mix = [MpsSpeeds(1, 0.8, 0.5, family=family) for family in ("resnet", None, "bert")]
    assert values(again.predict(mix)) == pytest.approx(values(shipped().predict(mix)))
    assert again.families == shipped().families
    assert set(load_weights().arrays) == set(shipped().to_arrays()), "names in the file are a contract"


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.floats(-1.0, 2.0), st.floats(-1.0, 2.0), st.floats(-1.0, 2.0)), min_size=1, max_size=7))
def test_whatever_comes_out_of_a_network_is_speeds_in_order(outputs: list[tuple[float, float, float]]) -> None:
    speeds = speeds_from(np.array(outputs), shipped().small)
    assert (np.diff(speeds, axis=1) <= 1e-12).all()
    assert ((speeds >= SLOWEST - 1e-12) & (speeds <= 1.0)).all()
    latencies = relative_latencies(speeds)
    assert latencies.max(axis=1) == pytest.approx(np.ones(len(speeds)))
    assert (np.diff(latencies, axis=1) >= -1e-12).all(), "on 7g, 4g and 3g: the smaller, the longer"


def test_a_mix_of_known_and_unknown_asks_both() -> None:
    mix = [MpsSpeeds(1, 0.9, 0.3, family="resnet"), MpsSpeeds(1, 0.9, 0.3)]
    known, unknown = shipped().predict(mix)
    assert (known.familiar, unknown.familiar) == (True, False)
    nets = shipped().familiar
    assert nets is not None
    assert known[3].speed == pytest.approx(float(speeds_from(nets(as_mix(mix)), shipped().small)[0, 1]))
    assert unknown[3].speed != known[3].speed


def test_slices_are_those_of_the_catalogue() -> None:
    assert {7, *SLICES} == {profile.slices for profile in A100.profiles}
