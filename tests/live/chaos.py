"""Random faults, one seed after the other: `python -m tests.live.chaos FIRST LAST`.

Driver errors on the n-th call, kill -9 of the runner, Ctrl-C, jobs that ignore SIGTERM, jobs that are killed. In the
end every job must have finished once, with nothing lost beyond its last checkpoint, and the hardware must be as found.
What is counted came to pass: a driver error that no call met, or a kill of a runner that had ended, is none.
A seed fixes what is tried; when exactly it strikes depends on how fast the machine is.
"""

import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gpuloom.live import processes
from tests.live.shop import Shop
from tests.standin.build import build
from tests.standin.hardware import Hardware

POLICIES = ("miso-paper", "miso", "static:3,2,2", "whole-fifo")
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
MOST_KILLED_JOBS = 2
"""A job that crashes four times is given up, and that would be right."""


def live_through(shop: Shop, seed: int) -> list[str]:
    """What was done to it; AssertionError if a promise was broken."""
    dice = random.Random(seed)
    shop.hardware.install(*["A100-40GB+resets"] * dice.randint(1, 2))
    policy, story = dice.choice(POLICIES), list[str]()
    for name in "abcd":
        deaf = ["--ignore-sigterm"] if dice.random() < 0.2 else []
        story += ["a deaf job"] * len(deaf)
        shop.job(name, dice.choice(WORKLOADS), dice.randint(80, 400), *deaf, submit=dice.uniform(0, 30))
    for _ in range(dice.randint(1, 4)):
        faults = _faults(dice)
        runner = shop.begin(policy, faults, grace_s=GRACE_S)
        story += [f"{policy} with {faults or 'no driver error'}", *_disturb(shop, runner, dice, story)]
        story += ["kill -9"] if runner.poll() is None else []
        shop.kill(runner)
    states = shop.run(policy, faults=_error(dice, 6), grace_s=GRACE_S)
    fired = shop.folder / "fired"
    story += [f"driver error in {call}" for call in (fired.read_text().split() if fired.exists() else ())]
    assert set(states.values()) == {"completed"}, f"{states}\n{shop.story()}"
    shop.check_jobs()
    shop.check_left_as_found()
    return story


def _faults(dice: random.Random) -> str:
    if dice.random() < 0.3:
        return f"*:{dice.randint(1, 400)}:UNKNOWN"
    return ",".join(_error(dice, 4) for _ in range(dice.randint(0, 2)))


def _error(dice: random.Random, latest: int) -> str:
    return f"{dice.choice(CALLS)}:{dice.randint(1, latest)}:{dice.choice(ERRORS)}"


def _disturb(shop: Shop, runner: "subprocess.Popen[str]", dice: random.Random, before: list[str]) -> list[str]:
    """For a random time; what came of it. Whoever kills the runner afterwards may do so while it closes."""
    done = list[str]()
    until = time.monotonic() + dice.uniform(0.3, 3)
    while time.monotonic() < until and runner.poll() is None:
        time.sleep(0.05)
        alive = [process for found in processes.marked(shop.store.jobs_dir).values() for process in found]
        if alive and dice.random() < 0.02 and [*before, *done].count("killed a job") < MOST_KILLED_JOBS:
            dice.choice(alive).signal(signal.SIGKILL)
            done.append("killed a job")
    if dice.random() < 0.35 and runner.poll() is None:
        runner.send_signal(signal.SIGINT)
        done.append("Ctrl-C")
        time.sleep(dice.uniform(0, 0.6))
    return done


def main(first: int, last: int) -> int:
    tools, broken, injected = build(), 0, 0
    for seed in range(first, last + 1):
        with tempfile.TemporaryDirectory(prefix="loom", ignore_cleanup_errors=True) as folder:
            (Path(folder) / "hw").mkdir()
            shop = Shop(Hardware(tools, Path(folder) / "hw"), Path(folder))
            began = time.monotonic()
            try:
                story = live_through(shop, seed)
                injected += sum(" with " not in word for word in story)
                print(seed, f"fine in {time.monotonic() - began:.1f} s:", "; ".join(story), flush=True)
            except (AssertionError, subprocess.TimeoutExpired) as failure:
                broken += 1
                print(seed, "BROKEN:", failure, flush=True)
            finally:
                shop.close()
    print(f"{last - first + 1 - broken} of {last - first + 1} fine; {injected} faults injected")
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
