"""`gpuloom run` from start to end: policies, jobs that misbehave, Ctrl-C, wrong input."""

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpuloom.cli.main import main
from gpuloom.gpus.catalogue import MODELS
from gpuloom.gpus.layouts import parse
from tests.live.shop import Shop, interrupt, until

pytestmark = pytest.mark.xdist_group("mps")  # one of these looks at every MPS daemon of the host

UNCUT = "A100-40GB+resets"
"""MIG off when found; its mode changes without a reset by hand."""


@pytest.mark.parametrize("policy", ["whole-fifo", "static:3,2,2"])
def test_jobs_run_to_their_end(shop: Shop, policy: str) -> None:
    shop.hardware.install(UNCUT)
    shop.job("vision", "resnet 128", 200)
    shop.job("text", "bert 4", 150)
    shop.job("paint", "cyclegan 1", 100)
    assert shop.run(policy) == {"vision": "completed", "text": "completed", "paint": "completed"}
    shop.check_jobs()
    shop.check_left_as_found()


def test_probing_predicts_and_then_cuts(shop: Shop) -> None:
    shop.hardware.install(UNCUT)
    # Slowly enough for the waiting to outweigh what starting and reporting take.
    shop.job("text", "bert 8", 150)
    shop.job("paint", "cyclegan 1", 150)
    assert set(shop.run("miso-paper", pace=10).values()) == {"completed"}
    (probed, *_) = shop.events("GpuProbed")
    for job in ("text", "paint"):
        speeds = {profile: estimate[0] for profile, estimate in probed["estimates"][job].items()}
        assert speeds["3g.20gb"] < speeds["7g.40gb"] == 1.0
        assert ("1g.5gb" in speeds) == (job == "paint")  # the other lacks the memory
    assert any(len(cut["layout"]) == 2 for cut in shop.events("GpuCut"))
    shop.check_jobs()
    shop.check_left_as_found()


def test_a_policy_that_is_asked_every_so_often(shop: Shop) -> None:
    shop.hardware.install(UNCUT)
    shop.job("a")
    assert shop.run("tiresias") == {"a": "completed"}
    assert [tick["at_s"] for tick in shop.events("Tick")] == [60.0]
    shop.check_left_as_found()


def test_a_job_that_no_policy_can_place_is_told(shop: Shop) -> None:
    shop.hardware.install(UNCUT)
    shop.job("a", steps=20)
    shop.command("wide", "true", gpus=2)
    runner = shop.begin("whole-fifo")
    _, err = runner.communicate(timeout=20)
    assert (runner.returncode, "job wide (2 GPUs, 4096 MiB) fits nowhere on 1 GPUs" in err) == (2, True)
    shop.check_left_as_found()


def test_a_command_with_what_unicode_calls_a_line_end(shop: Shop) -> None:
    shop.hardware.install(UNCUT)
    shop.command("odd", "sh", "-c", f"echo ran >> {shop.folder / 'ran'} # \u2028 \u0085")
    assert shop.run("whole-fifo") == {"odd": "completed"}
    assert shop.run("whole-fifo") == {"odd": "completed"}
    assert (shop.folder / "ran").read_text() == "ran\n"


def test_a_state_folder_that_is_too_deep_for_sockets(shop: Shop) -> None:
    shop.hardware.install(UNCUT)
    shop.state = shop.folder / ("deep" * 30)
    for name in "ab":
        shop.job(name)
    runner = shop.begin("miso-paper")
    _, err = runner.communicate(timeout=20)
    assert (runner.returncode, "bytes too long for sockets; use a shorter folder" in err) == (2, True)
    shop.check_left_as_found()


def test_times_are_kept_for_going_on(shop: Shop) -> None:
    shop.hardware.install(UNCUT)
    shop.job("a", steps=20)
    assert shop.run("whole-fifo", grace_s=77.0) == {"a": "completed"}
    run = shop.store.run()
    assert run is not None
    assert run.timing["grace_s"] == 77.0


