"""Runs on CPU devices: real processes, quotas of the real kernel, all policies that cut or share. No stand-in."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuloom.gpus.host.cgroups import Group, Limits
from gpuloom.gpus.host.cpu_driver import cpu_driver
from gpuloom.gpus.host.nvml import NoDriver
from gpuloom.gpus.host.ownership import Claims
from tests.live.chaos import live_through
from tests.live.shop import PATIENCE_S, Shop, interrupt, until

WORK = """
import hashlib, os, sys
from gpuloom.train import checkpoint_dir, on_stop, report, resuming

steps, words = int(sys.argv[1]), sys.argv[2:]
stop, saved = [], checkpoint_dir() / "step"
on_stop(lambda: stop.append(1))
step = int(saved.read_text()) if resuming() and saved.exists() else 0
with (checkpoint_dir() / "places").open("a") as places:
    print(os.environ["GPULOOM_DEVICE"], os.environ["GPULOOM_PROFILE"], os.environ["OMP_NUM_THREADS"], file=places)
assert "OPENBLAS_NUM_THREADS" not in os.environ, "what gpuloom sets for itself"
held = b"x" * (int(words[0]) << 20) if words else b""
block = bytes(1 << 20)
report(step)
while step < steps and not stop:
    for _ in range(20):
        hashlib.sha256(block).digest()
    step += 1
    report(step)
