"""The servers of one service, and the requests that wait for one: who is asked, who is asked next if that one dies.

Nothing is lost as long as the client waits: a request whose server dies is asked of another, before all that came
later; while there is none it waits. Inference is taken to be idempotent, so asking twice is allowed.
"""

import asyncio
import heapq
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from gpuloom.serve.http import Endpoint, LostError, Message

UNAVAILABLE = 503
"""How Triton says that it is stopping, or that its model is not loaded: another one is asked."""


class RefusedError(Exception):
    """A request cannot be answered; the text says why."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


@dataclass(frozen=True, slots=True)
class Limits:
    hold_s: float = 60.0
    """So long a request waits for a server, in all."""
    waiting: int = 20_000
    outstanding: int = 512
    """Of one server: each is a connection."""
    attempts: int = 4
    """A request that has lost so many servers may be what kills them."""


LIMITS = Limits()


class Backend:
    """One server as the pool sees it."""

    __slots__ = ("endpoint", "name", "open", "outstanding", "weight")

    def __init__(self, name: str, host: str, port: int, weight: float = 1.0) -> None:
        self.name = name
        self.endpoint = Endpoint(host, port)
        self.weight = weight
        """Its part of the requests."""
        self.outstanding = 0
        self.open = False
        """Whether it is given new requests."""


@dataclass(frozen=True, slots=True)
class Done:
    """One request that was answered."""

    backend: Backend
    status: int
    took_s: float
    undisturbed: bool
    """The first server it was asked of, at once: its time says something of that server."""


class Pool:
    def __init__(
        self,
        limits: Limits = LIMITS,
        on_done: Callable[[Done], None] = lambda _: None,
        on_lost: Callable[[Backend, str], None] = lambda *_: None,
    ) -> None:
        self.limits, self.on_done, self.on_lost = limits, on_done, on_lost
        self.backends: list[Backend] = []
        self.retried = 0
        self.refused = 0
        self._arrivals = count()
        self._turn = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    @property
    def ready(self) -> bool:
        return any(backend.open for backend in self.backends)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    # ---- who serves ----------------------------------------------------------------------------------------------

    def admit(self, backend: Backend) -> None:
        """Give it requests from now on; those that waited come first, in the order of their arrival."""
        if backend not in self.backends:
            self.backends.append(backend)
        backend.open = True
        self._wake(len(self._waiting))

    def withdraw(self, backend: Backend) -> None:
        """Give it no new requests; those that it has may finish. Twice is fine."""
        backend.open = False

    def forget(self, backend: Backend) -> None:
        """It has ended."""
        backend.open = False
        backend.endpoint.close()
        if backend in self.backends:
            self.backends.remove(backend)

    # ---- requests ------------------------------------------------------------------------------------------------

    async def send(self, request: bytes) -> Message:
        """The answer of a server, or RefusedError."""
        began_s, order, lost, waited = time.monotonic(), next(self._arrivals), 0, False
        while True:
            backend = self._choose()
            if backend is None:
                waited = True
                await self._wait(order, began_s + self.limits.hold_s)
                continue
            why = "it is unavailable"
            try:
                message = await self._ask(backend, request)
                if message.status != UNAVAILABLE:
                    took_s = time.monotonic() - began_s
                    self.on_done(Done(backend, message.status, took_s, not lost and not waited))
                    return message
            except LostError as error:
                why = str(error)
            self.retried += 1
            lost += 1
            if backend.open:
                # Not asked again until whoever minds it has looked.
                backend.open = False
                self.on_lost(backend, why)
            if lost >= self.limits.attempts:
                self.refused += 1
                raise RefusedError(502, f"{lost} servers in turn were lost with this request")

    async def _ask(self, backend: Backend, request: bytes) -> Message:
        backend.outstanding += 1
        try:
            return await backend.endpoint.ask(request)
        finally:
            backend.outstanding -= 1
            if self._waiting:
                self._wake(1)

    def _choose(self) -> Backend | None:
        """The open server with the fewest outstanding requests for its weight; in turn among equals."""
        best: Backend | None = None
        least = 0.0
        number = len(self.backends)
        for step in range(number):
            backend = self.backends[(self._turn + step) % number]
            if not backend.open or backend.outstanding >= self.limits.outstanding:
                continue
            load = (backend.outstanding + 1) / backend.weight
            if best is None or load < least - 1e-12:
                best, least = backend, load
        self._turn += 1
        return best

    async def _wait(self, order: int, until_s: float) -> None:
        """Until a server may be there, after all that came before this one."""
        if len(self._waiting) >= self.limits.waiting:
            self.refused += 1
            raise RefusedError(UNAVAILABLE, f"{len(self._waiting)} requests wait for a server already")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (order, turn))
        try:
            async with asyncio.timeout(max(0.0, until_s - time.monotonic())):
                await turn
        except TimeoutError:
            self._waiting = [entry for entry in self._waiting if entry[1] is not turn]
            heapq.heapify(self._waiting)
            self.refused += 1
            raise RefusedError(UNAVAILABLE, f"no server was ready within {self.limits.hold_s:g} s") from None

    def _wake(self, number: int) -> None:
        for _ in range(number):
            while self._waiting:
                _, turn = heapq.heappop(self._waiting)
                if not turn.done():
                    turn.set_result(None)
                    break
