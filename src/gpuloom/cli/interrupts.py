"""Ctrl-C, SIGTERM and a terminal that closes: whoever runs something is told how often, and what that means is said."""

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Protocol

INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interruptible(Protocol):
    interrupts: int


@contextmanager
def interruptible(say: Callable[[str], None], stopping: Sequence[str]) -> "Iterator[Holder]":
    """Interrupts ask whoever the holder is given to stop, the second time at once; `stopping`: what is said then.

    Before there is somebody they are kept.
    """
    holder = Holder(say, stopping)
    # Who was started to ignore one (nohup, a shell's background) goes on doing so.
    heard = [number for number in INTERRUPTS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, holder.interrupt) for number in heard}
    try:
        yield holder
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Holder:
    """What the signal handler reaches somebody through."""

    def __init__(self, say: Callable[[str], None], stopping: Sequence[str]) -> None:
        self._say, self._stopping = say, stopping
        self._held: Interruptible | None = None
        self._interrupts = 0

    def __call__(self, held: Interruptible) -> None:
        self._held = held
        held.interrupts = self._interrupts

    def interrupt(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self._interrupts += 1
        if self._held is not None:
            self._held.interrupts = self._interrupts
        self._say(self._stopping[min(self._interrupts, len(self._stopping)) - 1])
