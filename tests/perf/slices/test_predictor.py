"""The slice predictor: what must hold for any mix, and what it says of its own error."""

import json
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuloom.errors import InputError
from gpuloom.gpus.catalogue import find
from gpuloom.perf.slices.errors import judge, small_slice_fit, together
from gpuloom.perf.slices.intervals import SLICES
from gpuloom.perf.slices.net import Recipe, Segments, SetNet, backward
from gpuloom.perf.slices.predictor import MpsSpeeds, SlicePredictor, SliceSpeeds
from gpuloom.perf.slices.training import train, train_trend
from gpuloom.perf.speed import Estimate
from gpuloom.work.measured.figures import load_figures
from gpuloom.work.measured.mps_mixes import MeasuredMix, read_mixes
from gpuloom.work.measured.predictor_weights import load_weights
from tests.perf.slices.made_up_mixes import FIGURES, made_up_mixes

A100 = find("A100-40GB")


@lru_cache
def shipped(without_family: str | None = None) -> SlicePredictor:
    return SlicePredictor.from_arrays(load_weights(without_family=without_family).arrays)


speeds = st.floats(0.05, 5.0)
families = st.sampled_from([None, "resnet", "bert", "never heard of"])
jobs = st.builds(MpsSpeeds, speeds, speeds, speeds, st.none(), families)
mixes = st.lists(jobs, min_size=1, max_size=7)
gauges = st.lists(st.builds(MpsSpeeds, speeds, speeds, speeds), max_size=3)


def values(answers: list[SliceSpeeds]) -> np.ndarray:
    return np.array([[answer[slices] for slices in (7, 4, 3, 2, 1)] for answer in answers])


@given(mixes.flatmap(lambda mix: st.tuples(st.just(mix), st.permutations(range(len(mix))))), gauges)
def test_permuting_the_jobs_permutes_the_answers(
    case: tuple[list[MpsSpeeds], list[int]], beside: list[MpsSpeeds]
) -> None:
    mix, order = case
    straight = shipped().predict(mix, beside)
    permuted = shipped().predict([mix[at] for at in order], beside[::-1])
    assert values(permuted) == pytest.approx(values([straight[at] for at in order]), abs=1e-4)
    assert [answer.familiar for answer in permuted] == [mix[at].family in ("resnet", "bert") for at in order]


@given(mixes, gauges)
def test_a_larger_slice_is_never_slower(mix: list[MpsSpeeds], beside: list[MpsSpeeds]) -> None:
    for answer in shipped().predict(mix, beside):
        assert list(answer.speeds) == [7, 4, 3, 2, 1]
        assert answer[7] == Estimate(1.0, 1.0, 1.0)
        assert all(larger.speed >= smaller.speed for larger, smaller in pairwise(answer.speeds.values()))
        assert all(0 <= low <= speed <= high < 2 and speed > 0 for speed, low, high in answer.speeds.values())


@given(mixes, st.floats(0.001, 1000.0))
def test_the_unit_of_a_speed_does_not_matter(mix: list[MpsSpeeds], factor: float) -> None:
    scaled = [MpsSpeeds(m.at_100 * factor, m.at_50 * factor, m.at_14 * factor, family=m.family) for m in mix]
    assert values(shipped().predict(scaled)) == pytest.approx(values(shipped().predict(mix)), abs=1e-4)


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


def test_other_gpu_models_with_the_same_slices() -> None:
    on_80 = SlicePredictor.from_arrays(load_weights().arrays, find("A100-80GB"))
    answer = on_80.predict([MpsSpeeds(1, 0.8, 0.4, 6000)])[0]
    assert set(answer.speeds) == {7, 4, 3, 2, 1}
    assert "1g.10gb" in answer.profiles
    with pytest.raises(InputError, match="A30-24GB is not cut into 7g"):
        SlicePredictor.from_arrays(load_weights().arrays, find("A30-24GB"))


@pytest.mark.parametrize("speed", [0.0, -1.0, float("nan"), float("inf")])
def test_a_speed_that_is_none(speed: float) -> None:
    with pytest.raises(ValueError, match="must be a number above 0"):
        MpsSpeeds(1.0, speed, 0.5)


@pytest.mark.parametrize("count", [0, 8])
def test_a_mix_of_the_wrong_size(count: int) -> None:
    with pytest.raises(ValueError, match="must have 1 to 7"):
        shipped().predict([MpsSpeeds(1, 1, 1)] * count)


def test_the_gradient_of_the_network() -> None:
    rng = np.random.default_rng(0)
    net = SetNet.random(3, 4, 2, rng)
    rows, y = rng.normal(size=(9, 3)).astype(np.float32), rng.uniform(size=(9, 2)).astype(np.float32)
    y[4, 1] = np.nan
    counts = np.array([2, 3, 4])
    found = SetNet(3, 4, 2)
    backward(net.layers, found.layers, rows, y, Segments(counts))

    def error(weights: np.ndarray) -> float:
        moved = SetNet(3, 4, 2, weights)
        out = np.concatenate([moved(part) for part in np.split(rows, np.cumsum(counts)[:-1])])
        return float(np.nansum(np.abs(out.astype(float) - y)) / y.size)

    for at in range(0, net.weights.size, 7):
        step = np.zeros_like(net.weights)
        step[at] = 0.01
        slope = (error(net.weights + step) - error(net.weights - step)) / 0.02
        assert found.weights[at] == pytest.approx(slope, abs=2e-4)


