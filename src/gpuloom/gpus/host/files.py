"""Files that outlive their writer and are shared by several: written whole or not at all, locked while one is at work.

A lock is the kernel's (flock): it is let go when the last descriptor is closed, however its holder ended. Two scripts
that run without gpuloom, `live.keeper` and the job's own `train.job`, write whole files by themselves.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path

_LOOK_AGAIN_S = 0.005


class Lock(IntEnum):
    """How a file is held: by one alone, or by all who hold it in the same way."""

    ALONE = fcntl.LOCK_EX
    TOGETHER = fcntl.LOCK_SH


def write_whole(path: Path, text: str) -> None:
    """The file has all of the text or what it had before, whoever is killed when."""
    draft = path.with_name(f"{path.name}.draft")
    with draft.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def open_lock(path: Path) -> int:
    """A descriptor to lock. The file is never removed: between removing and creating, two could hold "the" lock."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)


def try_lock(descriptor: int, lock: Lock, patience_s: float = 0.0) -> bool:
    """Whether it was to be had in that time."""
    deadline_s = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(descriptor, lock | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= deadline_s:
                return False
            time.sleep(_LOOK_AGAIN_S)


def is_locked(path: Path) -> bool:
    """Whether somebody holds it. Whoever tries to lock it at this very moment finds it held: have some patience."""
    if not path.exists():
        return False
    descriptor = open_lock(path)
    try:
        return not try_lock(descriptor, Lock.ALONE)
    finally:
        os.close(descriptor)


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """One at a time; the others wait."""
    descriptor = open_lock(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
