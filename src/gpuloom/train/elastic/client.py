"""Whoever resizes a job: a small synchronous client of its socket. Standard library only, and no PyTorch."""

import socket
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from gpuloom.train.elastic.wire import Lines, Message, short_name


class Client:
    """One connection. `resize` returns when the job is as told (or says why not); `status` returns what it is now."""

    def __init__(self, path: Path | str, timeout_s: float = 10.0) -> None:
        """Connect; a job that has not opened its socket yet is waited for. ConnectionError if it does not come."""
        self._waiting: list[Message] = []
        until = time.monotonic() + timeout_s
        while True:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                with short_name(Path(path)) as name:
                    sock.connect(name)
                break
            except (FileNotFoundError, ConnectionRefusedError) as error:
                sock.close()
                if time.monotonic() > until:
                    raise ConnectionError(f"nobody listens at {path}") from error
                time.sleep(0.01)
        self._lines = Lines(sock)

    def status(self, timeout_s: float = 10.0) -> Message:
        """What the job is just now."""
        self._waiting.clear()
        self._tell({"op": "status"})
        return self._next(time.monotonic() + timeout_s)

    def resize(
        self,
        generation: int,
        workers: Sequence[dict[str, Any]],
        batch: int | None = None,
        timeout_s: float = 60.0,
        wait: bool = True,
    ) -> Message:
        """Tell the whole target. With `wait`, the status that says it is done, which may be a later generation's."""
        self._waiting.clear()
        self._tell({"op": "resize", "generation": generation, "workers": list(workers), "batch": batch})
        until = time.monotonic() + timeout_s
        while True:
            found = self._next(until)
            if not wait or (found["done"] and found["generation"] >= generation) or found.get("refused"):
                return found

    def settled(self, timeout_s: float = 60.0) -> Message:
        """The status, once nothing is under way."""
        until = time.monotonic() + timeout_s
        found = self.status(timeout_s)
        while not found["done"]:
            found = self._next(until)
        return found

    def close(self) -> None:
        self._lines.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _tell(self, message: Message) -> None:
        if not self._lines.send(message):
            raise ConnectionError("the job has gone")

    def _next(self, until: float) -> Message:
        while not self._waiting:
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError("the job did not answer in time")
            self._lines.sock.settimeout(left)
            found = self._lines.receive()
            if found is None:
                raise ConnectionError("the job has gone")
            self._waiting.extend(found)
        return self._waiting.pop(0)
