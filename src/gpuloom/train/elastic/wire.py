"""Line-delimited JSON over a stream socket: what all parties of an elastic job speak. Standard library only."""

import contextlib
import json
import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

LONGEST = 1 << 20
"""A line that is longer is no message: who sends it is disconnected."""

Message = dict[str, Any]


class Lines:
    """A socket and what has been read of a line that is not yet whole."""

    __slots__ = ("_rest", "sock")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._rest = b""

    def receive(self) -> list[Message] | None:
        """The messages that one read completes; None once the other side has gone (or talks rubbish)."""
        try:
            data = self.sock.recv(1 << 16)
        except (BlockingIOError, InterruptedError, TimeoutError):
            return []
        except OSError:
            return None
        return self._completed_by(data)

    def last_words(self) -> Iterator[Message]:
        """Of one who has died: what lies there, and no more. A process that it started may hold its end for ever."""
        self.sock.setblocking(False)
        with contextlib.suppress(OSError):  # to wait would be one
            while (messages := self._completed_by(self.sock.recv(1 << 16))) is not None:
                yield from messages

    def _completed_by(self, data: bytes) -> list[Message] | None:
        if not data:
            return None
        *lines, self._rest = (self._rest + data).split(b"\n")
        try:
            return None if len(self._rest) > LONGEST else list(_objects(lines))
        except (ValueError, RecursionError):  # the second for lists in lists in lists
            return None

    def send(self, message: Mapping[str, Any]) -> bool:
        """False if the other side has gone, or does not read."""
        try:
            self.sock.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            return False
        return True

    def close(self) -> None:
        self.sock.close()


def _objects(lines: list[bytes]) -> Iterator[Message]:
    for line in lines:
        if line.strip():
            found = json.loads(line)
            if not isinstance(found, dict):
                raise ValueError("a message is an object")
            yield found


@contextlib.contextmanager
def short_name(path: Path) -> Iterator[str]:
    """A name for a socket's file that fits into the 107 bytes which the kernel allows, wherever it lies."""
    folder = os.open(path.absolute().parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
