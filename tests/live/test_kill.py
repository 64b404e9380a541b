"""kill -9 of the runner at seeded moments, then the same command again, until all is done.

Every job is finished once, nothing is lost beyond its last checkpoint, and the hardware is as it was found.
"""

import random
import time

import pytest

from gpuloom.engine.log import read
from gpuloom.live import processes
from gpuloom.live.store import Store
from tests.engine.old_lines import old_line
from tests.live.chaos import live_through, live_through_gpus
from tests.live.shop import SAVE_EVERY, Shop, until

pytestmark = pytest.mark.xdist_group("mps")  # one of these looks at every MPS daemon of the host


@pytest.mark.parametrize(
    ("policy", "seed"), [("static:3,2,2", 1), ("whole-fifo", 2), ("miso-paper", 3), ("miso-paper", 4)]
)
def test_killed_and_started_again(shop: Shop, policy: str, seed: int) -> None:
    dice = random.Random(seed)
    shop.hardware.install("A100-40GB+resets")
    shop.job("a", "resnet 128", 200)
    shop.job("b", "bert 4", 120, submit=5)
    shop.job("c", "cyclegan 1", 80, submit=10)
    for _ in range(2):
        runner = shop.begin(policy)
        wanted = len(shop.events()) + dice.randint(1, 6)
        until(lambda: len(shop.events()) >= wanted or runner.poll() is not None, "something happens")  # noqa: B023
        time.sleep(dice.uniform(0, 0.1))
        shop.kill(runner)
    assert set(shop.run(policy).values()) == {"completed"}
    shop.check_jobs()
    shop.check_left_as_found()


@pytest.mark.parametrize("seed", [0])
def test_everything_goes_wrong(shop: Shop, seed: int) -> None:
    """`python -m tests.live.chaos 0 100` lives through more of this."""
    live_through(shop, seed)


@pytest.mark.parametrize("seed", [5])
def test_devices_that_misbehave(shop: Shop, seed: int) -> None:
    """What more seeds do: `python -m tests.live.chaos --gpus FIRST LAST`."""
    live_through_gpus(shop, seed)


def test_jobs_go_on_and_end_while_nobody_watches(shop: Shop) -> None:
    shop.hardware.install("A100-40GB+resets")
    shop.job("short", steps=60)
    shop.job("long", steps=400)
    runner = shop.begin("static:4,3")
    until(lambda: bool(shop.steps("short") and shop.steps("long")), "both work")
    shop.kill(runner)
    until(lambda: (shop.store.job_dir("short") / "launches/000001/exit").exists(), "the short one has ended")
    assert shop.events("JobCompleted") == []
    assert set(shop.run("static:4,3").values()) == {"completed"}
    assert len(list(shop.store.job_dir("short").glob("launches/*"))) == 1
    shop.check_jobs()
    shop.check_left_as_found()


def test_an_upgrade_while_jobs_live(shop: Shop) -> None:
    """A log of version 1, and a policy that has changed meanwhile: what was decided stands, and nobody is moved."""
    policy = shop.folder / "mine.py"
    imports = "from gpuloom.contract import Plan\nfrom gpuloom.policies.tiresias import Tiresias\n"
    policy.write_text(f"{imports}class Mine(Tiresias):\n    pass\n")
    shop.hardware.install("A100-40GB+resets")
    shop.job("a", steps=300)
    runner = shop.begin(f"{policy}:Mine")
    until(lambda: bool(shop.steps("a")), "it works")
    shop.kill(runner)
    log = shop.state / "log.jsonl"
    log.write_text("".join(map(old_line, read(Store(shop.state).lines(), "log"))))
    policy.write_text(f"{imports}class Mine(Tiresias):\n    def decide(self, view):\n        return Plan()\n")
    assert shop.run(f"{policy}:Mine") == {"a": "completed"}
    (reset,) = shop.events("PolicyReset")
    assert reset["cause"] == "the log does not have what the policy remembered"
    assert len(list(shop.store.job_dir("a").glob("launches/*"))) == 1
    assert (shop.state / "log.v1.jsonl").exists()
    shop.check_jobs()
    shop.check_left_as_found()


def test_after_a_reboot(shop: Shop) -> None:
    """Neither processes nor instances are left: jobs resume from their checkpoints, and nobody is blamed."""
    shop.hardware.install("A100-40GB+resets")
    shop.job("a", steps=200)
    shop.job("b", steps=200)
    runner = shop.begin("static:4,3")
    until(lambda: min(len(shop.steps("a")), len(shop.steps("b"))) > SAVE_EVERY, "both have saved")
    shop.kill(runner)
    processes.end(shop.store.jobs_dir)
    shop.hardware.ctl("reset", "0")
    assert set(shop.run("static:4,3").values()) == {"completed"}
    assert shop.events("JobCrashed") == []
    shop.check_jobs()
    shop.check_left_as_found()


def test_a_finished_run_is_not_run_again(shop: Shop) -> None:
    shop.hardware.install("A100-40GB+resets")
    shop.job("a", steps=20)
    assert shop.run("whole-fifo") == {"a": "completed"}
    before = shop.events()
    assert shop.run("whole-fifo") == {"a": "completed"}
    assert shop.events() == before
    assert shop.steps("a") == list(range(1, 21))
    shop.check_left_as_found()
