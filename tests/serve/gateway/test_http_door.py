"""The one address: what it passes on, what it answers itself."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from gpuloom.serve.gateway.http_client import Peer
from gpuloom.serve.gateway.http_door import HttpDoor
from gpuloom.serve.gateway.http_message import Message, get, post
from gpuloom.serve.gateway.pool import Done, Limits, Pool
from gpuloom.serve.load.open_loop import Target, drive
from tests.serve.backends import backend, behind, echo, infer, stub, until

Test = Callable[[HttpDoor, Peer, Pool], Awaitable[None]]


def with_gateway(test: Test, limits: Limits | None = None) -> None:
    async def work() -> None:
        pool = Pool(limits or Limits())
        gateway = HttpDoor({"m": pool}, {"/metrics": lambda: ("text/plain", b"up 1\n")})
        port = await gateway.start("127.0.0.1", 0)
        peer = Peer("127.0.0.1", port)
        try:
            await test(gateway, peer, pool)
        finally:
            peer.close()
            await gateway.stop(0.0)

    asyncio.run(work())


def test_a_request_goes_to_its_services_server_and_back() -> None:
    async def test(_: HttpDoor, peer: Peer, pool: Pool) -> None:
        async with stub(echo) as one:
            pool.admit(backend(one))
            for body in (b"{}", b"", b"x" * 300_000):
                answer = await peer.ask(infer(body))
                assert (answer.status, answer.body) == (200, body)

    with_gateway(test)


def test_what_it_answers_itself() -> None:
    async def test(_: HttpDoor, peer: Peer, pool: Pool) -> None:
        async def status(request: bytes) -> int:
            return (await peer.ask(request)).status

        assert await status(get("/v2/health/live")) == 200
        assert await status(get("/v2/health/ready")) == 400
        assert await status(get("/nowhere")) == 404
        assert await status(post("/v2/repository/index", b"")) == 405
        unknown = await peer.ask(post("/v2/models/other/infer", b""))
        assert unknown.status == 404
        assert "there are m" in json.loads(unknown.body)["error"]
        assert (await peer.ask(get("/metrics"))).body == b"up 1\n"
        async with stub(echo) as one:
            pool.admit(backend(one))
            assert await status(get("/v2/health/ready")) == 200

    with_gateway(test)


def test_a_refusal_is_worded_as_triton_does() -> None:
    async def test(_: HttpDoor, peer: Peer, pool: Pool) -> None:  # noqa: ARG001
        answer = await peer.ask(infer(b"{}"))
        assert answer.status == 503
        assert "no server" in json.loads(answer.body)["error"]

    with_gateway(test, Limits(hold_s=0.0))


def test_clients_that_speak_otherwise() -> None:
    async def test(_: HttpDoor, peer: Peer, pool: Pool) -> None:
        async with stub(echo) as one:
            pool.admit(backend(one))
            reader, writer = await asyncio.open_connection("127.0.0.1", peer.port)
            head = b"POST /v2/models/m/infer HTTP/1.1\r\nContent-Length: 4\r\n"
            writer.write(head + b"Expect: 100-continue\r\n\r\n")
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(b"body")
            assert b"200 OK" in await reader.readuntil(b"body")
            # Two at once on one connection, the second with a farewell: answered in order, then it is closed.
            writer.write(head + b"\r\nabcd" + head + b"Connection: close\r\n\r\nefgh")
            rest = await reader.read()
            assert rest.index(b"abcd") < rest.index(b"efgh")
            writer.close()
            reader, writer = await asyncio.open_connection("127.0.0.1", peer.port)
            writer.write(head + b"\r\nabcd")
            writer.write_eof()  # it sends no more, but listens
            assert b"abcd" in await reader.read()
            writer.close()
            reader, writer = await asyncio.open_connection("127.0.0.1", peer.port)
            writer.write(b"gibberish\r\n\r\n")
            assert b"400 Bad Request" in await reader.read()
            writer.close()

    with_gateway(test)


def test_stopping_lets_what_was_asked_be_answered() -> None:
    async def test(gateway: HttpDoor, peer: Peer, pool: Pool) -> None:
        gate = asyncio.Event()
        async with stub(behind(gate)) as one:
            pool.admit(backend(one))
            asked = asyncio.create_task(peer.ask(infer(b"last")))
            await until(lambda: len(one.asked) == 1)
            stopping = asyncio.create_task(gateway.stop(60.0))
            await asyncio.sleep(0)
            gate.set()
            assert (await asked).body == b"last"
            await stopping

    with_gateway(test)


def test_requests_that_come_while_it_stops_are_told_so() -> None:
    async def test(gateway: HttpDoor, peer: Peer, pool: Pool) -> None:
        gate = asyncio.Event()
        async with stub(behind(gate)) as one:
            pool.admit(backend(one))
            kept = [await asyncio.open_connection("127.0.0.1", peer.port) for _ in range(3)]
            for reader, writer in kept:
                writer.write(get("/v2/health/live"))
                await reader.readuntil(b"\r\n\r\n")
            (busy, to_busy), (idle, to_idle), (slow, to_slow) = kept
            to_busy.write(infer(b"last") + infer(b"behind it"))
            to_slow.write(infer(b"half")[:-2])  # it has begun to arrive
            await until(lambda: one.asked == [b"last"])
            await until(lambda: sum(client.engaged for client in gateway.clients) == 2)
            stopping = asyncio.create_task(gateway.stop(60.0))
            await until(lambda: gateway.stopping)
            to_idle.write(infer(b"too late"))
            to_slow.write(b"lf")
            for reader in (idle, slow):
                told = await reader.read()  # to its end: the connection is closed
                assert told.startswith(b"HTTP/1.1 503 ")
                assert b"Connection: close\r\n" in told
                assert b"being taken down" in told
            gate.set()
            answers = await busy.read()
            assert answers.index(b"last") < answers.index(b"HTTP/1.1 503 ")
            await stopping
            assert one.asked == [b"last"]
            for _, writer in kept:
                writer.close()

    with_gateway(test)


def test_what_is_not_answered_in_time_is_refused_rather_than_dropped() -> None:
    async def test(gateway: HttpDoor, peer: Peer, pool: Pool) -> None:
        async with stub(behind(asyncio.Event())) as one:
            pool.admit(backend(one))
            asked = asyncio.create_task(peer.ask(infer(b"x")))
            await until(lambda: one.asked == [b"x"])
            await gateway.stop(0.0)
            answer = await asked
            assert (answer.status, answer.closes) == (503, True)
            assert not gateway.clients

    with_gateway(test)


def test_a_long_answer_is_sent_to_its_end_before_it_stops() -> None:
    async def test(gateway: HttpDoor, peer: Peer, pool: Pool) -> None:
        long = b"x" * 20_000_000
        async with stub(echo) as one:
            pool.admit(backend(one))
            reader, writer = await asyncio.open_connection("127.0.0.1", peer.port)
            writer.write(infer(long))
            await writer.drain()
            await until(lambda: bool(one.asked) and not any(client.engaged for client in gateway.clients))
            stopping = asyncio.create_task(gateway.stop(60.0))
            answer = await reader.read()
            assert answer.endswith(long)
            await stopping
            writer.close()

    with_gateway(test)


def test_only_inference_is_counted() -> None:
    """A client that asks whether a model is ready must not make the p99 look good."""

    async def test(_: HttpDoor, peer: Peer, pool: Pool) -> None:
        done: list[Done] = []
        pool.on_done = done.append
        async with stub(echo) as one:
            pool.admit(backend(one))
            for path in ("/v2/models/m/ready", "/v2/models/m/stats", "/v2/models/m", "/v2"):
                assert (await peer.ask(get(path))).status == 200
            assert not done
            for path in ("/v2/models/m/infer", "/v2/models/m/versions/1/infer", "/v2/models/m/generate"):
                assert (await peer.ask(post(path, b"{}"))).status == 200
            assert len(done) == 3

    with_gateway(test)


def test_what_would_make_a_server_look_lost_is_not_asked_of_it() -> None:
    async def test(_: HttpDoor, peer: Peer, pool: Pool) -> None:
        async with stub(echo) as one:
            pool.admit(backend(one))
            assert (await peer.ask(post("/v2/models/m/generate_stream", b"{}"))).status == 501
            head = post("/v2/models/m", b"").replace(b"POST", b"HEAD")  # its answer has a length, but no body
            assert (await peer.ask(head)).status == 405
            assert not one.asked

    with_gateway(test)


def test_a_server_that_does_not_speak_http_is_lost() -> None:
    async def nonsense(_: Message) -> bytes | None:
        return b"SSH-2.0 hello\r\n\r\n"

    async def test(_: HttpDoor, peer: Peer, pool: Pool) -> None:
        async with stub(nonsense) as bad, stub(echo) as good:
            pool.admit(backend(bad))
            pool.admit(backend(good))
            for _time in range(2):
                assert (await peer.ask(infer(b"x"))).body == b"x"
            assert len(bad.asked) == 1

    with_gateway(test)


def test_load_through_a_server_that_dies_loses_nothing() -> None:
    """From the client to the server and back, with the open loop of `gpuloom load`."""

    async def test(_: HttpDoor, peer: Peer, pool: Pool) -> None:
        import numpy as np

        turn = 0

        async def sometimes_dies(request: Any) -> bytes | None:
            nonlocal turn
            turn += 1
            return None if turn % 10 == 0 else await echo(request)

        pool.on_lost = lambda lost, _: pool.admit(lost)
        async with stub(sometimes_dies) as one:
            pool.admit(backend(one))
            target = Target("m", "127.0.0.1", peer.port, "/v2/models/m/infer", np.zeros(100), slo_ms=1e9)
            (result,) = await drive([target])
        assert (result.requests, result.failed, result.lost, len(result.latencies_ms)) == (100, 0, 0, 100)
        assert result.kept
        assert pool.retried >= 10

    with_gateway(test)


def test_load_counts_what_was_not_answered() -> None:
    async def test(_: HttpDoor, peer: Peer, pool: Pool) -> None:  # noqa: ARG001
        import numpy as np

        due_s = np.zeros(5)
        refused, nobody = await drive(
            [
                Target("m", "127.0.0.1", peer.port, "/v2/models/m/infer", due_s, slo_ms=10.0),
                Target("n", "127.0.0.1", 1, "/", due_s, slo_ms=10.0),
            ]
        )
        assert (refused.failed, refused.lost, refused.above, refused.kept) == (5, 0, 5, False)
        assert (nobody.failed, nobody.lost, nobody.kept) == (0, 5, False)
        assert "answered with 503" in (refused.why or "")
        assert "cannot be reached" in (nobody.why or "")
        assert nobody.row()["p99_ms"] is None

    with_gateway(test, Limits(hold_s=0.0))
