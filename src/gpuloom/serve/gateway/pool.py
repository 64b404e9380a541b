"""The servers of one service, and the requests that wait for one: who is asked, who is asked next if that one dies.

Nothing is lost as long as the client waits: a request whose server dies is asked of another, before all that came
later; while there is none it waits. Inference is taken to be idempotent, so asking twice is allowed.
"""

import asyncio
import heapq
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import count
from typing import Protocol, TypeVar

from gpuloom.serve.gateway.grpc_client import Channel
from gpuloom.serve.gateway.http_client import LostError, Peer
from gpuloom.serve.gateway.http_message import Message

UNAVAILABLE = 503
"""How Triton says that it is stopping, or that its model is not loaded: another one is asked."""

GAVE_UP = 499
"""The client has gone before the answer was there: it took at least so long."""


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


class Reply(Protocol):
    @property
    def status(self) -> int:
        """As HTTP has it."""
        ...


R = TypeVar("R", bound=Reply)


class Backend:
    """One server as the pool sees it."""

    __slots__ = ("channel", "name", "open", "outstanding", "peer", "weight")

    def __init__(self, name: str, host: str, port: int, weight: float = 1.0, grpc_port: int | None = None) -> None:
        self.name = name
        self.peer = Peer(host, port)
        self.channel = None if grpc_port is None else Channel(host, grpc_port)
        self.weight = weight
        """Its part of the requests."""
        self.outstanding = 0
        self.open = False
        """Whether it is given new requests."""

    def close(self) -> None:
        """Whoever waits for its answer gets LostError."""
        self.peer.close()
        if self.channel is not None:
            self.channel.close()


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
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._orders: list[int] = []
        """A heap of those that wait, and of some that have given up."""

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
        backend.close()
        if backend in self.backends:
            self.backends.remove(backend)

    # ---- requests ------------------------------------------------------------------------------------------------

    async def send(self, request: bytes, *, counts: bool = True) -> Message:
        """The answer of a server over HTTP, or RefusedError."""
        return await self.route(lambda backend: backend.peer.ask(request), counts=counts)

    async def route(self, ask: Callable[[Backend], Awaitable[R]], *, counts: bool = True) -> R:
        """The answer of a server, or RefusedError. Only what `counts` is told to `on_done`: inference, not questions.

        `ask` asks a server, and raises LostError if that brings no answer.
        """
        began_s, order, lost, waited = time.monotonic(), next(self._arrivals), 0, False
        while True:
            backend = self._choose()
            if backend is None:
                waited = True
                await self._wait(order, began_s + self.limits.hold_s)
                continue
            why = "it is unavailable"
            try:
                reply = await self._ask(backend, ask)
                if reply.status != UNAVAILABLE:
                    took_s = time.monotonic() - began_s
                    if counts:
                        self.on_done(Done(backend, reply.status, took_s, not lost and not waited))
                    return reply
            except LostError as error:
                why = str(error)
            except asyncio.CancelledError:
                if counts:
                    self.on_done(Done(backend, GAVE_UP, time.monotonic() - began_s, not lost and not waited))
                raise
            self.retried += 1
            lost += 1
            if backend.open:
                # Not asked again until whoever minds it has looked.
                backend.open = False
                self.on_lost(backend, why)
            if lost >= self.limits.attempts:
                self.refused += 1
                raise RefusedError(502, f"{lost} servers in turn were lost with this request")

    async def _ask(self, backend: Backend, ask: Callable[[Backend], Awaitable[R]]) -> R:
        backend.outstanding += 1
        try:
            return await ask(backend)
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
        self._waiting[order] = turn
        heapq.heappush(self._orders, order)
        try:
            async with asyncio.timeout(max(0.0, until_s - time.monotonic())):
                await turn
        except (TimeoutError, asyncio.CancelledError) as error:
            if self._waiting.pop(order, None) is None:
                self._wake(1)  # its turn had come just then: it is the next one's
            if isinstance(error, asyncio.CancelledError):
                raise
            self.refused += 1
            raise RefusedError(UNAVAILABLE, f"no server was ready within {self.limits.hold_s:g} s") from None

    def _wake(self, number: int) -> None:
        for _ in range(number):
            while self._orders:
                turn = self._waiting.pop(heapq.heappop(self._orders), None)
                if turn is not None and not turn.done():
                    turn.set_result(None)
                    break
