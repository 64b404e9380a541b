"""What a job says to whoever runs it, and hears from it. Outside gpuloom everything here works and tells nobody.

The whole contract is environment variables, one file and one signal, so that a job in another language can keep it too:
GPULOOM_PROGRESS (a file), GPULOOM_CHECKPOINT_DIR (a folder that survives restarts), GPULOOM_RESUME (1 after the first
start), SIGTERM (save, then exit with 0).
"""

import contextlib
import json
import os
import signal
import stat
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from types import FrameType

ROOM_BYTES = 256
"""A report is filled up to a multiple of that."""
MOST_BYTES = 1 << 16


def report(step: int, **metrics: float) -> None:
    """Say how far the job is: `step` batches are done. The last word counts.

    Some file systems write a file to disk when it replaces another, which can take longer than a step. So the file is
    replaced where there is none yet that has the room, and else written over; `crc32` tells readers what is half.
    """
    told = os.environ.get("GPULOOM_PROGRESS")
    if not told:
        return
    # The second time is for speeds: nobody can set that clock, and all processes since the last boot have the same.
    times = {"at_unix_s": time.time(), "at_monotonic_s": time.monotonic()}
    line = json.dumps({"step": step, **times, **metrics})[:-1].encode()
    line += b', "crc32": %d}' % zlib.crc32(line)
    if not _written_over(told, line):
        _replaced(told, line)


def _written_over(told: str, line: bytes) -> bool:
    """Opened anew each time, which is cheap: others may replace it, fork, or close what they do not know."""
    try:
        file = os.open(told, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        status = os.fstat(file)
        size = status.st_size
        if not stat.S_ISREG(status.st_mode) or size % ROOM_BYTES or not len(line) < size <= MOST_BYTES:
            return False
        return os.pwrite(file, line.ljust(size - 1) + b"\n", 0) == size
    except OSError:
        return False
    finally:
        os.close(file)


def _replaced(told: str, line: bytes) -> None:
    draft, size = Path(f"{told}.{os.getpid()}"), (len(line) // ROOM_BYTES + 1) * ROOM_BYTES
    try:
        draft.write_bytes(line.ljust(size - 1) + b"\n")
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
