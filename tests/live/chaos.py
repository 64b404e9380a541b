"""Random faults, one seed after the other.

    python -m tests.live.chaos [--elastic | --gpus] [--device cpu] FIRST LAST [KIND …]

Driver errors, and the kinds of `faults`, some of them in every seed. In the end every job must have finished once, with
nothing lost beyond its last checkpoint, never two launches of it at once, no process left, the hardware as found. What
is counted came to pass: a driver error that no call met, or a kill of a runner that had ended, is none. A seed fixes
what is tried; when exactly it strikes depends on how fast the machine is. `--elastic`: jobs that are resized in place
all the time, some of them, and by restarts, on three devices. `--gpus`: what devices, drivers and other managers do
(see `gpu_faults`), on several models: nobody may have been given up for it, or stopped on a slice that stayed.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from tests.live import gpu_faults
from tests.live.faults import BETWEEN, DURING, FOR_ROOT, OF_CPUS, OF_JOBS, Disk, Fault, Scene, wait_a_little
from tests.live.shop import Shop, until
from tests.standin.build import WALLCLOCK, build
from tests.standin.hardware import Hardware

POLICIES = ("miso-paper", "miso", "static:3,2,2", "whole-fifo")
ON_ALL_MODELS = ("miso-paper", "miso", "static:2,1,1", "whole-fifo")
SHARING = ("miso-paper", "miso", "mps-only:2", "mps-only:3")
CPU_DEVICES = ("cpu", "2xcpu", "cpu=60%")
WORKLOADS = ("resnet 128", "bert 4", "cyclegan 1")
CALLS = (
    "nvmlDeviceCreateGpuInstanceWithPlacement",
    "nvmlGpuInstanceCreateComputeInstance",
    "nvmlGpuInstanceDestroy",
    "nvmlComputeInstanceDestroy",
    "nvmlDeviceSetMigMode",
    "nvmlDeviceGetGpuInstances",
)
ERRORS = ("UNKNOWN", "UNKNOWN", "IN_USE", "TIMEOUT", "UNKNOWN:late")
GRACE_S = 20.0
STRETCHY_JOB = Path(__file__).parent / "elastic" / "stretchy_job.py"
STRETCHING = Path(__file__).parents[1] / "engine" / "stretching.py"
KINDS = (*OF_JOBS, *DURING, *BETWEEN)


def live_through_gpus(shop: Shop, seed: int, kinds: tuple[str, ...] | None = None) -> Counter[str]:
    """As `live_through`, with GPUs that misbehave."""
    dice = random.Random(seed)
    scene = Scene(shop, dice, GRACE_S)
    always = (*gpu_faults.ALWAYS, gpu_faults.MIG_ON, gpu_faults.LASTING)
    striking = [*(gpu_faults.DURING.keys() - {*gpu_faults.ALONE}), "runner killed", "job killed"]
    wanted = [*dice.sample(always, 2), *dice.sample(sorted(striking), 3)] if kinds is None else list(kinds)
    gpu_faults.install(shop, dice, wanted, scene.counts)
    found = json.loads(shop.hardware.ctl("show").stdout)
    _submit(shop, dice, [], memory="3G")
    policy = dice.choice(SHARING if {"MPS hung", "MPS killed"} & {*wanted} else ON_ALL_MODELS)
    strikes = gpu_faults.DURING | DURING
    for fault in [strikes[kind] for kind in wanted if kind in strikes] or [DURING["runner killed"]]:
        _disturb(scene, fault, policy, gpu_faults.lasting_error(dice) if gpu_faults.LASTING in wanted else None)
    shop.environment.pop("GPULOOM_STANDIN_SLOW", None)  # that is enough of it
    states = shop.run(policy, grace_s=GRACE_S)
    assert set(states.values()) == {"completed"}, f"{states}\n{shop.story()}"
    shop.check_jobs()
    shop.check_left_as_found(found)
    scene.counts["failed cuts beside work"] += gpu_faults.check_kept(shop)
    scene.counts[gpu_faults.LASTING] += gpu_faults.LASTING in wanted and (shop.folder / "fired").exists()
    return scene.counts


def live_through(shop: Shop, seed: int, kinds: tuple[str, ...] | None = None, *, elastic: bool = False) -> Counter[str]:
    """What was done to it, by kind; AssertionError if a promise was broken."""
    dice = random.Random(seed)
    shop.hardware.install(*(["T4-16GB"] * 3 if elastic else ["A100-40GB+resets"] * dice.randint(1, 2)))
    strikes = DURING | (OF_CPUS if shop.device else {})
    of_jobs = {} if elastic else OF_JOBS
    possible = [kind for kind in (*of_jobs, *strikes, *BETWEEN) if os.geteuid() == 0 or kind not in FOR_ROOT]
    wanted = dice.sample(possible, 5) if kinds is None else list(kinds)
    scene = Scene(shop, dice, GRACE_S)
    if "clock step" in wanted:
        clock = {
            "LD_PRELOAD": str(shop.hardware.tools / WALLCLOCK),
            "GPULOOM_STANDIN_CLOCK": str(shop.folder / "clock"),
        }
        shop.environment |= clock
    with Disk(shop.state) if "full disk" in wanted else nullcontext():
        if elastic:
            _submit_elastic(shop, dice)
            policy = f"{STRETCHING}:Stretching:{1_000_000},{dice.choice((10, 30))}"
        else:
            _submit(shop, dice, [kind for kind in wanted if kind in OF_JOBS])
            policy = dice.choice((*POLICIES, "mps-only:3") if shop.device else POLICIES)
        during = [strikes[kind] for kind in wanted if kind in strikes] or [DURING["runner killed"]]
        between = [BETWEEN[kind] for kind in wanted if kind in BETWEEN]
        for fault in [*during, *dice.sample(during, 1)]:
            _disturb(scene, fault, policy)
            for other in between:
                other(scene)
        states = shop.run(policy, faults=_error(dice, 6), grace_s=GRACE_S)
        assert set(states.values()) == {"completed"}, f"{states}\n{shop.story()}"
        shop.check_jobs()
        shop.check_left_as_found()
        scene.counts["resized in place"] += len(shop.events("JobRescaled"))
    fired = shop.folder / "fired"
    scene.counts["driver error"] += len(fired.read_text().split()) if fired.exists() else 0
    scene.counts.update(path.name.partition(".")[0] for path in shop.marks.glob("*.*"))
    return scene.counts


def _submit(shop: Shop, dice: random.Random, oddities: list[str], **fields: Any) -> None:
    for name, oddity in zip("abcd", [*oddities, "", "", "", ""], strict=False):
        deaf = ["--ignore-sigterm"] if oddity == "deaf job" else []
        odd = f"progress is {dice.choice(OF_JOBS[oddity])}" if OF_JOBS.get(oddity) else oddity
        more: dict[str, Any] = {"log_max": "1M"} if oddity == "output flood" else {}
        more |= fields | ({"memory": "300M"} if shop.device else {})
        workload, steps = dice.choice(WORKLOADS), dice.randint(80, 400)
        shop.odd_job(name, odd, workload, steps, *deaf, submit=dice.uniform(0, 30), **more)


def _submit_elastic(shop: Shop, dice: random.Random) -> None:
    shop.marks.mkdir(exist_ok=True)
    for name in "abc":
        steps, resize = dice.randint(300, 900), dice.choice(("in-place", "in-place", "restart"))
        command = [sys.executable, str(STRETCHY_JOB), "", str(shop.marks), str(steps)]
        sizes = {"min_gpus": dice.choice((1, 1, 2)), "max_gpus": 3}
        shop.command(name, *command, submit=dice.uniform(0, 30), resize=resize, **({"memory": "10M"} | sizes))
        shop.jobs[name] = steps


def _disturb(scene: Scene, fault: Fault, policy: str, errors: str | None = None) -> None:
    """One runner, with driver errors and one more fault; in the end it is killed, if it still runs."""
    runner = scene.shop.begin(policy, _faults(scene.dice) if errors is None else errors, grace_s=GRACE_S)
    if scene.shop.device:  # it measures how steady the device is before it begins
        until(lambda: (scene.shop.state / "run.json").exists() or runner.poll() is not None, "it begins")
    wait_a_little(scene, runner, 0.3, 2.5)
    fault(scene, runner)
    wait_a_little(scene, runner, 0.0, 0.6)
    scene.counts["runner killed"] += runner.poll() is None
    scene.shop.kill(runner)


def _faults(dice: random.Random) -> str:
    if dice.random() < 0.3:
        return f"*:{dice.randint(1, 400)}:UNKNOWN"
    return ",".join(_error(dice, 4) for _ in range(dice.randint(0, 2)))


def _error(dice: random.Random, latest: int) -> str:
    return f"{dice.choice(CALLS)}:{dice.randint(1, latest)}:{dice.choice(ERRORS)}"


def main(*words: str) -> int:
    elastic, on_gpus = words[:1] == ("--elastic",), words[:1] == ("--gpus",)
    words = words[1:] if elastic or on_gpus else words
    on_cpus = words[:2] == ("--device", "cpu")
    first, last, *kinds = words[2:] if on_cpus else words
    live = live_through_gpus if on_gpus else partial(live_through, elastic=elastic)
    return through(int(first), int(last), on_cpus, tuple(kinds), elastic, live)


def through(
    first: int,
    last: int,
    on_cpus: bool,
    kinds: tuple[str, ...],
    elastic: bool,
    live: Callable[[Shop, int, tuple[str, ...] | None], Counter[str]],
) -> int:
    tools, broken, counts = build(), 0, Counter[str]()
    for seed in range(first, last + 1):
        with tempfile.TemporaryDirectory(prefix="loom", ignore_cleanup_errors=True) as folder:
            (Path(folder) / "hw").mkdir()
            shop = Shop(Hardware(tools, Path(folder) / "hw"), Path(folder))
            shop.device = "3xcpu" if elastic else CPU_DEVICES[seed % len(CPU_DEVICES)]
            shop.device = shop.device if on_cpus else ""
            began = time.monotonic()
            try:
                happened = live(shop, seed, kinds or None)
                counts += happened
                story = ", ".join(f"{count} {kind}" for kind, count in sorted(happened.items()) if count)
                print(seed, f"fine in {time.monotonic() - began:.1f} s:", story, flush=True)
            except (AssertionError, subprocess.TimeoutExpired) as failure:
                broken += 1
                print(seed, "BROKEN:", type(failure).__name__, failure, flush=True)
                traceback.print_exc()
                for log in shop.store.jobs_dir.glob("*/err.log"):
                    print(f"--- {log}\n{log.read_text()[-2000:]}", flush=True)
            finally:
                shop.close()
    for kind in sorted({*KINDS, *OF_CPUS, *counts, "driver error", "resized in place"}):
        print(f"{counts[kind]:6} {kind}")
    print(f"{last - first + 1 - broken} of {last - first + 1} fine; {counts.total()} faults came to pass")
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
