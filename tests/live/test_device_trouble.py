"""Devices that fail under jobs: nobody is charged with what a device did, and who works on what stays goes on."""

import os
import shlex
import signal
import sys

import pytest

from gpuloom.gpus.host.mps.daemon import Daemon
from tests.live.shop import MEASURED_JOB, Shop, interrupt, until

pytestmark = pytest.mark.xdist_group("mps")  # one of these looks at every MPS daemon of the host

UNCUT = "A100-40GB+resets"


def works_on(shop: Shop, gpu: int) -> bool:
    """Somebody is on this GPU, and works."""
    return bool(shop.hardware.show(gpu)["pids"]) and bool(shop.events("JobStarted"))


def measured(steps: int) -> str:
    return shlex.join([sys.executable, str(MEASURED_JOB), "--workload", "resnet 128", "--steps", str(steps)])


def states(answer: dict[str, list[dict[str, str]]]) -> set[str]:
    return {row["state"] for row in answer["jobs"]}


def test_a_gpu_that_falls_off_the_bus_costs_nobody_a_crash_and_comes_back(shop: Shop) -> None:
    shop.hardware.install(UNCUT, UNCUT)
    for name in "abcdef":
        shop.job(name, "resnet 128", 400)
    runner = shop.begin("whole-fifo")
    until(lambda: works_on(shop, 0) and works_on(shop, 1), "both GPUs are used")
    shop.hardware.ctl("lose", "0")
    until(lambda: len(shop.events("JobDisplaced")) > 0, "its job is displaced")
    until(lambda: len(shop.events("GpuLost")) > 0, "the GPU is out of service")
    shop.hardware.ctl("find", "0")
    until(lambda: len(shop.events("GpuRestored")) > 0, "it is back")
    assert states(shop.finish(runner)) == {"completed"}
    assert shop.events("JobCrashed") == []
    assert "lost" in shop.events("JobDisplaced")[0]["cause"]
    shop.check_jobs()
    shop.check_left_as_found()


@pytest.mark.parametrize("sign", [("ecc", "0", "2"), ("retired", "0")])
def test_who_crashes_beside_a_sign_of_broken_hardware_is_not_charged(shop: Shop, sign: tuple[str, ...]) -> None:
    shop.hardware.install("T4-16GB" if sign[0] == "retired" else UNCUT)
    mark = shop.folder / "second"
    crash = f"touch {mark}; while [ -e {mark} ]; do sleep 0.01; done; exit 9"
    shop.command("a", "bash", "-c", f"if [ -e {mark} ]; then exec {measured(30)}; fi; {crash}")
    runner = shop.begin("whole-fifo")
    until(mark.exists, "it has begun")
    shop.hardware.ctl(*sign)
    mark.unlink()
    until(lambda: len(shop.events("JobDisplaced")) > 0, "it is displaced")
    mark.touch()
    assert states(shop.finish(runner)) == {"completed"}
    assert shop.events("JobCrashed") == []


def test_a_gpu_on_which_everybody_fails_is_closed_and_a_program_that_fails_everywhere_is_given_up(shop: Shop) -> None:
    """The driver says nothing of it: only that several jobs fail there while others work elsewhere tells."""
    shop.hardware.install(UNCUT, UNCUT)
    dead = shop.hardware.show(0)["uuid"]
    for name in "abcde":
        shop.command(name, "bash", "-c", f'[ "$CUDA_VISIBLE_DEVICES" = {dead} ] && exit 5; exec {measured(300)}')
    shop.command("broken", "bash", "-c", "exit 6", submit=0.5)
    answer = shop.finish(shop.begin("whole-fifo", restore_s=40), 1)
    found = {row["job"]: row["state"] for row in answer["jobs"]}
    assert found == dict.fromkeys("abcde", "completed") | {"broken": "given up"}
    assert {event["gpu"] for event in shop.events("GpuClosed")} == {0}
    shop.check_left_as_found()


def test_a_driver_that_says_in_use_for_a_while_disturbs_nobody(shop: Shop) -> None:
    """As real ones do after a process has gone. Cuts wait for it; who works on what stays works on."""
    shop.environment["GPULOOM_STANDIN_LINGER_S"] = "2"
    shop.hardware.install("A100-40GB+mig")
    shop.job("long", "resnet 128", 900)
    shop.job("short", "resnet 128", 60)
    shop.job("next", "resnet 128", 60, submit=60)
    assert set(shop.run("miso").values()) == {"completed"}
    assert shop.events("CutFailed") == []
    assert shop.events("GpuLost") == []
    assert shop.events("JobCrashed") == []
    shop.check_jobs()


