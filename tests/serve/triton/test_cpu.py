"""Servers inside their shares of a CPU device: who is in, how fast they are, and that nothing is left of them."""

import asyncio
import json
import os
import signal
import subprocess
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from gpuloom.cli.main import main
from gpuloom.gpus.host.cgroups import Group, Home
from gpuloom.gpus.host.cpu_driver import CpuDriver
from gpuloom.gpus.host.cutter import cutter_of
from gpuloom.gpus.host.nvml import NoDriver
from gpuloom.gpus.model import Instance
from gpuloom.serve.cpus import cpu_instance
from gpuloom.serve.deployment import read_plan
from gpuloom.serve.devices import devices_of, end_left
from gpuloom.serve.fleet.fleet import Fleet
from gpuloom.serve.options import Options
from gpuloom.serve.prepare import prepare
from gpuloom.serve.state import State
from gpuloom.serve.triton.environment import Triton
from tests.serve.backends import infer
from tests.serve.plans import row, write_plan
from tests.serve.triton.deployed import PATIENCE_S, Deployed

pytestmark = pytest.mark.xdist_group("triton")
MODELS = Path(__file__).resolve().parents[3] / "examples" / "models"
CORE = min(os.sched_getaffinity(0))


@dataclass(frozen=True, slots=True)
class Cpu:
    """One core as a device, with a folder of claims of its own: other tests do not meet it."""

    name: str
    folder: Path

    @property
    def words(self) -> list[str]:
        return ["--device", self.name, "--models", str(MODELS)]

    def home(self) -> Home:
        with cutter_of((self.name,)) as cutter:
            assert isinstance(cutter.driver, CpuDriver)
            home = cutter.driver.home(cutter.driver.devices[0])
            assert home is not None
            return home

    def groups(self, *inside: str) -> dict[str, Group]:
        """Of its servers, by their names: in the whole, or in an instance."""
        home = self.home()
        for name in inside:
            group = home.group(name)
            home = Home(group.path, group.twins)
        return {group.path.name.split("-", 2)[2]: group for group in home.groups()}

    def check_given_back(self, home: Home) -> None:
        assert [path.name for path in self.folder.iterdir() if path.suffix != ".lock"] == []
        assert not any(path.exists() for path in (home.unified, *home.version_1.values()))


@pytest.fixture
def cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cpu]:
    monkeypatch.setenv("GPULOOM_STATE_DIR", str(tmp_path / "claims"))
    made = Cpu(f"cpu:{CORE}", tmp_path / "claims")
    try:
        with cutter_of((made.name,)):
            pass
    except NoDriver as reason:
        pytest.skip(f"needs cgroups: {reason}")
    yield made
    with cutter_of((made.name,)) as cutter:  # of a test that failed
        assert isinstance(cutter.driver, CpuDriver)
        for group in [group for home in cutter.driver.homes(0) for group in home.groups()]:
            group.end(PATIENCE_S)
        if cutter.found(0) is not None:
            cutter.leave(0)


def children(pid: int) -> set[int]:
    """Those that a process has started, by any of its threads."""
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return {int(child) for path in lists for child in path.read_text().split()}


def mixer(name: str, **fields: object) -> dict[str, object]:
    return row(name, workload="mixer", batch_ms=None, **fields)


def complains(capsys: pytest.CaptureFixture[str], code: int, *words: str) -> str:
    """Its last words, one sentence."""
    with pytest.raises(SystemExit) as left:
        main(list(words))
    assert left.value.code == code
    return capsys.readouterr().err.splitlines()[-1]


