"""The words of `gpuloom measure` become a plan, or one sentence."""

import os
from pathlib import Path

import pytest

from gpuloom.cli.measure.measure_wish import Options, plan_of
from gpuloom.errors import InputError
from gpuloom.measure.explore.wanted import Exploring, read_wanted
from gpuloom.measure.plan import Bounds, Plan, Repeats, Telling, Ways, Workload


def test_one_command() -> None:
    options = Options(
        ways="together,alone", profiles="1g.5gb, 3g.20gb", together="2,4", layouts=("2 x whole",), mem="4G",
        expression="loss", steps=7, seconds="1m", patience="2m", grace="3s", repeat=10, within=1.0, budget="20m",
        seed=3,
    )  # fmt: skip
    assert plan_of(["python", "src/train.py", "--fast"], options) == (
        Plan(
            (Workload("train", ("python", "src/train.py", "--fast"), 4096, Telling.OUTPUT, "loss"),),
            (Ways.ALONE, Ways.TOGETHER),
            ("1g.5gb", "3g.20gb"),
            None,
            (2, 4),
            ("2 x whole",),
            Bounds(7, 60.0, 120.0, 3.0),
            Repeats(10, 10, 1.0),
            3,
            1200.0,
        ),
        os.geteuid(),
    )


def test_a_plan_with_changes(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text("workloads: [{name: a, command: x}]\nsteps: 9\nlayouts: [whole]\nbudget: 1h\n")
    plan, _ = plan_of([str(path)], Options(seconds="2s", layouts=("2 x whole",)))
    assert (plan.bounds, plan.layouts, plan.budget_s) == (Bounds(9, 2.0), ("whole", "2 x whole"), 3600.0)


def test_for_a_goal() -> None:
    plan, _ = plan_of(["x"], Options(wanted="most-work"))
    assert (plan.ways, plan.exploring) == ((Ways.ALONE,), Exploring(read_wanted("most-work"), 40.0))
    plan, _ = plan_of(["x"], Options(wanted="most-work", budget="1h"))
    assert plan.exploring == Exploring(read_wanted("most-work"), 100.0)
    plan, _ = plan_of(["x"], Options(wanted="one-copy", ways="shares", runs="2"))
    assert (plan.ways, plan.exploring) == ((Ways.SHARES,), Exploring(read_wanted("one-copy"), 100.0, 2))


def test_the_command_line_goes_before_the_goal_of_a_plan(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text("workloads: [{name: a, command: x}, {name: b, command: x}]\nfor: one-copy\nruns: 3\n")
    assert plan_of([str(path)], Options())[0].exploring == Exploring(read_wanted("one-copy"), 100.0, 3)
    assert plan_of([str(path)], Options(wanted="set a,b,b"))[0].exploring == Exploring(
        read_wanted("set a,b,b"), 100.0, 3
    )
    assert plan_of([str(path)], Options(runs="20%"))[0].exploring == Exploring(read_wanted("one-copy"), 20.0)
    path.write_text("workloads: [{name: a, command: x}]\n")
    plan = plan_of([str(path)], Options(wanted="set"))[0]
    assert (plan.ways, plan.exploring) == ((Ways.ALONE,), Exploring(read_wanted("set"), 40.0))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            Options(ways="alone,apart"),
            "--ways: 'apart' is not one of them; accepted are alone, parallel, shares, together",
        ),
        (Options(ways="alone", shares="50"), "--shares is given, but the ways are alone: add shares to --ways"),
        (Options(shares="100"), "--shares: 100 is no share; accepted are 1 up to, but not, 100 per cent"),
        (Options(shares="half"), "--shares: half is no share"),
        (Options(together="1"), "--together: '1' is no number of copies; accepted are 2 to 48"),
        (Options(profiles="1g.5gb,,"), "--profiles '1g.5gb,,': expected words with commas between them"),
        (Options(seconds="0"), "--seconds is 0, but must be a time above 0"),
        (Options(budget="soon"), "--budget is 'soon', but must be a time such as 2h"),
        (Options(mem="much"), "--mem is 'much', but must be memory such as 12G"),
        (Options(expression="step ("), "--output-steps is 'step (', which is no regular expression"),
        (Options(own_file="/tmp/x"), "--progress-file is '/tmp/x', but must be a file below the copy's own folder"),
        (Options(own_file="x", expression="y"), "--progress-file goes not with --output-steps"),
        (Options(wanted="speed"), "--for is 'speed', but must be one-copy, most-work, 'deadline 20000 in 3h'"),
        (Options(wanted="most-work", runs="0"), "--runs is '0', but must be a part of all runs such as 40%"),
        (Options(runs="40%"), "--runs is given, but not what for: expected it with for, such as most-work"),
        (Options(wanted="most-work", repeat=2), "--repeat goes not with --for"),
        (Options(wanted="most-work", ways="alone,shares"), "--for most-work: ways has shares, but the only ways"),
        (Options(wanted="one-copy", ways="parallel"), "--for one-copy: ways has parallel"),
        (Options(wanted="one-copy", layouts=("2 x whole",)), "--for one-copy: there are layouts"),
        (Options(wanted="set train,b"), "--for set train,b: 'b' is no workload of the plan; accepted: train"),
        (Options(most=1, repeat=3), "--most is 1, but must be 3 or more, as repeat is"),
    ],
)
def test_wrong_words(options: Options, sentence: str) -> None:
    with pytest.raises(InputError) as error:
        plan_of(["python", "train.py"], options)
    assert str(error.value).startswith(sentence)


def test_words_that_are_no_command(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the command is empty"):
        plan_of([""], Options())
    with pytest.raises(InputError, match="does not exist: expected a plan of measurements"):
        plan_of([str(tmp_path / "no.yaml")], Options())
    path = tmp_path / "plan.yaml"
    path.write_text("workloads: [{name: a, command: x}]\n")
    with pytest.raises(InputError, match="--mem: is of one command"):
        plan_of([str(path)], Options(mem="4G"))
