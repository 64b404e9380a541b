"""CPU devices on this kernel: cut, read back, broken by others, given back, and what it enforces."""

import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from gpuloom.gpus.host.cgroups import Group, Limits
from gpuloom.gpus.host.cpu import CpuDevice, parse_devices, this_machine
from gpuloom.gpus.host.cpu_driver import CpuDriver, cpu_driver, limits
from gpuloom.gpus.host.cutter import Cutter
from gpuloom.gpus.host.driver import StepFailed
from gpuloom.gpus.host.homes import VARIABLE
from gpuloom.gpus.host.nvml import NoDriver
from gpuloom.gpus.host.ownership import Refused
from gpuloom.gpus.layouts import every, parse
from gpuloom.gpus.model import Instance
from tests.live.shop import until

ENTER = "import os, sys\nfor door in sys.argv[1].split(':'):\n    open(door, 'w').write('0')\n"


class Bench:
    """A state folder of its own, and cutters that look at it as separate commands would."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.devices: tuple[CpuDevice, ...] = parse_devices(["cpu=50%"], this_machine())
        self.started: list[subprocess.Popen[bytes]] = []

    def cutter(self, *names: str) -> Cutter:
        devices = parse_devices(names, this_machine()) if names else self.devices
        return Cutter(partial(cpu_driver, devices, self.folder), self.folder)

    @property
    def driver(self) -> CpuDriver:
        return CpuDriver(self.devices, self.folder)

    def group(self, instance: str) -> Group:
        """Of an instance that is there."""
        home = self.driver.home(self.devices[0])
        assert home is not None
        return home.group("cut").as_home().group(instance)

    def inside(self, instance: Instance | None, script: str, own: Limits | None = None) -> "subprocess.Popen[bytes]":
        group = self.driver.home_for(0, instance).group(f"p{len(self.started)}")
        group.create(own or Limits())
        doors = ":".join(map(str, group.doors()))
        self.started.append(subprocess.Popen([sys.executable, "-c", ENTER + script, doors], stdout=subprocess.PIPE))
        until(lambda: bool(group.processes()) or self.started[-1].poll() is not None, "it is in")
        return self.started[-1]

    def end(self) -> None:
        for process in self.started:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
        self.started.clear()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path / "state")
    try:
        with bench.cutter():
            pass
    except NoDriver as reason:
        pytest.skip(f"needs cgroups: {reason}")
    yield bench
    bench.end()
    with bench.cutter() as cutter:
        if cutter.found(0) is not None:
            assert cutter.leave(0).reached
    home = bench.driver.home(bench.devices[0])
    assert home is None, f"{home} was left"
    assert {path.suffix for path in bench.folder.glob("*")} <= {".lock"}


def test_any_way_through_layouts(bench: Bench) -> None:
    """What is reported is what the kernel shows to a fresh look, and each instance has its limits."""
    dice, model = random.Random(1), bench.devices[0].model
    for _ in range(25):
        target = dice.choice(every(model))
        with bench.cutter() as cutter:
            cut = cutter.apply(0, target, keep_mig=dice.random() < 0.5)
            assert cut.reached, cut.reason
        with bench.cutter() as cutter:
            state = cutter.look(0)
        assert state.layout == state.occupied == cut.layout == target
        assert {*state.uuids.values()} == {f"{bench.devices[0].uuid}/{instance}" for instance in target}
        for instance in target:
            assert bench.group(str(instance)).holds(limits(bench.devices[0], instance))


def test_who_works_is_seen_and_not_disturbed(bench: Bench) -> None:
    model = bench.devices[0].model
    with bench.cutter() as cutter:
        cutter.apply(0, parse(model, "3c@4,2c@0,1c@2"))
        worker = bench.inside(Instance(4, "3c"), "import signal; signal.pause()")
        state = cutter.look(0)
        assert [(process.pid, process.instance) for process in state.processes] == [(worker.pid, Instance(4, "3c"))]
        with pytest.raises(Refused, match="runs on 3c@4: stop it first"):
            cutter.apply(0, parse(model, "7"))
        assert cutter.apply(0, parse(model, "3c@4,4c@0")).reached
        with pytest.raises(Refused, match="whether it is cut cannot change while the device is in use by process"):
            cutter.apply(0, ())
        assert worker.poll() is None


def test_a_whole_device_is_used_or_cut_not_both(bench: Bench) -> None:
    with bench.cutter() as cutter:
        cutter.take(0)
        bench.inside(None, "import signal; signal.pause()")
        with pytest.raises(Refused, match="in use"):
            cutter.apply(0, parse(bench.devices[0].model, "3,3"))
        bench.end()
        assert cutter.apply(0, parse(bench.devices[0].model, "3,3")).reached


def test_limits_that_somebody_changed_are_mended(bench: Bench) -> None:
    model, three = bench.devices[0].model, Instance(4, "3c")
    with bench.cutter() as cutter:
        cutter.apply(0, parse(model, "3c@4,1c@0"))
        bench.group("3c@4").limit(Limits(cpus=0.9))
        state = cutter.look(0)
        assert (state.layout, state.occupied) == (parse(model, "1c@0"), parse(model, "3c@4,1c@0"))
        bench.driver.home_for(0, three)
        assert cutter.look(0).layout == parse(model, "3c@4,1c@0"), "who is to run there gets what it was promised"
        bench.group("3c@4").limit(Limits(cpus=0.9))
        assert cutter.apply(0, parse(model, "3c@4,1c@0")).reached
        assert bench.group("3c@4").holds(limits(bench.devices[0], three))


def test_an_instance_that_somebody_removed_is_missed(bench: Bench) -> None:
    model = bench.devices[0].model
    with bench.cutter() as cutter:
        cutter.apply(0, parse(model, "3c@4,1c@0"))
        assert bench.group("3c@4").remove()
        assert cutter.look(0).layout == parse(model, "1c@0")
        with pytest.raises(StepFailed, match="has no 3c@4"):
            bench.driver.home_for(0, Instance(4, "3c"))
        assert cutter.apply(0, parse(model, "3c@4")).reached


def test_all_groups_are_gone_as_after_a_reboot(bench: Bench) -> None:
    with bench.cutter() as cutter:
        cutter.apply(0, parse(bench.devices[0].model, "3,3"))
    home = bench.driver.home(bench.devices[0])
    assert home is not None
    home.remove()
    with bench.cutter() as cutter:
        state = cutter.look(0)
        assert (state.mig, state.layout) == (False, ())
        assert cutter.leave(0).reached


def test_one_gpuloom_at_a_time_and_no_core_twice(bench: Bench) -> None:
    with bench.cutter() as cutter, bench.cutter() as other:
        cutter.apply(0, parse(bench.devices[0].model, "3,3"))
        with pytest.raises(Refused, match="another gpuloom"):
            other.take(0)
        with bench.cutter("cpu=80%") as more, pytest.raises(Refused, match="would have 80% of core"):
            more.take(0)
        with bench.cutter("cpu=40%") as beside:
            assert beside.apply(0, parse(bench.devices[0].model, "7")).reached
            assert beside.leave(0).reached


def test_cores_are_taken_before_they_are_used(bench: Bench) -> None:
    """And nobody who came later can keep us from giving ours back."""
    with bench.cutter() as cutter, bench.cutter("cpu=80%") as other:
        cutter.take(0)
        with pytest.raises(Refused, match="would have 80% of core"):
            other.take(0)
        assert cutter.leave(0).reached
        other.take(0)
        with pytest.raises(Refused, match="would have 50% of core"):
            cutter.take(0)
        assert other.leave(0).reached


def test_who_died_before_it_took_a_device_has_none(bench: Bench) -> None:
    assert CpuDriver(parse_devices(["cpu=80%"], this_machine()), bench.folder).reserve(0) is None
    with bench.cutter() as cutter:
        cutter.take(0)
    CpuDriver(parse_devices(["cpu=80%"], this_machine()), bench.folder).release(0)


def test_a_whole_device_in_use_is_not_given_back(bench: Bench) -> None:
    with bench.cutter() as cutter:
        cutter.take(0)
        worker = bench.inside(None, "import signal; signal.pause()")
        left = cutter.leave(0)
        assert "is in use as a whole" in str(left.reason)
        assert cutter.found(0) is not None
        assert worker.poll() is None
        bench.end()
        assert cutter.leave(0).reached


def test_it_stays_what_it_was_when_taken(bench: Bench) -> None:
    """Also for one who is allowed less of the machine."""
    machine = this_machine()
    with bench.cutter() as cutter:
        cutter.apply(0, parse(bench.devices[0].model, "3,3"))
    less = parse_devices(["cpu=50%"], type(machine)(machine.cores, machine.cpus / 2, machine.mem_mib // 2))
    with Cutter(partial(cpu_driver, less, bench.folder), bench.folder) as cutter:
        state = cutter.look(0)
        assert state.layout == state.occupied != ()
        assert state.model == bench.devices[0].model


@pytest.mark.parametrize("changed", [Limits(cpus=0.05), Limits(mem_mib=64), Limits(cpus=0.9, mem_mib=64)])
def test_limits_are_mended_under_those_who_work(bench: Bench, changed: Limits) -> None:
    model, three = bench.devices[0].model, Instance(4, "3c")
    with bench.cutter() as cutter:
        cutter.apply(0, parse(model, "3c@4,1c@0"))
        worker = bench.inside(three, "import signal; signal.pause()")
        bench.group("3c@4").limit(changed)
        assert cutter.apply(0, parse(model, "3c@4")).reached
        assert bench.group("3c@4").holds(limits(bench.devices[0], three))
        assert worker.poll() is None
        bench.end()


def test_a_record_that_cannot_be_read(bench: Bench) -> None:
    with bench.cutter() as cutter:
        cutter.apply(0, parse(bench.devices[0].model, "3"))
        record = bench.folder / f"{bench.devices[0].uuid}.cpu"
        kept = record.read_text()
        for broken in ("", "{}", "[1]", kept.replace("null", "1").replace("[", "3, ["), kept[:-5]):
            record.write_text(broken)
            with pytest.raises(StepFailed, match="cannot be understood; remove it"):
                cutter.look(0)
        record.write_text(kept)


def test_without_cgroups_it_says_what_would_help(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "none")
    with pytest.raises(NoDriver, match="CPU devices need cgroups: GPULOOM_CGROUP is none"), Bench(tmp_path).cutter():
        pass


def test_a_device_keeps_to_its_cores(tmp_path: Path) -> None:
    """Also if a process asks for more."""
    bench = Bench(tmp_path / "state")
    core = this_machine().cores[-1]
    bench.devices = parse_devices([f"cpu:{core}"], this_machine())
    if not bench.devices[0].pinned:
        pytest.skip("this machine has one core")
    try:
        with bench.cutter() as cutter:
            assert cutter.apply(0, parse(bench.devices[0].model, "3c@4,2c@0")).reached
            script = "os.sched_setaffinity(0, range(64)); print(sorted(os.sched_getaffinity(0)))"
            for instance in (Instance(4, "3c"), Instance(0, "2c")):
                told, _ = bench.inside(instance, script).communicate(timeout=30)
                assert told.strip() == f"[{core}]".encode()
            assert cutter.leave(0).reached
    except NoDriver as reason:
        pytest.skip(str(reason))
    finally:
        bench.end()


HOG = "held = []\nwhile True:\n    held.append(bytearray(os.urandom(4096) * 256 * 16))"


def test_memory_limits_kill_only_who_broke_them(bench: Bench) -> None:
    machine = this_machine()
    small = parse_devices(["cpu=50%"], type(machine)(machine.cores, machine.cpus, 2_400))  # 1c has 135 MiB
    bench.devices = small
    with bench.cutter() as cutter:
        cutter.apply(0, parse(small[0].model, "1c@0,1c@1,2c@2,3c@4"))
        rest = "import signal; held = b'x' * (64 << 20); print('here', flush=True); signal.pause()"
        beside = [bench.inside(instance, rest) for instance in parse(small[0].model, "1c@1,2c@2,3c@4")]
        for process in beside:
            assert process.stdout is not None
            assert process.stdout.readline() == b"here\n"
        hog = bench.inside(Instance(0, "1c"), HOG)
        assert hog.wait(60) == -signal.SIGKILL
        assert bench.driver.home_for(0, Instance(0, "1c")).groups()[0].oom_kills() >= 1
        assert [process.poll() for process in beside] == [None, None, None]
        for instance in parse(small[0].model, "1c@1,2c@2,3c@4"):
            assert [group.oom_kills() for group in bench.driver.home_for(0, instance).groups()] == [0]


SPIN = "while True:\n    pass"


def test_time_is_counted_and_bounded(bench: Bench) -> None:
    """No clock of ours: what each had, relative to the other, as the kernel counted it."""
    model = bench.devices[0].model
    with bench.cutter() as cutter:
        cutter.apply(0, parse(model, "3c@4,1c@0"))
        for _ in range(2):
            bench.inside(Instance(4, "3c"), SPIN)
            bench.inside(Instance(0, "1c"), SPIN)
        large, small = bench.group("3c@4"), bench.group("1c@0")
        began = (large.cpu_s() or 0.0, small.cpu_s() or 0.0)
        until(lambda: (small.cpu_s() or 0.0) - began[1] > 0.25, "the small one has worked")
        had = ((large.cpu_s() or 0.0) - began[0], (small.cpu_s() or 0.0) - began[1])
        assert 2.0 < had[0] / had[1] < 4.0
        threads = large.threads_s()
        assert {process.pid for process in bench.started[::2]} <= {*threads}
        bench.end()


def test_noise_is_measured_and_leaves_nothing(bench: Bench) -> None:
    for layout in ("none", "3,3"):
        with bench.cutter() as cutter:
            cutter.apply(0, parse(bench.devices[0].model, layout))
            before = cutter.look(0)
            noise = bench.driver.noise(0, pieces=5)
            assert noise.pieces == 5 * max(1, round(bench.devices[0].cpus))
            assert noise.median_ms > 0
            assert noise.spread_pct >= 0
            assert cutter.look(0) == before
