"""`gpuloom serve` and `gpuloom load` as a user calls them, when something is wrong."""

from pathlib import Path

import pytest

from gpuloom.cli.main import main
from tests.serve.plans import row, write_plan


def fails(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one sentence; exit code 2."""
    with pytest.raises(SystemExit) as left:
        main(list(words))
    assert left.value.code == 2
    sentence = capsys.readouterr().err
    assert sentence.count("\n") == 1
    return sentence


def test_wrong_plans(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = ["--state", str(tmp_path / "s")]
    assert "does not exist" in fails(capsys, "serve", "up", str(tmp_path / "no.json"), *state)
    plan = str(write_plan(tmp_path, row(slo_ms=0)))
    assert "services[0].slo_ms is 0" in fails(capsys, "serve", "up", plan, *state)
    plan = str(write_plan(tmp_path, row(batch_ms=None, workload="unheard-of")))
    assert "no profile of 'unheard-of'" in fails(capsys, "serve", "up", plan, *state)
    plan = str(write_plan(tmp_path, row()))
    assert "has no model W6 or resnet50" in fails(capsys, "serve", "up", plan, *state, "--models", str(tmp_path))
    both = ["--models", str(tmp_path), "--dilate", "10"]
    assert "--dilate is for stand-in models" in fails(capsys, "serve", "up", plan, *state, *both)
    assert "not a program" in fails(capsys, "serve", "up", plan, *state, "--triton", str(tmp_path))


def test_nothing_is_served(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "nothing that is served" in fails(capsys, "serve", "status", "--state", str(tmp_path))
    assert "nothing that is served" in fails(capsys, "load", str(tmp_path / "absent"))
    with pytest.raises(SystemExit) as left:
        main(["serve", "down", "--state", str(tmp_path / "absent")])
    assert left.value.code == 0
    assert "nothing was running" in capsys.readouterr().err
    (tmp_path / "deployment.json").write_text("{")
    assert "not the description" in fails(capsys, "serve", "status", "--state", str(tmp_path))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["ftp://x"], "nothing that is served"),
        (["http://x"], "is not understood"),
        (["http://x:99999/p"], "is not understood"),
        (["http://127.0.0.1:1/v2/models/m/infer"], "--rate is missing"),
        (["http://127.0.0.1:1/v2/models/m/infer", "--rate", "none"], "--rate none"),
        (["http://127.0.0.1:1/v2/models/m/infer", "--rate", "other=5"], "other is not asked"),
        (["http://127.0.0.1:1/v2/models/m/infer", "--service", "other"], "not served there; there are m"),
        (["http://127.0.0.1:1/v2/models/m/infer", "--rate", "5", "--arrivals", "often"], "accepted are poisson"),
        (["http://127.0.0.1:1/v2/models/m/infer", "--rate", "5", "--requests", "1", "--duration", "1"], "exclude"),
    ],
)
def test_wrong_load(capsys: pytest.CaptureFixture[str], words: list[str], told: str) -> None:
    assert told in fails(capsys, "load", *words)


def test_a_load_that_nobody_answers_is_a_broken_promise(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["load", "http://127.0.0.1:1/v2/models/m/infer", "--rate", "1000", "--requests", "3", "--output", "json"])
    assert left.value.code == 1
    assert '"lost": 3' in capsys.readouterr().out
