"""The address for gRPC: who is asked, what is retried, what is counted, what happens at the end."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest

from gpuloom.serve.gateway.grpc_client import Channel
from gpuloom.serve.gateway.grpc_door import GrpcDoor
from gpuloom.serve.gateway.http_client import LostError
from gpuloom.serve.gateway.kserve import HEALTH, INFER, LIVE, METADATA, READY, SERVICE, infer_request
from gpuloom.serve.gateway.pool import Backend, Done, Limits, Pool
from gpuloom.serve.load.open_loop import STANDIN_BODY, Target, drive
from gpuloom.serve.load.request import Body
from tests.serve.backends import until

grpc: Any = pytest.importorskip("grpc")
REQUEST = infer_request("m", STANDIN_BODY.content)
Behaviour = Callable[[bytes, Any], Awaitable[bytes]]


class Stub:
    """A server that behaves as a test wants; keeps what it was asked."""

    def __init__(self, behave: Behaviour) -> None:
        self.behave = behave
        self.asked: list[str] = []
        self.metadata: list[Any] = []
        self.port = 0
        self.server: Any = None

    def handler(self, method: str) -> Any:
        async def handle(request: bytes, context: Any) -> bytes:
            self.asked.append(method)
            self.metadata.append(dict(context.invocation_metadata()))
            return await self.behave(request, context)

        return grpc.unary_unary_rpc_method_handler(handle)

    async def die(self) -> None:
        """As a process that is killed: whoever waits for an answer gets none."""
        await self.server.stop(None)


@asynccontextmanager
async def stub(behave: Behaviour) -> AsyncIterator[Stub]:
    one = Stub(behave)

    class Generic(grpc.GenericRpcHandler):  # type: ignore[misc]
        def service(self, details: Any) -> Any:
            return one.handler(details.method)

    one.server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    one.server.add_generic_rpc_handlers((Generic(),))
    one.port = one.server.add_insecure_port("127.0.0.1:0")
    await one.server.start()
    try:
        yield one
    finally:
        await one.server.stop(None)


async def echo(request: bytes, _: Any) -> bytes:
    return request


async def unavailable(_: bytes, context: Any) -> bytes:
    return bytes(await context.abort(grpc.StatusCode.UNAVAILABLE, "stopping"))


def behind(gate: asyncio.Event) -> Behaviour:
    async def wait(request: bytes, _: Any) -> bytes:
        await gate.wait()
        return request

    return wait


def backend(one: Stub, name: str = "s") -> Backend:
    return Backend(name, "127.0.0.1", 1, grpc_port=one.port)


Test = Callable[[GrpcDoor, Channel, Pool], Awaitable[None]]


def with_gateway(test: Test, limits: Limits | None = None, done: list[Done] | None = None) -> None:
    async def work() -> None:
        pool = Pool(limits or Limits(), on_done=list[Done]().append if done is None else done.append)
        gateway = GrpcDoor({"m": pool})
        channel = Channel("127.0.0.1", await gateway.start("127.0.0.1", 0))
        try:
            await test(gateway, channel, pool)
        finally:
            channel.close()
            for one in pool.backends:
                one.close()
            await gateway.stop(0.0)

    asyncio.run(work())


def test_a_request_goes_to_its_services_server_and_back() -> None:
    done: list[Done] = []

    async def test(_: GrpcDoor, channel: Channel, pool: Pool) -> None:
        async with stub(echo) as one:
            pool.admit(backend(one))
            reply = await channel.ask(INFER, REQUEST, (("traceparent", "00-1"),))
            assert (reply.status, reply.body) == (200, REQUEST)
            assert one.metadata[0]["traceparent"] == "00-1"
            await channel.ask(f"{SERVICE}ModelMetadata", REQUEST)
            await channel.ask(METADATA, b"")
            assert one.asked == [INFER, f"{SERVICE}ModelMetadata", METADATA]
        assert [one.status for one in done] == [200]  # questions are not inference: their times say nothing

    with_gateway(test, done=done)


def test_what_it_answers_itself() -> None:
    async def test(_: GrpcDoor, channel: Channel, pool: Pool) -> None:
        assert (await channel.ask(LIVE, b"")).body == b"\x08\x01"
        assert (await channel.ask(READY, b"")).body == b""  # protobuf's no
        assert (await channel.ask(HEALTH, b"")).body == b"\x08\x02"
        async with stub(echo) as one:
            pool.admit(backend(one))
            assert (await channel.ask(READY, b"")).body == b"\x08\x01"
            assert (await channel.ask(HEALTH, b"")).body == b"\x08\x01"
        for request in (infer_request("other", STANDIN_BODY.content), b"", b"\xff"):
            unknown = await channel.ask(INFER, request)
            assert (unknown.code, unknown.details) == (
                grpc.StatusCode.NOT_FOUND,
                "no such service; there are m",
            )
        assert (await channel.ask(f"{SERVICE}ModelStreamInfer", REQUEST)).code is grpc.StatusCode.UNIMPLEMENTED

    with_gateway(test)


def test_a_models_own_complaint_is_passed_on() -> None:
    done: list[Done] = []

    async def complain(_: bytes, context: Any) -> bytes:
        return bytes(await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "unexpected input"))

    async def test(_: GrpcDoor, channel: Channel, pool: Pool) -> None:
        async with stub(complain) as one:
            pool.admit(backend(one))
            reply = await channel.ask(INFER, REQUEST)
            assert (reply.code, reply.details) == (grpc.StatusCode.INVALID_ARGUMENT, "unexpected input")
            assert len(one.asked) == 1
        assert [one.status for one in done] == [400]

    with_gateway(test, done=done)


def test_a_request_whose_server_dies_is_answered_by_another() -> None:
    done: list[Done] = []

    async def test(_: GrpcDoor, channel: Channel, pool: Pool) -> None:
        lost: list[str] = []
        pool.on_lost = lambda one, _: lost.append(one.name)
        async with stub(behind(asyncio.Event())) as dying, stub(unavailable) as stopping, stub(echo) as good:
            pool.admit(backend(dying, "dying"))
            asked = asyncio.create_task(channel.ask(INFER, REQUEST))
            await until(lambda: len(dying.asked) == 1)
            pool.admit(backend(stopping, "stopping"))
            pool.admit(backend(good, "good"))
            await dying.die()
            assert (await asked).body == REQUEST
            assert (await channel.ask(INFER, REQUEST)).body == REQUEST
        assert set(lost) == {"dying", "stopping"}
        assert [one.backend.name for one in done] == ["good", "good"]
        assert pool.refused == 0

    with_gateway(test, done=done)


def test_a_server_that_is_forgotten_gives_its_requests_back() -> None:
    """One that hangs is killed by whoever minds it: its requests must not wait for the operating system to tell."""

    async def test(_: GrpcDoor, channel: Channel, pool: Pool) -> None:
        async with stub(behind(asyncio.Event())) as hanging, stub(echo) as good:
            pool.admit(first := backend(hanging))
            asked = asyncio.create_task(channel.ask(INFER, REQUEST))
            await until(lambda: len(hanging.asked) == 1)
            pool.admit(backend(good))
            pool.forget(first)
            assert (await asked).body == REQUEST

    with_gateway(test)


def test_what_cannot_be_answered_is_unavailable() -> None:
    async def test(_: GrpcDoor, channel: Channel, pool: Pool) -> None:
        with pytest.raises(LostError, match="no server was ready within 0 s"):
            await channel.ask(INFER, REQUEST)
        assert pool.refused == 1

    with_gateway(test, Limits(hold_s=0.0))


def test_a_client_that_gives_up_takes_its_request_along() -> None:
    async def test(_: GrpcDoor, channel: Channel, pool: Pool) -> None:
        async with stub(behind(asyncio.Event())) as one:
            pool.admit(mine := backend(one))
            asked = asyncio.create_task(channel.ask(INFER, REQUEST))
            await until(lambda: mine.outstanding == 1)
            asked.cancel()
            await asyncio.wait([asked])
            assert asked.cancelled()
            await until(lambda: mine.outstanding == 0)
            assert mine.open  # it is not held against the server

    with_gateway(test)


def test_stopping_lets_what_was_asked_be_answered_and_refuses_the_rest() -> None:
    async def test(gateway: GrpcDoor, channel: Channel, pool: Pool) -> None:
        gate = asyncio.Event()
        async with stub(behind(gate)) as one:
            pool.admit(backend(one))
            asked = asyncio.create_task(channel.ask(INFER, REQUEST))
            await until(lambda: len(one.asked) == 1)
            stopping = asyncio.create_task(gateway.stop(60.0))
            await asyncio.sleep(0)
            with pytest.raises(LostError, match="being taken down"):
                await channel.ask(INFER, REQUEST)
            gate.set()
            assert (await asked).body == REQUEST
            await stopping

    with_gateway(test)


def test_load_through_a_server_that_dies_loses_nothing() -> None:
    """From the client to the server and back, with the open loop of `gpuloom load`."""

    async def test(_: GrpcDoor, channel: Channel, pool: Pool) -> None:
        turn = 0

        async def sometimes(request: bytes, context: Any) -> bytes:
            nonlocal turn
            turn += 1
            return await (unavailable if turn % 10 == 0 else echo)(request, context)

        pool.on_lost = lambda lost, _: pool.admit(lost)
        async with stub(sometimes) as one:
            pool.admit(backend(one))
            port = int(channel.address.rpartition(":")[2])
            target = Target("m", "127.0.0.1", port, INFER, np.zeros(100), Body(REQUEST), slo_ms=1e9, grpc=True)
            nobody = Target("n", "127.0.0.1", 1, INFER, np.zeros(5), Body(REQUEST), slo_ms=1e9, grpc=True)
            result, unanswered = await drive([target, nobody])
        assert (result.requests, result.failed, result.lost, len(result.latencies_ms)) == (100, 0, 0, 100)
        assert result.kept
        assert pool.retried >= 10
        assert (unanswered.failed, unanswered.lost, unanswered.kept) == (0, 5, False)

    with_gateway(test, Limits(attempts=1000))


def test_a_port_that_is_taken_is_said_with_the_reason() -> None:
    async def test(_: GrpcDoor, channel: Channel, pool: Pool) -> None:
        other = GrpcDoor({"m": pool})
        with pytest.raises(OSError, match="in use") as taken:
            await other.start("127.0.0.1", int(channel.address.rpartition(":")[2]))
        assert taken.value.errno is not None

    with_gateway(test)
