"""What can be done to a run, kind by kind. Each says itself, in the counts, whether it came to pass."""

import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gpuloom.engine.log import read
from gpuloom.gpus.host.cgroups import Group, Limits
from gpuloom.gpus.host.processes import ProcessId
from tests.engine.old_lines import old_line
from tests.live.odd_job import ODD_FILES
from tests.live.shop import Shop, until

MOST_CRASHES = 2
"""A job that crashes four times is given up, and that would be right; a full disk may have one crash too."""
STEPS_S = (3_600, -7_200, 86_400, -86_400)
FREEZER = Path("/sys/fs/cgroup/freezer")


class Scene:
    def __init__(self, shop: Shop, dice: random.Random, grace_s: float) -> None:
        self.shop, self.dice, self.grace_s = shop, dice, grace_s
        self.counts = Counter[str]()
        self.crashes = 0

    def launches(self) -> list[tuple[ProcessId, Group | None]]:
        """Keepers that live, with their launch's group."""
        last = [self.shop.store.last_launch(job) for job in self.shop.jobs]
        return [
            (keeper, launch.group)
            for launch in last
            if launch is not None and (keeper := launch.keeper()) is not None and keeper.lives
        ]


Runner = subprocess.Popen[str]
Fault = Callable[[Scene, Runner], None]


def wait_a_little(scene: Scene, runner: Runner, least_s: float, most_s: float) -> None:
    until_s = time.monotonic() + scene.dice.uniform(least_s, most_s)
    while time.monotonic() < until_s and runner.poll() is None:
        time.sleep(0.02)


def _launch(scene: Scene, runner: Runner) -> tuple[ProcessId, Group | None] | None:
    """One that lives, if there is one within a while."""
    for _ in range(100):
        found = scene.launches()
        if found or runner.poll() is not None:
            return scene.dice.choice(found) if found else None
        time.sleep(0.02)
    return None


# ---- while it runs -----------------------------------------------------------------------------------------------


def _runner_killed(scene: Scene, runner: Runner) -> None:
    scene.counts["runner killed"] += runner.poll() is None
    runner.kill()


def _keeper_killed(scene: Scene, runner: Runner) -> None:
    launch = _launch(scene, runner)
    if launch is not None and launch[1] is not None and scene.crashes < MOST_CRASHES:
        launch[0].signal(signal.SIGKILL)
        scene.crashes += 1
        scene.counts["keeper killed"] += 1


def _job_killed(scene: Scene, runner: Runner) -> None:
    launch = _launch(scene, runner)
    pids = [] if launch is None or launch[1] is None else launch[1].processes()
    if pids and scene.crashes < MOST_CRASHES:
        with suppress(ProcessLookupError):
            os.kill(scene.dice.choice(pids), signal.SIGKILL)
            scene.crashes += 1
            scene.counts["job killed"] += 1


def _interrupted(kind: str, number: int) -> Fault:
    def fault(scene: Scene, runner: Runner) -> None:
        if runner.poll() is None:
            runner.send_signal(number)
            scene.counts[kind] += 1

    return fault


def _closed_stderr(scene: Scene, runner: Runner) -> None:
    """Nobody listens any more, and it has something to say."""
    if runner.poll() is None and runner.stderr is not None:
        runner.stderr.close()
        runner.stderr = None
        runner.send_signal(scene.dice.choice([signal.SIGINT, signal.SIGTERM]))
        scene.counts["closed stderr"] += 1


def _frozen(scene: Scene, runner: Runner) -> None:
    """In state D for a while, longer than the grace of some: SIGKILL does nothing to it meanwhile."""
    launch = _launch(scene, runner)
    group = None if launch is None else launch[1]
    if group is None or not FREEZER.is_dir():
        return
    cold = FREEZER / f"gpuloom-test-{os.getpid()}"
    cold.mkdir(exist_ok=True)
    try:
        for pid in group.processes():
            with suppress(OSError):
                (cold / "cgroup.procs").write_text(str(pid))
        (cold / "freezer.state").write_text("FROZEN")
        frozen = [pid for pid in _pids(cold) if _state(pid) == "D"]
        scene.counts["frozen in state D"] += bool(frozen)
        if scene.dice.random() < 0.5 and runner.poll() is None:
            runner.send_signal(signal.SIGINT)
        wait_a_little(scene, runner, 0.3, 1.5)
        if scene.dice.random() < 0.5:
            scene.shop.kill(runner)
    finally:
        (cold / "freezer.state").write_text("THAWED")
        for pid in _pids(cold):
            with suppress(OSError):
                (FREEZER / "cgroup.procs").write_text(str(pid))
        until(lambda: not _pids(cold), "it is empty")
        cold.rmdir()


def _pids(group: Path) -> list[int]:
    return [int(pid) for pid in (group / "cgroup.procs").read_text().split()]


