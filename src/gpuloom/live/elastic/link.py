"""A connection to the socket on which one job listens: lines of JSON, and nothing here ever waits.

The job is somebody else's program: what it sends may be anything, and what listens at its path may be somebody else.
"""

import json
import os
import socket
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MOST_BYTES = 1 << 20
"""Longer lines are no messages."""
MOST_WORDS = 300
MOST_GENERATION = 1 << 53
MOST_PAUSE_S = 1e9


@dataclass(frozen=True, slots=True)
class Status:
    """What a job says of itself, as far as it makes sense: texts can be printed and logged, numbers are finite."""

    generation: int
    done: bool = False
    refused: bool = False
    finished: bool = False
    """Its training is over; it only lives on for something else."""
    error: str | None = None
    workers: tuple[str, ...] | None = None
    pause_s: float | None = None


class Lost(Exception):  # noqa: N818 (a fact about the other side)
    """Nobody is there, or it does not speak as it should; the text says which."""


class Link:
    def __init__(self, path: Path, uid: int) -> None:
        """Connect; Lost if nobody listens there. `uid`: whose process it has to be."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        self._unread = self._unsent = b""
        try:
            folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:  # the kernel takes no names of sockets beyond 107 bytes
                self._socket.connect(f"/proc/self/fd/{folder}/{path.name}")
            finally:
                os.close(folder)
            listener = struct.unpack("3i", self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
            if listener != uid:
                raise Lost(f"process of user {listener} listens at its socket")
        except OSError as error:
            self.close()
            raise Lost(f"it does not listen at its socket ({error.strerror})") from error
        except Lost:
            self.close()
            raise

    def close(self) -> None:
        self._socket.close()

    def send(self, message: dict[str, Any]) -> None:
        """At once as far as it goes, and the rest with the next calls of `receive`."""
        self._unsent += json.dumps(message).encode() + b"\n"
        self._push()

    def _push(self) -> None:
        try:
            while self._unsent:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
        except BlockingIOError:
            pass
        except OSError as error:
            raise Lost("it has closed its socket") from error

    def receive(self) -> list[Status]:
        """What has come since; Lost if that was the last. What has no generation is nothing that was asked for."""
        self._push()
        try:
            while len(self._unread) <= MOST_BYTES and (data := self._socket.recv(1 << 16)):
                self._unread += data
            closed = len(self._unread) <= MOST_BYTES
        except BlockingIOError:
            closed = False
        except OSError:
            closed = True
        *lines, self._unread = self._unread.split(b"\n")
        if len(self._unread) > MOST_BYTES:
            raise Lost("it talks without end")
        found = [_object(line) for line in lines if line.strip()]
        if closed and not found:
            raise Lost("it has closed its socket")
        return [status for one in found if (status := _status(one)) is not None]


def _status(told: dict[str, Any]) -> Status | None:
    generation, error, workers, pause_s = (told.get(name) for name in ("generation", "error", "workers", "pause_s"))
    if type(generation) is not int or not 0 <= generation <= MOST_GENERATION:
        return None
    return Status(
        generation,
        done=told.get("done") is True,
        refused=bool(told.get("refused")),
        finished=told.get("finished") is True,
        error=None if error is None else _printable(error),
        workers=tuple(map(_printable, workers)) if isinstance(workers, list) else None,
        pause_s=pause_s if isinstance(pause_s, int | float) and 0 <= pause_s <= MOST_PAUSE_S else None,
    )


def _printable(told: Any) -> str:
    """In a line, without what moves a terminal's cursor or cannot be written to a log."""
    text = told[:MOST_WORDS] if isinstance(told, str) else "what is no text"
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


def _object(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Lost("what it answers is no message")
    return found
