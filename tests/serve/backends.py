"""Small servers that behave as a test wants: what a Triton server looks like to the gateway."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from gpuloom.serve.gateway.http_message import Framing, Message, answer, get, post
from gpuloom.serve.gateway.pool import Backend

Behaviour = Callable[[Message], Awaitable[bytes | None]]
"""The answer, or None to break the connection off."""


class Stub:
    """One server; counts what it was asked."""

    def __init__(self, behave: Behaviour) -> None:
        self.behave = behave
        self.asked: list[bytes] = []
        self.port = 0
        self.writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        framing = Framing()
        self.writers.append(writer)
        while data := await reader.read(65536):
            framing.feed(data)
            while (request := framing.take()) is not None:
                self.asked.append(request.body)
                reply = await self.behave(request)
                if reply is None:
                    writer.close()
                    return
                writer.write(reply)
        writer.close()


@asynccontextmanager
async def stub(behave: Behaviour) -> AsyncIterator[Stub]:
    one = Stub(behave)
    server = await asyncio.start_server(one.serve, "127.0.0.1", 0)
    one.port = server.sockets[0].getsockname()[1]
    try:
        yield one
    finally:
        server.close()
        for writer in one.writers:
            writer.close()
        for _ in range(3):
            await asyncio.sleep(0)  # closed on the way out of the loop's next rounds


def backend(one: Stub, name: str = "s", weight: float = 1.0) -> Backend:
    return Backend(name, "127.0.0.1", one.port, weight)


async def echo(request: Message) -> bytes | None:
    return answer(200, "OK", request.body)


async def die(_: Message) -> bytes | None:
    return None


async def unavailable(_: Message) -> bytes | None:
    return answer(503, "Service Unavailable", b"stopping")


def behind(gate: asyncio.Event) -> Behaviour:
    """Answers only when the gate opens."""

    async def wait(request: Message) -> bytes | None:
        await gate.wait()
        return await echo(request)

    return wait


def infer(body: bytes) -> bytes:
    return post("/v2/models/m/infer", body)


async def until(condition: Callable[[], bool]) -> None:
    """Lets everybody else run until something has happened; a test that hangs is ended by its own limit."""
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0)


__all__ = ["Stub", "backend", "behind", "die", "echo", "get", "infer", "stub", "unavailable", "until"]
