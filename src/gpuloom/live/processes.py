"""The processes of launches by the mark that they were started with: found, and ended.

The second best: a process can lose its mark, so that none is found proves nothing. It is looked for where there are no
cgroups, and of launches whose keeper was killed; whoever carries it is one of ours, and never somebody else's.
"""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from gpuloom.gpus.host.processes import ProcessId, born_ticks

MARK = "GPULOOM_RUN"
"""The variable that names a launch's folder in the environment of all its processes."""


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


def leader(folder: Path) -> ProcessId | None:
    """Of a launch's processes the one that leads its session: its keeper."""
    for process in marked(folder).get(folder, []):
        with suppress(ProcessLookupError):
            if os.getsid(process.pid) == process.pid:
                return process
    return None


def end(under: Path, timeout_s: float = 5.0) -> bool:
    """Kill every process of the launches in this folder; whether they are gone."""
    deadline = time.monotonic() + timeout_s
    # One that is dying has given its memory back, and the mark with it, long before it lets go of files and GPU.
    dying: set[ProcessId] = set()
    while True:
        alive = [process for processes in marked(under).values() for process in processes]
        dying = {process for process in dying.union(alive) if process.lives}
        if not dying:
            return True
        for process in alive:
            process.signal(signal.SIGKILL)
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)
