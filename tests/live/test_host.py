"""What the host does to a run, and what a job may have of it: disks, users, limits, silence, what was planted."""

import os
import pwd
import sys
from pathlib import Path

import pytest

from gpuloom.gpus.host.cgroups import Limits, NoCgroups
from gpuloom.gpus.host.homes import find_home, key_of, leave_home
from tests.live.faults import Disk, fill
from tests.live.shop import Shop, interrupt, until

pytestmark = pytest.mark.xdist_group("mps")
UNCUT = "A100-40GB+resets"


@pytest.fixture
def limits(tmp_path: Path) -> None:
    try:
        home = find_home(key_of(tmp_path))
    except NoCgroups as reason:
        pytest.skip(f"needs cgroups: {reason}")
    lacking = home.why_no_limit(Limits(1, 1, 1))
    leave_home(home)
    if lacking is not None:
        pytest.skip(lacking)


def let_pass(folder: Path) -> None:
    for part in (folder, *folder.parents[:-2]):
        part.chmod(part.stat().st_mode | 0o011)


@pytest.fixture
def root() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can do that")


@pytest.mark.usefixtures("limits")
def test_out_of_memory_on_the_host_is_told_apart(shop: Shop) -> None:
    shop.hardware.install(UNCUT)
    shop.command("big", sys.executable, "-c", "held = b'x' * (1 << 28)", host_memory="64M")
    shop.command("small", sys.executable, "-c", "raise SystemExit(9)")
    rows = {row["job"]: row["cause"] for row in shop.finish(shop.begin("static:4,3"), code=1)["jobs"]}
    assert rows == {"big": "out of memory on the host: the kernel killed it", "small": "exit code 9"}
    shop.check_left_as_found()


@pytest.mark.usefixtures("limits")
def test_a_job_that_forks_without_end_hurts_only_itself(shop: Shop) -> None:
    shop.hardware.install(UNCUT)
    shop.command("bomb", "bash", "-c", "b() { b | b & }; b; sleep 0.3; exit 0", pids=50)
    shop.job("a", steps=60)
    assert shop.run("static:4,3")["a"] == "completed"
    shop.check_left_as_found()


def test_limits_without_cgroups_are_refused(shop: Shop) -> None:
    shop.hardware.install(UNCUT)
    shop.environment["GPULOOM_CGROUP"] = "none"
    shop.command("a", "true", cpus=1)
    runner = shop.begin("whole-fifo")
    _, err = runner.communicate(timeout=20)
    assert runner.returncode == 2
    assert "job a: limits need cgroups" in err
    shop.check_left_as_found()


def test_without_cgroups_everything_else_works(shop: Shop) -> None:
    shop.hardware.install(UNCUT)
    shop.environment["GPULOOM_CGROUP"] = "none"
    for name, oddity in (("a", "escaped children"), ("b", "wrapper"), ("c", "ended main thread")):
        shop.odd_job(name, oddity, "resnet 128", 80)
    assert set(shop.run("miso-paper").values()) == {"completed"}
    shop.check_jobs()
    shop.check_left_as_found()


@pytest.mark.usefixtures("root")
def test_a_full_disk_blames_nobody(shop: Shop) -> None:
    """While there is no room two jobs fail, since they cannot save, and none can be launched: all that waits."""
    with Disk(shop.state):
        shop.hardware.install(UNCUT)
        shop.odd_job("short", "", "resnet 128", 60)
        shop.odd_job("saving", "", "resnet 128", 200)
        shop.odd_job("late", "", "resnet 128", 30, submit=20)
        runner = shop.begin("static:4,3")
        until(lambda: bool(shop.steps("short") and shop.steps("saving")), "both work")
        ballast = shop.state / "ballast"
        fill(ballast)
        launches = [shop.store.last_launch(name) for name in ("short", "saving")]
        until(
            lambda: all(launch is not None and launch.exit() is not None for launch in launches), "neither could save"
        )
        assert runner.poll() is None
        ballast.unlink()
        answer = shop.finish(runner)
        assert {row["state"] for row in answer["jobs"]} == {"completed"}
        assert shop.events("JobCrashed") == []
        shop.check_jobs()
        shop.check_left_as_found()


@pytest.mark.usefixtures("root")
def test_a_job_runs_as_its_user(shop: Shop) -> None:
    shop.hardware.install(UNCUT)
    user = "nobody"
    let_pass(shop.folder)
    says = "id -un; echo $HOME $USER; touch $GPULOOM_CHECKPOINT_DIR/mine && stat -c %U $GPULOOM_CHECKPOINT_DIR/mine"
    shop.command("a", "sh", "-c", f"{says}; ls {shop.state} 2>&1; cat {shop.state}/run.json 2>&1; true", user=user)
    assert shop.run("whole-fifo") == {"a": "completed"}
    out = (shop.store.job_dir("a") / "out.log").read_text().splitlines()
    assert out[:3] == [user, f"{pwd.getpwnam(user).pw_dir} {user}", user]
    assert [line.rpartition(": ")[2] for line in out[3:]] == ["Permission denied"] * 2
    shop.check_left_as_found()