def keep_busy(address: str, names: list[str], enough: int) -> Counter[str]:
    """Ask each service for one answer after the other, until the slowest has given so many; how many each gave."""
    body, answers = (MODELS / "request.json").read_bytes(), Counter[str]()

    def ask(name: str) -> None:
        while min(answers[each] for each in names) < enough:
            with urllib.request.urlopen(f"{address}/v2/models/{name}/infer", data=body, timeout=PATIENCE_S) as reply:
                assert len(json.load(reply)["outputs"][0]["data"]) == 10
            answers[name] += 1

    threads = [threading.Thread(target=ask, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def test_a_server_and_all_that_it_starts_is_in_its_share_and_a_smaller_one_is_slower(
    cpu: Cpu,
    tmp_path: Path,
    real_triton: Triton,  # noqa: ARG001
    capsys: pytest.CaptureFixture[str],
) -> None:
    shares = {"large": 60.0, "small": 20.0}
    plan = write_plan(tmp_path, *(mixer(name, share_pct=share, slo_ms=10_000) for name, share in shares.items()))
    deployed = Deployed(tmp_path, plan, *cpu.words, "--no-standby")
    try:
        groups = {name: cpu.groups("whole")[f"{name}-0-planned"] for name in shares}
        for name, group in groups.items():
            (server,) = [one["pid"] for one in deployed.events("started", server=f"{name}-0-planned")]
            assert server in group.processes()
            assert len(group.processes()) > 1  # the Python backend's own process
        home, inside = cpu.home(), [pid for group in groups.values() for pid in group.processes()]
        assert deployed.process.pid not in inside
        assert children(deployed.process.pid) <= {*inside}

        record = deployed.state.record()
        began_s, before = time.monotonic(), {name: group.cpu_s() or 0.0 for name, group in groups.items()}
        answers = keep_busy(f"http://{record.host}:{record.port}", [*shares], 10)
        took_s = time.monotonic() - began_s
        assert answers["large"] > 1.3 * answers["small"]  # three times, on a core that nobody else wants
        for name, group in groups.items():
            used_s = (group.cpu_s() or 0.0) - before[name]
            assert 0.0 < used_s < 1.25 * 0.9 * shares[name] / 100 * took_s + 0.05

        status = deployed.status()
        assert (status["gpu"], status["device"]) == (False, "cpu")
        assert set(status["noise"]) == {"median_ms", "spread_pct", "pieces"}
        shown = deployed.command("serve", "status", "--state", str(deployed.state.folder))
        assert "the same work alone varies by" in shown
        second = ["serve", "up", str(plan), *cpu.words, "--state", str(tmp_path / "second")]
        told = complains(capsys, 1, *second)
        assert f"CPU-{CORE} cannot be had: another gpuloom (process {deployed.process.pid}) is working on it" in told
        deployed.process.send_signal(signal.SIGTERM)
        assert deployed.process.wait(PATIENCE_S) == 0
        deployed.check_nothing_is_left()
        cpu.check_given_back(home)
        assert not deployed.state.devices()
    finally:
        deployed.close()


def test_after_a_kill_the_next_command_ends_what_is_left(cpu: Cpu, tmp_path: Path, fake_triton: Triton) -> None:
    plan = write_plan(tmp_path, mixer("a"))
    words = [*cpu.words, "--triton", str(fake_triton.binary)]
    for command in ("down", "up"):
        deployed = Deployed(tmp_path, plan, *words)
        try:
            home, groups = cpu.home(), cpu.groups("whole")
            assert set(groups) == {"a-0-planned", "a-0-shadow"}
            # One who does not notice that his server has died, as a model that computes for minutes.
            orphan = subprocess.Popen(["sleep", "1000"], start_new_session=True)
            for door in groups["a-0-planned"].doors():
                door.write_text(str(orphan.pid))
            deployed.process.kill()
            deployed.process.wait()
            assert deployed.state.devices() == (cpu.name,)
            if command == "down":
                deployed.command("serve", "down", "--state", str(deployed.state.folder))
            else:
                with State(deployed.state.folder, end_left):
                    pass
            assert orphan.wait(PATIENCE_S) == -signal.SIGKILL
            deployed.check_nothing_is_left()
            cpu.check_given_back(home)
        finally:
            deployed.close()


def test_instances_stay_as_they_were_made(
    cpu: Cpu, tmp_path: Path, fake_triton: Triton, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = write_plan(tmp_path, mixer("a", device="3g.20gb@4", share_pct=50))
    up = ["serve", "up", str(plan), *cpu.words, "--triton", str(fake_triton.binary), "--state", str(tmp_path / "s")]
    told = complains(capsys, 2, *up)
    advice = f"gpuloom layout apply --device {cpu.name} --gpu 0 --to 3c@4"
    assert f"the plan uses 3c@4 of CPU-{CORE}, which is not there: {advice}" in told
    with pytest.raises(SystemExit):
        main(advice.split()[1:])
    whole = write_plan(tmp_path, mixer("a"))
    assert f"CPU-{CORE} is cut" in complains(capsys, 2, "serve", "up", str(whole), *up[3:])

    write_plan(tmp_path, mixer("a", device="3g.20gb@4", share_pct=50))
    deployed = Deployed(tmp_path, plan, *up[3:-2])
    try:
        groups = cpu.groups("cut", "3c@4")
        assert set(groups) == {"a-0-planned", "a-0-shadow"}
        assert all(group.processes() for group in groups.values())
        deployed.process.send_signal(signal.SIGTERM)
        assert deployed.process.wait(PATIENCE_S) == 0
        assert not cpu.groups("cut", "3c@4")
        with cutter_of((cpu.name,)) as cutter:
            assert cutter.look(0).layout == (Instance(4, "3c"),)
    finally:
        deployed.close()


def test_jobs_of_a_runner_that_was_killed_are_left_alone(
    cpu: Cpu, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody holds the device's lock, but its record says that gpuloom has it."""
    with cutter_of((cpu.name,)) as cutter:
        assert isinstance(cutter.driver, CpuDriver)
        cutter.take(0)
        group = cutter.driver.home_for(0, None).group("job-1")
        group.create()
    job = subprocess.Popen(["sleep", "1000"])
    try:
        for door in group.doors():
            door.write_text(str(job.pid))
        plan = write_plan(tmp_path, mixer("a"))
        told = complains(capsys, 1, "serve", "up", str(plan), *cpu.words, "--state", str(tmp_path / "s"))
        assert f"CPU-{CORE} is in use by process {job.pid} (sleep)" in told
        left = State(tmp_path / "s", end_left)
        left.remember_devices([cpu.name])
        left.take_down()
        assert group.processes() == [job.pid]
        with cutter_of((cpu.name,)) as cutter:
            assert cutter.found(0) is not None
    finally:
        job.kill()
        job.wait()
        assert group.end(PATIENCE_S)


def test_a_kill_while_the_noise_is_measured_leaves_nothing_either(cpu: Cpu, tmp_path: Path) -> None:
    with State(tmp_path / "s") as state, cutter_of((cpu.name,)) as cutter:
        assert isinstance(cutter.driver, CpuDriver)
        state.remember_devices([cpu.name])
        cutter.take(0)
        group = cutter.driver.home_for(0, None).group("noise")
        group.create()
    worker = subprocess.Popen(["sleep", "1000"])
    for door in group.doors():
        door.write_text(str(worker.pid))
    home = cpu.home()
    State(tmp_path / "s", end_left).take_down()
    assert worker.wait(PATIENCE_S) == -signal.SIGKILL
    cpu.check_given_back(home)


def test_who_lacks_memory_is_told_apart_from_other_crashes(cpu: Cpu, tmp_path: Path, fake_triton: Triton) -> None:
    deployment = read_plan(write_plan(tmp_path, mixer("a")))
    options = Options(models=MODELS, standby=False)

    async def work(fleet: Fleet) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                await fleet.until_ready()
                running = asyncio.create_task(fleet.run())
                await fleet.pools["a"].send(infer(b"eat"))  # the next one answers it
                running.cancel()
        finally:
            fleet.end()

    with State(tmp_path / "s", end_left) as state:
        wish = prepare(deployment, None, state, options)
        planned, shadow = (replace(spec, grant=spec.grant._replace(mem_mib=100)) for spec in wish.specs["a", 0])
        wish = replace(wish, specs={("a", 0): (planned, shadow)})
        with devices_of((cpu.name,), wish.grants, state) as devices:
            fleet = Fleet(deployment.plan.replicas, wish, fake_triton, devices, state)
            asyncio.run(work(fleet))
    told = [(event["event"], event["detail"]) for event in fleet.journal.events if event["event"] != "started"]
    killed = str(dict(told)["oom-killed"])  # its end, or the kernel's count of it, whichever is seen first
    assert killed.startswith("the kernel killed it for want of memory: ")
    assert "crashed" not in dict(told)


@pytest.mark.parametrize(
    ("fields", "words", "told"),
    [
        ({"gpu": 1}, [], "the plan uses 2 GPUs, but --device names 1: name as many, such as --device 2xcpu"),
        ({}, ["--device", "tpu"], "--device tpu: not a device; accepted are cpu (all cores)"),
    ],
)
def test_devices_that_do_not_suit_the_plan(
    cpu: Cpu,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    fields: dict[str, object],
    words: list[str],
    told: str,
) -> None:
    plan = str(write_plan(tmp_path, mixer("a", **fields)))
    assert told in complains(capsys, 2, "serve", "up", plan, *cpu.words, *words, "--state", str(tmp_path / "s"))
    assert not State(tmp_path / "s").devices()


def test_a_plan_made_for_another_cpu_device(cpu: Cpu, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its shares are of that one's time."""
    plan = write_plan(tmp_path, mixer("a"))
    plan.write_text(plan.read_text().replace("V100", "CPU-77"))
    told = complains(capsys, 2, "serve", "up", str(plan), *cpu.words, "--state", str(tmp_path / "s"))
    assert "the plan is for CPU-77, but --device names CPU-" in told
    assert not State(tmp_path / "s").devices()


def test_a_stand_in_has_no_use_for_cpu_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = complains(capsys, 2, "serve", "up", str(write_plan(tmp_path, row())), "--device", "cpu")
    assert "--device needs --models: a stand-in sleeps" in told


@pytest.mark.parametrize(("plans", "ours"), [("3g.20gb", "3c"), ("1g.10gb+me", "1c"), ("7g.80gb", "7c"), ("2c", "2c")])
def test_an_instance_of_a_gpu_is_as_many_sevenths_of_a_cpu_device(plans: str, ours: str) -> None:
    assert cpu_instance(Instance(4, plans)) == Instance(4, ours)
    assert cpu_instance(None) is None
