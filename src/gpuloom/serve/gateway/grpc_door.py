"""The deployment's address for gRPC: the KServe v2 protocol, as Triton speaks it, handed to the same pools as HTTP.

    ModelInfer, ModelReady, ModelMetadata, ModelConfig, ModelStatistics      to a server of the model's service
    ServerMetadata                                                           to any server
    ServerLive, ServerReady, grpc.health.v1.Health/Check                     answered here

Streams (ModelStreamInfer) and whatever changes a server are not passed on: gRPC then says "unimplemented".
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from gpuloom.serve.gateway import kserve
from gpuloom.serve.gateway.grpc_client import OPTIONS, Metadata, Reply, address, library
from gpuloom.serve.gateway.http_door import LINGER_S
from gpuloom.serve.gateway.pool import Backend, Pool, RefusedError

Handler = Callable[[bytes, Any], Awaitable[bytes]]


class GrpcDoor:
    def __init__(self, pools: Mapping[str, Pool]) -> None:
        self.pools = pools
        self._grpc: Any = library()
        self._server: Any = None
        self._stopping = False
        self._under_way = 0
        self._idle = asyncio.Event()

    async def start(self, host: str, port: int) -> int:
        """Listen; the port, which is a free one if 0 was asked for. OSError if it is not to be had."""
        handlers: dict[str, Handler] = {
            method: self._pass_on(method) for method in (*kserve.OF_A_MODEL, kserve.METADATA)
        }
        handlers[kserve.LIVE] = _answer(lambda: kserve.yes_or_no(True))
        handlers[kserve.READY] = _answer(lambda: kserve.yes_or_no(self._ready()))
        handlers[kserve.HEALTH] = _answer(lambda: kserve.health(self._ready()))
        await _can_listen(host, port)
        self._server = self._grpc.aio.server(options=OPTIONS)
        self._server.add_generic_rpc_handlers((_generic(self._grpc, handlers),))
        try:
            bound: int = self._server.add_insecure_port(address(host, port))
        except RuntimeError as error:
            raise OSError(str(error)) from None
        await self._server.start()
        return bound

    async def stop(self, grace_s: float) -> None:
        """Refuse new requests as unavailable; what was asked already is answered, if it takes no longer than that."""
        if self._server is None:
            return
        self._stopping = True
        if self._under_way:
            self._idle.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(grace_s):
                    await self._idle.wait()
        # No longer than it takes to send the answers, if all are there.
        await self._server.stop(LINGER_S if self._under_way else max(grace_s, LINGER_S))

    def _ready(self) -> bool:
        return not self._stopping and all(pool.ready for pool in self.pools.values())

    def _pass_on(self, method: str) -> Handler:
        codes, counts = self._grpc.StatusCode, method == kserve.INFER

        async def pass_on(request: bytes, context: Any) -> bytes:
            if self._stopping:
                return await _refuse(context, codes.UNAVAILABLE, "the deployment is being taken down")
            model = next(iter(self.pools)) if method == kserve.METADATA else kserve.model_of(request)
            pool = self.pools.get(model or "")
            if pool is None:
                known = ", ".join(sorted(self.pools))
                return await _refuse(context, codes.NOT_FOUND, f"no such service; there are {known}")
            metadata = _passed_on(context.invocation_metadata())

            async def ask(backend: Backend) -> Reply:
                assert backend.channel is not None
                return await backend.channel.ask(method, request, metadata)

            try:
                reply = await pool.route(ask, counts=counts)
            except RefusedError as error:
                return await _refuse(context, codes.UNAVAILABLE, str(error))
            if reply.code is not codes.OK:
                return await _refuse(context, reply.code, reply.details)
            return reply.body

        async def handle(request: bytes, context: Any) -> bytes:
            self._under_way += 1
            try:
                return await pass_on(request, context)
            finally:
                self._under_way -= 1
                if not self._under_way:
                    self._idle.set()

        return handle


async def _refuse(context: Any, code: Any, why: str) -> bytes:
    await context.abort(code, why)
    raise AssertionError("abort raises")


def _answer(what: Callable[[], bytes]) -> Handler:
    async def handle(_: bytes, __: Any) -> bytes:
        return what()

    return handle


def _passed_on(metadata: Any) -> Metadata:
    """A client's own metadata, such as its trace; not what gRPC says for itself."""
    return tuple((key, value) for key, value in metadata or () if key != "user-agent" and not key.startswith("grpc-"))


def _generic(grpc: Any, handlers: Mapping[str, Handler]) -> Any:
    """Bytes in, bytes out: without serializers nothing is decoded."""
    known = {method: grpc.unary_unary_rpc_method_handler(handler) for method, handler in handlers.items()}

    class Generic(grpc.GenericRpcHandler):  # type: ignore[misc]
        def service(self, details: Any) -> Any:
            return known.get(details.method)

    return Generic()


async def _can_listen(host: str, port: int) -> None:
    """gRPC does not say why it cannot listen; a socket does, with an OSError."""
    server = await asyncio.get_running_loop().create_server(asyncio.Protocol, host, port)
    server.close()
    await server.wait_closed()
