"""The socket by which a job is resized: whoever connects is heard and answered. Does not know what it means.

A script may go on when its training is over. Nobody is left in it who could answer, so a process of its own does until
the script's has exited. Not a thread: that would be gone where the script becomes another program (exec).
"""

import contextlib
import gc
import os
import select
import selectors
import signal
import socket
import struct
from collections.abc import Callable
from pathlib import Path

from gpuloom.train.elastic.settings import ElasticError
from gpuloom.train.elastic.wire import Lines, Message, short_name

GIVE_BACK_S = 10.0
_left_open: list[socket.socket] = []
"""The line to the process that answers for a training which has ended in this one."""


class Door:
    """Listens, if the environment names a socket. `asked` is called with every message, and who sent it."""

    def __init__(self, selector: selectors.BaseSelector, asked: Callable[[Lines, Message], None]) -> None:
        self._selector, self._asked = selector, asked
        self._clients: list[Lines] = []
        self._path = os.environ.get("GPULOOM_ELASTIC_SOCKET")
        self._listener: socket.socket | None = None
        self._inode: int | None = None
        """Of the socket's file, while it is ours to remove."""

    def open(self) -> None:
        if not self._path:
            return
        path = Path(self._path)
        _have_the_last_one_closed()
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
        self._listener, self._inode = listener, path.stat().st_ino
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
        if self._listener is not None:
            self._remove()
            self._selector.unregister(self._listener)
            self._listener.close()

    def leave_open(self) -> None:
        """To a process that answers as this one would until this one has exited. `close` closes this one's side then.

        It is nobody's child, so that nobody waits for it, and has nothing open but what it needs.
        """
        if self._listener is None:
            return
        ours, theirs = socket.socketpair()
        until = os.pidfd_open(os.getpid())
        with contextlib.suppress(OSError, ChildProcessError):  # no process for it; somebody who ignores SIGCHLD
            if (between := os.fork()) == 0:
                with contextlib.suppress(BaseException):
                    if os.fork() == 0:
                        self._answer_until(until, theirs)
                os._exit(0)
            self._inode = None
            os.waitpid(between, 0)
        os.close(until)
        theirs.close()
        _left_open.append(ours)

    def _answer_until(self, until: int, line: socket.socket) -> None:
        """Until the process of this pidfd has exited, or something is said on the line."""
        assert self._listener is not None
        gc.disable()  # a file that was collected would close a number that is another's by then
        signal.set_wakeup_fd(-1)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:  # they are the script's business
            signal.signal(number, signal.SIG_IGN)
        self._selector = selector = selectors.EpollSelector()
        selector.register(self._listener, selectors.EVENT_READ, self._accept)
        for client in self._clients:
            self._listen_to(client)
        for end in (until, line):
            selector.register(end, selectors.EVENT_READ)
        _close_all_but({selector.fileno(), *(key.fd for key in selector.get_map().values())})
        while True:
            for key, _ in selector.select():
                if key.fd == until or (key.fileobj is line and line.recv(1)):
                    self._remove()
                    os._exit(0)
                if key.fileobj is line:  # the script is another program now
                    selector.unregister(line)
                elif selector.get_map().get(key.fd) is key:
                    key.data()

    def _remove(self) -> None:
        """The socket's file, if it is still that one: as long as we have it open, no other has its number."""
        with contextlib.suppress(OSError):
            if self._path and Path(self._path).stat().st_ino == self._inode:
                Path(self._path).unlink()

    def _accept(self) -> None:
        assert self._listener is not None
        with contextlib.suppress(OSError):
            sock, _ = self._listener.accept()
            sock.setblocking(False)
            client = Lines(sock)
            self._clients.append(client)
            self._listen_to(client)

    def _listen_to(self, client: Lines) -> None:
        self._selector.register(client.sock, selectors.EVENT_READ, lambda: self._hear(client))

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


def _have_the_last_one_closed() -> None:
    """An earlier training of this script: its door is this one's now."""
    while _left_open:
        with _left_open.pop() as line, contextlib.suppress(OSError):
            line.settimeout(GIVE_BACK_S)
            line.sendall(b".")
            line.recv(1)


def _close_all_but(kept: set[int]) -> None:
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 (numbers, not paths)
        if int(name) not in kept:
            with contextlib.suppress(OSError):
                os.close(int(name))


def _somebody_listens(path: Path) -> bool:
    """Or would, if it were not so busy. A file that was left behind is nobody; who answers for the dead is going."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.setblocking(False)
        try:
            with short_name(path) as name:
                sock.connect(name)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return not _has_exited(struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0])


def _has_exited(pid: int) -> bool:
    try:
        process = os.pidfd_open(pid)
    except OSError as error:  # 0: of a namespace that is not ours
        return isinstance(error, ProcessLookupError)
    try:
        return bool(select.select([process], [], [], 0)[0])
    finally:
        os.close(process)
