"""The process group of one round: formed once, never used again after anything went wrong with it.

Its operations never raise: a failure is remembered in `failed`, and what a step computed after that is thrown away.
So a dead peer cannot come up inside the user's loop. Groups are made without PyTorch's global one, each on its own
prefix of the store (pytorch#55967: a store used twice hangs). A dead peer makes gloo fail and NCCL hang, so `abort`
is called from another thread: NCCL's communicator has one, gloo's has none in effect (2.13: a collective goes on
waiting), so the TCP connections that it opened are shut.
"""

import contextlib
import os
import socket
import threading
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

FORM_S = 10.0


class Group:
    """What workers of a round do together. A group of one does nothing, at once."""

    def __init__(self, round_: int, rank: int, size: int, device: torch.device) -> None:
        self.round, self.rank, self.size, self.device = round_, rank, size, device
        self.failed: str | None = None
        self.due: float | None = None
        """When the operation that is waited for should be over."""
        self._timeout_s = 0.0
        self._backend: Any = None
        self._connections: list[socket.socket] = []
        self._before: set[int] | None = None
        """While the group is formed: the sockets that were there before."""
        self._lock = threading.Lock()

    def form(self, address: str, port: int, timeout_s: float) -> None:
        """Meet the others."""
        self._timeout_s = timeout_s
        if self.size == 1:
            return
        self._before = _sockets()
        try:
            limit = timedelta(seconds=min(FORM_S, timeout_s / 2))  # all who are called are there and wait
            store = dist.TCPStore(address, port, is_master=False, timeout=limit)
            mine = dist.PrefixStore(f"round/{self.round}", store)
            make = _nccl if self.device.type == "cuda" else _gloo
            self._backend = make(mine, self.rank, self.size, limit, address)
            self._backend._set_default_timeout(timedelta(seconds=timeout_s))
        except (RuntimeError, OSError) as error:
            self.failed = self.failed or f"the group was not formed: {error}"
        with self._lock:
            self._connections = [] if self.device.type == "cuda" else _connected(_sockets() - self._before)
            self._before = None

    def sum(self, tensor: torch.Tensor) -> Any:
        """Begin to add up over all workers, in place. Give what it returns to `wait`."""
        return self._begin(lambda: self._backend.allreduce([tensor]))

    def send(self, tensor: torch.Tensor, to: int) -> Any:
        return self._begin(lambda: self._backend.send([tensor], to, 0))

    def receive(self, tensor: torch.Tensor, source: int) -> Any:
        return self._begin(lambda: self._backend.recv([tensor], source, 0))

    def wait(self, work: Any) -> bool:
        """Until it is done here; False if it never will be. On a GPU the host waits too: a step is applied or not."""
        if work is None:
            return self.failed is None
        self.due = time.monotonic() + self._timeout_s
        try:
            work.wait()
            if self.device.type == "cuda":
                torch.cuda.current_stream().synchronize()  # after an abort this returns, without a word
        except (RuntimeError, OSError) as error:
            self.failed = self.failed or str(error)
        self.due = None
        return self.failed is None

    def abort(self, why: str) -> None:
        """From any thread: whoever waits for this group fails now."""
        self.failed = self.failed or why
        if self.device.type == "cuda" and self._backend is not None:
            self._backend.abort()
        with self._lock:
            forming = [] if self._before is None else _connected(_sockets() - self._before)
            for connection in [*self._connections, *forming]:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            for connection in forming:
                connection.close()

    def works(self) -> bool:
        return self.failed is None

    @property
    def hangs(self) -> bool:
        """It has failed, or should have been done by now, and somebody still waits for it."""
        late = self.due is not None and self.due < time.monotonic()
        return late or (self.failed is not None and (self.due is not None or self._before is not None))

    def close(self) -> None:
        """Gone for good. Gloo takes 30 ms to end its threads, so nobody waits for that."""
        if self.failed is not None:
            self.abort(self.failed)
        kept, self._backend = [self._backend, self._connections], None
        if self.size > 1:
            threading.Thread(target=_drop, args=(kept,), daemon=True).start()

    def _begin(self, operation: Any) -> Any:
        if self.size == 1 or self.failed is not None:
            return None
        try:
            return operation()
        except (RuntimeError, OSError) as error:
            self.failed = self.failed or str(error)
            return None


def _drop(kept: list[Any]) -> None:
    connections = kept.pop()
    kept.clear()
    for connection in connections:
        connection.close()


def _gloo(store: Any, rank: int, size: int, limit: timedelta, address: str) -> Any:
    options = dist.ProcessGroupGloo._Options()
    options._timeout = limit
    options._devices = [dist.ProcessGroupGloo.create_device(hostname=address)]
    options._threads = 2
    return dist.ProcessGroupGloo(store, rank, size, options)


def _nccl(store: Any, rank: int, size: int, limit: timedelta, address: str) -> Any:  # noqa: ARG001
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = limit
    return dist.ProcessGroupNCCL(store, rank, size, options)


def _sockets() -> set[int]:
    """This process's open sockets, by number."""
    found = set()
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 (numbers, not paths)
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):  # noqa: PTH115
                found.add(int(name))
    return found


def _connected(numbers: set[int]) -> list[socket.socket]:
    """Handles of our own on those that are TCP connections: gloo may close its numbers, and others get them then."""
    found = []
    for number in numbers:
        with contextlib.suppress(OSError):
            handle = socket.socket(fileno=os.dup(number))
            try:
                handle.getpeername()
                if handle.family not in (socket.AF_INET, socket.AF_INET6):
                    raise OSError("not a TCP connection")
                found.append(handle)
            except OSError:  # gloo's listener: to shut that would end the process
                handle.close()
    return found
