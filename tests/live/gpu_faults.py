"""What devices, drivers and other managers can do to a run, kind by kind. Each says itself whether it came to pass."""

import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gpuloom.engine.events import CutFailed, GpuClosed
from gpuloom.engine.instructions import Stop
from gpuloom.engine.log import read_turns
from gpuloom.engine.machine import Engine
from gpuloom.policies.registry import make_policy
from tests.live.faults import Fault, Runner, Scene, wait_a_little
from tests.live.shop import Shop

CUT_CALLS = (
    "nvmlDeviceCreateGpuInstanceWithPlacement",
    "nvmlGpuInstanceCreateComputeInstance",
    "nvmlGpuInstanceDestroy",
)


def _ctl(scene: Scene, *words: str) -> None:
    scene.shop.hardware.ctl(*words, check=False)


def _gpus(scene: Scene) -> list[str]:
    return [str(index) for index in range(len(json.loads(scene.shop.hardware.ctl("show").stdout)))]


def _lost(scene: Scene, runner: Runner) -> None:
    """Off the bus for a moment, or for longer than anybody waits; then it is back, reset and empty."""
    gpu = scene.dice.choice(_gpus(scene))
    _ctl(scene, "lose", gpu)
    scene.counts["GPU lost and back"] += 1
    wait_a_little(scene, runner, 0.05, 2.5)
    _ctl(scene, "find", gpu)


def _broken_memory(scene: Scene, runner: Runner) -> None:
    """The driver tells of it, and a job that was hit dies."""
    for _ in range(150):
        gpu = scene.dice.choice(_gpus(scene))
        pids = [pid for pid in scene.shop.hardware.show(int(gpu))["pids"] if not _is_mps(pid)]
        if pids:
            _ctl(scene, "ecc", gpu, "1")
            with suppress(ProcessLookupError):
                os.kill(pids[0], signal.SIGKILL)
                scene.counts["memory errors"] += runner.poll() is None
            return
        if runner.poll() is not None:
            return
        time.sleep(0.02)


def _is_mps(pid: int) -> bool:
    try:
        return b"nvidia-cuda-mps" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return True


def _daemon(kind: str, number: int) -> Fault:
    def fault(scene: Scene, runner: Runner) -> None:
        for _ in range(150):
            for path in scene.shop.store.mps_dir.glob("*-*/pipe/nvidia-cuda-mps-control.pid"):
                with suppress(OSError, ValueError):
                    os.kill(int(path.read_text()), number)
                    scene.counts[kind] += 1
                    wait_a_little(scene, runner, 0.0, 4.0)
                    return
            if runner.poll() is not None:
                return
            time.sleep(0.02)

    return fault


def _taken_away(scene: Scene, runner: Runner) -> None:
    """An instance that nobody works on, by somebody who is not us."""
    worker = scene.shop.hardware.worker()
    for _ in range(100):
        if runner.poll() is not None:
            break
        taken = worker.ask("take-away", gpu=int(scene.dice.choice(_gpus(scene))))["taken"]
        if taken:
            scene.counts["instance taken away"] += 1
            break
        time.sleep(0.02)
    worker.close()


def _other_manager(scene: Scene, runner: Runner) -> None:
    """mig-parted runs for a moment, and takes an instance away."""
    with _named("nvidia-mig-part", scene.shop.hardware.folder / "root"):
        _taken_away(scene, runner)
        scene.counts["another manager"] += runner.poll() is None
        wait_a_little(scene, runner, 0.1, 1.0)


@contextmanager
def _named(name: str, root: Path) -> Iterator[None]:
    """A process with this name (as the kernel keeps it) on the host that this hardware is in."""
    process = root / "proc" / "4242"
    process.mkdir(parents=True, exist_ok=True)
    (process / "comm").write_text(f"{name}\n")
    yield
    (process / "comm").unlink()


DURING: dict[str, Fault] = {
    "GPU lost and back": _lost,
    "memory errors": _broken_memory,
    "MPS hung": _daemon("MPS hung", signal.SIGSTOP),
    "MPS killed": _daemon("MPS killed", signal.SIGKILL),
    "instance taken away": _taken_away,
    "another manager": _other_manager,
}


# ---- as they are from the beginning --------------------------------------------------------------------------------

Environment = dict[str, str]


def _lingers(dice: random.Random) -> Environment:
    return {"GPULOOM_STANDIN_LINGER_S": f"{dice.uniform(0.3, 2.5):.2f}"}


def _slow(dice: random.Random) -> Environment:
    return {"GPULOOM_STANDIN_SLOW": f"{dice.choice(CUT_CALLS)}:{dice.randint(50, 400)},*:{dice.randint(1, 4)}"}


def _old(dice: random.Random) -> Environment:
    return {"GPULOOM_STANDIN_DRIVER": dice.choice(("525.147.05", "535.183.01", "545.29.06"))}


ALWAYS: dict[str, Callable[[random.Random], Environment]] = {
    "in use for seconds": _lingers,
    "slow calls": _slow,
    "old driver": _old,
}
MODELS = ("A100-40GB", "A100-80GB", "A30-24GB", "H100-SXM-80GB")
MIG_ON = "found with MIG on"
LASTING = "errors that last"


def install(shop: Shop, dice: random.Random, wanted: list[str], counts: dict[str, int]) -> None:
    """One GPU or two, some of them with MIG on, of whichever model."""
    models = [dice.choice(MODELS) for _ in range(dice.randint(1, 2))]
    mig = MIG_ON in wanted
    own = [f"{model}{'+mig' if mig else ''}{'' if model.startswith('H') else '+resets'}" for model in models]
    shop.hardware.install(*own)
    counts[MIG_ON] += mig
    for model in models:
        counts[model] += 1
    for kind in wanted:
        if kind in ALWAYS:
            environment = ALWAYS[kind](dice)
            shop.environment |= environment
            shop.hardware.environment |= {name: value for name, value in environment.items() if "DRIVER" in name}
            counts[kind] += 1


def lasting_error(dice: random.Random) -> str:
    """Of one runner, from some call of it on."""
    return f"{dice.choice(CUT_CALLS)}:{dice.randint(1, 6)}+:{dice.choice(('UNKNOWN', 'IN_USE', 'TIMEOUT'))}"


def check_kept(shop: Shop) -> int:
    """Cuts that failed and GPUs that were closed stopped nobody who worked there: how often that was tested."""
    header, turns = read_turns(shop.store.lines(), "log")
    cluster = header.begins_on()
    engine = Engine(
        cluster, make_policy(header.policy, cluster, header.seed), costs=header.costs, freezes=header.freezes
    )
    tested = 0
    for turn in turns:
        for event in turn.events:
            at_work = {
                job.id
                for job in engine.state.jobs.values()
                if job.held == job.grants and job.phase.value in ("running", "starting")
            }
            out = engine.apply(event)
            if isinstance(event, CutFailed | GpuClosed):
                stopped = [one.job_id for one in out if isinstance(one, Stop) and one.job_id in at_work]
                assert not stopped, f"{event} stopped {stopped}"
                tested += bool(at_work)
        engine.follow(turn.decision)
    return tested