def _state(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return "?"


def _full_disk(scene: Scene, runner: Runner) -> None:
    if runner.poll() is not None or scene.crashes >= MOST_CRASHES:
        return
    scene.crashes += 1  # a job that dies of it just when there is room again is blamed
    ballast = scene.shop.state / "ballast"
    fill(ballast)
    scene.counts["full disk"] += 1
    wait_a_little(scene, runner, 0.2, 1.0)
    if scene.dice.random() < 0.4:
        scene.shop.kill(runner)
    ballast.unlink()


def fill(ballast: Path) -> None:
    """Until there is no room on its disk for anything else."""
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while file.write(b"x" * 4096):
            pass


@contextmanager
def Disk(folder: Path) -> Iterator[None]:  # noqa: N802
    """A small one, below this folder."""
    folder.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m,mode=700", "gpuloom-test", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def _clock_step(scene: Scene, runner: Runner) -> None:
    if runner.poll() is None:
        Path(scene.shop.environment["GPULOOM_STANDIN_CLOCK"]).write_text(str(scene.dice.choice(STEPS_S)))
        scene.counts["clock step"] += 1


# ---- of CPU devices ----------------------------------------------------------------------------------------------


def _instances(scene: Scene) -> list[Group]:
    driver = scene.shop.cpu_driver()
    return [Group(home.unified, home.version_1) for gpu in range(driver.count()) for home in driver.homes(gpu)]


def _limits_changed(scene: Scene, runner: Runner) -> None:
    """By somebody who may. Jobs there go on; the instance is mended, or made anew, at the next look."""
    if _launch(scene, runner) is not None and (groups := _instances(scene)):
        with suppress(OSError):
            scene.dice.choice(groups).limit(Limits(cpus=0.05))
            scene.counts["limits changed"] += 1


def _instance_removed(scene: Scene, runner: Runner) -> None:
    """One that nobody is in, which is all that the kernel allows."""
    for _ in range(100):
        if runner.poll() is not None or any(group.remove() for group in _instances(scene)):
            scene.counts["instance removed"] += runner.poll() is None
            return
        time.sleep(0.01)


# ---- between two runners -----------------------------------------------------------------------------------------


def _refused(scene: Scene) -> bool:
    runner = scene.shop.begin("whole-fifo")
    _, err = runner.communicate(timeout=60)
    assert runner.returncode == 2, f"it ran in spite of that: {err}"
    assert "Traceback" not in err, err
    return True


def _planted(scene: Scene) -> None:
    """What somebody could have put there: each is refused, and nothing is lost."""
    state = scene.shop.state
    if not (state / "run.json").exists():
        return
    match scene.dice.randrange(4):
        case 0:
            state.chmod(0o777)
            scene.counts["planted files"] += _refused(scene)
            state.chmod(0o700)
        case 1:
            aside = (state / "run.json").rename(state / "aside.json")
            (state / "run.json").symlink_to(aside)
            scene.counts["planted files"] += _refused(scene)
            aside.replace(state / "run.json")
        case 2:
            aside = (state / "lock").rename(state / "aside.lock")
            os.mkfifo(state / "lock")
            scene.counts["planted files"] += _refused(scene)
            aside.replace(state / "lock")
        case _:
            os.chown(state / "run.json", 65534, 65534)
            scene.counts["planted files"] += _refused(scene)
            os.chown(state / "run.json", os.getuid(), os.getgid())


def _upgraded(scene: Scene) -> None:
    """The log as an older gpuloom would have written it."""
    path = scene.shop.state / "log.jsonl"
    if not path.exists():
        return
    lines = [f"{line}\n" for line in path.read_text().split("\n")[:-1]]
    path.write_text("".join(map(old_line, read(lines, "log"))))
    (scene.shop.state / "log.v1.jsonl").unlink(missing_ok=True)
    scene.counts["upgrade of the log"] += 1


OF_JOBS: dict[str, tuple[str, ...]] = {
    "deaf job": (),
    "wrapper": (),
    "ended main thread": (),
    "clobbered environment": (),
    "escaped children": (),
    "output flood": (),
    "odd progress file": ODD_FILES,
}
DURING: dict[str, Fault] = {
    "runner killed": _runner_killed,
    "keeper killed": _keeper_killed,
    "job killed": _job_killed,
    "Ctrl-C": _interrupted("Ctrl-C", signal.SIGINT),
    "SIGHUP": _interrupted("SIGHUP", signal.SIGHUP),
    "closed stderr": _closed_stderr,
    "frozen in state D": _frozen,
    "full disk": _full_disk,
    "clock step": _clock_step,
}
OF_CPUS: dict[str, Fault] = {"limits changed": _limits_changed, "instance removed": _instance_removed}
FOR_ROOT = ("frozen in state D", "full disk", "planted files")
BETWEEN: dict[str, Callable[[Scene], None]] = {"planted files": _planted, "upgrade of the log": _upgraded}
