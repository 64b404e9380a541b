"""The commands as a user types them: the contract with scripts, and one sentence for every kind of wrong input."""

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuloom.cli.main import main

GPULOOM = Path(sys.executable).with_name("gpuloom")
CONTRACT = {
    "policy",
    "seed",
    "jobs",
    "avg_jct_s",
    "p50_jct_s",
    "p99_jct_s",
    "makespan_s",
    "stp_per_gpu",
    "repartitions",
    "wall_s",
}
SMALL = ["--jobs", "8", "--gpus", "2xA100-40GB"]


def run(*arguments: str) -> int:
    """The exit code of one command, in this process."""
    with pytest.raises(SystemExit) as stop:
        main([*arguments])
    code = stop.value.code
    return code if isinstance(code, int) else 0


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one sentence with which a command refuses wrong input."""
    assert run(*arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("gpuloom: ")
    assert printed.err.count("\n") == 1
    assert "Traceback" not in printed.err
    return printed.err


def test_simulate_prints_one_object_with_the_promised_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("simulate", *SMALL, "--policy", "best-static", "--seed", "4", "--output", "json") == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures.keys() >= CONTRACT
    assert (figures["policy"], figures["seed"], figures["jobs"]) == ("best-static", 4, 8)


def test_simulate_and_compare_print_csv(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("simulate", *SMALL, "--output", "csv") == 0
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert row.keys() >= CONTRACT
    assert (
        run("compare", *SMALL, "--policies", "whole-fifo;static:3,2,2", "--seeds", "1-2", "-o", "csv", "--workers", "1")
        == 0
    )
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["policy"] for row in rows] == ["whole-fifo", "static:3,2,2"]
    assert float(rows[1]["ratio_to_whole-fifo"]) > 0


def test_everything_that_can_be_written_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report, timeline, log = tmp_path / "r.html", tmp_path / "t.json", tmp_path / "l.jsonl"
    files = ["--report", str(report), "--trace-out", str(timeline), "--log", str(log)]
    assert run("simulate", *SMALL, "--policy", "oracle", *files, "--output", "json") == 0
    assert report.read_text().lstrip().lower().startswith("<!doctype html>")
    assert json.loads(timeline.read_text())
    capsys.readouterr()
    first = json.loads(log.read_text().splitlines()[1])
    job = first["Turn"]["events"][0]["JobArrived"]["job"]["id"]
    assert run("explain", str(log), job, "--output", "json") == 0
    assert json.loads(capsys.readouterr().out)


def test_demo_needs_nothing_but_itself(tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "NO_COLOR": "1"}
    done = subprocess.run(
        [GPULOOM, "demo", "-o", "json"], cwd=tmp_path, env=environment, capture_output=True, check=True
    )
    table = json.loads(done.stdout)
    assert [row["policy"] for row in table] == ["whole-fifo", "static:3,2,2", "oracle", "miso"]
    means = [row["avg_jct_s"] for row in table]
    assert means == sorted(means, reverse=True)
    assert (tmp_path / "gpuloom-demo.html").stat().st_size > 10_000
    assert b"\x1b" not in done.stdout + done.stderr


@pytest.mark.parametrize("arguments", [[], ["--help"], ["simulate", "--help"], ["layout", "--help"], ["--version"]])
def test_help_is_there(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*arguments) == (0 if arguments else 2)  # no arguments at all is usage, not an answer
    assert capsys.readouterr().out


def test_help_does_not_load_what_it_does_not_need() -> None:
    heavy = "('numpy', 'scipy', 'pydantic', 'yaml', 'pynvml')"
    code = f"import sys, gpuloom.cli.main; print([module for module in {heavy} if module in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["simulate", "--policy", "magic"], "magic"),
        (["simulate", "--policy", "static:9,9"], "9"),
        (["simulate", "--gpus", "0xA100"], "0xA100"),
        (["simulate", "--gpus", "8xA1000"], "A1000"),
        (["simulate", "--trace", "nowhere.csv", "--format", "philly"], "nowhere.csv"),
        (["simulate", "--trace", "nowhere.txt"], "--format"),
        (["simulate", "--format", "phily", "--trace", "x"], "philly"),
        (["simulate", "--format", "pollux", "--trace", "x"], "--profiles"),
        (["simulate", "--format", "philly"], "--trace"),
        (["simulate", "--jobs", "-3"], "jobs"),
        (["simulate", "--gap-s", "nan"], "gap_s"),
        (["simulate", "--every", "0"], "--every"),
        (["simulate", "--cost", "cut_s=-1"], "cut_s"),
        (["simulate", "--cost", "coffee=3"], "coffee"),
        (["simulate", "--fault", "gpu-lost:99@10"], "GPUs 0 to 7"),
        (["simulate", "--fault", "meteor:1@10"], "gpu-lost"),
        (["simulate", "--every", "1e-9"], "--every"),
        (["simulate", "--cost", "start_s=1e300"], "start_s"),
        (["simulate", "--format", "wat"], "wat"),
        (["simulate", "--policy", "whole-fifo:banana"], "takes no argument"),
        (["simulate", "--policy", "best-statik"], "best-static"),
        (["simulate", "--fault", "crash:nobody@5"], "nobody"),
        (["simulate", "--fault", "cut-fails:0"], "cut-fails"),
        (["simulate", "--log", "same.x", "--report", "same.x"], "same.x"),
        (["simulate", "--report", "no/such/folder/x.html"], "no/such/folder"),
        (["simulate", "--log", "."], "cannot be written"),
        (["simulate", "--policy", "static:1,1,1,1,1,1,1"], "never places job"),
        (["compare", "--policies", ""], "--policies"),
        (["compare", "--policies", "oracle oracle"], "different"),
        (["compare", "--baseline", "pollux"], "--baseline"),
        (["compare", "--seeds", "5-1"], "5-1"),
        (["compare", "--seeds", "one"], "one"),
        (["compare", "--policies", "oracle magic", "--seeds", "1", *SMALL], "magic"),
        (["explain", "nowhere.jsonl", "job-1"], "nowhere.jsonl"),
        (["gpus", "--model", "A1000"], "A1000"),
        (["layout", "plan", "--from", "3,3", "--to", "9"], "9"),
    ],
)
def test_wrong_input_gets_one_sentence_and_exit_code_2(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert says in refused(capsys, *arguments)


@pytest.mark.parametrize("option", ["--log", "--report", "--trace-out"])
def test_a_full_disk_gets_one_sentence(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("simulate", *SMALL, option, "/dev/full") == 1
    error = capsys.readouterr().err
    assert "No space left" in error
    assert "Traceback" not in error


BAD_FILES = {
    "truncated.csv": ("philly", "timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:01:55,66.0,1"),
    "columns.csv": ("philly", "when,how long\n1,2\n"),
    "negative.csv": ("philly", "timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:01:55,-66.0,1,66.0,x\n"),
    "empty.csv": ("philly", "timestamp,duration,num_gpus,gpu_time,cluster\n"),
    "nothing.csv": ("philly", ""),
    "typo.yaml": ("yaml", "jobs:\n  - name: a\n    lenght: 2h\n"),
    "large.yaml": ("yaml", "jobs:\n  - {name: a, gpus: 64, length: 2h}\n"),
    "broken.yaml": ("yaml", "jobs: [a, {]\n"),
    "broken.jsonl": ("jsonl", '{"id": "a", \n'),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_is_named_and_left_alone(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kind, content = BAD_FILES[name]
    path = tmp_path / name
    path.write_text(content)
    sentence = refused(capsys, "simulate", "--trace", str(path), "--format", kind, "--policy", "whole-fifo")
    assert name in sentence or "fits nowhere" in sentence
    assert path.read_text() == content


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    content=st.one_of(st.binary(max_size=200), st.text(max_size=200).map(str.encode)),
    kind=st.sampled_from(["philly", "helios", "openb", "jsonl", "yaml", "pollux"]),
)
def test_no_file_makes_a_traceback(
    content: bytes, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "fuzz"
    path.write_bytes(content)
    assert "gpuloom: " in refused(capsys, "simulate", "--trace", str(path), "--format", kind, "--policy", "whole-fifo")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    option=st.sampled_from(["--policy", "--gpus", "--cost", "--fault", "--format", "--every", "--gap-s"]),
    value=st.text(max_size=20),
)
def test_no_option_makes_a_traceback(option: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = run("simulate", "--jobs", "2", option, value)
    printed = capsys.readouterr()
    assert code in (0, 2)
    assert "Traceback" not in printed.err
