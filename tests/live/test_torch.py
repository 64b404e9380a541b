"""The PyTorch example under the runner: plain, behind a shell and behind torchrun, stopped with Ctrl-C and resumed."""

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from gpuloom.live.store import Launch
from tests.live.shop import Shop, interrupt, until

pytestmark = [
    pytest.mark.xdist_group("mps"),
    pytest.mark.skipif(find_spec("torch") is None, reason="needs PyTorch"),
]
SCRIPT = Path(__file__).parents[2] / "examples" / "torch_job.py"
STEPS = 3000
TRAINING = [str(SCRIPT), "--steps", str(STEPS), "--save-every", "1000000"]
"""It saves only when it is asked to: what is there after Ctrl-C was saved in its grace time."""
LAUNCHERS = {
    "plain": [sys.executable, *TRAINING],
    "bash": ["bash", "-c", f"{sys.executable} {' '.join(TRAINING)}; code=$?; echo left; exit $code"],
    "torchrun": [str(Path(sys.executable).with_name("torchrun")), "--standalone", "--nproc-per-node=1", *TRAINING],
}


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_it_is_stopped_with_a_checkpoint_and_goes_on(shop: Shop, launcher: str) -> None:
    shop.hardware.install("A100-40GB+resets")
    shop.environment["OMP_NUM_THREADS"] = "1"
    shop.command("train", *LAUNCHERS[launcher])
    runner = shop.begin("whole-fifo", pace=1.0, up_s=60.0, grace_s=30.0)
    until(lambda: _step(shop) > 20 or runner.poll() is not None, "it trains")
    interrupt(runner)
    shop.finish(runner, code=130)
    (stopped,) = shop.events("JobStopped")
    assert "killed" not in stopped["cause"]
    assert (shop.store.checkpoint_dir("train") / "checkpoint.pt").exists()
    at_the_stop, before = _step(shop), _launch(shop).number
    runner = shop.begin("whole-fifo", pace=1.0, up_s=60.0, grace_s=30.0)
    until(lambda: _launch(shop).number > before and _step(shop) > 0, "it is back")
    assert _step(shop) >= at_the_stop
    assert shop.finish(runner)["jobs"][0]["state"] == "completed"
    assert _step(shop) == STEPS
    assert shop.events("JobCrashed") == []
    shop.check_left_as_found()


def _launch(shop: Shop) -> Launch:
    launch = shop.store.last_launch("train")
    assert launch is not None
    return launch


def _step(shop: Shop) -> int:
    launch = shop.store.last_launch("train")
    progress = None if launch is None else launch.progress()
    return 0 if progress is None else progress.step
