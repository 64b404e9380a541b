"""A process of this machine, told apart from those that later get the same number."""

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple


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


def text_of(path: Path) -> str:
    """What a file of /proc or /sys says; nothing if it is gone, or not for us to read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def boot_id() -> str:
    """Another one after every start of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def born_ticks(pid: int) -> int | None:
    """When a process started; None if there is none, or only what is left of one until its parent looks.

    One whose first thread has ended looks dead to /proc, but has others.
    """
    try:
        # The name, in parentheses, may hold anything.
        words = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if words[0] == b"X" or (words[0] == b"Z" and int(words[17]) <= 1) else int(words[19])
