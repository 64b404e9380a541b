"""Training: made-up laws are found, the same seed gives the same weights, and who is left out is not looked at."""

import numpy as np
import pytest

from gpuloom.errors import InputError
from gpuloom.perf.arrays import Singles
from gpuloom.perf.slices.errors import judge, small_slice_fit
from gpuloom.perf.slices.mix import MpsSpeeds
from gpuloom.perf.slices.net import Recipe
from gpuloom.perf.slices.predictor import SlicePredictor
from gpuloom.perf.slices.table import Table
from gpuloom.perf.slices.training import LENGTHS, NOISES, RIDGES, choose_smoothness, train, train_trend
from tests.perf.slices.made_up_mixes import FIGURES, made_up_mixes
from tests.perf.slices.shipped_weights import values


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
    def weights(seed: int) -> Singles:
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


def test_a_family_that_was_left_out_is_predicted_and_its_interval_holds() -> None:
    measured = made_up_mixes(300)
    errors = judge(train_trend(measured, FIGURES, without_family="cat"), measured, FIGURES, only_family="cat")
    assert set(errors.workloads) == {"cat 1", "cat 2", "cat 4"}
    assert errors.mae < 0.02
    assert errors.coverage > 0.75


def test_the_smoothness_is_one_of_those_that_are_tried() -> None:
    smoothness = choose_smoothness(Table.of(made_up_mixes(150), FIGURES))
    assert smoothness.ridge in RIDGES
    assert smoothness.length in LENGTHS
    assert smoothness.noise in NOISES


def test_too_little_to_train_on() -> None:
    measured = made_up_mixes(300)
    with pytest.raises(InputError, match="too few mixes of two jobs or more"):
        train_trend([mix for mix in measured if len(mix.jobs) == 1], FIGURES)
    with pytest.raises(InputError, match="too few model families were measured alone"):
        train_trend([mix for mix in measured if len(mix.jobs) > 1], FIGURES)
