"""What a campaign leaves for runs of jobs: which rows, under which names; and a run that need not probe for it."""

import json
import sys
from dataclasses import replace

import pytest

from gpuloom.live.store import Store
from gpuloom.measure.arrangement import Arrangement, Seat, Way
from gpuloom.measure.campaign.asked import Asked, DeviceFacts
from gpuloom.measure.campaign.remember import remembered
from gpuloom.measure.plan import Plan, Telling, Workload
from gpuloom.measure.results import Copy, Outcome
from gpuloom.perf.slices.earlier import Rate, Row
from tests.live.shop import MEASURED_JOB
from tests.measure.lab import Lab

DEVICE = DeviceFacts("GPU-1", "NVIDIA A100", "A100-40GB", 40960, "550.1")
TRAIN = Workload("train", ("python", "train.py"))


def asked(*workloads: Workload, pace: float = 1.0) -> Asked:
    return Asked(Plan(workloads), DEVICE, (), "/home/ada", 0, pace, 100.0, None, None, 4, "0")


def copy(profile: str | None, rate: float | None, way: Way = Way.CUT, copies: int = 1, **more: object) -> Copy:
    seat = Seat("train", profile)
    outcome = Outcome.OUT_OF_MEMORY if rate is None else Outcome.OK
    figures = {} if rate is None else {"steps": int(rate * 10), "seconds": 10.0}
    base = Copy(0, Arrangement(way, (seat,) * copies).name, way, copies, 0, 0, seat, outcome)
    return replace(base, **(figures | more))  # type: ignore[arg-type]


ROWS = [
    copy(None, 100.0, Way.WHOLE),
    copy("3g.20gb", 60.0),
    copy("3g.20gb", 62.0, repetition=1),
    copy("1g.5gb", None),
    copy("2g.10gb", None),
    copy("2g.10gb", 30.0, repetition=1),
    copy("3g.20gb", 10.0, copies=2),
    copy("4g.20gb", None, copies=2),
    copy(None, 50.0, Way.SHARED, seat=Seat("train", None, 50.0)),
    copy("4g.20gb", 5.0, outcome=Outcome.TOO_FEW),
]


def test_one_copy_alone_on_slices_and_on_the_whole() -> None:
    by_name, by_command = remembered(ROWS, asked(TRAIN), named=True)
    assert by_name == Row(
        "train",
        "A100-40GB",
        "measure 100.0 GPU-1",
        100.0,
        None,
        True,
        "550.1",
        rates={"whole": Rate(100.0, 1), "3g.20gb": Rate(61.0, 2), "2g.10gb": Rate(30.0, 1)},
        too_small=("1g.5gb",),
    )
    assert by_command == replace(by_name, workload="python train.py", folder="/home/ada")


def test_a_name_that_was_made_up_and_a_command_that_is_not_all_are_left_out() -> None:
    assert [row.workload for row in remembered(ROWS, asked(TRAIN), named=False)] == ["python train.py"]
    large = replace(TRAIN, environment=(("BATCH", "512"),))
    assert [row.workload for row in remembered(ROWS, asked(large), named=True)] == ["train"]
    twin = replace(TRAIN, name="twin")
    assert [row.workload for row in remembered(ROWS, asked(TRAIN, twin), named=True)] == ["train"]
    assert remembered([], asked(TRAIN), named=True) == []


def test_another_unit_and_another_pace_are_said() -> None:
    epochs = replace(TRAIN, telling=Telling.OUTPUT, where="epoch")
    (row,) = remembered(ROWS, asked(epochs, pace=5.0), named=False)
    assert row.terms == ("output: epoch", "550.1", 5.0)


def job(workload: str, steps: int) -> list[str]:
    return [sys.executable, str(MEASURED_JOB), "--workload", workload, "--steps", str(steps)]


@pytest.mark.parametrize("by", ["name", "command"])
def test_a_run_of_what_was_measured_need_not_probe(lab: Lab, by: str) -> None:
    """By the plan's name of the workload; or by the very command, in the same folder."""
    steps = 150
    if by == "name":
        words = [lab.plan(workloads=[{"name": "mine", "command": job("resnet 128", 10**6)}], ways=["alone"])]
    else:
        words = ["--ways", "alone", "--", *job("resnet 128", steps)]
    answer = lab.measure("--pace", "40", "--steps", "5", *words)
    assert {row["outcome"] for row in answer["rows"]} == {"ok"}
    lab.state = lab.folder / "run"
    lab.store = Store(lab.state)
    more = {"kind": "sliceable"} | ({"workload": "mine"} if by == "name" else {})
    for number in range(3):
        lab.command(f"j{number}", *job("resnet 128", steps), **more)
    lab.working_dir = lab.folder
    assert lab.run("miso") == {f"j{number}": "completed" for number in range(3)}
    (told,) = lab.events("SeenEarlier")
    (seen,) = told["seen"]
    assert seen["workload"] == ("mine" if by == "name" else " ".join(job("resnet 128", steps)))
    assert (seen["measured"], {*seen["rates"]}) == (True, {"1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"})
    assert lab.events("GpuProbed") == []
    reasons = json.dumps(lab.events("Decision"))
    assert "its speed there as gpuloom measure saw it" in reasons
    lab.check_left_as_found()


def test_it_can_be_kept_elsewhere_or_nowhere_and_never_spoils_a_campaign(lab: Lab) -> None:
    words = ("--ways", "alone", "--profiles", "3g.20gb", "--", *job("resnet 128", 10**6))
    usual = lab.hardware.folder / "state" / "memory" / "memory.json"
    lab.measure("--pace", "40", "--memory", "none", *words)
    assert not usual.exists()
    other = lab.folder / "other.json"
    lab.state = lab.folder / "again"
    lab.measure("--pace", "40", "--memory", str(other), "--workload", "mine", *words)
    assert {row["workload"] for row in json.loads(other.read_text())["seen"]} == {"mine", " ".join(words[5:])}
    other.write_text("no memory")
    runner = lab.start("--pace", "40", "--memory", str(other), "--workload", "mine", *words)
    _, err = runner.communicate()
    assert runner.returncode == 0
    assert "what was measured is not kept for gpuloom run: " in err
    assert other.read_text() == "no memory"
    assert "--memory 12G: expected a file" in lab.refused("--memory", "12G", *words)
