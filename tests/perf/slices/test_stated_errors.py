"""The errors that we state of the shipped weights, and that anyone can train them again."""

import json
from pathlib import Path
from statistics import fmean

import pytest

from gpuloom.perf.slices.errors import judge
from gpuloom.perf.slices.mix import MpsSpeeds
from gpuloom.perf.slices.predictor import SlicePredictor
from gpuloom.perf.slices.training import train_trend
from gpuloom.work.measured.figures import load_figures
from gpuloom.work.measured.mps_mixes import MeasuredMix, read_mixes
from gpuloom.work.measured.predictor_weights import load_weights
from tests.perf.slices.shipped_weights import shipped, values


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
    assert sum(len(found.workloads) for found in errors.values()) == sum(len(mix.jobs) for mix in third)


def test_anyone_can_train_the_shipped_trend_again(measured: tuple[MeasuredMix, ...]) -> None:
    again = train_trend(measured, load_figures().workloads, without_family="bert").to_arrays()
    kept = load_weights(without_family="bert").arrays
    assert set(again) == set(kept)
    mix = [MpsSpeeds(1, 0.8, 0.4), MpsSpeeds(1, 0.7, 0.9)]
    assert values(SlicePredictor.from_arrays(again).predict(mix)) == pytest.approx(
        values(shipped("bert").predict(mix)), abs=1e-3
    )
