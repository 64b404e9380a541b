"""Whatever servers come, die and recover when: every request is answered once, by one server, and in its turn.

Without sockets: a pool is told how to ask, so a server here is the list of what it has been asked and not answered.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.serve.gateway.http_client import LostError
from gpuloom.serve.gateway.pool import GAVE_UP, UNAVAILABLE, Backend, Done, Limits, Pool

ACTIONS = ("ask", "ask", "ask", "answer", "answer", "refuse", "die", "die", "start", "withdraw", "recover", "give up")
QUIET = 6
"""Rounds of the loop after which nothing moves any more."""
STEPS = st.lists(
    st.tuples(st.sampled_from(ACTIONS), st.integers(0, 30), st.sampled_from([0, 1, 2, QUIET])), max_size=60
)
"""What happens, to whom, and for how many rounds all others run before the next thing does."""
ROUNDS = 100
"""More than any of these plays needs to its end."""


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    request: int


@dataclass(slots=True)
class World:
    """A pool, servers that do as they are told, and clients."""

    pool: Pool
    servers: list[Backend] = field(default_factory=list)
    """Alive."""
    asked: dict[int, tuple[Backend, "asyncio.Future[Reply]"]] = field(default_factory=dict)
    """By request: who has it."""
    order: list[int] = field(default_factory=list)
    """Requests as they were asked of a server, again and again."""
    clients: dict[int, "asyncio.Task[Reply]"] = field(default_factory=dict)
    done: list[Done] = field(default_factory=list)

    def request(self) -> None:
        number = len(self.clients)

        async def ask(backend: Backend) -> Reply:
            assert number not in self.asked, "two servers have it"
            assert backend in self.servers, "it was asked of a dead one"
            assert backend.open
            answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
            self.asked[number] = (backend, answer)
            self.order.append(number)
            try:
                return await answer
            finally:
                del self.asked[number]

        self.clients[number] = asyncio.get_running_loop().create_task(self.pool.route(ask))

    def start(self) -> None:
        self.servers.append(Backend(f"s{len(self.order)}", "nowhere", 1, 1.0 + len(self.servers) % 3))
        self.pool.admit(self.servers[-1])

    def die(self, server: Backend) -> None:
        self.servers.remove(server)
        self.pool.forget(server)
        for backend, answer in list(self.asked.values()):
            if backend is server and not answer.done():
                answer.set_exception(LostError("it died"))

    def answer(self, number: int, status: int) -> None:
        answer = self.asked[number][1]
        if not answer.done():
            answer.set_result(Reply(status, number))

    def act(self, action: str, choice: int) -> None:
        """Of those that it can be done to, the one with this number."""
        held, waiting = list(self.asked), [number for number, task in self.clients.items() if not task.done()]
        server = self.servers[choice % len(self.servers)] if self.servers else None
        if action == "ask":
            self.request()
        elif action == "start":
            self.start()
        elif action in ("answer", "refuse") and held:
            self.answer(held[choice % len(held)], 200 if action == "answer" else UNAVAILABLE)
        elif action == "give up" and waiting:
            self.clients[waiting[choice % len(waiting)]].cancel()
        elif action == "die" and server is not None:
            self.die(server)
        elif action == "withdraw" and server is not None:
            self.pool.withdraw(server)
        elif action == "recover" and server is not None:
            self.pool.admit(server)

    async def settle(self, rounds: int = QUIET) -> None:
        for _ in range(rounds):
            await asyncio.sleep(0)

    def check(self) -> None:
        for server in self.servers:
            assert server.outstanding == sum(backend is server for backend, _ in self.asked.values())
            assert server.outstanding <= self.pool.limits.outstanding
        open_tasks = sum(not task.done() for task in self.clients.values())
        assert self.pool.waiting + len(self.asked) == open_tasks
        has_room = any(server.open and server.outstanding < self.pool.limits.outstanding for server in self.servers)
        assert not (has_room and self.pool.waiting), "somebody waits for nothing"


def outcomes(world: World) -> Iterator[tuple[int, "asyncio.Task[Reply]"]]:
    return ((number, task) for number, task in world.clients.items() if not task.cancelled())


async def play(steps: list[tuple[str, int, int]], limits: Limits) -> World:
    world = World(Pool(limits))
    world.pool.on_done = world.done.append
    for action, choice, rounds in steps:
        world.act(action, choice)
        await world.settle(rounds)
        if rounds == QUIET:
            world.check()
    world.start()  # in the end there is one that answers everything
    for _ in range(ROUNDS):
        await world.settle()
        world.check()
        for number in list(world.asked):
            world.answer(number, 200)
    return world


@settings(deadline=None, max_examples=200)
@given(steps=STEPS, outstanding=st.integers(1, 4))
def test_no_request_is_lost_or_answered_twice(steps: list[tuple[str, int, int]], outstanding: int) -> None:
    world = asyncio.run(play(steps, Limits(outstanding=outstanding, attempts=1000)))
    for number, task in outcomes(world):
        assert task.result() == Reply(200, number)
    answered = [done for done in world.done if done.status == 200]
    assert len(answered) == sum(1 for _ in outcomes(world))
    assert len(world.done) - len(answered) == sum(done.status == GAVE_UP for done in world.done)
    losses = len(world.order) - len(world.done)
    assert world.pool.retried == losses, "asked again only if a server was lost with it"
    assert (world.pool.refused, world.pool.waiting, world.asked) == (0, 0, {})


@settings(deadline=None, max_examples=100)
@given(
    lost=st.sets(st.integers(0, 11), max_size=8),
    before=st.integers(1, 12),
    outstanding=st.integers(1, 12),
)
def test_what_lost_its_server_goes_before_all_that_came_later(lost: set[int], before: int, outstanding: int) -> None:
    """Some are answered, then the server dies; the next one is asked the rest in the order of their arrival."""

    async def work() -> None:
        world = World(Pool(Limits(outstanding=outstanding)))
        world.start()
        for _ in range(before):
            world.request()
        await world.settle()
        for number in set(world.asked) - lost:
            world.answer(number, 200)
        await world.settle()
        (server,) = world.servers
        world.die(server)
        for _ in range(12 - before):
            world.request()  # while nobody serves
        await world.settle()
        rest = [number for number, task in world.clients.items() if not task.done()]
        world.order.clear()
        world.start()
        for _ in rest:
            await world.settle()
            for number in list(world.asked):
                world.answer(number, 200)
        assert world.order == rest
        await world.settle()
        assert all(task.done() for task in world.clients.values())

    asyncio.run(work())


@settings(deadline=None, max_examples=50)
@given(attempts=st.integers(1, 6), spare=st.integers(0, 3))
def test_a_request_takes_no_more_servers_down_than_the_limit(attempts: int, spare: int) -> None:
    async def work() -> None:
        world = World(Pool(Limits(attempts=attempts)))
        for _ in range(attempts + spare):
            world.start()
        world.request()
        await world.settle()
        while world.asked:
            ((server, _),) = world.asked.values()
            world.die(server)
            await world.settle()
        assert len(world.servers) == spare
        assert str(world.clients[0].exception()) == f"{attempts} servers in turn were lost with this request"

    asyncio.run(work())
