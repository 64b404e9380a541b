"""Campaigns on the stand-in: every way, odd commands, kills, refusals; the hardware as it was found."""

import json
import os
import shlex
import shutil
import signal
import sys
from collections import Counter

import pytest

from gpuloom.measure.arrangement import Seat
from gpuloom.measure.campaign.exploring import order_of
from gpuloom.measure.campaign.journal import Journal
from gpuloom.measure.campaign.listen import TOO_LONG
from gpuloom.measure.explore.wanted import Exploring, read_runs, read_wanted
from gpuloom.measure.plan import Plan, Ways, Workload, arrangements
from gpuloom.measure.table import from_csv
from tests.live.faults import Disk, fill
from tests.live.shop import PATIENCE_S, interrupt, until
from tests.measure.campaign.test_asked import commit
from tests.measure.conftest import UNCUT
from tests.measure.lab import Lab, by_arrangement, program
from tests.measure.program import STEP_MS
from tests.measure.rows import MODEL

ONE = ("--ways", "alone", "--profiles", "3g.20gb")


@pytest.mark.xdist_group("mps")  # another test looks at every MPS daemon of the host
def test_every_way(lab: Lab) -> None:
    words = ("--profiles", "1g.5gb,3g.20gb", "--shares", "50", "--together", "3", "--layout", "3g.20gb + 2 x 2g.10gb")
    answer = lab.measure(*words, "--", *program())
    found = by_arrangement(answer["rows"])
    assert {name: len(rows) for name, rows in found.items()} == {
        "whole": 1,
        "1g.5gb": 1,
        "3g.20gb": 1,
        "7 x 1g.5gb": 7,
        "2 x 3g.20gb": 2,
        "whole 50%": 1,
        "2 x whole 50%": 2,
        "3 x whole together": 3,
        "3g.20gb + 2 x 2g.10gb": 3,
    }
    assert {row["outcome"] for row in answer["rows"]} == {"ok"}
    assert all(row["steps"] >= 12 and row["seconds"] > 0 for row in answer["rows"])
    for row in answer["rows"]:  # however busy the machine is: nobody sleeps for less
        assert row["step_ms"] >= STEP_MS[(row["profile"] or "w")[0]]
    assert {row["profile"] for row in found["3g.20gb + 2 x 2g.10gb"]} == {"3g.20gb", "2g.10gb"}
    assert [row["power_w"] for row in answer["rows"]] == [None] * len(answer["rows"]), "the stand-in counts no energy"
    assert {row[name] for row in answer["rows"] for name in ("gract", "smact", "smocc", "drama")} == {None}
    assert answer["counters"].startswith("none: no GPM on this GPU, and of DCGM no host engine listens at unix://")
    assert answer["device"]["model"] == "A100-40GB"
    assert [one["layout"] for one in answer["arrangements"] if one["name"] == "2 x 3g.20gb"] == ["3g.20gb@0,3g.20gb@4"]
    written = from_csv((lab.state / "measured.csv").read_text(), "measured.csv")
    assert [row.step_ms for row in written] == [row["step_ms"] for row in answer["rows"]]
    lab.check_left_as_found()


ODD = {
    "silent": ("no steps", "it told no step within 1 s"),
    "crash": (
        "crashed",
        "it ended before its first step with exit code 3, its last words: ValueError: the loss is NaN",
    ),
    "crash later": ("crashed", "it ended after step 12 with exit code 3, its last words: ValueError: the loss is NaN"),
    "backwards": ("steps go backwards", "it told step 3 after step"),
    "negative": ("no steps", "it told no step within 1 s, but -"),
    "short": ("ended early", "it ended by itself after step 3, before there were enough steps"),
    "daemon": ("no steps", "it ended by itself with exit code 0 and told no step; a command that goes on in the back"),
    "not there": ("crashed", "it ended before its first step with exit code 127, its last words: gpuloom: no-such-pro"),
}


