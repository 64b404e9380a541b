"""A server asked again and again, one request at a time, from a thread of its own: every answer is a step.

A plain blocking socket: what it adds to the time between two answers is a tenth of a millisecond. Whoever measures
hears it as a command that tells its steps (`campaign.listen`).
"""

import contextlib
import socket
import threading
import time
from collections import deque

from gpuloom.measure.steps import Heard
from gpuloom.serve.gateway.http_message import BadMessageError, Framing, Message, get

CHUNK = 1 << 20
MOST_SAID = 200


class LostError(Exception):
    """There was no answer; the text says why."""


class Line:
    """A connection to one server."""

    def __init__(self, host: str, port: int, timeout_s: float) -> None:
        try:
            self._socket = socket.create_connection((host, port), timeout_s)
        except OSError as error:
            raise LostError(f"{host}:{port} cannot be reached ({error.strerror or error})") from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._framing = Framing()

    def ask(self, request: bytes) -> Message:
        try:
            self._socket.sendall(request)
            while (answer := self._framing.take()) is None:
                data = self._socket.recv(CHUNK)
                if not data:
                    raise LostError("the server closed the connection instead of answering")
                self._framing.feed(data)
        except TimeoutError:
            raise LostError(f"no answer within {self._socket.gettimeout():g} s") from None
        except (OSError, BadMessageError) as error:
            raise LostError(f"the connection broke ({error})") from None
        return answer

    def close(self) -> None:
        """Whoever waits for an answer gets LostError."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def asked_once(host: str, port: int, path: str, timeout_s: float) -> Message | None:
    """What a server says to a GET; None if it does not."""
    try:
        line = Line(host, port, timeout_s)
    except LostError:
        return None
    try:
        return line.ask(get(path))
    except LostError:
        return None
    finally:
        line.close()


class Asker:
    """A listener: hears an answer as a step."""

    late_s, odd = 0.0, None

    def __init__(self, host: str, port: int, request: bytes, timeout_s: float) -> None:
        self.trouble: str | None = None
        self._news: deque[Heard] = deque()
        self._stopped = threading.Event()
        self._line: Line | None = None
        self._thread = threading.Thread(target=self._go_on, args=(host, port, request, timeout_s), daemon=True)
        self._thread.start()

    def hear(self) -> list[Heard]:
        return [self._news.popleft() for _ in range(len(self._news))]

    def stop(self) -> None:
        """Returns when it asks no more."""
        self._stopped.set()
        if self._line is not None:
            self._line.close()
        self._thread.join()

    def _go_on(self, host: str, port: int, request: bytes, timeout_s: float) -> None:
        try:
            self._line = Line(host, port, timeout_s)
            self._news.append(Heard(time.monotonic(), 0))
            number = 0
            while not self._stopped.is_set():
                answer = self._line.ask(request)
                if answer.status != 200:
                    said = answer.body[:MOST_SAID].decode("utf-8", "replace")
                    raise LostError(f"the server answered with {answer.status}: {said}")
                number += 1
                self._news.append(Heard(time.monotonic(), number))
        except LostError as error:
            if not self._stopped.is_set():
                self.trouble = str(error)
        finally:
            if self._line is not None:
                self._line.close()
