"""As much of HTTP/1.1 as a gateway before Triton needs: messages with a length, and connections that are kept.

Knows bytes and asyncio's transports, nothing of inference. A message without a Content-Length has no body; chunked ones
are refused, as neither Triton's clients nor its answers to inference are.
"""

import asyncio
import re
from dataclasses import dataclass

MOST_HEAD_BYTES = 64 * 1024
MOST_BODY_BYTES = 256 * 1024 * 1024
_HOP = (b"connection", b"keep-alive", b"expect", b"host", b"transfer-encoding", b"proxy-connection", b"upgrade", b"te")
"""Headers that are between two neighbours, not for whoever is behind."""
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] [1-5][0-9][0-9][ \r]")


class BadMessageError(Exception):
    """The peer does not speak the HTTP that is spoken here; the text says why."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class LostError(Exception):
    """The connection ended before the answer was there."""

    def __init__(self, why: str, *, stale: bool = False) -> None:
        super().__init__(why)
        self.stale = stale
        """It had been used before and brought nothing: the peer may merely have tired of waiting."""


@dataclass(frozen=True, slots=True)
class Message:
    head: bytes
    """From the first line to the empty one, both included."""
    body: bytes

    @property
    def start(self) -> list[bytes]:
        """The words of the first line: method, path and version, or version, status and reason."""
        return self.head[: self.head.index(b"\r\n")].split(b" ", 2)

    @property
    def status(self) -> int:
        """Of an answer."""
        return int(self.head[9:12])

    @property
    def closes(self) -> bool:
        """Whether whoever sent it wants no other on the same connection."""
        told = header(self.head, b"connection").lower()
        return b"close" in told or (b"HTTP/1.0\r\n" in self.head and b"keep-alive" not in told)


def header(head: bytes, name: bytes) -> bytes:
    """The value of a header, empty if it is not there; `name` in small letters."""
    at = head.lower().find(b"\r\n" + name + b":")
    if at < 0:
        return b""
    begin = at + len(name) + 3
    return head[begin : head.index(b"\r\n", begin)].strip()


class Framing:
    """Cuts a stream of bytes into messages."""

    __slots__ = ("_buffer", "_head", "_length")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._head: bytes | None = None
        self._length = 0

    @property
    def begun(self) -> bool:
        return bool(self._buffer) or self._head is not None

    @property
    def waits_for_body(self) -> bytes | None:
        """The head of a message whose body is not all there yet."""
        return self._head

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def take(self) -> Message | None:
        """The next message, if all of it is there."""
        if self._head is None and not self._take_head():
            return None
        assert self._head is not None
        if len(self._buffer) < self._length:
            return None
        message = Message(self._head, bytes(self._buffer[: self._length]))
        del self._buffer[: self._length]
        self._head = None
        return message

    def _take_head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > MOST_HEAD_BYTES:
                raise BadMessageError(431, f"a head of more than {MOST_HEAD_BYTES} bytes")
            return False
        head = bytes(self._buffer[: end + 4])
        if len(head[: head.index(b"\r\n")].split(b" ", 2)) < 2:
            raise BadMessageError(400, "a first line that is not HTTP")
        if header(head, b"transfer-encoding"):
            raise BadMessageError(411, "a body without a length; send Content-Length")
        length = header(head, b"content-length") or b"0"
        # Two lengths are two messages to somebody who reads the other one.
        if not length.isdigit() or len(length) > 12 or head.lower().count(b"\r\ncontent-length:") > 1:
            raise BadMessageError(400, "a Content-Length that is not one number")
        self._length = int(length)
        if self._length > MOST_BODY_BYTES:
            raise BadMessageError(413, f"a body of more than {MOST_BODY_BYTES} bytes")
        del self._buffer[: end + 4]
        self._head = head
        return True


def forwarded(request: Message) -> bytes:
    """A request as it goes to whoever is behind the gateway."""
    first, *lines = request.head[:-4].split(b"\r\n")
    words = first.split(b" ")
    kept = [line for line in lines if line.partition(b":")[0].strip().lower() not in _HOP]
    return b"\r\n".join([b" ".join([*words[:2], b"HTTP/1.1"]), b"Host: triton", *kept, b"", request.body])


def answer(status: int, reason: str, body: bytes, kind: str = "application/json", *, close: bool = False) -> bytes:
    closing = "Connection: close\r\n" if close else ""
    head = f"HTTP/1.1 {status} {reason}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{closing}\r\n"
    return head.encode() + body


def closing(message: bytes) -> bytes:
    """An answer that also says that it is the last on its connection."""
    first, _, rest = message.partition(b"\r\n")
    return b"\r\n".join((first, b"Connection: close", rest))


def post(path: str, body: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: triton\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: triton\r\n\r\n".encode()


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


class Endpoint:
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