def test_odd_commands_are_rows(lab: Lab) -> None:
    commands = {oddity: program(oddity) for oddity in ODD} | {"not there": ["no-such-program"]}
    plan = lab.plan(
        workloads=[{"name": name, "command": command} for name, command in commands.items()],
        ways=[],
        layouts=[f"whole ({name})" for name in commands],
        patience=1,
    )
    answer = lab.measure(plan, "--patience-s", "1s", "--steps", "50", code=1)
    rows = {row["workload"]: row for row in answer["rows"]}
    assert {name: row["outcome"] for name, row in rows.items()} == {name: ODD[name][0] for name in ODD}
    for name, row in rows.items():
        assert row["said"].startswith(ODD[name][1])
        assert row["step_ms"] is None
    lab.check_left_as_found()


def test_a_command_that_is_too_long_with_its_environment_is_a_row(lab: Lab) -> None:
    """No part of it is, so that a plan could be refused for it: how much goes together is the machine's."""
    much = {f"BIG_{number}": "x" * 120_000 for number in range(60)}
    plan = lab.plan(
        workloads=[{"name": "long", "command": program(), "env": much}, {"name": "short", "command": program()}],
        ways=[],
        layouts=["whole (long)", "whole (short)"],
    )
    rows = {row["workload"]: row for row in lab.measure(plan)["rows"]}
    assert (rows["long"]["outcome"], rows["short"]["outcome"]) == ("crashed", "ok")
    assert "cannot be run: its command and environment are too long together" in rows["long"]["said"]
    lab.check_left_as_found()


def test_floods_deaf_ears_and_forks_are_measured_all_the_same(lab: Lab) -> None:
    odd = {"loud": "flood", "deaf": "deaf", "many": "forks"}
    plan = lab.plan(
        workloads=[{"name": name, "command": program(oddity)} for name, oddity in odd.items()],
        ways=[],
        layouts=["3g.20gb (loud) + 2g.10gb (deaf) + 2g.10gb (many)"],
    )
    answer = lab.measure(plan, "--grace-s", "300ms")
    assert {row["outcome"] for row in answer["rows"]} == {"ok"}
    killed = "it did not end when it was asked to, and was killed"  # or a child that was left
    assert {row["workload"]: row["said"] for row in answer["rows"]} == {"loud": None, "deaf": killed, "many": killed}
    lab.check_left_as_found()


def test_out_of_memory_is_a_result_and_not_repeated(lab: Lab) -> None:
    words = ("--ways", "alone,parallel", "--profiles", "2g.10gb,3g.20gb", "--repeat", "2", "--most", "2")
    found = by_arrangement(lab.measure(*words, "--", *program("hungry"))["rows"])
    counts = {name: Counter(row["outcome"] for row in rows) for name, rows in found.items()}
    beside = counts.pop("3 x 2g.10gb")  # the first ends the run: the others may not have come so far
    assert beside.total() == 3
    assert "out of memory" in beside
    assert {*beside} <= {"out of memory", "too few steps"}
    assert counts == {
        "whole": {"ok": 2},
        "2g.10gb": {"out of memory": 1},
        "3g.20gb": {"ok": 2},
        "2 x 3g.20gb": {"ok": 4},
    }
    assert "CUDA out of memory" in found["2g.10gb"][0]["said"]
    lab.check_left_as_found()


def test_a_clock_in_another_unit_is_not_believed(lab: Lab) -> None:
    """By it a step takes a nanosecond."""
    plan = lab.plan(workloads=[{"name": "a", "command": program("another clock")}], ways=[], layouts=["3g.20gb"])
    (row,) = lab.measure(plan)["rows"]
    assert row["outcome"] == "ok"
    assert row["step_ms"] >= STEP_MS["3"]
    assert row["said"].endswith("so what was seen counts")
    lab.check_left_as_found()