def test_another_pace_is_another_run(shop: Shop) -> None:
    shop.hardware.install(UNCUT)
    shop.job("a", steps=20)
    shop.run("whole-fifo")
    runner = shop.begin("whole-fifo", pace=50)
    _, err = runner.communicate(timeout=20)
    assert (runner.returncode, "holds a run with pace 40" in err) == (2, True)


def test_two_gpus_that_were_cut_before_are_left_that_way(shop: Shop) -> None:
    shop.hardware.install("A100-40GB+mig+resets", UNCUT)
    worker = shop.hardware.worker()
    worker.apply(parse(MODELS["A100-40GB"], "3g.20gb@4,2g.10gb@0"))
    for record in (shop.hardware.folder / "state").glob("*.json"):
        record.unlink()  # somebody else cut it, as far as gpuloom knows
    found = json.loads(shop.hardware.ctl("show").stdout)
    for name in ("a", "b", "c"):
        shop.job(name)
    assert set(shop.run("static:3,2,2").values()) == {"completed"}
    shop.check_jobs()
    shop.check_left_as_found(found)


def test_a_job_that_dies_is_started_again_and_at_last_given_up(shop: Shop) -> None:
    shop.hardware.install(UNCUT)
    shop.job("fine", steps=40)
    shop.command("dying", sys.executable, "-c", "raise SystemExit(3)")
    shop.command("missing", "no-such-program")
    assert shop.run("static:3,2,2", code=1) == {"fine": "completed", "dying": "given up", "missing": "given up"}
    crashes = [event["cause"] for event in shop.events("JobCrashed") if event["job_id"] == "dying"]
    # While it dies it may be asked to move, too.
    assert [cause.removesuffix(" when asked to stop") for cause in crashes] == ["exit code 3"] * 4
    assert "no-such-program cannot be run" in (shop.store.job_dir("missing") / "err.log").read_text()
    shop.check_jobs()
    shop.check_left_as_found()


def test_a_job_that_ignores_sigterm_is_killed_after_the_grace_time(shop: Shop) -> None:
    shop.hardware.install(UNCUT)
    shop.job("deaf", "resnet 128", 1500, "--ignore-sigterm")
    shop.job("second", "resnet 128", 60, submit=15)
    assert set(shop.run("miso-paper", grace_s=8.0).values()) == {"completed"}
    causes = [event["cause"] for event in shop.events("JobStopped") if event["job_id"] == "deaf"]
    assert "killed 8 s after SIGTERM" in causes
    shop.check_jobs()
    shop.check_left_as_found()


def test_ctrl_c_saves_and_the_run_goes_on_later(shop: Shop) -> None:
    shop.hardware.install(UNCUT)
    shop.job("a", steps=300)
    shop.job("b", steps=300)
    shop.job("c", steps=40)
    runner = shop.begin("static:4,3")
    until(lambda: len(shop.steps("a")) > 30 and len(shop.steps("b")) > 30, "both have worked")
    interrupt(runner)
    out, err = runner.communicate(timeout=20)
    assert (runner.returncode, json.loads(out)["interrupted"]) == (130, True)
    assert err == "gpuloom: stopping the jobs with a checkpoint; again kills them\n"
    shop.check_left_as_found()
    assert set(shop.run("static:4,3").values()) == {"completed"}
    shop.check_jobs()
    assert shop.steps("a") == list(range(1, 301))  # saved when asked, so nothing was done twice
    shop.check_left_as_found()


def test_a_second_ctrl_c_kills(shop: Shop) -> None:
    shop.hardware.install(UNCUT)
    shop.job("deaf", "resnet 128", 4000, "--ignore-sigterm")
    runner = shop.begin("whole-fifo", grace_s=1e6)
    until(lambda: len(shop.steps("deaf")) > 1, "it works")
    interrupt(runner)
    until(lambda: bool(shop.events("GpuLost")), "it closes")
    assert runner.poll() is None
    interrupt(runner)
    runner.communicate(timeout=20)
    assert runner.returncode == 130
    shop.check_left_as_found()