def test_cuts_that_fail_for_good_stop_nobody_who_works(shop: Shop) -> None:
    """The half of the GPU that is there works on, and is done; the other half is never made."""
    shop.hardware.install("A100-40GB+mig")
    shop.job("here", "resnet 128", 300)
    shop.job("there", "resnet 128", 30)
    faults = "nvmlDeviceCreateGpuInstanceWithPlacement:2+:UNKNOWN"
    runner = shop.begin("static:4,3", faults)
    until(lambda: len(shop.events("CutFailed")) >= 3, "its cuts fail")
    interrupt(runner)
    runner.communicate(timeout=20)
    assert shop.events("JobCrashed") == []
    assert set(shop.run("static:4,3").values()) == {"completed"}
    shop.check_jobs()


def test_a_job_without_a_share_meets_no_daemon(shop: Shop) -> None:
    shop.hardware.install(UNCUT)
    seen = shop.folder / "seen"
    shop.command("a", "bash", "-c", f'ls -A "$CUDA_MPS_PIPE_DIRECTORY" > {seen}')
    assert shop.run("whole-fifo") == {"a": "completed"}
    assert seen.read_text() == ""


def daemons(shop: Shop) -> list[Daemon]:
    return [Daemon("none", folder) for folder in shop.store.mps_dir.glob("*-*")]


def daemon_pid(shop: Shop) -> int:
    (daemon,) = daemons(shop)
    return int((daemon.pipe_dir / "nvidia-cuda-mps-control.pid").read_text())


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_a_daemon_that_hangs_or_dies_is_noticed_and_nobody_is_charged(shop: Shop, number: int) -> None:
    shop.hardware.install(UNCUT)
    shop.job("a", "resnet 128", 900)
    shop.job("b", "resnet 128", 900)
    runner = shop.begin("mps-only:2", grace_s=40)
    until(lambda: len(shop.events("JobStarted")) == 2, "both work")
    os.kill(daemon_pid(shop), number)
    until(lambda: len(shop.events("JobDisplaced")) == 2, "both are displaced")
    assert states(shop.finish(runner)) == {"completed"}
    assert shop.events("JobCrashed") == []
    shop.check_jobs()
    shop.check_left_as_found()


def test_what_a_client_has_is_taken_back_before_it_is_killed(shop: Shop) -> None:
    shop.hardware.install(UNCUT)
    shop.job("deaf", "resnet 128", 100_000, "--ignore-sigterm")
    runner = shop.begin("mps-only:2", grace_s=20)
    until(lambda: len(shop.events("JobStarted")) == 1, "it works")
    (daemon,) = daemons(shop)
    interrupt(runner)
    runner.communicate(timeout=20)
    assert "terminated" in (daemon.log_dir / "control.log").read_text()


# ---- what strangers broke -------------------------------------------------------------------------------------------


def test_what_somebody_takes_away_while_nobody_is_there_is_made_again(shop: Shop) -> None:
    shop.hardware.install("A100-40GB+mig")
    shop.job("works", "resnet 128", 5000)
    shop.job("short", "resnet 128", 30)
    shop.job("later", "resnet 128", 30, submit=100)
    runner = shop.begin("static:4,3")
    until(lambda: len(shop.events("JobCompleted")) > 0, "the short one is done")
    assert shop.hardware.worker().ask("take-away")["taken"] != []
    assert states(shop.finish(runner)) == {"completed"}
    assert shop.events("JobCrashed") == []
    assert [event["job_id"] for event in shop.events("JobDisplaced")] == ["later"]
    assert shop.events("JobStopped") == [], "who works on the other half works on"


def test_a_reset_of_an_idle_gpu_between_two_jobs_is_noticed(shop: Shop) -> None:
    shop.hardware.install("A100-40GB+mig")
    shop.job("first", "resnet 128", 30)
    shop.job("second", "resnet 128", 30, submit=100)
    runner = shop.begin("static:4,3")
    until(lambda: len(shop.events("JobCompleted")) > 0, "the first is done")
    shop.hardware.ctl("reset", "0")
    assert states(shop.finish(runner)) == {"completed"}
    assert shop.events("JobCrashed") == []


