"""`gpuloom gpus` and `gpuloom layout`: what they print, for people and for programs."""

import csv
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from gpuloom.cli.carry_out import layout
from gpuloom.cli.output import Output, emit, print_json
from gpuloom.cli.watch.gpus import gpus
from gpuloom.errors import InputError
from gpuloom.gpus.catalogue import MODELS
from gpuloom.gpus.layouts import parse
from gpuloom.gpus.migparted import layouts_for, parse_configs
from tests.standin.hardware import Hardware

app = typer.Typer()
app.command()(gpus)
app.add_typer(layout.app, name="layout")


def run(*args: str) -> Result:
    return CliRunner().invoke(app, args)


def answer(*args: str) -> Any:
    result = run(*args, "--output", "json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_the_catalogue() -> None:
    rows = answer("gpus")
    assert [row["model"] for row in rows] == list(MODELS)
    assert rows[0]["maximal_layouts"] == 19
    assert rows[-1]["mig"] is False
    assert rows[-1]["compute_slices"] is None
    assert "A100-40GB" in run("gpus").stdout


def test_the_profiles_of_a_model() -> None:
    rows = answer("gpus", "--model", "h100")
    assert [row["sms"] for row in rows if row["base"]] == [16, 32, 60, 64, 132]
    assert "no MIG" in run("gpus", "--model", "t4").stdout


def test_this_host() -> None:
    result = run("gpus", "--host", "--output", "json")
    rows = json.loads(result.stdout)
    assert result.exit_code == (0 if rows else 1)
    assert bool(rows) != ("no GPU on this host" in result.stderr)


def test_a_gpu_instance_with_several_compute_instances_is_shown_as_that(hardware: Hardware) -> None:
    """As mig-parted makes them of 1c.3g.20gb and 2c.3g.20gb."""
    hardware.install("A100-40GB+mig", "A100-40GB")
    worker = hardware.worker()
    worker.ask("split", computes=[0, 1])
    worker.close()
    rows = json.loads(hardware.gpuloom("gpus", "--host", "--output", "json").stdout)
    assert [row["instances"] for row in rows] == [["3g.20gb@4 (1c, 2c)"], None]
    assert "3g.20gb@4 (1c, 2c)" in hardware.gpuloom("gpus", "--host").stdout


def test_layouts() -> None:
    rows = answer("layout", "list")
    assert len(rows) == 19
    assert rows[1]["units"] == "|4444|3333|"
    assert all(",".join(map(str, parse(MODELS["A100-40GB"], row["layout"]))) == row["layout"] for row in rows)
    assert len(answer("layout", "list", "--all")) == 298
    table = csv.DictReader(io.StringIO(run("layout", "list", "--model", "a30", "--output", "csv").stdout))
    assert [row["units"] for row in table] == ["|4444|", "|22|22|", "|22|1|1|", "|1|1|22|", "|1|1|1|1|"]


def test_what_can_be_added_beside_what_runs() -> None:
    rows = answer("layout", "list", "--beside", "4g.20gb", "--profile", "3g.20gb")
    assert [row["add"] for row in rows] == ["3g.20gb@4"]
    result = run("layout", "list", "--beside", "1@0,1@1,1@5", "--profile", "3g.20gb")
    assert result.exit_code == 1
    assert "4 compute slices free, largest placeable 2, fragmentation 0.50; 3g.20gb cannot be added" in result.stdout
    assert run("layout", "list", "--beside", "7").exit_code == 1


def test_a_plan_keeps_the_busy_instance() -> None:
    found = answer("layout", "plan", "--from", "3g.20gb@4,1g.5gb@0", "--to", "3,2,2", "--busy", "3g.20gb@4")
    assert found["to"] == "2g.10gb@0,2g.10gb@2,3g.20gb@4"
    assert [(step["action"], step["instance"]) for step in found["steps"]] == [
        ("destroy", "1g.5gb@0"),
        ("create", "2g.10gb@0"),
        ("create", "2g.10gb@2"),
    ]
    assert found["must_stop"] == []


def test_open_placements_follow_what_is_there() -> None:
    assert answer("layout", "plan", "--from", "3@0,1@4", "--to", "3,1,1")["to"] == "3g.20gb@0,1g.5gb@4,1g.5gb@5"
    assert answer("layout", "plan", "--from", "1g.10gb@2", "--to", "1g.10gb")["steps"] == []


def test_a_plan_says_what_has_to_stop() -> None:
    result = run("layout", "plan", "--from", "3@4,1@0", "--to", "4,2,1", "--busy", "all")
    assert result.exit_code == 0
    assert "has to be checkpointed and stopped first: 1g.5gb@0, 3g.20gb@4" in result.stdout
    assert "nothing to do" in run("layout", "plan", "--from", "3", "--to", "3").stdout


def test_a_target_from_a_mig_parted_file_that_was_exported(tmp_path: Path) -> None:
    path = tmp_path / "mig.yaml"
    path.write_text(run("layout", "export", "3,2,2", "--name", "mixed").stdout)
    a100 = MODELS["A100-40GB"]
    assert parse(a100, "3,2,2") in layouts_for(parse_configs(path.read_text()), "mixed", a100, 0, "mig.yaml")
    found = answer("layout", "plan", "--from", "3@4", "--config", str(path), "--name", "mixed")
    assert [step["instance"] for step in found["steps"]] == ["2g.10gb@0", "2g.10gb@2"]


@pytest.mark.parametrize(
    ("args", "named"),
    [
        (["gpus", "--model", "B900"], "'B900'"),
        (["layout", "list", "--model", "V100"], "no MIG"),
        (["layout", "list", "--profile", "3g.20gb"], "--beside"),
        (["layout", "list", "--beside", "3g.20gb@2"], "cannot start at 2"),
        (["layout", "list", "--beside", "none", "--profile", "x"], "'x'"),
        (["layout", "plan", "--from", "3"], "--to LAYOUT"),
        (["layout", "plan", "--from", "3", "--to", "3", "--config", "f", "--name", "n"], "given twice"),
        (["layout", "plan", "--from", "3", "--config", "f"], "--name NAME"),
        (["layout", "plan", "--from", "3", "--to", "3", "--busy", "3"], "3g.20gb@4"),
        (["layout", "plan", "--from", "3", "--config", "missing.yaml", "--name", "n"], "missing.yaml"),
        (["layout", "export", "9"], "'9'"),
    ],
)
def test_bad_input_is_one_sentence(args: list[str], named: str) -> None:
    error = run(*args).exception
    assert isinstance(error, InputError)
    assert named in str(error)
    assert "\n" not in str(error)


ROWS: list[dict[str, object]] = [
    {"name": "a", "speed": 1234.5, "count": 12000, "known": None, "list": [1, 2], "ok": True},
    {"name": "b", "speed": 0.25, "count": 1, "known": 3, "list": [], "ok": False},
]


def test_tables_in_a_pipe_are_plain(capsys: pytest.CaptureFixture[str]) -> None:
    emit(ROWS, Output.table, "two rows")
    assert capsys.readouterr().out.splitlines() == [
        "two rows",
        "name    speed   count  known  list  ok",
        "a     1,234.5  12,000      –  1 2   yes",
        "b        0.25       1      3  none  no",
    ]
    emit([], Output.table)
    assert capsys.readouterr().out == "nothing to show\n"


def test_csv_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    emit(ROWS, Output.csv)
    assert capsys.readouterr().out == "name,speed,count,known,list,ok\na,1234.5,12000,,1 2,True\nb,0.25,1,3,,False\n"
    emit(ROWS, Output.json, "no title in JSON")
    assert json.loads(capsys.readouterr().out) == ROWS
    emit([], Output.csv)
    emit([], Output.json)
    assert capsys.readouterr().out == "[]\n"
    print_json({"a": [float("nan"), float("inf"), 1.5]})
    assert json.loads(capsys.readouterr().out) == {"a": [None, None, 1.5]}


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_table_without_colour_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    emit([{"name": "[red]a[/red]"}], Output.table, "title")
    shown = screen.getvalue()
    assert "title" in shown
    assert "[red]a[/red]" in shown
    assert "\x1b[3" not in shown.replace("\x1b[3m", "")


def test_a_narrow_encoding_does_not_break_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    emit([{"units": "|·|"}], Output.table)
    emit([{"units": "|·|"}], Output.json)
    sys.stdout.flush()
    assert raw.getvalue().startswith(b"units\n|?|\n")
    assert json.loads(raw.getvalue()[len(b"units\n|?|\n") :]) == [{"units": "|·|"}]


def documented() -> list[tuple[str, str]]:
    """Every command of the page on layouts, with the output that it shows."""
    page = (Path(__file__).parents[3] / "docs" / "layouts.md").read_text(encoding="utf-8")
    blocks = [part.split("\n```")[0] for part in page.split("```console\n")[1:]]
    commands = [piece.partition("\n") for block in blocks for piece in f"\n{block}".split("\n$ gpuloom ")[1:]]
    return [(command, shown) for command, _, shown in commands]


def test_the_page_on_layouts_shows_real_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(documented()) > 8
    for command, shown in documented():
        line, _, file = command.partition(" > ")
        printed = run(*line.split()).stdout
        if file:
            Path(file).write_text(printed)
        assert ("" if file else printed.rstrip("\n")) == shown, command
