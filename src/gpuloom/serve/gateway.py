"""The one address of a deployment: speaks HTTP as a Triton server does, and hands each request to its service's pool.

    POST /v2/models/NAME/infer      and whatever else is under /v2/models/NAME
    GET  /v2/health/live|ready      ready when every service has a server
    GET  /gpuloom/status            what `gpuloom serve status` prints
    GET  /metrics                   for Prometheus

A protocol of callbacks rather than streams: it costs a third as much for each request.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import suppress

from gpuloom.serve.http import BadMessageError, Framing, Message, answer, forwarded, header
from gpuloom.serve.pool import Pool, RefusedError

Page = Callable[[], tuple[str, bytes]]
"""Content type and body."""
_MODELS = b"/v2/models/"


class Gateway:
    def __init__(self, pools: Mapping[str, Pool], pages: Mapping[str, Page]) -> None:
        self.pools = {name.encode(): pool for name, pool in pools.items()}
        self.pages = {path.encode(): page for path, page in pages.items()}
        self.tasks: set[asyncio.Task[None]] = set()
        self.clients: set[_Client] = set()
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; the port, which is a free one if 0 was asked for."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Client(self), host, port, backlog=1024)
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def stop(self, grace_s: float) -> None:
        """Take no new connections; what was asked already is answered, if that takes no longer than the grace."""
        if self._server is not None:
            self._server.close()
        if self.tasks:
            await asyncio.wait(self.tasks, timeout=grace_s)
        for task in list(self.tasks):
            task.cancel()
        for client in list(self.clients):
            client.close()

    async def respond(self, request: Message) -> bytes:
        method, path = request.start[:2]
        path = path.partition(b"?")[0]
        if path.startswith(_MODELS):
            pool = self.pools.get(path[len(_MODELS) :].partition(b"/")[0])
            if pool is None:
                known = ", ".join(name.decode() for name in sorted(self.pools))
                return _problem(404, "Not Found", f"no such service; there are {known}")
            try:
                message = await pool.send(forwarded(request))
            except RefusedError as error:
                return _problem(error.status, "Unavailable", str(error))
            return message.head + message.body
        return self._own_page(method, path)

    def _own_page(self, method: bytes, path: bytes) -> bytes:
        if method not in (b"GET", b"HEAD"):
            return _problem(405, "Method Not Allowed", "only services are asked with POST, under /v2/models/NAME")
        if path == b"/v2/health/live":
            return answer(200, "OK", b"")
        if path == b"/v2/health/ready":
            ready = all(pool.ready for pool in self.pools.values())
            return answer(200, "OK", b"") if ready else answer(400, "Bad Request", b"")
        page = self.pages.get(path)
        if page is None:
            return _problem(404, "Not Found", "no such page")
        kind, body = page()
        return answer(200, "OK", body, kind)


class _Client(asyncio.Protocol):
    """One client's connection: its requests are answered one after the other."""

    __slots__ = ("_busy", "_framing", "_gateway", "_told_to_go_on", "_transport")

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._framing = Framing()
        self._transport: asyncio.Transport | None = None
        self._busy = False
        self._told_to_go_on = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._gateway.clients.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._gateway.clients.discard(self)

    def data_received(self, data: bytes) -> None:
        self._framing.feed(data)
        if not self._busy:
            self._next()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def _next(self) -> None:
        assert self._transport is not None
        try:
            request = self._framing.take()
        except BadMessageError as error:
            self._transport.write(_problem(error.status, "Bad Request", str(error), close=True))
            self._transport.close()
            return
        if request is None:
            head = self._framing.waits_for_body
            if head and not self._told_to_go_on and header(head, b"expect").lower() == b"100-continue":
                self._told_to_go_on = True
                self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            return
        self._busy, self._told_to_go_on = True, False
        task = asyncio.get_running_loop().create_task(self._answer(request))
        self._gateway.tasks.add(task)
        task.add_done_callback(self._gateway.tasks.discard)

    async def _answer(self, request: Message) -> None:
        assert self._transport is not None
        with suppress(asyncio.CancelledError):
            self._transport.write(await self._gateway.respond(request))
            self._busy = False
            if request.closes:
                self._transport.close()
            elif self._framing.begun:
                self._next()


def _problem(status: int, reason: str, why: str, *, close: bool = False) -> bytes:
    """As Triton words an error."""
    return answer(status, reason, json.dumps({"error": why}).encode(), close=close)
