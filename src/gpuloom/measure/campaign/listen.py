"""Where a copy's steps are read: its report, its output, or a progress file of its own. Each look gives what is new.

A job writes all of these, so they may be anything: what is not a step is none, and nothing here waits or grows.
Times are of the kernel's monotonic clock: the job's own where it tells them, else those of the look (`late_s`).
"""

import json
import os
import re
import signal
import stat
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from heapq import merge
from math import inf
from pathlib import Path
from types import FrameType
from typing import Protocol

from gpuloom.gpus.host.files import read_anyones
from gpuloom.live.store import Launch
from gpuloom.measure.plan import Telling, Workload
from gpuloom.measure.steps import Heard
from gpuloom.work.source import shown

LOOK_S = 0.02
"""Between two looks."""
MOST_LINE, MOST_A_LOOK, MOST_FILE = 4096, 1 << 20, 1 << 20
MOST_STEP = 10**15
MOST_CPU_S = 1.0
"""That an expression may take for what came since the last look."""
TOO_LONG = (
    f"in what it printed its steps could not be found within {MOST_CPU_S:g} s of CPU time: give a simpler expression"
)
_BREAK = re.compile(rb"[\r\n]+")
"""Progress bars draw a line over and over."""


class Listener(Protocol):
    @property
    def late_s(self) -> float:
        """How much later than they happened its steps may seem."""

    @property
    def trouble(self) -> str | None:
        """Why there will be no more, where it is not the command's own end that says it."""

    @property
    def odd(self) -> str | None:
        """What was told instead of a step, in words: a number that cannot be one."""

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
        self._begun_s, self._last_s = time.monotonic(), -inf
        self._step: int | None = None
        self.odd: str | None = None

    def hear(self) -> list[Heard]:
        told = self._launch.told()
        if told is None or told.step == self._step:
            return []
        if not told.can_be:
            self.odd = shown(told.step)
            return []
        self._step, now_s = told.step, time.monotonic()
        at_s = told.at_monotonic_s
        if at_s is None or not self._begun_s <= at_s <= now_s or at_s <= self._last_s:  # of another clock
            self.late_s, at_s = LOOK_S, now_s
        self._last_s = at_s
        return [Heard(at_s, told.step, now_s)]


class Output:
    """Lines that match, in what its keeper has kept of its output."""

    late_s = LOOK_S

    def __init__(self, paths: Sequence[Path], expression: str) -> None:
        self.trouble: str | None = None
        self.odd: str | None = None
        self._tails = [Tail(path) for path in paths]
        self._expression = re.compile(expression)
        self._count = 0
        self._last = [0] * len(paths)
        self._most = 0

    def hear(self) -> list[Heard]:
        now_s = time.monotonic()
        try:
            return [Heard(now_s, step) for step in self._new()]
        except TooLongError:
            self.trouble = TOO_LONG
            return []

    def _new(self) -> list[int]:
        if self.trouble is not None:
            return []
        lines = [tail.lines() for tail in self._tails]
        if not any(lines):
            return []
        with at_most(MOST_CPU_S):
            found = [[step for line in of_one for step in self._steps_in(line)] for of_one in lines]
        return self._in_order([[step for step in steps if self._can_be(step)] for steps in found])

    def _can_be(self, step: int) -> bool:
        if not 0 <= step <= MOST_STEP:
            self.odd = shown(step)
            return False
        return True

    def _in_order(self, found: Sequence[Sequence[int]]) -> list[int]:
        """Of all outputs: what one tells late that another has told already is nothing new, and nobody's step back."""
        apart = [[(step, at) for step in steps] for at, steps in enumerate(found)]
        told = []
        for step, at in merge(*apart, key=lambda one: one[0]):
            goes_back, self._last[at] = step < self._last[at], step
            if goes_back or step >= self._most:
                self._most = step
                told.append(step)
        return told

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


class TooLongError(Exception):
    """For what may take so long."""


@contextmanager
def at_most(cpu_s: float) -> Iterator[None]:
    """TooLongError for what takes more CPU time: expressions that go back and forth may take years, in which nobody is
    heard who wants to stop. Only the main thread can be interrupted."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def give_up(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 (the signature of a handler)
        raise TooLongError

    before = signal.signal(signal.SIGVTALRM, give_up)
    signal.setitimer(signal.ITIMER_VIRTUAL, cpu_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)


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
        self.odd: str | None = None

    def hear(self) -> list[Heard]:
        try:
            status = self._path.lstat()
            if (status.st_mtime_ns, status.st_size) == self._seen:
                return []
            text = read_anyones(self._path, MOST_FILE).decode(errors="replace")
        except OSError:
            return []
        self._seen = (status.st_mtime_ns, status.st_size)
        number, step = last_number(text), last_step(text)
        if number is not None and step is None:
            self.odd = shown(number)
        if step is None or step == self._step:
            return []
        self._step = step
        return [Heard(time.monotonic(), step)]


def last_step(text: str) -> int | None:
    """Of a progress file's text; None where it tells none."""
    number = last_number(text)
    return number if number is not None and 0 <= number <= MOST_STEP else None


def last_number(text: str) -> int | None:
    """Where the step should be, whether it can be one or not."""
    line = next((line for line in reversed(text.split("\n")) if line.strip()), "")
    with suppress(ValueError, RecursionError):
        told = json.loads(line)
        if isinstance(told, dict):
            step = told.get("step")
            return step if isinstance(step, int) else None
    match = re.search(r"\d{1,15}", line)
    return None if match is None else int(match[0])
