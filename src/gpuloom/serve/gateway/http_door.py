"""The one address of a deployment: speaks HTTP as a Triton server does, and hands each request to its service's pool.

    POST /v2/models/NAME/infer      and whatever else is under /v2/models/NAME
    GET  /v2                        what the servers are
    GET  /v2/health/live|ready      ready when every service has a server
    GET  /gpuloom/status            what `gpuloom serve status` prints
    GET  /metrics                   for Prometheus

A protocol of callbacks rather than streams: it costs a third as much for each request.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import suppress

from gpuloom.serve.gateway.http_message import BadMessageError, Framing, Message, answer, closing, forwarded, header
from gpuloom.serve.gateway.pool import Pool, RefusedError

Page = Callable[[], tuple[str, bytes]]
"""Content type and body."""
_MODELS = b"/v2/models/"
_INFERENCE = (b"/infer", b"/generate")
"""What the paths end with whose times are counted against the promises."""
LINGER_S = 0.2
"""So long a connection without a request stays at the end: one that is on its way is told, rather than dropped."""


class HttpDoor:
    def __init__(self, pools: Mapping[str, Pool], pages: Mapping[str, Page]) -> None:
        self.pools = {name.encode(): pool for name, pool in pools.items()}
        self.pages = {path.encode(): page for path, page in pages.items()}
        self.tasks: set[asyncio.Task[None]] = set()
        self.clients: set[_Client] = set()
        self.stopping = False
        self.changed = asyncio.Event()
        """A request was answered, or a client went."""
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; the port, which is a free one if 0 was asked for."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Client(self), host, port, backlog=1024)
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def stop(self, grace_s: float) -> None:
        """Take no new connections; what was asked already is answered, if that takes no longer than the grace.

        Requests that come meanwhile on connections that are kept are refused with 503.
        """
        self.stopping = True
        if self._server is not None:
            self._server.close()
        if await self._until(lambda: not any(client.engaged for client in self.clients), grace_s):
            await self._until(lambda: not self.clients, LINGER_S)
        for task in list(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        for client in list(self.clients):
            client.close()
        await self._until(lambda: not self.clients, max(grace_s, LINGER_S))  # long answers take a while to be sent

    async def _until(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Whether it came true in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not condition():
                    self.changed.clear()
                    await self.changed.wait()
        return condition()

    async def respond(self, request: Message) -> bytes:
        method, path = request.start[:2]
        path = path.partition(b"?")[0]
        if method == b"HEAD":
            return _problem(405, "Method Not Allowed", "GET and POST are spoken here")
        if path.startswith(_MODELS):
            pool = self.pools.get(path[len(_MODELS) :].partition(b"/")[0])
            if pool is None:
                known = ", ".join(name.decode() for name in sorted(self.pools))
                return _problem(404, "Not Found", f"no such service; there are {known}")
            if path.endswith(b"/generate_stream"):
                return _problem(501, "Not Implemented", "answers are not streamed here; ask /generate")
            return await _passed_on(pool, request, counts=path.endswith(_INFERENCE))
        if path == b"/v2" and method == b"GET":
            return await _passed_on(next(iter(self.pools.values())), request, counts=False)
        return self._own_page(method, path)

    def _own_page(self, method: bytes, path: bytes) -> bytes:
        if method != b"GET":
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

    __slots__ = ("_busy", "_framing", "_gateway", "_no_more", "_told_to_go_on", "_transport")

    def __init__(self, gateway: HttpDoor) -> None:
        self._gateway = gateway
        self._framing = Framing()
        self._transport: asyncio.Transport | None = None
        self._busy = False
        self._no_more = False
        """The client has said that it sends nothing more; it may still listen."""
        self._told_to_go_on = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._gateway.clients.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._gateway.clients.discard(self)
        self._gateway.changed.set()

    @property
    def engaged(self) -> bool:
        """A request is being answered, or is arriving."""
        return self._busy or self._framing.begun

    def data_received(self, data: bytes) -> None:
        self._framing.feed(data)
        if not self._busy:
            self._next()

    def eof_received(self) -> bool:
        self._no_more = True
        return self._busy

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
        if self._gateway.stopping:
            self._transport.write(_problem(503, "Unavailable", "the deployment is being taken down", close=True))
            self._transport.close()
            return
        self._busy, self._told_to_go_on = True, False
        task = asyncio.get_running_loop().create_task(self._answer(request))
        self._gateway.tasks.add(task)
        task.add_done_callback(self._gateway.tasks.discard)

    async def _answer(self, request: Message) -> None:
        assert self._transport is not None
        try:
            reply = await self._gateway.respond(request)
        except asyncio.CancelledError:
            reply = _problem(503, "Unavailable", "the deployment was taken down before this was answered")
        self._busy = False
        last = request.closes or ((self._gateway.stopping or self._no_more) and not self._framing.begun)
        self._transport.write(closing(reply) if last else reply)
        if last:
            self._transport.close()
        elif self._framing.begun:
            self._next()
        self._gateway.changed.set()


async def _passed_on(pool: Pool, request: Message, *, counts: bool) -> bytes:
    try:
        message = await pool.send(forwarded(request), counts=counts)
    except RefusedError as error:
        return _problem(error.status, "Unavailable", str(error))
    return message.head + message.body


def _problem(status: int, reason: str, why: str, *, close: bool = False) -> bytes:
    """As Triton words an error."""
    return answer(status, reason, json.dumps({"error": why}).encode(), close=close)