@pytest.mark.usefixtures("root")
def test_a_work_file_of_somebody_else_speaks_only_for_them(shop: Shop) -> None:
    shop.hardware.install(UNCUT)
    shop.owner = pwd.getpwnam("nobody").pw_uid
    shop.command("a", "id", user="root")
    runner = shop.begin("whole-fifo")
    _, err = runner.communicate(timeout=20)
    assert runner.returncode == 2
    assert "only root's may name somebody else" in err
    shop.check_left_as_found()


def test_silence_is_noticed_and_ended(shop: Shop) -> None:
    shop.hardware.install(UNCUT)
    told = '{"step": 1, "at_unix_s": 0}'
    stall = f"""test $GPULOOM_RESUME && exit 0; echo '{told}' > $GPULOOM_PROGRESS; sleep 1000"""
    shop.command("restarted", "sh", "-c", stall, stall_s=20, on_stall="restart")
    quiet = stall.replace("sleep 1000", "while ! test -e $GPULOOM_CHECKPOINT_DIR/go; do sleep 0.1; done")
    shop.command("told", "sh", "-c", quiet, stall_s=20)
    runner = shop.begin("static:4,3")
    until(lambda: len(shop.events("JobStalled")) >= 2, "both have stalled")
    (shop.store.checkpoint_dir("told") / "go").touch()
    assert {row["job"]: row["state"] for row in shop.finish(runner)["jobs"]} == dict.fromkeys(
        ("restarted", "told"), "completed"
    )
    assert [event["job_id"] for event in shop.events("JobCrashed")] == ["restarted"]
    shop.check_left_as_found()


@pytest.mark.parametrize("trap", ["link", "pipe", "stranger", "log"])
@pytest.mark.usefixtures("root")
def test_what_was_planted_is_not_run(shop: Shop, trap: str, tmp_path: Path) -> None:
    shop.hardware.install(UNCUT)
    shop.command("a", "sh", "-c", f"touch {tmp_path}/ran")
    if trap != "log":
        shop.state.mkdir(mode=0o700)
    match trap:
        case "link":
            (tmp_path / "run.json").write_text("{}")
            (shop.state / "run.json").symlink_to(tmp_path / "run.json")
        case "pipe":
            os.mkfifo(shop.state / "run.json")
        case "log":
            assert shop.run("whole-fifo") == {"a": "completed"}
            (tmp_path / "ran").unlink()
            (shop.state / "log.jsonl").rename(tmp_path / "log.jsonl")
            (shop.state / "log.jsonl").symlink_to(tmp_path / "log.jsonl")
        case _:
            os.chown(shop.state, 65534, 65534)
    runner = shop.begin("whole-fifo")
    _, err = runner.communicate(timeout=20)
    assert (runner.returncode, "Traceback" in err) == (2, False), err
    assert not (tmp_path / "ran").exists()


@pytest.mark.usefixtures("root")
def test_ctrl_c_on_a_full_disk_still_saves_what_can_be(shop: Shop) -> None:
    with Disk(shop.state):
        shop.hardware.install(UNCUT)
        shop.odd_job("a", "", "resnet 128", 2000)
        shop.odd_job("late", "", "resnet 128", 60, submit=30)
        runner = shop.begin("whole-fifo")
        until(lambda: bool(shop.steps("a")), "it works")
        ballast = shop.state / "ballast"
        fill(ballast)
        interrupt(runner)
        shop.finish(runner, code=130)
        assert shop.groups() == []
        ballast.unlink()
        runner = shop.begin("whole-fifo")
        until(lambda: len(list(shop.store.job_dir("a").glob("launches/*"))) > 1, "it is back")
        interrupt(runner)
        shop.finish(runner, code=130)
        assert shop.events("JobCrashed") == []


@pytest.mark.usefixtures("root")
def test_users_do_not_share_a_device(shop: Shop) -> None:
    shop.hardware.install(UNCUT)
    let_pass(shop.folder)
    shop.command("a", "true", user="nobody")
    shop.command("b", "true", user="root")
    runner = shop.begin("mps-only:2")
    _, err = runner.communicate(timeout=20)
    assert runner.returncode == 2
    assert "MPS serves one user at a time, and these jobs are of nobody, root" in err