def test_steps_are_told_in_other_ways(lab: Lab) -> None:
    told = {
        "number": {"command": program("by line"), "output": r"step (\d+) of"},
        "match": {"command": program("by line"), "output": "loss"},
        "file": {"command": program("by file"), "progress_file": "my.progress"},
    }
    plan = lab.plan(
        workloads=[{"name": name, **fields} for name, fields in told.items()],
        ways=[],
        layouts=["3g.20gb (file) + 2g.10gb (match) + 2g.10gb (number)"],
    )
    rows = lab.measure(plan, "--steps", "40")["rows"]
    assert [row["outcome"] for row in rows] == ["ok"] * 3
    assert all(row["step_ms"] > 1 and row["step_p95_ms"] is None for row in rows)
    lab.check_left_as_found()


def test_a_kill_and_the_same_table(lab: Lab) -> None:
    """Killed while a run is under way: whoever runs is ended, no run is counted twice, none is left out."""
    words = ("--ways", "alone,parallel", "--profiles", "2g.10gb,3g.20gb", "--seed", "7", "--", *program())
    runner = lab.start(*words)
    lab.wait_for_runs(runner, 2)
    until(lambda: lab.reported("r00002-0") > 2, "the third has begun")
    lab.kill(runner)
    before = lab.journal()
    with (lab.state / "journal.jsonl").open("a") as journal:
        journal.write('{"number": 2, "arrange')  # it might have been killed while it wrote
    answer = lab.measure(*words)
    assert lab.journal()[: len(before)] == before
    assert [run["number"] for run in lab.journal()] == list(range(5))
    assert {name: len(rows) for name, rows in by_arrangement(answer["rows"]).items()} == {
        "whole": 1,
        "2g.10gb": 1,
        "3g.20gb": 1,
        "3 x 2g.10gb": 3,
        "2 x 3g.20gb": 2,
    }
    lab.check_left_as_found()
    again = lab.measure(*words)
    assert again["rows"] == answer["rows"]
    assert len(lab.journal()) == 5


def test_a_journal_that_is_not_what_it_was_is_refused(lab: Lab) -> None:
    """What would be accepted here would be refused by whoever reads the table. Who mends it goes on."""
    words = ("--ways", "alone,parallel", "--profiles", "3g.20gb", "--", *program())
    lab.measure(*words)
    path = lab.state / "journal.jsonl"
    whole = path.read_text()
    lines = whole.splitlines(keepends=True)
    pair = next(at for at, line in enumerate(lines) if len(json.loads(line)["copies"]) == 2)
    one_copy = json.loads(lines[pair])
    del one_copy["copies"][1]
    infinite = json.loads(lines[0])
    infinite["copies"][0]["step_ms"] = float("inf")
    strange = lines[pair].replace("3g.20gb", "9g.90gb")
    not_a_run = "is not a run that gpuloom has measured; expected the journal as it was"
    for text, sentence in (
        ("".join([*lines, lines[-1]]), "line 4 has run 2 after run 2; expected the journal as it was"),
        ("".join([*lines[:pair], json.dumps(one_copy) + "\n", *lines[pair + 1 :]]), f"line {pair + 1} {not_a_run}"),
        ("".join([*lines[:pair], strange, *lines[pair + 1 :]]), f"line {pair + 1} {not_a_run}"),
        ("".join([json.dumps(infinite) + "\n", *lines[1:]]), "line 1: step_ms is 'inf', which nobody can have"),
    ):
        path.write_text(text)
        assert sentence in lab.refused(*words)
    path.write_text(whole)
    (lab.state / "asked.json").rename(lab.folder / "asked.json")
    assert "has 3 runs, and nobody can tell of what: asked.json is not beside it" in lab.refused(*words)
    (lab.folder / "asked.json").rename(lab.state / "asked.json")
    assert len(lab.measure(*words)["rows"]) == 4
    lab.check_left_as_found()


