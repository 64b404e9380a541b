"""Where a copy's steps are read: its report, its output, or a progress file of its own. Each look gives what is new.

A job writes all of these, so they may be anything: what is not a step is none, and nothing here waits or grows.
Times are of the kernel's monotonic clock: the job's own where it tells them, else those of the look (`late_s`).
"""

import json
import os
import re
import stat
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from gpuloom.gpus.host.files import read_anyones
from gpuloom.live.store import Launch
from gpuloom.measure.plan import Telling, Workload
from gpuloom.measure.steps import Heard

LOOK_S = 0.02
"""Between two looks."""
MOST_LINE, MOST_A_LOOK, MOST_FILE = 4096, 1 << 20, 1 << 20
MOST_STEP = 10**15
_BREAK = re.compile(rb"[\r\n]+")
"""Progress bars draw a line over and over."""


class Listener(Protocol):
    @property
    def late_s(self) -> float:
        """How much later than they happened its steps may seem."""

    @property
    def trouble(self) -> str | None:
        """Why there will be no more, where it is not the command's own end that says it."""

    def hear(self) -> list[Heard]: ...


def listener_for(workload: Workload, launch: Launch, outputs: Sequence[Path], own: Path) -> Listener:
    """`own`: the folder in which the copy's files are."""
    match workload.telling:
        case Telling.OUTPUT:
            return Output(outputs, workload.where)
        case Telling.FILE:
            return OwnFile(own / workload.where)
        case _:
            return Report(launch)


class Report:
    """What `gpuloom.train.report` says."""

    late_s, trouble = 0.0, None

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._begun_s = time.monotonic()
        self._step: int | None = None

    def hear(self) -> list[Heard]:
        told = self._launch.progress()
        if told is None or told.step == self._step:
            return []
        self._step, now_s = told.step, time.monotonic()
        at_s = told.at_monotonic_s
        if at_s is None or not self._begun_s <= at_s <= now_s:  # of another clock
            self.late_s, at_s = LOOK_S, now_s
        return [Heard(at_s, told.step)]


class Output:
    """Lines that match, in what its keeper has kept of its output."""

    late_s, trouble = LOOK_S, None

    def __init__(self, paths: Sequence[Path], expression: str) -> None:
        self._tails = [Tail(path) for path in paths]
        self._expression = re.compile(expression)
        self._count = 0

    def hear(self) -> list[Heard]:
        now_s = time.monotonic()
        lines = [line for tail in self._tails for line in tail.lines()]
        steps = [step for line in lines for step in self._steps_in(line)]
        return [Heard(now_s, step) for step in steps if 0 <= step <= MOST_STEP]

    def _steps_in(self, line: str) -> list[int]:
        found = []
        for match in self._expression.finditer(line):
            if not self._expression.groups:
                self._count += 1
                found.append(self._count)
                continue
            with suppress(ValueError, OverflowError):  # no number
                found.append(int(float((match[1] or "").replace(",", ""))))
        return found


class Tail:
    """New whole lines of a file that grows, and that is renamed when it is large."""

    def __init__(self, path: Path) -> None:
        self._path, self._file, self._rest = path, -1, b""

    def lines(self) -> list[str]:
        if self._file < 0 and not self._open():
            return []
        data = os.read(self._file, MOST_A_LOOK)
        if not data and self._was_renamed():
            os.close(self._file)
            self._file = -1
            return self.lines() if self._open() else []
        *whole, rest = _BREAK.split(self._rest + data)
        self._rest = rest[-MOST_LINE:]
        return [line[:MOST_LINE].decode(errors="replace") for line in whole]

    def _open(self) -> bool:
        with suppress(OSError):
            self._file = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            if stat.S_ISREG(os.fstat(self._file).st_mode):
                return True
            os.close(self._file)
        self._file = -1
        return False

    def _was_renamed(self) -> bool:
        try:
            return self._path.lstat().st_ino != os.fstat(self._file).st_ino
        except OSError:
            return False

    def __del__(self) -> None:
        if self._file >= 0:
            os.close(self._file)


class OwnFile:
    """A progress file: its last line is an object of JSON with `step`, or has the step as its first whole number."""

    late_s, trouble = LOOK_S, None

    def __init__(self, path: Path) -> None:
        self._path, self._seen, self._step = path, (0, 0), -1

    def hear(self) -> list[Heard]:
        try:
            status = self._path.lstat()
            if (status.st_mtime_ns, status.st_size) == self._seen:
                return []
            text = read_anyones(self._path, MOST_FILE).decode(errors="replace")
        except OSError:
            return []
        self._seen = (status.st_mtime_ns, status.st_size)
        step = last_step(text)
        if step is None or step == self._step:
            return []
        self._step = step
        return [Heard(time.monotonic(), step)]


def last_step(text: str) -> int | None:
    """Of a progress file's text; None where it tells none."""
    line = next((line for line in reversed(text.split("\n")) if line.strip()), "")
    with suppress(ValueError, RecursionError):
        told = json.loads(line)
        if isinstance(told, dict):
            step = told.get("step")
            return step if isinstance(step, int) and 0 <= step <= MOST_STEP else None
    match = re.search(r"\d{1,15}", line)
    return None if match is None else int(match[0])
