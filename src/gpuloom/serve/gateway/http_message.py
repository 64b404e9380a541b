"""As much of HTTP/1.1 as a gateway before Triton needs: messages with a length, out of bytes and into bytes.

Knows no connection and nothing of inference. A message without a Content-Length has no body; chunked ones are refused,
as neither Triton's clients nor its answers to inference are.
"""

from dataclasses import dataclass

MOST_HEAD_BYTES = 64 * 1024
MOST_BODY_BYTES = 256 * 1024 * 1024
_HOP = (b"connection", b"keep-alive", b"expect", b"host", b"transfer-encoding", b"proxy-connection", b"upgrade", b"te")
"""Headers that are between two neighbours, not for whoever is behind."""


class BadMessageError(Exception):
    """The peer does not speak the HTTP that is spoken here; the text says why."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


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
        connection = header(self.head, b"connection").lower()
        return b"close" in connection or (b"HTTP/1.0\r\n" in self.head and b"keep-alive" not in connection)


def header(head: bytes, name: bytes) -> bytes:
    """The value of a header, empty if it is not there; `name` in small letters."""
    line_end = head.lower().find(b"\r\n" + name + b":")
    if line_end < 0:
        return b""
    begin = line_end + len(name) + 3
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


def post(path: str, body: bytes, json_bytes: int | None = None) -> bytes:
    """`json_bytes`: so much of the body is JSON, and binary tensors follow; None: all of it is JSON."""
    kind = "application/json" if json_bytes is None else "application/octet-stream"
    extension = "" if json_bytes is None else f"Inference-Header-Content-Length: {json_bytes}\r\n"
    head = f"POST {path} HTTP/1.1\r\nHost: triton\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{extension}"
    return head.encode() + b"\r\n" + body


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: triton\r\n\r\n".encode()