def test_a_kill_changes_nothing_of_what_is_explored(lab: Lab) -> None:
    """What ran next is what would have been advised, by plan and journal alone; what did not run is told."""
    times = json.dumps({"2g.10gb": 12.0, "3g.20gb": 8.0, "4g.20gb": 7.0, "7g.40gb": 4.0})
    words = ("--for", "one-copy", "--runs", "3", "--", *program("measured", times, "0.03"))
    runner = lab.start(*words)
    lab.wait_for_runs(runner, 1)
    until(lambda: lab.reported("r00001-0") > 2 or len(lab.journal()) > 1, "the second has begun")
    lab.kill(runner)
    answer = lab.measure(*words)
    lab.check_left_as_found()
    with Journal(lab.state / "journal.jsonl") as journal:
        done = journal.runs
    exploring = Exploring(read_wanted("one-copy"), *read_runs("3"))
    plan = Plan((Workload("program", tuple(program())),), (Ways.ALONE,), exploring=exploring)
    advised = order_of(plan, MODEL, arrangements(plan, MODEL)[0])
    for number, run in enumerate(done):
        chosen = advised.next(done[:number])
        assert chosen is not None
        assert (chosen.number, chosen.arrangement) == (run.number, run.arrangement)
    assert advised.next(done) is None
    assert answer["stop"] == "as many runs as were wished for are made"
    assert answer["explored"]["for"] == "one-copy"
    run_in = {run.arrangement.seats[0] for run in done}
    assert len(run_in) == 3
    assert {Seat(**seat) for seat in answer["explored"]["places"]} - run_in == {
        Seat(**seat) for seat in answer["explored"]["not_run"]
    }
    said = lab.hardware.gpuloom("recommend", str(lab.state), "--report", str(lab.folder / "page.html")).stdout
    assert "predicted, not measured" in (lab.folder / "page.html").read_text()
    assert "most work an hour: " in said


def test_ctrl_c_keeps_what_was_measured(lab: Lab) -> None:
    words = ("--ways", "alone,parallel", "--", *program())
    runner = lab.start(*words)
    lab.wait_for_runs(runner, 1)
    interrupt(runner)
    answer = lab.finish(runner, 130)
    assert answer["stop"] == "interrupted"
    assert len(answer["rows"]) == len(lab.table()) > 0
    lab.check_left_as_found()
    changed = [*words[:-1], "silent"]
    assert "holds measurements of workload 'program'" in lab.refused(*changed)
    assert "--gpu 3: this host has 1 GPUs" in lab.refused("--gpu", "3", *words)


def test_a_budget_ends_it_and_more_of_it_goes_on(lab: Lab) -> None:
    words = ("--ways", "alone", "--profiles", "1g.5gb,2g.10gb,3g.20gb")
    answer = lab.measure(*words, "--budget", "10ms", "--", *program())
    assert (answer["stop"], answer["runs"]) == ("the budget is spent", 1)
    answer = lab.measure(*words, "--budget", "10m", "--", *program())
    assert (answer["stop"], answer["runs"]) == ("all is known", 4)
    lab.check_left_as_found()


def test_a_device_that_others_use_is_refused(lab: Lab) -> None:
    with lab.hardware.job(lab.hardware.show()["uuid"]) as other:
        sentence = lab.refused(*ONE, "--", *program(), code=1)
        assert f"in use by process {other.pid}" in sentence
    assert lab.journal() == []
    lab.check_left_as_found()


def test_a_device_that_another_campaign_has_is_named(lab: Lab) -> None:
    runner = lab.start(*ONE, "--seconds", "30s", "--steps", "100000", "--", *program())
    until(lambda: lab.reported("r00000-0") > 2, "it runs")
    other = str(lab.folder / "other")
    sentence = lab.refused(*ONE, "--state", other, "--", *program(), code=1)
    assert f"GPU 0: another gpuloom (process {runner.pid}) is working on it" in sentence
    interrupt(runner)
    runner.communicate(timeout=PATIENCE_S)
    lab.check_left_as_found()


