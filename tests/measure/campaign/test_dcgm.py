"""What a host engine counts in the time that counts; and that one that fails costs its figures, and nothing else."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from gpuloom.gpus.host.dcgm.dmon import device_of
from gpuloom.gpus.host.dcgm.engine import TOLD_BY
from gpuloom.measure.campaign.activity import Activity
from gpuloom.measure.campaign.counters import OfGpu
from gpuloom.measure.campaign.counting import Busy, Counting, who_tells
from gpuloom.measure.campaign.dcgm import Dcgm, Pace
from gpuloom.measure.steps import Window
from tests.live.shop import until
from tests.measure.campaign.test_counters import Nvml
from tests.standin.dcgm import VALUES, HostEngine, clients, host_engine
from tests.standin.fixtures import hardware as hardware
from tests.standin.fixtures import standin_tools as standin_tools
from tests.standin.hardware import Hardware

QUICK = Pace(every_s=0.02, first_s=0.0, patience_s=20.0, again_s=0.0, asks=3)
TOLD, NOTHING = Activity(*VALUES), Activity()
EVER = Window(0.0, 1e12)


@pytest.fixture
def engine(hardware: Hardware) -> Iterator[HostEngine]:
    hardware.install("A100-40GB")
    with host_engine(hardware) as engine:
        yield engine
    assert clients() == []


def told_more(engine: HostEngine, times: int = 3) -> None:
    """And so printed all but the last of it."""
    before = engine.answers()
    until(lambda: engine.answers() >= before + times, "it has told some more")


@dataclass
class Run:
    """Looks at a counter all the time, as a run does."""

    engine: HostEngine
    folder: Path
    pace: Pace = QUICK
    device: str = ""

    def __post_init__(self) -> None:
        found = self.engine.found()
        tool = self.folder / "dcgmi"
        tool.write_text(f'#!/bin/sh\necho asked >> {self.folder}/asks\nexec {found.tool} "$@"\n')
        tool.chmod(0o755)
        device = self.device or self.engine.hardware.show()["uuid"]
        self.counter = Dcgm(replace(found, tool=str(tool)), device, 60.0, self.pace)

    def look(self) -> Dcgm:
        self.counter.look(time.monotonic())
        return self.counter

    def until_told(self) -> float:
        """Something, since now."""
        since_s = time.monotonic()
        until(lambda: self.look().figures(Window(since_s, 1e12)) != NOTHING, "something is told")
        return since_s

    def until_given_up(self) -> None:
        until(lambda: self.look() is not None and self.asks() == self.pace.asks and not clients(), "it gives up")
        for _ in range(20):
            self.look()
        assert (self.asks(), clients()) == (self.pace.asks, [])

    def asks(self) -> int:
        path = self.folder / "asks"
        return len(path.read_text().splitlines()) if path.exists() else 0


def test_figures_are_of_the_time_that_counts(engine: HostEngine, tmp_path: Path) -> None:
    run = Run(engine, tmp_path)
    begun_s = run.until_told()
    before_s = time.monotonic()
    engine.behave((0.9, 0.8, 0.7, 0.6))
    told_more(engine)
    since_s = run.until_told()
    run.counter.close()
    assert run.counter.figures(Window(begun_s, before_s)) == TOLD
    assert run.counter.figures(Window(since_s, time.monotonic())) == Activity(0.9, 0.8, 0.7, 0.6)
    assert run.counter.figures(None) == NOTHING


def test_a_figure_is_as_old_as_it_may_be(engine: HostEngine, tmp_path: Path) -> None:
    """One that is heard was printed after the look before, and tells of up to two rounds before that."""
    counter = Run(engine, tmp_path).counter
    counter.look(100.0)
    counter.look(101.0)
    told_more(engine)
    counter.look(102.0)
    counter.close()
    from_s = 101.0 - 2 * QUICK.every_s
    assert counter.figures(Window(from_s, 102.0)) == TOLD
    assert counter.figures(Window(from_s + 0.001, 102.0)) == NOTHING
    assert counter.figures(Window(from_s, 101.999)) == NOTHING


def test_what_an_engine_kept_from_before_is_not_told(engine: HostEngine, tmp_path: Path) -> None:
    engine.behave(blanks=0)
    counter = Run(engine, tmp_path).counter
    counter.look(100.0)
    told_more(engine)
    counter.look(100.01)
    counter.close()
    assert counter.figures(EVER) == NOTHING


def test_it_waits_until_an_engine_may_know_of_a_cut(engine: HostEngine) -> None:
    counter = Dcgm(engine.found(), engine.hardware.show()["uuid"], 60.0)
    for now_s in (100.0, 101.0, 102.9):
        counter.look(now_s)
    assert clients() == []
    counter.look(103.0)
    assert len(clients()) == 1
    counter.close()
    counter.look(200.0)
    assert clients() == []


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ((None, None, None, None), NOTHING),
        ((0.5, None, 0.25, None), Activity(0.5, None, 0.25, None)),
        ((0.0, 0.0, 0.0, 0.0), NOTHING),
        ((0.0, 0.0, 0.0, 0.125), Activity(0.0, 0.0, 0.0, 0.125)),
        ((1.02, 1.294, 0.162, 0.125), Activity(1.0, None, 0.162, 0.125)),
        ((0.5, -0.1, 0.25, 140737488355328.0), Activity(0.5, None, 0.25, None)),
    ],
)
def test_blank_is_blank_and_what_cannot_be_is_not_told(
    engine: HostEngine, tmp_path: Path, values: tuple[float | None, ...], told: Activity
) -> None:
    engine.behave(values)
    counter = Run(engine, tmp_path).counter
    counter.look(100.0)
    counter.look(101.0)
    told_more(engine)
    counter.look(102.0)
    counter.close()
    assert counter.figures(EVER) == told


def test_an_engine_that_dies_leaves_what_it_told(engine: HostEngine, tmp_path: Path) -> None:
    run = Run(engine, tmp_path)
    run.until_told()
    engine.kill()
    run.until_given_up()
    assert run.counter.figures(EVER) == TOLD


def test_one_that_comes_back_is_asked_again(engine: HostEngine, tmp_path: Path) -> None:
    run = Run(engine, tmp_path, replace(QUICK, asks=1000))
    run.until_told()
    engine.kill()
    with host_engine(engine.hardware):
        run.until_told()
        run.counter.close()


def test_one_that_hangs_leaves_what_it_told(engine: HostEngine, tmp_path: Path) -> None:
    run = Run(engine, tmp_path, replace(QUICK, patience_s=0.3))
    run.until_told()
    engine.hang()
    run.until_given_up()
    assert run.counter.figures(EVER) == TOLD


def test_nobody_waits_for_one_that_hangs_to_let_go_of_it(engine: HostEngine, tmp_path: Path) -> None:
    run = Run(engine, tmp_path)
    run.until_told()
    engine.hang()
    run.counter.close()
    assert clients() == []


def test_one_that_may_not_is_believed(engine: HostEngine, tmp_path: Path) -> None:
    engine.behave(refuses=[-29, "Unable to watch one or more of the requested fields because doing so requires root."])
    run = Run(engine, tmp_path)
    run.until_given_up()
    assert run.counter.figures(EVER) == NOTHING


def test_an_instance_that_is_not_known_yet_is_asked_for_again(engine: HostEngine, tmp_path: Path) -> None:
    hardware = engine.hardware
    hardware.install("A100-40GB+mig")
    assert hardware.gpuloom("layout", "apply", "--gpu", "0", "--to", "3g.20gb@0,3g.20gb@4").returncode == 0
    engine.behave(unknown=2)
    part = hardware.show()["instances"][1]
    run = Run(engine, tmp_path, device=device_of(hardware.show()["uuid"], part["id"]))
    run.until_told()
    run.counter.close()
    assert run.counter.figures(EVER).gract == pytest.approx(VALUES[0] + part["id"] / 100)
    assert run.asks() == 3


def test_a_client_that_cannot_be_run_is_none(engine: HostEngine, tmp_path: Path) -> None:
    run = Run(engine, tmp_path)
    (tmp_path / "dcgmi").unlink()
    for _ in range(10):
        run.look()
    assert run.counter.figures(EVER) == NOTHING


def test_copies_on_one_device_share_what_is_watched(engine: HostEngine) -> None:
    gpu = OfGpu(Nvml(counts=False), engine.hardware.show()["uuid"])
    counting = Counting(gpu, busy=Busy("an engine", engine.found()))
    copies = [counting.watch(None, gpu.uuid, None, sole=False) for _ in range(3)]
    for now_s in (100.0, 110.0):
        for copy in copies:
            copy.look(now_s)
    assert len(clients()) == 1
    assert counting.let_go() > time.monotonic() - 60
    assert clients() == []
    for copy in copies:
        copy.look(120.0)
    assert clients() == []


def test_who_tells(engine: HostEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PATH", TOLD_BY):
        monkeypatch.setenv(name, engine.hardware.environment[name])
    uuid = engine.hardware.show()["uuid"]
    assert who_tells(OfGpu(Nvml(), uuid)) == Busy("NVML's GPM")
    without = Nvml(counts=False)
    assert who_tells(OfGpu(without, uuid)) == Busy(f"DCGM's host engine at {engine.address}", engine.found())
    stranger = who_tells(OfGpu(without, "GPU-of-another-host"))
    assert stranger.says.endswith(f"and DCGM's host engine at {engine.address} does not know it")
    engine.kill()
    nobody = who_tells(OfGpu(without, uuid))
    assert nobody.says == f"none: no GPM on this GPU, and of DCGM no host engine listens at {engine.address}"
    assert stranger.engine is nobody.engine is None
