"""The fork server: the user's script itself, once it calls `run`. It has imported everything and trains nothing.

One loop over sockets and processes; what they mean is the conductor's business. It touches no CUDA and starts no
thread, so that a fork of it is a sound worker after some milliseconds. The store by which groups meet is a process of
its own.
"""

import contextlib
import os
import secrets
import selectors
import signal
import socket
import time
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpuloom.train.elastic.actions import Action, Finish, Fork, Kill, NewStore, Settled, Tell
from gpuloom.train.elastic.conductor import Conductor
from gpuloom.train.elastic.door import Door
from gpuloom.train.elastic.settings import ElasticError, Seat, Settings, target_from
from gpuloom.train.elastic.wire import Lines, Message
from gpuloom.train.elastic.words import flush, tell
from gpuloom.train.job import on_stop

if TYPE_CHECKING:
    from gpuloom.train.elastic.worker import Worker

TICK_S = 0.5


@dataclass(slots=True)
class Child:
    """A worker as the server sees it."""

    ident: int
    seat: Seat
    pid: int
    pidfd: int
    lines: Lines
    stopped_s: float = 0.0
    crash: str | None = None


class Server:
    def __init__(
        self, train: "Callable[[Worker], None]", settings: Settings, conductor: Conductor, resume: bool
    ) -> None:
        self._train, self._settings, self._conductor, self._resume = train, settings, conductor, resume
        self._launch = secrets.token_hex(8)
        self._children: dict[int, Child] = {}
        self._selector = selectors.DefaultSelector()
        self._door = Door(self._selector, self._asked)
        self._store_pid = self._store_port = 0
        self._awake_s = 0.0
        self._finish: Finish | None = None
        self.stopped = self.interrupted = False

    # --- the loop

    def serve(self) -> Finish:
        handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
        waker, wakes = socket.socketpair()
        for end in (waker, wakes):
            end.setblocking(False)
        woken = signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)
        on_stop(self._asked_to_stop)
        for number in (signal.SIGINT, signal.SIGHUP):
            if number == signal.SIGINT or handlers[number] is not signal.SIG_IGN:  # which is nohup's
                signal.signal(number, lambda *_: self._asked_to_stop(interrupted=True))
        self._selector.register(waker, selectors.EVENT_READ, lambda: waker.recv(64))
        try:
            self._door.open()
            self._start_store()
            self._do(self._conductor.begin(self._awake_s))
            self._loop()
        finally:
            self._close()
            signal.set_wakeup_fd(woken)
            for number, handler in handlers.items():
                signal.signal(number, handler)
            waker.close()
            wakes.close()
        assert self._finish is not None
        return self._finish

    def _loop(self) -> None:
        told = False
        while self._finish is None:
            began = time.monotonic()
            for key, _ in self._selector.select(TICK_S):
                # What was heard before it in this round may have closed it.
                if self._finish is None and self._selector.get_map().get(key.fd) is key:
                    key.data()
            if self.stopped and not told:
                told = True
                self._do(self._conductor.stop(self._awake_s))
            # Not the clock's time: whoever stops or freezes the whole job takes time from all of it.
            passed_s = min(time.monotonic() - began, 2 * TICK_S)
            self._awake_s += passed_s
            self._kill_stopped(passed_s)
            self._do(self._conductor.tick(self._awake_s))

    def _asked_to_stop(self, interrupted: bool = False) -> None:
        self.stopped, self.interrupted = True, self.interrupted or interrupted

    def _do(self, actions: list[Action]) -> None:
        waiting = deque(actions)
        while waiting and self._finish is None:
            action = waiting.popleft()
            match action:
                case Fork(ident, seat):
                    waiting += self._fork(ident, seat)
                case Tell(ident, message):
                    if message["do"] == "form":
                        message = {**message, "store": [self._settings.address, self._store_port]}
                    if ident in self._children:
                        self._children[ident].lines.send(message)
                case Kill(ident, why):
                    if why is not None and ident in self._children:
                        tell(f"the worker on {self._children[ident].seat.device} cannot join: {why}")
                    self._kill(ident)
                case NewStore():
                    tell("workers do not come together: they are given another store to meet at")
                    self._replace_store()
                case Settled():
                    self._door.answer_all(self._status())
                case Finish():
                    self._finish = action

    def _asked(self, client: Lines, message: Message) -> None:
        """Somebody at the door. The answer is what is now; that a target is reached is told to all, later."""
        actions: list[Action] = []
        refused: Message = {}
        try:
            match message.get("op"):
                case "resize":
                    actions = self._conductor.resize(target_from(message), self._awake_s)
                case "status":
                    pass
                case other:
                    raise ElasticError(f"op is {other!r}; resize and status are known")
        except ElasticError as wrong:
            refused = {"error": str(wrong), "refused": True}
        self._door.answer(client, {**self._status(), **refused})
        self._do(actions)

    def _status(self) -> Message:
        return self._conductor.status({child.ident: child.pid for child in self._children.values()})

    # --- workers

    def _fork(self, ident: int, seat: Seat) -> list[Action]:
        """A worker. Where the kernel has none to give, it is one that died at once: the others go on."""
        try:
            pid, ours = self._forked(seat)
        except OSError as error:  # too many processes, or open files
            return self._conductor.died(ident, f"no process for it: {error.strerror}", False, self._awake_s)
        child = Child(ident, seat, pid, os.pidfd_open(pid), Lines(ours))
        self._children[ident] = child
        self._selector.register(ours, selectors.EVENT_READ, lambda: self._hear(child))
        self._selector.register(child.pidfd, selectors.EVENT_READ, lambda: self._bury(child))
        return []

    def _forked(self, seat: Seat) -> tuple[int, socket.socket]:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        flush()
        with theirs:
            try:
                pid = os.fork()
            except OSError:
                ours.close()
                raise
            if pid == 0:
                ours.close()
                self._be_a_worker(seat, theirs)
        return pid, ours

    def _be_a_worker(self, seat: Seat, line: socket.socket) -> None:
        """In a fork. Never returns: whatever happens must not unwind into what the server was doing."""
        try:
            self._forget_all()
            from gpuloom.train.elastic.worker import work

            work(self._train, self._settings, seat, Lines(line), self._launch, self._resume)
        except BaseException:
            tell(traceback.format_exc())
        finally:
            os._exit(1)

    def _forget_all(self) -> None:
        """In a fork: what belongs to the server, so that nobody holds a line open but its two ends."""
        signal.set_wakeup_fd(-1)
        for key in list(self._selector.get_map().values()):
            number = key.fileobj if isinstance(key.fileobj, int) else key.fileobj.fileno()
            with contextlib.suppress(OSError):
                os.close(number)
        self._selector.close()

    def _hear(self, child: Child) -> None:
        messages = child.lines.receive()
        if messages is None:
            self._selector.unregister(child.lines.sock)
            return
        for message in messages:
            self._heard(child, message)

    def _heard(self, child: Child, message: Message) -> None:
        if message["say"] == "crash":
            child.crash = message["traceback"]
        if self._finish is None:
            self._do(self._conductor.heard(child.ident, message, self._awake_s))

    def _bury(self, child: Child) -> None:
        """Its last words first, then its death."""
        for message in child.lines.last_words():
            self._heard(child, message)
        status = os.waitpid(child.pid, 0)[1]
        self._release(child)
        code = os.waitstatus_to_exitcode(status)
        how = f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"
        if self._finish is None:
            self._do(self._conductor.died(child.ident, how, code == 0, self._awake_s))
        if self._finish is None and child.crash is not None:
            tell(f"the worker on {child.seat.device} ended with an exception:\n{child.crash}")

    def _release(self, child: Child) -> None:
        with contextlib.suppress(KeyError):
            self._selector.unregister(child.lines.sock)
        self._selector.unregister(child.pidfd)
        child.lines.close()
        os.close(child.pidfd)
        del self._children[child.ident]

    def _kill(self, ident: int) -> None:
        if ident in self._children:
            signal.pidfd_send_signal(self._children[ident].pidfd, signal.SIGKILL)

    def _kill_stopped(self, passed_s: float) -> None:
        """A worker that somebody has stopped (SIGSTOP) is as good as dead after the time-out, also if it is alone."""
        for child in list(self._children.values()):
            child.stopped_s = child.stopped_s + passed_s if _is_stopped(child.pid) else 0.0
            if child.stopped_s >= self._settings.timeout_s:
                self._kill(child.ident)

    # --- the store by which groups meet

    def _start_store(self) -> None:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            listener.bind((self._settings.address, 0))
        except OSError as error:
            listener.close()
            raise ElasticError(f"address {self._settings.address}: {error.strerror or error}") from None
        listener.listen(128)
        self._store_port = listener.getsockname()[1]
        alive, kept = socket.socketpair()
        if (pid := os.fork()) == 0:
            kept.close()
            _keep_store(listener, alive, self._settings.address, self._store_port, self._forget_all)
        listener.close()
        alive.close()
        self._store_pid, self._store_line = pid, kept
        self._selector.register(kept, selectors.EVENT_READ, self._replace_store)

    def _replace_store(self) -> None:
        """It has died, or hangs. Who is in a group does not need it; the next round meets at a new one."""
        self._end_store()
        self._start_store()

    def _end_store(self) -> None:
        self._selector.unregister(self._store_line)
        self._store_line.close()
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(self._store_pid, signal.SIGKILL)  # it would end with its line, if nobody has stopped it
            os.waitpid(self._store_pid, 0)

    # --- the end

    def _close(self) -> None:
        """Nobody is left, whatever happened."""
        for child in list(self._children.values()):
            self._kill(child.ident)
            os.waitpid(child.pid, 0)
            self._release(child)
        if self._store_pid:
            self._end_store()
        if self._finish == Finish(0) and not self.stopped:  # the script goes on
            self._door.answer_all(self._status())
            self._door.leave_open()
        self._door.close()
        self._selector.close()


def _keep_store(
    listener: socket.socket, alive: socket.socket, address: str, port: int, forget_all: Callable[[], None]
) -> None:
    """The store's process: until the fork server's end of `alive` is closed. Never returns."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    forget_all()
    try:
        from torch.distributed import TCPStore

        store = TCPStore(address, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach())
        alive.recv(1)
        del store
    finally:
        os._exit(0)


def _is_stopped(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] in ("T", "t")
    except (OSError, IndexError):
        return False
