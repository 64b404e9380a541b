"""`gpuloom kernels` as a user types it: what is printed where, exit codes, and what is left behind."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpuloom.cli.main import main
from gpuloom.kernels.profile import Kernel, Launch, Profile, Run, write_profile
from tests.kernels.test_region import first_line, leave, member

GPULOOM = str(Path(sys.executable).with_name("gpuloom"))
US = 1_000


def kernels(
    *arguments: str | Path, env: dict[str, str] | None = None, cwd: Path | None = None
) -> "subprocess.CompletedProcess[str]":
    command = [GPULOOM, "kernels", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=env, cwd=cwd)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    """The one sentence with which a command refuses wrong input."""
    with pytest.raises(SystemExit) as stop:
        main(["kernels", *map(str, arguments)])
    assert stop.value.code == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("gpuloom: ")
    assert printed.err.count("\n") == 1
    return printed.err


def printed(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    with pytest.raises(SystemExit) as stop:
        main(["kernels", *map(str, arguments)])
    assert not stop.value.code
    return capsys.readouterr().out


def profile(path: Path, runs: int = 1, kernel_ns: int = 100 * US, pause_ns: int = 500 * US, requests: int = 4) -> Path:
    """Requests of three launches of two kernels."""
    of = {1: Kernel(1, "conv", "64", "8"), 2: Kernel(2, "relu", "64", "8")}
    one = (
        Launch(1, kernel_ns, kernel_ns, pause_ns, True, 0),
        Launch(2, kernel_ns, kernel_ns, 0, False, 0),
        Launch(2, kernel_ns, kernel_ns, 0, False, pause_ns),
    )
    write_profile(Profile("prog", of, (Run(one * requests),) * runs, "A CPU", ("a note",)), path)
    return path


# run


def open_to_all(folder: Path) -> Path:
    (folder / "region").touch()
    (folder / "region").chmod(0o666)
    return folder / "region"


@pytest.mark.parametrize("region", [open_to_all, lambda folder: folder / "none" / "region", lambda folder: folder])
def test_without_shared_memory_a_program_runs_as_without_us(tmp_path: Path, region: object) -> None:
    assert callable(region)
    script = 'echo "[$GPULOOM_KERNELS_REGION$GPULOOM_KERNELS_PRIORITY]"; exit 7'
    ended = kernels("run", "--region", region(tmp_path), "--policy", "fill", "--", "sh", "-c", script)
    assert (ended.returncode, ended.stdout) == (7, "[]\n")
    assert ended.stderr.startswith("gpuloom: kernels run ungated: shared memory ")
    assert ended.stderr.count("\n") == 1


def test_on_a_full_disk_a_program_runs_as_without_us(tmp_path: Path) -> None:
    script = 'trap "" XFSZ; ulimit -f 1; exec "$@"'
    command = [GPULOOM, "kernels", "run", "--region", str(tmp_path / "region"), "--", "echo", "done"]
    ended = subprocess.run(["sh", "-c", script, "sh", *command], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (0, "done\n")
    assert ended.stderr.count("gpuloom: kernels run ungated:") == 1


def test_a_program_that_does_not_exist_is_still_an_error(tmp_path: Path) -> None:
    ended = kernels("run", "--region", tmp_path / "region", "--", "no-such-program")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "no-such-program: No such file or directory: expected a program" in ended.stderr


def test_a_relative_region_is_found_from_everywhere(tmp_path: Path) -> None:
    script = 'cd /; echo "$GPULOOM_KERNELS_REGION"; test -f "$GPULOOM_KERNELS_REGION"'
    ended = kernels("run", "--region", "here", "--", "sh", "-c", script, cwd=tmp_path)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, f"{tmp_path / 'here'}\n", "")
    assert not (tmp_path / "here").exists()


# measure


@pytest.mark.parametrize(("number", "code"), [("INT", 130), ("TERM", 143)])
def test_a_measured_program_that_is_stopped_stops_the_measuring(tmp_path: Path, number: str, code: int) -> None:
    script = f"echo begun >> begun; kill -{number} $$"
    ended = kernels("measure", "--runs", "3", "-o", "a.kprof", "--", "sh", "-c", script, cwd=tmp_path)
    assert (ended.returncode, ended.stdout, ended.stderr) == (code, "", "stopped: nothing is written\n")
    assert [path.name for path in tmp_path.iterdir()] == ["begun"]
    assert (tmp_path / "begun").read_text() == "begun\n", "no second run"


def test_a_measured_program_that_fails_is_an_error_and_its_output_is_not_ours(tmp_path: Path) -> None:
    ended = kernels("measure", "-o", tmp_path / "a.kprof", "--", "sh", "-c", "echo said; exit 3")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("said\n")
    assert "ended with exit code 3" in ended.stderr


def test_one_file_for_two_things_is_refused_before_the_program_runs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    place = tmp_path / "a"
    assert "would overwrite" in refused(capsys, "measure", "-o", place, "--timeline", place, "--", "sh", "-c", "exit 3")


@pytest.mark.xdist_group("opencl")
def test_measuring_prints_one_document_and_the_program_elsewhere(opencl: dict[str, str], tmp_path: Path) -> None:
    command = [GPULOOM, "kernels", "example", "mlp", "--requests", "10"]
    file = tmp_path / "mlp.kprof"
    ended = kernels("measure", "--runs", "2", "-o", file, "--output", "json", "--", *command, env=opencl)
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert ended.stderr.count("checksum") == 2
    assert found["launches_per_request"] == len(found["sequence"]) == 8
    assert len(found["runs"]) == 2
    assert found["device"] not in ("", "-")
    assert json.loads(kernels("show", file, "--output", "json").stdout) == found


# show and import


def test_a_profile_is_shown_with_its_spread_its_sequence_and_how_much_was_recorded(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    one, two = profile(tmp_path / "one.kprof"), profile(tmp_path / "two.kprof", runs=2)
    title, heads, first, *_, sequence, note = printed(capsys, "show", one).splitlines()
    assert title == "prog: 1 queue recorded, 3 launches a request, times in µs"
    assert " ".join(heads.split()) == (
        "# kernel grid block launches mean sd p50 p90 p99 gap mean gap p10 gap p50 gap p90"
    )
    assert first.split()[:7] == ["1", "relu", "64", "8", "8", "100", "0"]
    assert (sequence, note) == ("sequence: 0 1 1", "note: a note")
    assert "2 queues recorded" in printed(capsys, "show", two)
    single = profile(tmp_path / "single.kprof", requests=1)
    found = json.loads(printed(capsys, "show", single, "--output", "json"))
    assert (found["sequence"], found["device"], found["notes"]) == ([0, 1, 1], "A CPU", ["a note"])
    quantiles = [f"{of}{name}_us" for of in ("", "gap_") for name in ("mean", "sd", "p10", "p50", "p90", "p99")]
    assert found["kernels"][0].keys() == {"number", "id", "kernel", "grid", "block", "launches", *quantiles}


def test_a_long_sequence_is_cut_for_people_only(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    launches = tuple(Launch(n, US, US, 0, False, 0) for n in range(1, 101))
    of = {n: Kernel(n, f"k{n}", "1", "1") for n in range(1, 101)}
    write_profile(Profile("prog", of, (Run(launches),)), tmp_path / "a.kprof")
    line = printed(capsys, "show", tmp_path / "a.kprof").splitlines()[-1]
    assert line == f"sequence: {' '.join(map(str, range(40)))} …"
    found = json.loads(printed(capsys, "show", tmp_path / "a.kprof", "--output", "json"))
    assert found["sequence"] == list(range(100))


def test_an_import_overwrites_neither_the_trace_nor_itself(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    trace, out = tmp_path / "trace.json", tmp_path / "out"
    trace.write_text("[]")
    assert "would overwrite" in refused(capsys, "import", trace, "-o", out, "--timeline", trace)
    assert "would overwrite" in refused(capsys, "import", trace, "-o", out, "--timeline", out)
    assert trace.read_text() == "[]"


# replay


def test_tasks_of_one_name_are_told_apart_and_others_have_a_rate(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "x").mkdir()
    paths = (profile(tmp_path / "mlp.kprof"), profile(tmp_path / "x" / "mlp.kprof"), profile(tmp_path / "b.kprof"))
    rows = json.loads(printed(capsys, "replay", *paths, "--policy", "strict", "--output", "json"))
    assert [row["task"] for row in rows] == ["mlp", "mlp #2", "b"]
    assert rows[0]["rate_of_alone"] is None
    assert rows[0]["of_exclusive"] is not None
    assert 1 >= rows[1]["rate_of_alone"] > rows[2]["rate_of_alone"] > 0, "the lower, the less"


def test_a_replay_of_nothing_and_one_without_end(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    nothing = profile(tmp_path / "nothing.kprof", kernel_ns=0, pause_ns=0)
    rows = json.loads(printed(capsys, "replay", nothing, nothing, "--requests", "5", "--output", "json"))
    assert {row["rate_of_alone"] for row in rows} == {None}
    slow = profile(tmp_path / "slow.kprof", kernel_ns=2 * 10**9)
    said = refused(capsys, "replay", slow, "--requests", "200")
    assert "slow served 99 of 200 requests in the 600 s of simulated time" in said
    assert "expected fewer (--requests)" in said


# top


def test_top_shows_few_columns_and_gives_programs_all(tmp_path: Path) -> None:
    path = tmp_path / "region"
    low = member(path, 5)
    first_line(low)
    high = member(path, 0)
    first_line(high)
    table = kernels("top", "--region", path, "--once").stdout.splitlines()
    rows = json.loads(kernels("top", "--region", path, "--output", "json").stdout)
    leave(high)
    leave(low)
    assert table[0] == "policy fill"
    assert " ".join(table[1].split()) == "pid program prio state device% launches/s waits% slowed% gap err%"
    assert [line.split()[0] for line in table[2:]] == [str(high.pid), str(low.pid)]
    assert all(len(line) <= 110 for line in table)
    assert [row["pid"] for row in rows] == [high.pid, low.pid]
    assert rows[0]["program"].startswith("python")
    rates = {"device_pct", "launches_per_s", "waits_pct", "slowed_pct", "gap_error_pct", "allowed_pct"}
    times = {"ran_ms", "waited_ms", "delayed_ms", "gaps_ms", "gap_error_ms"}
    assert rows[0].keys() >= rates | times | {"launches", "fills", "floor_fills", "delayed", "gaps"}
    assert rows[0]["launches_per_s"] == 0.0, "nothing was launched while it looked"


def test_top_goes_on_when_nobody_is_left_and_ends_with_ctrl_c(tmp_path: Path) -> None:
    path = tmp_path / "region"
    user = member(path)
    first_line(user)
    command = [GPULOOM, "kernels", "top", "--region", str(path), "--every", "0.1"]
    top = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert first_line(top) == "policy fill"
    leave(user)
    line = first_line(top)
    while line != "nobody shares a device now":
        assert line, "it ended"
        line = first_line(top)
    top.send_signal(signal.SIGINT)
    _, said = top.communicate()
    assert (top.returncode, said) == (130, "")
    assert not path.exists()


def test_top_without_anybody_is_a_no(tmp_path: Path) -> None:
    ended = kernels("top", "--region", tmp_path / "region")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "nobody shares a device" in ended.stderr


# example


@pytest.mark.xdist_group("opencl")
@pytest.mark.parametrize("policy", [None, "share", "fill"])
def test_an_example_with_another_beside_it_answers_the_same(
    opencl: dict[str, str], tmp_path: Path, policy: str | None
) -> None:
    example = [GPULOOM, "kernels", "example", "mlp", "--requests", "20", "--output", "json"]
    alone = json.loads(subprocess.run(example, capture_output=True, text=True, env=opencl).stdout)[0]
    assert "beside" not in alone
    through = ["kernels", "run", "--region", str(tmp_path / "region"), "--policy", str(policy), "--"]
    command = [*([GPULOOM, *through] if policy else []), *example, "--beside", "conv"]
    ended = subprocess.run(command, capture_output=True, text=True, env=opencl)
    assert (ended.returncode, ended.stderr) == (0, "")
    (row,) = json.loads(ended.stdout)
    assert (row["checksum"], row["beside"]) == (alone["checksum"], "conv")
    assert row["beside_per_s"] > 0


@pytest.mark.xdist_group("opencl")
def test_an_example_beside_nothing_known_is_refused(opencl: dict[str, str]) -> None:
    ended = kernels("example", "mlp", "--beside", "lstm", env=opencl)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("gpuloom: network lstm: expected one of mlp,")
