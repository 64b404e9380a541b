"""`gpuloom recommend` on a folder as a campaign leaves it: sentences, JSON, a page; and other folders."""

import csv
import io
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpuloom.cli.main import main
from gpuloom.measure.arrangement import Seat
from gpuloom.measure.measured import model_as, read_measured
from gpuloom.measure.results import Copy
from gpuloom.measure.table import to_csv
from tests.measure.rows import MODEL, PROFILES, campaign

SLOW_MS = {"1g.5gb": 172.0, "2g.10gb": 121.0, "3g.20gb": 108.0, "4g.20gb": 104.0, "7g.40gb": 100.0}
FILLS_MS = {"3g.20gb": 240.0, "4g.20gb": 180.0, "7g.40gb": 100.0}


def one_after_the_other(first: list[Copy], second: list[Copy]) -> list[Copy]:
    """No two runs have the same number."""
    return [*first, *(replace(row, run=row.run + len(first)) for row in second)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    dice = np.random.default_rng(2)
    rows = one_after_the_other(campaign("slow", SLOW_MS, 6, dice), campaign("fills", FILLS_MS, 6, dice))
    (tmp_path / "measured.csv").write_text(to_csv(rows))
    device = {"product": "NVIDIA A100", "model": MODEL.name, "driver": "550.54"}
    (tmp_path / "measured.json").write_text(json.dumps({"device": device, "model": model_as(MODEL)}))
    return tmp_path


def told(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["recommend", *map(str, words)])
    out, err = capsys.readouterr()
    assert (ended.value.code or 0) == code, err
    return out if code == 0 else out + err


def test_what_was_written_is_what_is_read(folder: Path) -> None:
    measured = read_measured(folder)
    assert measured.model == MODEL
    assert len(measured.rows) == len(list(csv.DictReader(io.StringIO((folder / "measured.csv").read_text()))))


def test_sentences_for_people(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    out = told(capsys, folder)
    assert "  one copy: 4g.20gb" in out
    assert "  most work an hour: 7 x 1g.5gb" in out
    assert "seven copies on 1g.5gb do 4" in out
    assert "memory: " in out


def test_figures_for_programs_and_a_page(capsys: pytest.CaptureFixture[str], folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    words = ("--deadline", "1000 in 2m", "--least-speed", "9.9", "--report", page, "-o", "json")
    found: dict[str, Any] = json.loads(told(capsys, folder, *words))
    answers = {answer["goal"]: answer for answer in found["workloads"]["slow"]["answers"]}
    assert answers["most work an hour"]["choice"] == "7 x 1g.5gb"
    assert answers["1,000 steps in 120 s"]["choice"] == "3g.20gb"
    assert {verdict["about"] for verdict in found["workloads"]["fills"]["verdicts"]} >= {"scaling", "memory"}
    assert found["set"] is None
    assert "<title>" in page.read_text()
    rows = list(csv.DictReader(io.StringIO(told(capsys, folder, "-o", "csv"))))
    assert {row["workload"] for row in rows} == {"slow", "fills"}


def test_a_set_is_seated_and_can_be_carried_out(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    found = json.loads(told(capsys, folder, "--set", "slow,slow,slow,fills", "-o", "json"))["set"]
    assert len(found["seats"]) == 4
    (layout,) = found["layouts"]
    assert f"gpuloom layout apply --gpu 0 --to {layout}" in told(capsys, folder, "--set", "slow,slow,slow,fills")
    two = told(capsys, folder, "--set", "slow,fills,fills", "--devices", 2)
    assert [line.split()[3:5] for line in two.splitlines() if "layout apply" in line] == [
        ["--gpu", "0"],
        ["--gpu", "1"],
    ]
    assert "no layout has an instance" in told(capsys, folder, "--set", ",".join(["fills"] * 3), code=1)


@pytest.mark.parametrize(
    ("more", "device", "others"),
    [
        ({"gpu": 1}, "--gpu 1", "--gpu 0"),
        ({"devices": ["cpu=50%"]}, "--device cpu=50%", "--device cpu=50% --device cpu=50% --gpu 1"),
    ],
)
def test_it_is_carried_out_where_it_was_measured(
    capsys: pytest.CaptureFixture[str], folder: Path, more: dict[str, object], device: str, others: str
) -> None:
    metadata = folder / "measured.json"
    metadata.write_text(json.dumps(json.loads(metadata.read_text()) | more))
    assert f"  gpuloom layout apply {device} --to " in told(capsys, folder, "--set", "slow,fills")
    assert f"  gpuloom layout apply {others} --to " in told(capsys, folder, "--set", "slow,fills,fills", "--devices", 2)


@pytest.fixture
def explored(tmp_path: Path) -> Path:
    """Two of five places of each were run, as for most work."""
    dice = np.random.default_rng(2)
    every = one_after_the_other(campaign("slow", SLOW_MS, 1, dice), campaign("fills", FILLS_MS, 1, dice))
    rows = [row for row in every if row.copies == 1 and row.seat.profile in ("1g.5gb", "3g.20gb")]
    places = [asdict(Seat(name, profile)) for name in ("slow", "fills") for profile in PROFILES]
    not_run = [place for place in places if place["profile"] not in ("1g.5gb", "3g.20gb")]
    told = {
        "device": {"product": "NVIDIA A100", "model": MODEL.name, "driver": "550.54"},
        "model": model_as(MODEL),
        "explored": {"for": "most-work", "places": places, "not_run": not_run},
    }
    (tmp_path / "measured.csv").write_text(to_csv(rows))
    (tmp_path / "measured.json").write_text(json.dumps(told))
    return tmp_path


def test_what_was_not_run_is_predicted_and_says_so(capsys: pytest.CaptureFixture[str], explored: Path) -> None:
    page = explored / "page.html"
    told_json = json.loads(told(capsys, explored, "--least-speed", "8.5", "--report", page, "-o", "json"))
    answers = {answer["goal"]: answer for answer in told_json["workloads"]["fills"]["answers"]}
    single = answers["one copy"]
    assert (single["choice"], single["measured"]) == ("7g.40gb", False)
    assert "predicted, not measured" in single["says"]
    assert answers["at least 8.5 steps a second"]["choice"] is None
    slow = {answer["goal"]: answer for answer in told_json["workloads"]["slow"]["answers"]}
    assert slow["most work an hour"]["choice"] == "7 x 1g.5gb"
    assert "predicted, not measured" in page.read_text()


def test_a_set_of_which_not_all_was_run(capsys: pytest.CaptureFixture[str], explored: Path) -> None:
    found = json.loads(told(capsys, explored, "--set", "slow,fills", "-o", "json"))["set"]
    assert [seat["instance"][0] for seat in found["seats"]] == ["3", "4"]
    assert found["says"].endswith("; predicted, not measured: fills on 4g.20gb")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--deadline", "soon"), "--deadline 'soon': expected steps and a time, such as '10000 in 2h'"),
        (("--deadline", "0 in 2h"), "--deadline '0 in 2h': expected"),
        (("--least-speed", "-1"), "--least-speed is -1: expected steps a second above 0"),
        (("--least-speed", "1e-320"), "--least-speed is 9.99989e-321: expected steps a second above 0, 1e-12 at least"),
        (("--set", "slow,other"), "--set slow,other: 'other' was not measured; measured were slow, fills"),
        (("--report", "/nowhere/page.html"), "/nowhere/page.html: cannot be written there"),
    ],
)
def test_wrong_words_are_one_sentence(
    capsys: pytest.CaptureFixture[str], folder: Path, words: tuple[str, ...], sentence: str
) -> None:
    assert sentence in told(capsys, folder, *words, code=2)


def test_other_folders_and_broken_files(capsys: pytest.CaptureFixture[str], folder: Path, tmp_path: Path) -> None:
    assert "has no measured.csv" in told(capsys, tmp_path / "empty", code=2)
    (folder / "measured.json").write_text("{")
    assert "is no JSON" in told(capsys, folder, code=2)
    (folder / "measured.json").write_text('{"model": {"name": "x"}}')
    assert "does not tell the device" in told(capsys, folder, code=2)
    (folder / "measured.csv").write_text("a,b\n")
    assert "has no column run" in told(capsys, folder, code=2)


@pytest.mark.parametrize(
    ("column", "value", "sentence"),
    [
        ("step_ms", "inf", "step_ms is 'inf', which nobody can have measured"),
        ("step_ms", "1e-320", "step_ms is '1e-320', which nobody can have measured"),
        ("step_ms", "-5", "step_ms is '-5', which nobody can have measured"),
        ("energy_j", "nan", "energy_j is 'nan', which nobody can have measured"),
        ("share_pct", "nan", "share_pct is 'nan', but must be above 0, and 100 at most"),
        ("share_pct", "101", "share_pct is '101', but must be above 0, and 100 at most"),
        ("copies", "0", "copies is '0', which nobody can have measured"),
        ("run", "-1", "run is '-1', which nobody can have measured"),
        ("profile", "9g", "profile is '9g'; accepted are 1g.5gb, "),
        ("run", "0", "run 0 has 1 copies, and copy 0 is no other"),
    ],
)
def test_what_cannot_be_is_told_with_its_line(
    capsys: pytest.CaptureFixture[str], folder: Path, column: str, value: str, sentence: str
) -> None:
    path = folder / "measured.csv"
    rows = list(csv.DictReader(io.StringIO(path.read_text())))
    at = next(at for at, row in enumerate(rows) if at and row["copies"] == "1")
    rows[at][column] = value
    with path.open("w") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    assert f"measured.csv: line {at + 2}: {sentence}" in told(capsys, folder, code=2)


def test_a_deadline_of_many_digits(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    assert "expected steps and a time" in told(capsys, folder, "--deadline", f"{'9' * 400} in 1s", code=2)


def test_no_run_is_over_yet(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    (folder / "measured.csv").write_text(to_csv([]))
    assert "no run was over yet when it was written" in told(capsys, folder, code=1)


@pytest.mark.parametrize("name", ["measured.csv", "measured.json", "journal.jsonl", "asked.json"])
def test_a_report_goes_over_nothing_of_the_campaign(
    capsys: pytest.CaptureFixture[str], folder: Path, name: str
) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert "would overwrite what is read" in told(capsys, folder, "--report", folder / "." / name, code=2)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize(
    ("stop", "note"),
    [
        ("the budget is spent", "not all was measured that was asked for (the budget is spent)"),
        (None, "not all was measured that was asked for (nobody has ended it yet)"),
        ("all is known", None),
        ("as many runs as were wished for are made", None),
    ],
)
def test_what_to_bear_in_mind(
    capsys: pytest.CaptureFixture[str], folder: Path, stop: str | None, note: str | None
) -> None:
    metadata = folder / "measured.json"
    noise = {"median_ms": 10.0, "spread_pct": 52.0, "pieces": 100}
    metadata.write_text(json.dumps(json.loads(metadata.read_text()) | {"noise": noise, "stop": stop}))
    out = told(capsys, folder, "--report", folder / "page.html")
    assert "on a CPU device: the same work alone varies by 52.0 %" in out
    assert "varies by 52.0 %" in (folder / "page.html").read_text()
    assert ("not all was measured" in out) == (note is not None)
    assert note is None or note in out
    assert len(json.loads(told(capsys, folder, "-o", "json"))["notes"]) == 1 + (note is not None)


def test_a_strangers_folder_does_nothing_to_a_terminal(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    path = folder / "measured.csv"
    path.write_text(path.read_text().replace("fills", "fi\x1b[2J\x07lls"))
    for words in ((), ("-o", "csv"), ("--set", "slow")):
        assert not set("\x1b\x07") & set(told(capsys, folder, *words))
    assert not set("\x1b\x07") & set(told(capsys, folder, "--set", "nobody", code=2))