def test_training_on_made_up_laws() -> None:
    measured = made_up_mixes(400)
    training, test = measured[:300], measured[300:]
    ticks: list[int] = []
    recipe = Recipe(width=12, epochs=20)
    predictor = train(
        training, FIGURES, np.random.default_rng(0), recipe=recipe, members=2, tick=lambda: ticks.append(1)
    )
    assert len(ticks) == 40
    known = judge(predictor, test, FIGURES)
    untold = judge(predictor, test, FIGURES, tell_family=False)
    assert known.mae < 0.03
    assert untold.mae < 0.01  # the laws are smooth, so the trend finds them
    assert predictor.familiar is not None
    assert predictor.familiar.mae < 0.04
    assert known.coverage > 0.8
    again = SlicePredictor.from_arrays(predictor.to_arrays())
    mix = [MpsSpeeds(1, 0.8, 0.5, family=family) for family in ("ant", None)]
    assert values(again.predict(mix)) == pytest.approx(values(predictor.predict(mix)), abs=2e-3)
    small = small_slice_fit(measured, FIGURES)
    assert small["2g"]["r2_family_out"] > 0.99
    assert small["1g"]["workloads"] == len([w for w in FIGURES.values() if "1g.5gb" in w.speeds])


def test_the_same_seed_gives_the_same_weights() -> None:
    def weights(seed: int) -> np.ndarray:
        trained = train(
            made_up_mixes(80), FIGURES, np.random.default_rng(seed), recipe=Recipe(width=4, epochs=1), members=1
        )
        return trained.to_arrays()["nets.weights"]

    assert (weights(1) == weights(1)).all()
    assert (weights(1) != weights(2)).any()


def test_a_family_left_out_is_not_looked_at() -> None:
    measured = made_up_mixes(300)
    without = train_trend(measured, FIGURES, without_family="dog")
    assert "dog" not in without.families
    spared = [mix for mix in measured if "dog" not in mix.families]
    alone = train_trend(spared, FIGURES).to_arrays()
    assert all((array == alone[name]).all() for name, array in without.to_arrays().items())
    assert not without.predict([MpsSpeeds(1, 0.8, 0.5, family="dog")])[0].familiar


def test_too_little_to_train_on() -> None:
    measured = made_up_mixes(300)
    with pytest.raises(InputError, match="too few mixes of two jobs or more"):
        train_trend([mix for mix in measured if len(mix.jobs) == 1], FIGURES)
    with pytest.raises(InputError, match="too few model families were measured alone"):
        train_trend([mix for mix in measured if len(mix.jobs) > 1], FIGURES)


@pytest.fixture(scope="module")
def measured(data_dir: Path) -> tuple[MeasuredMix, ...]:
    return read_mixes(data_dir / "miso" / "mps_mixes.csv")


def test_shipped_weights_say_where_they_come_from() -> None:
    about = load_weights().about
    assert about["gpu"] == "A100-40GB"
    assert "MIT" in about["source"]
    assert about["made_by"].startswith("gpuloom train-predictor")
    assert len(about["families"]) == 8
    assert 0.01 < about["errors"]["mae_one_network"] <= 0.0196
    assert about["errors"]["mae_family_out"] <= 0.036
    json.dumps(dict(about))


def test_shipped_weights_have_the_stated_errors(measured: tuple[MeasuredMix, ...]) -> None:
    """On a third of the mixes: of each family, by the weights that have never seen it."""
    about, figures = load_weights().about, load_figures().workloads
    third = measured[::3]
    errors = {family: judge(shipped(family), third, figures, only_family=family) for family in about["families"]}
    for family, found in errors.items():
        assert found.mae == pytest.approx(about["errors"]["mae_by_family"][family], abs=0.004)
    assert fmean(found.mae for found in errors.values()) < 0.036
    assert 0.85 < fmean(found.coverage for found in errors.values()) < 0.95
    everybody = together(list(errors.values()))
    assert len(everybody.workloads) == sum(len(mix.jobs) for mix in third)


def test_anyone_can_train_the_shipped_trend_again(measured: tuple[MeasuredMix, ...]) -> None:
    again = train_trend(measured, load_figures().workloads, without_family="bert").to_arrays()
    kept = load_weights(without_family="bert").arrays
    assert set(again) == set(kept)
    mix = [MpsSpeeds(1, 0.8, 0.4), MpsSpeeds(1, 0.7, 0.9)]
    assert values(SlicePredictor.from_arrays(again).predict(mix)) == pytest.approx(
        values(shipped("bert").predict(mix)), abs=1e-3
    )


def test_slices_are_those_of_the_catalogue() -> None:
    assert {7, *SLICES} == {profile.slices for profile in A100.profiles}
