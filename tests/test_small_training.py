"""The trainings for a CPU device, driven by their contract alone: the loss falls, and the end is always the same."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gpuloom.work.files import read_work
from gpuloom.work.model import Kind
from tests.live.shop import until

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "examples" / "small_training.py"
KINDS = ("mlp", "single", "embedding", "loader")
STEPS = 12


class Training:
    """One job with its folder of checkpoints, launched as often as it takes."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self.folder, self.saved = kind, folder, folder / "checkpoint.npz"
        folder.mkdir()

    def begin(self, steps: int = STEPS, threads: int = 1) -> "subprocess.Popen[bytes]":
        command = [sys.executable, str(SCRIPT), self.kind, "--steps", str(steps), "--save-every", "5"]
        environment = os.environ | {
            "OMP_NUM_THREADS": str(threads),
            "GPULOOM_CHECKPOINT_DIR": str(self.folder),
            "GPULOOM_PROGRESS": str(self.folder / "progress"),
            "GPULOOM_RESUME": "1" if self.saved.exists() else "0",
        }
        return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)

    def reported(self) -> dict[str, float]:
        path = self.folder / "progress"
        told: dict[str, float] = json.loads(path.read_text()) if path.exists() else {"step": 0}
        return told

    def broken_off(self, at_step: int, number: signal.Signals, threads: int) -> int:
        """Its exit code."""
        process = self.begin(threads=threads)
        until(lambda: self.reported()["step"] >= at_step or process.poll() is not None, f"step {at_step}")
        process.send_signal(number)
        return process.wait(60)


@pytest.mark.parametrize("kind", KINDS)
def test_stopped_and_killed_it_ends_with_the_same_weights_and_a_lower_loss(kind: str, tmp_path: Path) -> None:
    whole, broken = Training(kind, tmp_path / "whole"), Training(kind, tmp_path / "broken")
    assert whole.begin(threads=2).wait(60) == 0
    assert broken.begin(steps=1).wait(60) == 0
    first = broken.reported()["loss"]
    assert broken.broken_off(2, signal.SIGTERM, threads=2) == 0
    assert broken.broken_off(5, signal.SIGKILL, threads=1) == -signal.SIGKILL
    assert 5 <= broken.reported()["step"] < STEPS
    assert broken.begin(threads=1).wait(60) == 0
    assert broken.reported()["loss"] == whole.reported()["loss"] < first / 2
    with np.load(whole.saved) as one, np.load(broken.saved) as other:
        assert one["step"] == STEPS
        assert any(name.startswith("momentum") for name in one.files)
        for name in one.files:
            assert np.array_equal(one[name], other[name]), name


def test_who_was_done_says_so_and_changes_nothing(tmp_path: Path) -> None:
    done = Training("single", tmp_path / "done")
    assert done.begin(steps=2).wait(60) == 0
    before = done.saved.read_bytes()
    assert done.begin(steps=2).wait(60) == 0
    assert done.reported()["step"] == 2
    assert done.saved.read_bytes() == before


def test_gradients_are_those_of_the_loss(tmp_path: Path) -> None:
    """Each weight moved a little to either side, where numpy counts in doubles."""
    program = tmp_path / "check.py"
    program.write_text(CHECK, encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(SCRIPT.parent)}
    done = subprocess.run([sys.executable, str(program)], env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


CHECK = """
import numpy as np
from small_training import dense_gradients, recurrent_gradients

dice = np.random.default_rng(5)

def check(weights, gradients):
    for name, slope in gradients(weights)[1].items():
        for at in [(0, 0), (1, 2), (2, 1)]:
            losses = []
            for move in (1e-5, -1e-5):
                moved = {**weights, name: weights[name].copy()}
                moved[name][at] += move
                losses.append(gradients(moved)[0])
            assert np.isclose((losses[0] - losses[1]) / 2e-5, slope[at], rtol=1e-4, atol=1e-9), (name, at)

dense = {"first": dice.normal(size=(4, 5)), "second": dice.normal(size=(5, 5)), "last": dice.normal(size=(5, 3))}
inputs, wanted = dice.normal(size=(6, 4)), dice.normal(size=(6, 3))
check(dense, lambda weights: dense_gradients(weights, inputs, wanted, 6))
again = {"in": dice.normal(size=(4, 5)), "again": dice.normal(size=(5, 5)), "out": dice.normal(size=(5, 4))}
heard, told = dice.normal(size=(7, 6, 4)), dice.normal(size=(7, 6, 4))
check(again, lambda weights: recurrent_gradients(weights, heard, told))
"""


def test_its_work_file_is_read() -> None:
    entries, services = read_work(ROOT / "examples" / "cpu_jobs.yaml")
    assert not services
    assert {entry.job.command[2] for entry in entries} <= {*KINDS}
    for entry in entries:
        assert entry.job.kind is Kind.SLICEABLE
        assert entry.job.workload is not None
        assert entry.job.estimate_s is not None