def test_a_memory_error_stops_nobody_who_works_beside_it(shop: Shop) -> None:
    shop.hardware.install("A100-40GB+mig")
    shop.job("good", "resnet 128", 900, "--save-every", "100000")
    mark = shop.folder / "go"
    shop.command("bad", "bash", "-c", f"until [ -e {mark} ]; do sleep 0.01; done; exit 3")
    runner = shop.begin("static:3,2,2")
    until(lambda: len(shop.events("JobStarted")) > 0 and bool(shop.steps("good")), "it works")
    shop.hardware.ctl("ecc", "0", "1")
    mark.touch()
    until(lambda: len(shop.events("JobDisplaced")) > 0, "the other is displaced")
    assert shop.finish(runner, 1)["jobs"][0]["state"] == "completed"
    assert shop.steps("good") == [*range(1, 901)], "it was not begun again"


CLIENT = """
import os, sys, time
sys.path.insert(0, {examples!r})
import measured_job as m
held, pipes = m.occupy_the_device(), m.mps_pipes()
servers = m.ask_mps(pipes, "get_server_list").split()
"""
BREAKS = "time.sleep(0.5)\nfor server in servers: os.kill(int(server), 9)\nsys.exit(1)\n"
WORKS = """
from gpuloom.train import report
for step in range(200):
    report(step)
    time.sleep(0.02)
    if m.ask_mps(pipes, "get_server_list").split() != servers:
        sys.exit("CUDA error 807: MPS server")
"""


def test_who_takes_the_server_down_is_given_up_and_its_neighbours_are_not(shop: Shop) -> None:
    shop.hardware.install(UNCUT)
    client = CLIENT.format(examples=str(MEASURED_JOB.parent))
    shop.command("bad", sys.executable, "-c", client + BREAKS)
    shop.command("good", sys.executable, "-c", client + WORKS)
    answer = shop.finish(shop.begin("mps-only:2", restore_s=20), 1, patience_s=90)
    assert {row["job"]: row["state"] for row in answer["jobs"]} == {"bad": "given up", "good": "completed"}
    assert "good" not in [event["job_id"] for event in shop.events("JobCrashed")]
    shop.check_left_as_found()


def test_a_run_goes_on_without_a_gpu_that_is_gone(shop: Shop) -> None:
    shop.hardware.install(UNCUT, UNCUT)
    shop.job("a", "resnet 128", 300)
    shop.job("b", "resnet 128", 300)
    runner = shop.begin("whole-fifo")
    until(lambda: len(shop.events("JobStarted")) == 2, "both work")
    shop.kill(runner)
    shop.hardware.ctl("lose", "0")
    answer = shop.finish(shop.begin("whole-fifo"), 1)
    assert states(answer) == {"completed"}
    assert shop.events("JobCrashed") == []
    shop.hardware.ctl("find", "0")
    assert set(shop.run("whole-fifo").values()) == {"completed"}
    shop.check_left_as_found()


def test_a_daemon_that_hangs_while_nobody_watches_costs_nobody_a_crash(shop: Shop) -> None:
    shop.hardware.install(UNCUT)
    shop.job("a", "resnet 128", 600)
    shop.job("b", "resnet 128", 600)
    runner = shop.begin("mps-only:2", grace_s=40)
    until(lambda: len(shop.events("JobStarted")) == 2, "both work")
    os.kill(daemon_pid(shop), signal.SIGSTOP)
    shop.kill(runner)
    assert set(shop.run("mps-only:2", grace_s=40).values()) == {"completed"}
    assert shop.events("JobCrashed") == []
    shop.check_left_as_found()


def test_a_third_interrupt_leaves_though_a_gpu_cannot_be_given_back(shop: Shop) -> None:
    shop.environment["GPULOOM_STANDIN_LINGER_S"] = "1000"
    shop.hardware.install(UNCUT)
    shop.job("a", "resnet 128", 100_000)
    runner = shop.begin("static:4,3")
    until(lambda: bool(shop.steps("a")), "it works")

    def has_left() -> bool:
        """Interrupted again and again: those that come together count as one."""
        if runner.poll() is None:
            interrupt(runner)
        return runner.poll() is not None

    until(has_left, "it leaves")
    runner.communicate()
    assert runner.returncode in (130, -signal.SIGINT), "the last ones may meet a Python that is about to end"
