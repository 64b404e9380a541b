"""No job is ever run twice at once: six ways to try, each with the runner killed in the middle of it.

Every launch of an odd job locks a file beside its checkpoint for as long as one thread of it lives, and leaves TWICE
there if it cannot: `check_left_as_found` looks for that.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpuloom.gpus.host.cgroups import NoCgroups
from gpuloom.gpus.host.homes import find_home, key_of, leave_home
from tests.live.faults import FREEZER
from tests.live.shop import Shop, interrupt, until

pytestmark = pytest.mark.xdist_group("mps")
UNCUT = "A100-40GB+resets"


@pytest.fixture(autouse=True)
def cgroups(tmp_path: Path) -> None:
    try:
        leave_home(find_home(key_of(tmp_path)))
    except NoCgroups as reason:
        pytest.skip(f"needs cgroups: {reason}")


def keeper_of(shop: Shop, name: str = "a") -> int:
    launch = shop.store.last_launch(name)
    assert launch is not None
    keeper = launch.keeper()
    return 0 if keeper is None or not keeper.lives else keeper.pid


def works(shop: Shop, runner: "subprocess.Popen[str]", name: str = "a") -> None:
    until(lambda: bool(shop.steps(name)) or runner.poll() is not None, "it works")


ODDITIES = ["clobbered environment", "ended main thread", "escaped children", "wrapper"]


@pytest.mark.parametrize("oddity", ODDITIES)
def test_nobody_knows_it_by_its_environment(shop: Shop, oddity: str) -> None:
    """It does not leave when it is asked, and runner and keeper are killed: it must be gone before it is back."""
    shop.hardware.install(UNCUT)
    shop.odd_job("a", oddity, "resnet 128", 120)
    runner = shop.begin("whole-fifo", grace_s=8.0)
    works(shop, runner)
    interrupt(runner)
    shop.kill(runner)
    os.kill(keeper_of(shop), signal.SIGKILL)
    assert shop.run("whole-fifo", grace_s=8.0) == {"a": "completed"}
    shop.check_jobs()
    shop.check_left_as_found()


def test_one_that_sleeps_uninterruptibly_is_waited_for(shop: Shop) -> None:
    if not FREEZER.is_dir():
        pytest.skip("needs the version 1 freezer, which makes processes that even SIGKILL does not end")
    shop.hardware.install(UNCUT)
    shop.odd_job("a", "", "resnet 128", 120)
    runner = shop.begin("whole-fifo", grace_s=4.0)
    works(shop, runner)
    launch = shop.store.last_launch("a")
    assert launch is not None
    assert launch.group is not None
    cold = FREEZER / f"gpuloom-twice-{os.getpid()}"
    cold.mkdir()
    try:
        for pid in launch.group.processes():
            (cold / "cgroup.procs").write_text(str(pid))
        (cold / "freezer.state").write_text("FROZEN")
        os.kill(keeper_of(shop), signal.SIGKILL)  # its launch is killed for that, and does not die
        shop.kill(runner)
        runner = shop.begin("whole-fifo", grace_s=4.0)
        began = time.monotonic()
        until(lambda: time.monotonic() - began > 1.5 or runner.poll() is not None, "it has had time for a mistake")
        assert runner.poll() is None
        assert launch.group.populated()
        assert [path.name for path in launch.folder.parent.iterdir()] == ["000001"]
    finally:
        (cold / "freezer.state").write_text("THAWED")
        until(lambda: not (cold / "cgroup.procs").read_text(), "it has died")
        cold.rmdir()
    assert shop.finish(runner)["jobs"][0]["state"] == "completed"
    shop.check_jobs()
    shop.check_left_as_found()


def test_a_keeper_that_is_late_finds_its_place_taken(shop: Shop) -> None:
    """The runner is killed right after it has started one: whoever comes first begins, the other does not."""
    shop.hardware.install(UNCUT)
    shop.odd_job("a", "", "resnet 128", 60)
    for _ in range(5):
        runner = shop.begin("whole-fifo")
        before = shop.store.last_launch("a")
        until(lambda: shop.store.last_launch("a") != before or runner.poll() is not None, "it launches")  # noqa: B023
        shop.kill(runner)
    assert shop.run("whole-fifo") == {"a": "completed"}
    shop.check_jobs()
    shop.check_left_as_found()


def test_without_cgroups_who_is_out_of_sight_is_not_run_again(shop: Shop) -> None:
    """Its keeper is killed: nobody can tell whether its processes have ended, so the job is given up and says why."""
    shop.hardware.install(UNCUT)
    shop.environment["GPULOOM_CGROUP"] = "none"
    shop.odd_job("a", "clobbered environment", "resnet 128", 4000)
    shop.odd_job("b", "", "resnet 128", 60)
    runner = shop.begin("static:4,3")
    works(shop, runner)
    survivor = [pid for pid in _children(keeper_of(shop)) if "odd_job" in _command(pid)]
    os.kill(keeper_of(shop), signal.SIGKILL)
    answer = shop.finish(runner, code=1)
    assert [row["state"] for row in answer["jobs"]] == ["given up", "completed"]
    assert "without cgroups nobody can tell whether its processes have ended" in answer["jobs"][0]["cause"]
    assert len(list(shop.store.job_dir("a").glob("launches/*"))) == 1
    for pid in survivor:
        os.kill(pid, signal.SIGKILL)


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _command(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


def test_the_test_can_fail(tmp_path: Path) -> None:
    """Two launches of an odd job at once do leave their mark."""
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    environment = os.environ | {"GPULOOM_CHECKPOINT_DIR": str(checkpoint)}
    command = [sys.executable, "-m", "tests.live.odd_job", "", str(tmp_path), "--steps", "100000"]
    with subprocess.Popen(command, env=environment) as first:
        until(lambda: (checkpoint / "steps.log").exists(), "it works")
        assert subprocess.run(command, env=environment, capture_output=True, check=False).returncode != 0
        first.kill()
    assert (checkpoint / "TWICE").exists()


def test_after_a_reboot_nobody_is_left_and_nobody_is_blamed(shop: Shop) -> None:
    """Also without cgroups: what a launch wrote down in another boot proves that it is gone."""
    shop.hardware.install(UNCUT)
    shop.environment["GPULOOM_CGROUP"] = "none"
    shop.odd_job("a", "", "resnet 128", 120)
    runner = shop.begin("whole-fifo")
    works(shop, runner)
    keeper, launch = keeper_of(shop), shop.store.last_launch("a")
    assert launch is not None
    shop.kill(runner)
    children = _children(keeper)
    for pid in (keeper, *children):
        os.kill(pid, signal.SIGKILL)
    until(lambda: not keeper_of(shop), "all are gone")
    told = json.loads((launch.folder / "launch.json").read_text())
    (launch.folder / "launch.json").write_text(json.dumps(told | {"boot": "of another day"}))
    assert shop.run("whole-fifo") == {"a": "completed"}
    assert shop.events("JobCrashed") == []
    shop.check_jobs()
    shop.check_left_as_found()