def test_a_cut_that_fails_ends_it_and_the_next_goes_on(lab: Lab) -> None:
    words = ("--ways", "alone", "--profiles", "3g.20gb", "--", *program())
    lab.environment = {"GPULOOM_STANDIN_FAULTS": "nvmlDeviceCreateGpuInstanceWithPlacement:1+:INSUFFICIENT_RESOURCES"}
    assert "GPU 0 cannot be cut for a run: create 3g.20gb@" in lab.refused(*words, code=1)
    lab.check_left_as_found()
    lab.environment = {"GPULOOM_STANDIN_FAULTS": "nvmlDeviceCreateGpuInstanceWithPlacement:1:UNKNOWN,*:300:UNKNOWN"}
    assert len(lab.measure(*words)["rows"]) == 2
    lab.check_left_as_found()


def test_what_was_cut_before_is_cut_afterwards(lab: Lab) -> None:
    lab.hardware.gpuloom("layout", "apply", "--gpu", "0", "--to", "3,2,2")
    for record in (lab.hardware.folder / "state").glob("*.json"):
        record.unlink()  # as if somebody else had cut it
    found = [lab.hardware.show()]
    lab.measure("--ways", "alone", "--profiles", "7g.40gb", "--", *program())
    lab.check_left_as_found(found)


def test_a_kill_of_everybody_is_put_right_by_hand(lab: Lab) -> None:
    runner = lab.start(
        "--ways", "parallel", "--profiles", "1g.5gb", "--seconds", "20s", "--steps", "100000", "--", *program()
    )
    until(lambda: lab.reported("r00000-6") > 2, "they run")
    lab.kill(runner)
    for copy in range(7):
        launch = lab.store.last_launch(f"r00000-{copy}")
        keeper = None if launch is None else launch.keeper()
        assert keeper is not None
        keeper.signal(signal.SIGUSR1)
        until(lambda keeper=keeper: not keeper.lives, "it is gone")  # type: ignore[misc]
    done = lab.hardware.gpuloom("layout", "apply", "--gpu", "0", "--as-found")
    assert done.returncode == 0, done.stderr
    assert lab.hardware.show()["instances"] == []


def test_what_the_device_does_not_have_is_refused(lab: Lab) -> None:
    words = ("--mem", "900G", "--ways", "together")
    assert "nothing of this plan can be measured on A100-40GB: a copy needs" in lab.refused(*words, "--", *program())
    assert "'9g.99gb' is not a profile of A100-40GB" in lab.refused("--profiles", "9g.99gb", "--", *program())
    assert lab.journal() == []
    lab.check_left_as_found()


def test_a_set_is_carried_out_as_printed(lab: Lab) -> None:
    """On the GPU that was measured, of two, and without one run on the whole of it."""
    lab.hardware.install(UNCUT, UNCUT)
    lab.measure("--gpu", "1", "--ways", "parallel", "--profiles", "3g.20gb", "--layout", "3g.20gb", "--", *program())
    told = lab.hardware.gpuloom("recommend", str(lab.state), "--set", "program,program")
    assert told.returncode == 0, told.stderr
    command = shlex.split(next(line for line in told.stdout.splitlines() if "layout apply" in line))
    done = lab.hardware.gpuloom(*command[1:])
    assert done.returncode == 0, done.stderr
    assert [instance.profile for instance in lab.hardware.layout(1)] == ["3g.20gb", "3g.20gb"]
    assert lab.hardware.layout(0) == ()
    assert lab.hardware.gpuloom("layout", "apply", "--gpu", "1", "--as-found").returncode == 0


def test_other_code_is_told_when_it_goes_on(lab: Lab) -> None:
    commit(lab.folder / "train.py", "0.1")
    words = ("--ways", "alone", "--profiles", "2g.10gb,3g.20gb")
    first = lab.measure(*words, "--budget", "10ms", "--", *program())["code"]
    commit(lab.folder / "train.py", "0.3")
    answer, words_of_it = lab.start(*words, "--", *program()).communicate(timeout=PATIENCE_S)
    assert "those from run 1 on are made with commit " in words_of_it
    told = json.loads(answer)
    assert (told["code"], told["runs"]) == (first, 3)
    (later,) = told["later_code"]
    assert later["run"] == 1
    assert later["code"]["commit"] != first["commit"]
    assert json.loads((lab.state / "measured.json").read_text())["later_code"] == [later]
    lab.measure(*words, "--", *program())  # all is known, and nothing is said any more


