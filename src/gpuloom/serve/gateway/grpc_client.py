"""gRPC's client side: one question at a time of a server, as bytes. grpcio is optional, and loaded when it is needed.

A connection carries any number of questions at once, so there is one for each server.
"""

import asyncio
import os
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from gpuloom.serve.gateway.http_client import LostError
from gpuloom.serve.gateway.http_message import MOST_BODY_BYTES

INSTALL = "pip install 'gpuloom[grpc]'"
OPTIONS = (
    ("grpc.max_receive_message_length", MOST_BODY_BYTES),
    ("grpc.max_send_message_length", MOST_BODY_BYTES),
    ("grpc.enable_http_proxy", 0),  # else a proxy of the environment would be asked even for this host
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.so_reuseport", 0),  # else two could listen on one port
)
Metadata = tuple[tuple[str, str | bytes], ...]


@cache
def library() -> Any | None:
    """grpcio, or None where it is not installed."""
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # else it tells of every connection that a server ends
    try:
        import_module("grpc.aio")
        return import_module("grpc")
    except ImportError:
        return None


@dataclass(frozen=True, slots=True)
class Reply:
    code: Any
    """A grpc.StatusCode."""
    details: str
    body: bytes

    @property
    def status(self) -> int:
        """As HTTP would word it: what was wrong with the question, or with the one who was asked."""
        return {"OK": 200, "INVALID_ARGUMENT": 400, "NOT_FOUND": 404}.get(self.code.name, 500)


class Channel:
    """Somebody to ask. Connects when first asked."""

    __slots__ = ("_calls", "_channel", "_closing", "_methods", "address", "closed")

    def __init__(self, host: str, port: int) -> None:
        self.address = address(host, port)
        self.closed = False
        self._channel: Any = None
        self._methods: dict[str, Any] = {}
        self._calls: set[Any] = set()
        self._closing: asyncio.Task[None] | None = None

    async def ask(self, method: str, body: bytes, metadata: Metadata = ()) -> Reply:
        """The answer, or LostError: it cannot be reached, went away, or says that it is unavailable."""
        grpc = library()
        assert grpc is not None
        if self.closed:
            raise LostError("the connection is closed")
        if self._channel is None:
            self._channel = grpc.aio.insecure_channel(self.address, options=OPTIONS)
        if method not in self._methods:
            self._methods[method] = self._channel.unary_unary(method)
        call = self._methods[method](body, metadata=metadata)
        self._calls.add(call)
        try:
            return Reply(grpc.StatusCode.OK, "", await call)
        except grpc.aio.AioRpcError as error:
            # Cancelled, though not by us: how a server that is stopping drops what it has not begun.
            if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
                raise LostError(f"{self.address}: {error.details() or 'unavailable'}") from None
            return Reply(error.code(), error.details() or "", b"")
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise LostError("the connection was closed") from None  # it was the call that was cancelled, not we
        finally:
            self._calls.discard(call)

    def close(self) -> None:
        """Whoever waits for an answer gets LostError."""
        self.closed = True
        for call in self._calls:
            call.cancel()
        if self._channel is not None:
            self._closing = asyncio.get_running_loop().create_task(self._channel.close())
            self._channel = None


def address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
