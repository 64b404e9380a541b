"""Processes of this machine, told apart from those that later get the same number.

Who belongs to a launch is read from the environment that it was started with, so that a runner that was killed before
it could write anything down still finds its jobs, and never somebody else's.
"""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

MARK = "GPULOOM_RUN"
"""The variable that names a launch's folder in the environment of all its processes."""


class ProcessId(NamedTuple):
    pid: int
    born_ticks: int
    """When it started, since boot: a number that is used again has another."""

    @property
    def lives(self) -> bool:
        return born_ticks(self.pid) == self.born_ticks

    def signal(self, number: int) -> None:
        if self.lives:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


def born_ticks(pid: int) -> int | None:
    """When a process started; None if there is none, or only what is left of one until its parent looks."""
    try:
        # The name, in parentheses, may hold anything.
        words = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if words[0] in (b"Z", b"X") else int(words[19])


def marked(under: Path) -> dict[Path, list[ProcessId]]:
    """Living processes of the launches in this folder, by the launch's folder."""
    found: dict[Path, list[ProcessId]] = {}
    start, prefix = f"{MARK}=".encode(), f"{MARK}={under}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes()
        except OSError:
            continue  # ended, or somebody else's
        for entry in environment.split(b"\0") if prefix in environment else ():
            if entry == prefix or entry.startswith(prefix + b"/"):
                pid = int(folder.name)
                if (born := born_ticks(pid)) is not None:
                    found.setdefault(Path(os.fsdecode(entry.removeprefix(start))), []).append(ProcessId(pid, born))
    return found


def end(under: Path, timeout_s: float = 5.0) -> bool:
    """Kill every process of the launches in this folder; whether they are gone."""
    deadline = time.monotonic() + timeout_s
    while alive := [process for processes in marked(under).values() for process in processes]:
        if time.monotonic() > deadline:
            return False
        for process in alive:
            process.signal(signal.SIGKILL)
        time.sleep(0.002)
    return True
