"""The one address of a deployment: a door for HTTP, one for gRPC, the same pools behind both."""

import asyncio
import errno
import socket
from collections.abc import Mapping

from gpuloom.errors import InputError
from gpuloom.serve.gateway.grpc_door import GrpcDoor
from gpuloom.serve.gateway.http_door import HttpDoor, Page
from gpuloom.serve.gateway.pool import Pool

NO_HOST = "--host {!r}: not an address of this host; 127.0.0.1 is the host itself, 0.0.0.0 all of its addresses"


class Gateway:
    def __init__(self, pools: Mapping[str, Pool], pages: Mapping[str, Page]) -> None:
        self._pools, self._pages = pools, pages
        self._doors: list[HttpDoor | GrpcDoor] = []

    async def open(self, host: str, port: int, grpc_port: int | None) -> tuple[int, int | None]:
        """The ports, which are free ones where 0 was asked for. None: no gRPC."""
        bound = await self._listen("--port", HttpDoor(self._pools, self._pages), host, port)
        if grpc_port is None:
            return bound, None
        return bound, await self._listen("--grpc-port", GrpcDoor(self._pools), host, grpc_port)

    async def _listen(self, option: str, door: HttpDoor | GrpcDoor, host: str, port: int) -> int:
        self._doors.append(door)
        try:
            if not host:
                raise UnicodeError  # asyncio takes it for all addresses, which is not for a slip to decide
            return await door.start(host, port)
        except (socket.gaierror, UnicodeError):
            raise InputError(NO_HOST.format(host)) from None
        except OSError as error:
            raise InputError(_sentence(error, option, host, port)) from None

    async def close(self, grace_s: float) -> None:
        """What was asked already is answered, if it takes no longer than that. Twice is fine."""
        await asyncio.gather(*(door.stop(grace_s) for door in self._doors))


def _sentence(error: OSError, option: str, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"{option} {port}: something else listens on {host}:{port}; name another, or 0 for a free one"
    if error.errno == errno.EACCES:
        return f"{option} {port}: only an administrator may listen there; name one above 1023, or 0 for a free one"
    return NO_HOST.format(host)
