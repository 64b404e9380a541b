"""`gpuloom train-predictor` as a user types it."""

import json
from pathlib import Path

import pytest

from gpuloom.cli.main import main
from gpuloom.perf.slices import training as slice_training
from gpuloom.perf.slices.mix import MpsSpeeds
from gpuloom.perf.slices.net import Recipe
from gpuloom.perf.slices.predictor import SlicePredictor
from gpuloom.work.measured.predictor_weights import load_weights
from tests.perf.slices.made_up_mixes import FIGURES, made_up_mixes, write_csv


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stop:
        main([*arguments])
    return stop.value.code if isinstance(stop.value.code, int) else 0


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Made-up measurements, and a recipe that is done in a moment."""
    monkeypatch.setattr(slice_training, "RECIPE", Recipe(width=4, epochs=2))
    write_csv(tmp_path / "mps_mixes.csv", made_up_mixes(200))
    rows = [
        f"{figures.model},{figures.batch},{profile},{0.1 / speed}"
        for figures in FIGURES.values()
        for profile, speed in figures.speeds.items()
    ]
    (tmp_path / "mig_batch_latency.csv").write_text("\n".join(["model,batch,slice,mean_s", *rows]))
    return tmp_path


def test_it_writes_weights_that_predict(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = folder / "w.npz"
    assert run("train-predictor", "--data", str(folder), "--out", str(out), "--source", "me", "--output", "json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["mixes"] == 200
    assert printed["source"] == "me"
    assert printed["errors"]["mae_family_out"] < 0.05
    assert printed["size_bytes"] == out.stat().st_size
    assert load_weights(out).about["errors"] == printed["errors"]
    for family in (None, *printed["families"]):
        predictor = SlicePredictor.from_arrays(load_weights(out, without_family=family).arrays)
        assert set(predictor.predict([MpsSpeeds(1, 0.8, 0.5)])[0].speeds) == {7, 4, 3, 2, 1}


def test_it_prints_a_table(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train-predictor", "--data", str(folder), "--out", str(folder / "w.npz")) == 0
    printed = capsys.readouterr()
    assert "ant, never seen" in printed.out
    assert "weights: " in printed.err


def test_wrong_input(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train-predictor", "--data", str(folder / "no"), "--out", str(tmp_path / "w.npz")) == 2
    assert "mps_mixes.csv does not exist: expected measured mixes" in capsys.readouterr().err
    assert run("train-predictor", "--data", str(folder), "--out", str(tmp_path / "no" / "w.npz")) == 2
    assert "cannot be written there" in capsys.readouterr().err