LONG = ("--ways", "alone", "--profiles", "3g.20gb", "--seconds", "20s", "--steps", "100000")


def test_a_gpu_that_is_lost_is_no_result(lab: Lab) -> None:
    flag = lab.folder / "flag"
    words = (*LONG, "--", *program("crash when told", str(flag)))
    runner = lab.start(*words)
    until(lambda: lab.reported("r00000-0") > 2, "it runs")
    lab.hardware.ctl("lose", "0")
    flag.touch()
    _, err = runner.communicate(timeout=PATIENCE_S)
    assert runner.returncode == 1
    assert "GPU 0 does not answer, or is no longer cut as it was, so run 0 does not count" in err
    assert lab.journal() == []
    lab.hardware.ctl("find", "0")
    assert [row["outcome"] for row in lab.measure(*words, code=1)["rows"]] == ["crashed", "crashed"], (
        "that is its own doing"
    )
    lab.check_left_as_found()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_a_full_disk_is_no_result(lab: Lab) -> None:
    flag = lab.folder / "flag"
    words = (*LONG[:-4], "--", *program("crash when told", str(flag)))
    with Disk(lab.state):
        runner = lab.start(*words)
        until(lambda: lab.reported("r00000-0") > 2, "it runs")
        fill(lab.state / "ballast")
        flag.touch()
        _, err = runner.communicate(timeout=PATIENCE_S)
        assert runner.returncode == 1
        assert "no room on the disk, so run 0 does not count" in err
        assert lab.journal() == []
        (lab.state / "ballast").unlink()
        flag.unlink()
        assert [row["outcome"] for row in lab.measure(*words)["rows"]] == ["ok", "ok"]
        lab.check_left_as_found()


def test_a_state_folder_that_goes_away_is_told_and_can_be_put_back(lab: Lab) -> None:
    words = ("--ways", "alone", "--profiles", "2g.10gb,3g.20gb", "--", *program())
    elsewhere = lab.folder / "elsewhere"
    runner = lab.start(*words)
    lab.wait_for_runs(runner, 1)
    lab.state.rename(elsewhere)
    _, err = runner.communicate(timeout=PATIENCE_S)
    assert (runner.returncode, err.splitlines()[-1]) == (
        1,
        f"gpuloom measure: {lab.state}: this state folder was removed or moved away meanwhile, and what was measured "
        "with it: put it back and ask for the same",
    )
    lab.check_left_as_found()
    shutil.rmtree(lab.state, ignore_errors=True)  # of a run that was just about to begin
    elsewhere.rename(lab.state)
    assert len(lab.measure(*words)["rows"]) == 3


def test_a_journal_that_goes_away_is_told(lab: Lab) -> None:
    runner = lab.start("--ways", "alone", "--profiles", "2g.10gb,3g.20gb", "--", *program())
    lab.wait_for_runs(runner, 1)
    (lab.state / "journal.jsonl").unlink()
    _, err = runner.communicate(timeout=PATIENCE_S)
    assert runner.returncode == 1
    assert f"{lab.state / 'journal.jsonl'} was removed or is another file, so what is measured cannot be kept" in err
    lab.check_left_as_found()


def test_an_expression_that_finds_no_end_ends_no_campaign(lab: Lab) -> None:
    """It ends a run, and says why."""
    prints = (sys.executable, "-c", "import time; print('a' * 60 + '!', flush=True); time.sleep(1000)")
    words = ("--ways", "alone", "--profiles", "3g.20gb", "--output-steps", "(a+)+$", "--", *prints)
    rows = lab.measure(*words, code=1)["rows"]
    assert {row["said"] for row in rows} == {TOO_LONG}
    lab.check_left_as_found()
