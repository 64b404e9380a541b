"""What a job says to whoever runs it, and hears from it. Outside gpuloom everything here works and tells nobody.

The whole contract is environment variables, one file and one signal, so that a job in another language can keep it too:
GPULOOM_PROGRESS (a file), GPULOOM_CHECKPOINT_DIR (a folder that survives restarts), GPULOOM_RESUME (1 after the first
start), SIGTERM (save, then exit with 0).
"""

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType


def report(step: int, **metrics: float) -> None:
    """Say how far the job is: `step` batches are done. The last word counts, so the file is replaced, never torn."""
    told = os.environ.get("GPULOOM_PROGRESS")
    if not told:
        return
    # The second time is for speeds: nobody can set that clock, and all processes since the last boot have the same.
    times = {"at_unix_s": time.time(), "at_monotonic_s": time.monotonic()}
    line = json.dumps({"step": step, **times, **metrics})
    draft = Path(f"{told}.{os.getpid()}")
    try:
        draft.write_text(line + "\n", encoding="utf-8")
        draft.replace(told)
    except OSError:  # a full disk: to be heard is not worth the training
        with contextlib.suppress(OSError):
            draft.unlink()


def _say_that_it_was_asked() -> None:
    """Whoever asked: a job that exits with 0 after that is not done."""
    told = os.environ.get("GPULOOM_PROGRESS")
    if told:
        with contextlib.suppress(OSError):
            Path(told).with_name("asked").touch()


def resuming() -> bool:
    """It has run before: there may be a checkpoint to go on from (none, if it was stopped before it saved one)."""
    return os.environ.get("GPULOOM_RESUME") == "1"


def checkpoint_dir() -> Path:
    """Where to save; outside gpuloom the working directory. The folder exists and belongs to this job alone."""
    return Path(os.environ.get("GPULOOM_CHECKPOINT_DIR") or ".")


def on_stop(callback: Callable[[], None]) -> None:
    """Call this once when the job is asked to stop. It should save and exit with 0, or have the training loop do so."""
    called = False

    def handle(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 (the signature of a handler)
        nonlocal called
        if not called:
            called = True
            _say_that_it_was_asked()
            callback()

    signal.signal(signal.SIGTERM, handle)
