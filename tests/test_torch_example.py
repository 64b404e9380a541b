"""The PyTorch example, driven by its contract alone: stopped and resumed, it ends with the very same weights."""

import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from gpuloom.live.store import Launch, Progress
from gpuloom.work.files import read_work
from tests.live.shop import until

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "examples" / "torch_job.py"
STEPS = 600
pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="needs PyTorch")

SAME = """
import sys, torch
one, other = (torch.load(path, weights_only=True) for path in sys.argv[1:])
assert one["step"] == other["step"] == 600
for name, weights in one["model"].items():
    assert torch.equal(weights, other["model"][name]), name
momenta = [[kept["momentum_buffer"] for kept in saved["optimizer"]["state"].values()] for saved in (one, other)]
assert momenta[0] and all(map(torch.equal, *momenta))
"""
"""In a process of its own: to import PyTorch takes long, and no other test should pay for it."""


class Training:
    """One job with its folder of checkpoints, launched as often as it takes."""

    def __init__(self, folder: Path) -> None:
        self.launch = Launch(folder, 1, 1, None)
        self.saved = folder / "checkpoint.pt"
        self.environment = os.environ | {
            "CUDA_VISIBLE_DEVICES": "",
            "OMP_NUM_THREADS": "1",  # with more, sums may be added up in another order
            "GPULOOM_CHECKPOINT_DIR": str(folder),
            "GPULOOM_PROGRESS": str(self.launch.progress_path),
        }
        folder.mkdir()

    def begin(self, *before: str) -> "subprocess.Popen[bytes]":
        command = [*before, sys.executable, str(SCRIPT), "--steps", str(STEPS), "--save-every", "50"]
        resume = {"GPULOOM_RESUME": "1"} if self.saved.exists() else {}
        return subprocess.Popen(command, env=self.environment | resume)

    def reported(self) -> int:
        progress: Progress | None = self.launch.progress()
        return 0 if progress is None else progress.step


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Training:
    """One that nobody has interrupted."""
    training = Training(tmp_path_factory.mktemp("torch") / "whole")
    assert training.begin().wait(120) == 0
    return training


@pytest.mark.xdist_group("torch")
@pytest.mark.parametrize(
    ("shell", "stops"),
    [
        ((), [(signal.SIGTERM, 70), (signal.SIGKILL, 130)]),
        (("bash", "-c", 'exec "$@"', "bash"), [(signal.SIGTERM, 70)]),
    ],
    ids=["plain", "behind bash"],
)
def test_stopped_and_killed_it_ends_with_the_same_weights(
    tmp_path: Path, whole: Training, shell: tuple[str, ...], stops: list[tuple[int, int]]
) -> None:
    broken = Training(tmp_path / "broken")
    for number, at_step in stops:
        process = broken.begin(*shell)
        until(lambda: broken.reported() >= at_step or process.poll() is not None, f"step {at_step}")  # noqa: B023
        process.send_signal(number)
        assert process.wait(60) == (0 if number == signal.SIGTERM else -number)
        assert at_step <= broken.reported() < STEPS
    assert broken.begin(*shell).wait(120) == 0
    done = subprocess.run([sys.executable, "-c", SAME, whole.saved, broken.saved], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


def test_it_is_short_and_its_work_file_is_read() -> None:
    assert len(SCRIPT.read_text().splitlines()) < 60
    jobs, _ = read_work(ROOT / "examples" / "torch_jobs.yaml")
    assert {entry.job.command[0] for entry in jobs} == {"python", "bash"}