draft = saved.with_suffix(".draft")
draft.write_text(str(step))
draft.replace(saved)
"""


class Box(Shop):
    """A shop with a CPU device and jobs that compute."""

    def work(self, name: str, steps: int = 30, *words: str, **more: Any) -> None:
        script = self.folder / "work.py"
        script.write_text(WORK)
        self.command(name, sys.executable, str(script), str(steps), *words, **({"memory": "100M"} | more))

    def places(self, name: str) -> list[list[str]]:
        """Where it was launched, one after the other: device, profile, threads."""
        path = self.store.checkpoint_dir(name) / "places"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def step(self, name: str) -> int:
        launch = self.store.last_launch(name)
        progress = None if launch is None else launch.progress()
        return 0 if progress is None else progress.step

    def is_held(self) -> bool:
        """Whether a runner has the device now, and hears signals."""
        driver = self.cpu_driver()
        with Claims(self.hardware.folder / "state") as claims:
            return claims.holder(driver.uuid(0)) is not None

    def group(self, name: str) -> Group:
        launch = self.store.last_launch(name)
        assert launch is not None
        assert launch.group is not None
        return launch.group


@pytest.fixture
def box(shop: Shop) -> Iterator[Box]:
    box = Box(shop.hardware, shop.folder)
    box.device = "cpu"
    try:
        with cpu_driver(box.cpu_driver().devices, shop.folder):
            pass
    except NoDriver as reason:
        pytest.skip(f"needs cgroups: {reason}")
    box.hardware.install("A100-40GB+resets")  # and nobody touches it
    box.hardware.environment.pop("OPENBLAS_NUM_THREADS", None)
    yield box
    box.close()


@pytest.mark.parametrize("policy", ["whole-fifo", "static:3,2,2", "mps-only:2", "miso-paper", "miso"])
def test_every_policy(box: Box, policy: str) -> None:
    for name in "abc":
        box.work(name, 40)
    assert set(box.run(policy, level_s=20.0).values()) == {"completed"}
    (device,) = box.cpu_driver().devices
    for name in "abc":
        for uuid, profile, threads in box.places(name):
            assert uuid.startswith(device.uuid)
            assert profile == ("whole" if policy in ("whole-fifo", "mps-only:2") else uuid.partition("/")[2][:2])
            assert 1 <= int(threads) <= len(device.cores)
    probes = box.events("GpuProbed")
    assert bool(probes) == (policy in ("miso", "miso-paper"))
    for probe in probes:
        for speeds in probe["estimates"].values():
            assert [*speeds] == ["1c", "2c", "3c", "4c", "7c"]
            assert speeds["7c"][0] == 1.0
    box.check_left_as_found()


@pytest.mark.parametrize(
    ("memory", "options", "sentence"),
    [
        ("100M", ["--gpus", "3"], "--gpus 3: this host has 1 devices; accepted are 0 to 0"),
        ("90000G", [], "fits nowhere on 1 devices of at most"),
    ],
)
def test_what_cannot_be_is_told_of_devices(box: Box, memory: str, options: list[str], sentence: str) -> None:
    box.work("a", memory=memory)
    box.options = options
    runner = box.begin("whole-fifo")
    _, err = runner.communicate(timeout=PATIENCE_S)
    assert runner.returncode == 2
    assert sentence in err
    box.check_left_as_found()


def test_probes_change_shares_while_jobs_run(box: Box) -> None:
    """Nobody is launched again for a level."""
    box.work("a", 150)
    box.work("b", 150)
    runner = box.begin("miso-paper", level_s=20.0)
    until(lambda: bool(box.events("GpuProbed")) or runner.poll() is not None, "they were probed")
    assert all(state["state"] == "completed" for state in box.finish(runner)["jobs"])
    starts = [event["job_id"] for event in box.events("JobStarted")]
    assert {name: len(box.places(name)) for name in "ab"} == {name: starts.count(name) for name in "ab"}
    box.check_left_as_found()


def test_a_runner_that_is_killed_while_it_probes(box: Box) -> None:
    """Its shares are put right by the next one, whatever level was under way."""
    box.work("a", 4000)
    box.work("b", 4000)
    runner = box.begin("miso-paper", level_s=200.0)
    until(lambda: min(box.step("a"), box.step("b")) > 2, "both work")
    group = box.group("a")
    granted = quota_us(group)
    until(lambda: quota_us(group) != granted, "a level is set")
    box.kill(runner)
    runner = box.begin("miso-paper", level_s=2.0)
    until(lambda: bool(box.events("GpuProbed")), "they were probed again")
    interrupt(runner)
    box.finish(runner, 130)
    box.check_left_as_found()


def quota_us(group: Group) -> int | None:
    """Of a launch, as the kernel has it; None: no limit."""
    twin = group.twins.get("cpu")
    path = group.path / "cpu.max" if twin is None else twin / "cpu.cfs_quota_us"
    word = path.read_text().split()[0] if path.exists() else "max"
    return None if word in ("max", "-1") else int(word)


def test_out_of_memory_is_told_apart(box: Box) -> None:
    """Only who broke its limit dies; what it is told names its device."""
    box.device = "cpu=30%"
    (device,) = box.cpu_driver().devices
    box.work("hog", 4, str(device.model.by_name["1c"].mem_mib * 5 // 4))
    for name in ("x", "y"):
        box.work(name, 4000)
    runner = box.begin("static:1,1,1,1,1,1,1")
    until(
        lambda: bool(box.events("JobCrashed")) and min(box.step("x"), box.step("y")) > 0, "it was killed, others work"
    )
    interrupt(runner)
    box.finish(runner, 130)
    crashes = box.events("JobCrashed")
    assert {crash["job_id"] for crash in crashes} == {"hog"}
    where = {uuid.partition("/")[2] for uuid, _, _ in box.places("hog")}
    assert {crash["cause"] for crash in crashes} <= {
        f"out of memory on its device, {instance}: the kernel killed it" for instance in where
    }
    box.check_left_as_found()


def test_another_run_keeps_out_and_harms_nobody(box: Box, tmp_path: Path) -> None:
    """The first is killed, its job goes on; a second one has a job of the same name."""
    box.work("a", 4000)
    runner = box.begin("whole-fifo")
    until(lambda: box.step("a") > 0, "it works")
    box.kill(runner)
    words = box.command_line("whole-fifo")
    words[words.index("--state") + 1] = str(tmp_path / "other")
    done = subprocess.run(
        words, env=box.hardware.environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 1
    assert "device 0: it is in use by process" in done.stderr
    before = box.step("a")
    until(lambda: box.step("a") > before, "it still works")
    runner = box.begin("whole-fifo")
    until(box.is_held, "it goes on")
    interrupt(runner)
    box.finish(runner, 130)
    assert len(box.places("a")) == 1
    box.check_left_as_found()


def test_limits_that_somebody_changed_cost_nobody_anything(box: Box) -> None:
    """Found by a runner that is started again: they are put right under the job."""
    box.work("a", 4000)
    runner = box.begin("static:3,2,2")
    until(lambda: box.step("a") > 0, "it works")
    box.kill(runner)
    instance = Group(box.group("a").path.parent, {name: twin.parent for name, twin in box.group("a").twins.items()})
    assert instance.path.name in ("3c@4", "3c@0")
    instance.limit(Limits(cpus=0.05))
    runner = box.begin("static:3,2,2")
    until(box.is_held, "it goes on")
    before = box.step("a")
    until(lambda: box.step("a") > before + 5, "it works")
    interrupt(runner)
    box.finish(runner, 130)
    assert [event for event in box.events("GpuLost") if "asked to stop" not in event["cause"]] == []
    assert len(box.places("a")) == 1
    box.check_left_as_found()


def test_a_job_may_ask_for_more_cpus_than_its_instance_has(box: Box) -> None:
    box.work("wide", cpus=64)
    box.work("narrow", cpus=0.1)
    assert set(box.run("static:3,2,2").values()) == {"completed"}
    assert box.events("JobCrashed") == []
    box.check_left_as_found()


def test_it_goes_on_without_being_told_the_device(box: Box) -> None:
    box.work("a", 400)
    runner = box.begin("whole-fifo")
    until(lambda: box.step("a") > 3, "it works")
    box.kill(runner)
    words = [box.command_line("whole-fifo")[0], "run", "--resume", "--state", str(box.state), "--output", "json"]
    done = subprocess.run(
        words, env=box.hardware.environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert [row["state"] for row in answer["jobs"]] == ["completed"]
    assert answer["noise"]["pieces"] > 0
    box.check_left_as_found()


@pytest.mark.parametrize(
    ("device", "sentence"),
    [("cpu=50%", "holds a run with --device cpu;"), ("", "holds a run with --device cpu;"), ("cpu:99", "no core 99")],
)
def test_another_device_is_refused(box: Box, device: str, sentence: str) -> None:
    box.work("a", 4000)
    runner = box.begin("whole-fifo")
    until(lambda: box.step("a") > 0, "it works")
    interrupt(runner)
    box.finish(runner, 130)
    box.device = device
    again = box.begin("whole-fifo")
    _, err = again.communicate(timeout=PATIENCE_S)
    assert again.returncode == 2, err
    assert sentence in err
    box.device = "cpu"


def test_a_page_overwrites_nothing_of_the_run(box: Box) -> None:
    box.work("a", 2)
    box.state.mkdir(mode=0o700)
    link = box.folder / "link.html"
    link.symlink_to(box.folder / "jobs.json")
    for path, sentence in ((link, "would overwrite"), (box.state / "log.jsonl", "is in the folder of the run")):
        box.options[:] = ["--report", str(path)]
        runner = box.begin("whole-fifo")
        _, err = runner.communicate(timeout=PATIENCE_S)
        assert (runner.returncode, sentence in err) == (2, True), err
    assert json.loads((box.folder / "jobs.json").read_text())


def test_wrong_wishes(box: Box) -> None:
    box.device = "2xcpu"
    box.work("wide", gpus=2, kind="rigid")
    runner = box.begin("whole-fifo")
    _, err = runner.communicate(timeout=PATIENCE_S)
    assert runner.returncode == 2
    assert "job wide asks for 2 GPUs: on CPU devices a job that is not elastic has 1" in err
    box.check_left_as_found()


def test_without_cgroups(box: Box) -> None:
    box.work("a")
    box.environment["GPULOOM_CGROUP"] = "none"
    runner = box.begin("miso")
    _, err = runner.communicate(timeout=PATIENCE_S)
    assert runner.returncode == 1
    assert "CPU devices need cgroups: GPULOOM_CGROUP is none" in err


def test_two_runs_do_not_share_a_core(box: Box, tmp_path: Path) -> None:
    box.work("a", 4000)
    runner = box.begin("whole-fifo")
    until(lambda: box.step("a") > 0, "it works")
    words = box.command_line("whole-fifo")
    words[words.index("--state") + 1] = str(tmp_path / "other")
    for device, sentence in (("cpu", "another gpuloom"), ("cpu=20%", "of core 0, of which CPU-")):
        words[words.index("--device") + 1] = device
        done = subprocess.run(
            words, env=box.hardware.environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert (done.returncode, sentence in done.stderr) == (1, True), done.stderr
    interrupt(runner)
    box.finish(runner, 130)
    box.check_left_as_found()


@pytest.mark.parametrize(
    ("seed", "device", "kinds"),
    [
        (3, "2xcpu", ("limits changed", "instance removed", "keeper killed", "deaf job", "escaped children")),
        (11, "cpu", ("limits changed", "job killed", "Ctrl-C", "wrapper", "output flood")),
    ],
)
def test_everything_goes_wrong(box: Box, seed: int, device: str, kinds: tuple[str, ...]) -> None:
    """`python -m tests.live.chaos --device cpu 0 100` lives through more of this."""
    box.device = device
    live_through(box, seed, kinds)


def test_two_devices(box: Box) -> None:
    box.device = "2xcpu"
    if len({device.uuid for device in box.cpu_driver().devices if device.pinned}) != 2:
        pytest.skip("needs cores that can be dealt out to two")
    for name in "abcd":
        box.work(name, 40)
    assert set(box.run("whole-fifo").values()) == {"completed"}
    assert {box.places(name)[0][0] for name in "abcd"} == {device.uuid for device in box.cpu_driver().devices}
    box.check_left_as_found()
