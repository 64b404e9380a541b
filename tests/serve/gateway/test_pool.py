"""No request is lost: servers that die, are slow, are not there."""

import asyncio
import socket
from collections.abc import Coroutine
from typing import Any

import pytest

from gpuloom.serve.gateway.http_message import Message
from gpuloom.serve.gateway.pool import GAVE_UP, Backend, Done, Limits, Pool, RefusedError
from tests.serve.backends import backend, behind, die, echo, infer, stub, unavailable, until


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


@pytest.mark.parametrize("dying", [die, unavailable])
def test_a_request_whose_server_dies_is_answered_by_another(dying: Any) -> None:
    async def work() -> None:
        lost: list[str] = []
        done: list[Done] = []
        pool = Pool(on_done=done.append, on_lost=lambda one, _: lost.append(one.name))
        async with stub(dying) as bad, stub(echo) as good:
            pool.admit(backend(bad, "bad"))
            pool.admit(backend(good, "good"))
            answers = [await pool.send(infer(b"%d" % number)) for number in range(4)]
        assert [one.body for one in answers] == [b"0", b"1", b"2", b"3"]
        assert lost == ["bad"]  # once: then it is asked no more until somebody has looked
        assert len(bad.asked) == 1
        assert pool.retried == 1
        assert [one.undisturbed for one in done].count(False) == 1

    run(work())


def test_a_port_where_nobody_listens_is_like_a_server_that_died() -> None:
    async def work() -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        pool = Pool()
        pool.admit(Backend("nobody", "127.0.0.1", port))
        async with stub(echo) as good:
            pool.admit(backend(good))
            assert (await pool.send(infer(b"x"))).body == b"x"

    run(work())


def test_while_there_is_no_server_requests_wait_in_the_order_of_their_arrival() -> None:
    async def work() -> None:
        pool = Pool()
        waiting = [asyncio.create_task(pool.send(infer(b"%d" % number))) for number in range(5)]
        await until(lambda: pool.waiting == 5)
        assert not pool.ready
        async with stub(echo) as late:
            pool.admit(backend(late))
            answers = await asyncio.gather(*waiting)
        assert [one.body for one in answers] == [b"0", b"1", b"2", b"3", b"4"]
        assert late.asked == [b"0", b"1", b"2", b"3", b"4"]

    run(work())


def test_a_request_that_lost_its_server_goes_before_those_that_came_later() -> None:
    async def work() -> None:
        gate = asyncio.Event()

        async def die_later(_: Message) -> bytes | None:
            await gate.wait()
            return None

        pool = Pool()
        async with stub(die_later) as dying, stub(echo) as next_one:
            pool.admit(first := backend(dying, "dying"))
            early = asyncio.create_task(pool.send(infer(b"early")))
            await until(lambda: len(dying.asked) == 1)
            pool.withdraw(first)
            later = asyncio.create_task(pool.send(infer(b"later")))
            await until(lambda: pool.waiting == 1)
            gate.set()
            await until(lambda: pool.waiting == 2)
            pool.admit(backend(next_one))
            await asyncio.gather(early, later)
        assert next_one.asked == [b"early", b"later"]

    run(work())


def test_a_server_that_is_withdrawn_finishes_what_it_has() -> None:
    async def work() -> None:
        gate, done = asyncio.Event(), list[Done]()
        pool = Pool(on_done=done.append)
        async with stub(behind(gate)) as old, stub(echo) as new:
            pool.admit(before := backend(old, "old"))
            early = asyncio.create_task(pool.send(infer(b"early")))
            await until(lambda: len(old.asked) == 1)
            pool.admit(backend(new, "new"))
            pool.withdraw(before)
            assert (await pool.send(infer(b"later"))).body == b"later"
            assert before.outstanding == 1
            gate.set()
            assert (await early).body == b"early"
            assert before.outstanding == 0
        assert [one.backend.name for one in done] == ["new", "old"]
        assert pool.retried == 0

    run(work())


def test_a_slow_server_is_given_fewer_requests() -> None:
    async def work() -> None:
        gate = asyncio.Event()
        pool = Pool()
        async with stub(behind(gate)) as slow, stub(echo) as fast:
            pool.admit(backend(slow))
            pool.admit(quick := backend(fast))
            both = [asyncio.create_task(pool.send(infer(b""))) for _ in range(2)]
            await until(lambda: len(slow.asked) == len(fast.asked) == 1 and not quick.outstanding)
            for _ in range(10):
                await pool.send(infer(b""))
            assert (len(slow.asked), len(fast.asked)) == (1, 11)
            gate.set()
            await asyncio.gather(*both)

    run(work())


