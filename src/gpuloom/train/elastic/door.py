"""The socket by which a job is resized: whoever connects is heard and answered. Does not know what it means."""

import contextlib
import os
import selectors
import socket
from collections.abc import Callable
from pathlib import Path

from gpuloom.train.elastic.settings import ElasticError
from gpuloom.train.elastic.wire import Lines, Message, short_name


class Door:
    """Listens, if the environment names a socket. `asked` is called with every message, and who sent it."""

    def __init__(self, selector: selectors.BaseSelector, asked: Callable[[Lines, Message], None]) -> None:
        self._selector, self._asked = selector, asked
        self._clients: list[Lines] = []
        self._path = os.environ.get("GPULOOM_ELASTIC_SOCKET")
        self._listener: socket.socket | None = None

    def open(self) -> None:
        if not self._path:
            return
        path = Path(self._path)
        if _somebody_listens(path):
            raise ElasticError(f"GPULOOM_ELASTIC_SOCKET {path}: another job that runs listens there")
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        mask = os.umask(0o177)
        try:
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
            with short_name(path) as name:
                listener.bind(name)
        except OSError as error:
            listener.close()
            raise ElasticError(f"GPULOOM_ELASTIC_SOCKET {path}: {error}") from None
        finally:
            os.umask(mask)
        listener.listen(16)
        listener.setblocking(False)
        self._listener = listener
        self._selector.register(listener, selectors.EVENT_READ, self._accept)

    def answer(self, client: Lines, message: Message) -> None:
        if not client.send(message):
            self._hang_up(client)

    def answer_all(self, message: Message) -> None:
        for client in list(self._clients):
            self.answer(client, message)

    def close(self) -> None:
        for client in list(self._clients):
            self._hang_up(client)
        if self._listener is not None and self._path:
            self._selector.unregister(self._listener)
            self._listener.close()
            with contextlib.suppress(OSError):
                Path(self._path).unlink()

    def _accept(self) -> None:
        assert self._listener is not None
        with contextlib.suppress(OSError):
            sock, _ = self._listener.accept()
            sock.setblocking(False)
            client = Lines(sock)
            self._clients.append(client)
            self._selector.register(sock, selectors.EVENT_READ, lambda: self._hear(client))

    def _hear(self, client: Lines) -> None:
        messages = client.receive()
        if messages is None:
            self._hang_up(client)
        for message in messages or ():
            self._asked(client, message)

    def _hang_up(self, client: Lines) -> None:
        if client in self._clients:
            self._clients.remove(client)
            self._selector.unregister(client.sock)
            client.close()


def _somebody_listens(path: Path) -> bool:
    """Or would, if it were not so busy; a file that was left behind is nobody."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.setblocking(False)
        try:
            with short_name(path) as name:
                sock.connect(name)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return True