@pytest.mark.parametrize(
    "faults",
    [
        "nvmlDeviceCreateGpuInstanceWithPlacement:2:UNKNOWN",
        "nvmlGpuInstanceCreateComputeInstance:2:UNKNOWN,nvmlGpuInstanceCreateComputeInstance:3:UNKNOWN",
        "nvmlGpuInstanceDestroy:1:IN_USE,nvmlGpuInstanceDestroy:2:IN_USE",
    ],
)
def test_a_driver_that_fails_now_and_then(shop: Shop, faults: str) -> None:
    shop.hardware.install(UNCUT)
    shop.job("a", steps=60)
    shop.job("b", steps=60)
    assert set(shop.run("static:4,3", faults=faults).values()) == {"completed"}
    shop.check_jobs()
    shop.check_left_as_found()


def test_one_runner_to_a_state_directory(shop: Shop) -> None:
    shop.hardware.install(UNCUT)
    shop.job("a", steps=100_000)
    first = shop.begin("whole-fifo")
    until(lambda: len(shop.steps("a")) > 1, "it works")
    second = shop.begin("whole-fifo")
    _, err = second.communicate(timeout=20)
    assert (second.returncode, "another gpuloom is running there" in err) == (2, True)
    interrupt(first)
    assert first.wait(timeout=20) == 130
    shop.check_left_as_found()


def test_what_is_refused_at_the_start_leaves_nothing_behind(shop: Shop) -> None:
    shop.hardware.install(UNCUT)
    shop.job("a")
    runner = shop.begin("no-such-policy")
    _, err = runner.communicate(timeout=20)
    assert (runner.returncode, "no-such-policy" in err) == (2, True)
    shop.check_left_as_found()


@pytest.mark.parametrize(
    ("user", "sentence"),
    [
        ("no-such-user", "job a: user is 'no-such-user', but "),
        pytest.param(
            "nobody",
            "user nobody cannot pass through",
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root can start processes of others"),
        ),
    ],
)
def test_a_user_that_cannot_be_is_refused_before_anything_happens(shop: Shop, user: str, sentence: str) -> None:
    shop.hardware.install(UNCUT)
    shop.folder.chmod(0o700)
    shop.command("a", "true", user=user)
    runner = shop.begin("whole-fifo")
    _, err = runner.communicate(timeout=20)
    assert (runner.returncode, sentence in err) == (2, True)
    assert not (shop.state / "run.json").exists()
    shop.check_left_as_found()


def test_wrong_input(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def refused(*words: str) -> str:
        with pytest.raises(SystemExit) as stopped:
            main(["run", *words])
        assert stopped.value.code == 2
        return capsys.readouterr().err

    work = folder / "jobs.yaml"
    work.write_text("jobs:\n  - name: a\n    memory: 4G\n")
    assert "job a has no command" in refused(str(work))
    assert "JOBS is missing" in refused()
    assert "holds no run to go on with" in refused("--resume", "--state", str(folder / "none"))
    work.write_text("jobs:\n  - name: a\n    memory: 4G\n    command: 'true'\n")
    assert "expected different numbers" in refused(str(work), "--gpus", "0,0", "--state", str(folder / "s"))
    assert "no such time" in refused(str(work), "--timing", "patience=3", "--state", str(folder / "s"))
    assert not (folder / "s").exists()


@pytest.mark.parametrize("how", ["nohup", "closed"])
def test_who_started_it_may_not_listen(shop: Shop, how: str) -> None:
    """Under nohup a hang-up is nothing; without standard output or error it runs as well."""
    shop.hardware.install(UNCUT)
    shop.job("a", steps=100)
    words = shlex.join(shop.command_line("whole-fifo"))
    line = f"trap '' HUP; exec {words}" if how == "nohup" else f"exec {words} >&- 2>&- <&-"
    with subprocess.Popen(["bash", "-c", line], env=shop.hardware.environment, stdout=subprocess.DEVNULL) as runner:
        until(lambda: bool(shop.steps("a")) or runner.poll() is not None, "it works")
        if how == "nohup":
            runner.send_signal(signal.SIGHUP)
        assert runner.wait(40) == 0
    shop.check_jobs()
    shop.check_left_as_found()