def test_equal_servers_take_turns_and_weights_are_kept() -> None:
    async def work() -> None:
        gate = asyncio.Event()
        pool = Pool()
        async with stub(echo) as one, stub(echo) as two:
            pool.admit(backend(one))
            pool.admit(backend(two))
            for _ in range(10):
                await pool.send(infer(b""))
            assert (len(one.asked), len(two.asked)) == (5, 5)
        pool = Pool()
        async with stub(behind(gate)) as small, stub(behind(gate)) as large:
            pool.admit(backend(small, weight=100.0))
            pool.admit(backend(large, weight=300.0))
            asked = [asyncio.create_task(pool.send(infer(b""))) for _ in range(40)]
            await until(lambda: len(small.asked) + len(large.asked) == 40)
            assert len(small.asked) == 10
            gate.set()
            await asyncio.gather(*asked)

    run(work())


def test_no_more_connections_than_allowed_and_the_rest_waits_its_turn() -> None:
    async def work() -> None:
        gate = asyncio.Event()
        pool = Pool(Limits(outstanding=3))
        async with stub(behind(gate)) as one:
            pool.admit(backend(one))
            asked = [asyncio.create_task(pool.send(infer(b"%d" % number))) for number in range(10)]
            await until(lambda: pool.waiting == 7)
            gate.set()
            answers = await asyncio.gather(*asked)
        assert [int(one.body) for one in answers] == list(range(10))

    run(work())


def test_what_cannot_be_answered_is_refused_with_a_reason() -> None:
    async def work() -> None:
        with pytest.raises(RefusedError, match="no server was ready within 0 s") as refused:
            await Pool(Limits(hold_s=0.0)).send(infer(b""))
        assert refused.value.status == 503
        full = Pool(Limits(waiting=1))
        first = asyncio.create_task(full.send(infer(b"")))
        await until(lambda: full.waiting == 1)
        with pytest.raises(RefusedError, match="1 requests wait"):
            await full.send(infer(b""))
        first.cancel()
        assert full.refused == 1

    run(work())


def test_those_that_give_up_do_not_keep_the_others_waiting() -> None:
    async def work() -> None:
        gate = asyncio.Event()
        pool = Pool(Limits(outstanding=1))
        async with stub(behind(gate)) as one:
            pool.admit(backend(one))
            first, second, third, fourth = (asyncio.create_task(pool.send(infer(b"%d" % n))) for n in range(4))
            await until(lambda: pool.waiting == 3 and len(one.asked) == 1)
            second.cancel()  # while it waits
            await until(second.done)
            assert pool.waiting == 2

            def give_up(_: Done) -> None:
                third.cancel()  # in the moment in which its turn has come

            pool.on_done = give_up
            gate.set()
            assert (await first).body == b"0"
            async with asyncio.timeout(20):
                assert (await fourth).body == b"3"
            assert third.cancelled()
            assert one.asked == [b"0", b"3"]

    run(work())


def test_one_that_gives_up_is_told_with_its_time_so_far() -> None:
    """Else a server that is so slow that every client gives up would look fine."""

    async def work() -> None:
        done = list[Done]()
        pool = Pool(on_done=done.append)
        async with stub(behind(asyncio.Event())) as one:
            pool.admit(mine := backend(one))
            asked = asyncio.create_task(pool.send(infer(b"")))
            await until(lambda: len(one.asked) == 1)
            asked.cancel()
            await until(asked.done)
        assert [(one.backend, one.status, one.undisturbed) for one in done] == [(mine, GAVE_UP, True)]
        assert (mine.open, mine.outstanding, pool.retried) == (True, 0, 0)

    run(work())


def test_a_request_that_kills_every_server_does_not_go_on_for_ever() -> None:
    async def work() -> None:
        async with stub(die) as one:
            pool = Pool(Limits(attempts=3), on_lost=lambda one, _: pool.admit(one))
            pool.admit(backend(one))
            with pytest.raises(RefusedError, match="3 servers in turn"):
                await pool.send(infer(b"poison"))
        assert len(one.asked) == 3

    run(work())


def test_a_kept_connection_that_the_server_closed_is_opened_anew() -> None:
    async def work() -> None:
        async with stub(echo) as one:
            pool = Pool()
            pool.admit(mine := backend(one))
            await pool.send(infer(b"a"))
            (kept,) = mine.peer._idle
            kept.close()
            assert (await pool.send(infer(b"b"))).body == b"b"
            assert pool.retried == 0

    run(work())


def test_many_at_once_while_servers_come_and_go() -> None:
    """Every request is answered with its own answer, though one server after the other dies at its third request."""

    async def work() -> None:
        pool = Pool(Limits(attempts=1000))
        born = count = 0

        async def deadly(request: Message) -> bytes | None:
            nonlocal count
            count += 1
            return None if count % 3 == 0 else await echo(request)

        async with stub(deadly) as one:

            def replace(lost: Backend, _: str) -> None:
                nonlocal born
                born += 1
                pool.forget(lost)
                pool.admit(backend(one, f"s{born}"))

            pool.on_lost = replace
            pool.admit(backend(one, "s0"))
            answers = await asyncio.gather(*(pool.send(infer(b"%d" % number)) for number in range(100)))
        assert [int(one.body) for one in answers] == list(range(100))
        assert born > 1

    run(work())
