"""HTTP's client side: one question at a time on a connection, and connections that are kept.

Knows asyncio's transports, nothing of inference.
"""

import asyncio
import re

from gpuloom.serve.gateway.http_message import BadMessageError, Framing, Message

_STATUS_LINE = re.compile(rb"HTTP/1\.[01] [1-5][0-9][0-9][ \r]")


class LostError(Exception):
    """The connection ended before the answer was there."""

    def __init__(self, why: str, *, stale: bool = False) -> None:
        super().__init__(why)
        self.stale = stale
        """It had been used before and brought nothing: the peer may merely have tired of waiting."""


class Connection(asyncio.Protocol):
    """A client's side: one question at a time."""

    __slots__ = ("_answer", "_asked", "_framing", "_transport", "closed")

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._framing = Framing()
        self._answer: asyncio.Future[Message] | None = None
        self._asked = 0
        self.closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._framing.feed(data)
        try:
            message = self._framing.take()
        except BadMessageError as error:
            self._fail(str(error))
            return
        if message is None:
            return
        if not _STATUS_LINE.match(message.head):
            self._fail("the answer is not HTTP")
            return
        if self._answer is None or self._answer.done():
            self.close()  # an answer to nothing: whatever comes next would be mistaken for another's
            return
        if message.closes:
            self.close()
        self._answer.set_result(message)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail("the connection ended" if exc is None else str(exc))

    def _fail(self, why: str) -> None:
        self.close()
        if self._answer is not None and not self._answer.done():
            stale = self._asked > 1 and not self._framing.begun
            self._answer.set_exception(LostError(why, stale=stale))

    def close(self) -> None:
        self.closed = True
        if self._transport is not None:
            self._transport.close()

    async def ask(self, request: bytes) -> Message:
        """The answer, or LostError. Whoever stops waiting must not use the connection again."""
        if self.closed or self._transport is None:
            raise LostError("the connection is closed", stale=True)
        self._asked += 1
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        try:
            return await self._answer
        except asyncio.CancelledError:
            self.close()
            raise


class Peer:
    """Somebody to ask: keeps the connections that are idle, opens as many as there are questions."""

    __slots__ = ("_all", "_idle", "host", "port")

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        self._idle: list[Connection] = []
        self._all: set[Connection] = set()

    async def ask(self, request: bytes) -> Message:
        """The answer, or LostError. A kept connection that the peer has closed costs another try on a new one."""
        while self._idle:
            connection = self._idle.pop()
            if connection.closed:
                continue
            try:
                return await self._ask_on(connection, request)
            except LostError as error:
                if not error.stale:
                    raise
        loop = asyncio.get_running_loop()
        try:
            _, connection = await loop.create_connection(Connection, self.host, self.port)
        except (OSError, UnicodeError) as error:  # the latter: a name that cannot be one
            why = getattr(error, "strerror", None) or error
            raise LostError(f"{self.host}:{self.port} cannot be reached: {why}") from None
        self._all.add(connection)
        return await self._ask_on(connection, request)

    async def _ask_on(self, connection: Connection, request: bytes) -> Message:
        try:
            message = await connection.ask(request)
        finally:
            if connection.closed:
                self._all.discard(connection)
        if not connection.closed:
            self._idle.append(connection)
        return message

    def close(self) -> None:
        """Whoever waits for an answer gets LostError."""
        for connection in self._all:
            connection.close()
        self._all.clear()
        self._idle.clear()
