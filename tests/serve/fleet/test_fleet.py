"""Servers that crash, hang, are too slow: what becomes of the requests, and what is left at the end."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gpuloom.serve.deployment import Level, read_plan
from gpuloom.serve.fleet.correct import Rules, Verdict
from gpuloom.serve.fleet.fleet import Fleet, StartError
from gpuloom.serve.fleet.place import Place
from gpuloom.serve.fleet.status import metrics_page, status_of
from gpuloom.serve.fleet.wish import Timing
from gpuloom.serve.options import Options
from gpuloom.serve.prepare import prepare
from gpuloom.serve.seats import NoDevices
from gpuloom.serve.state import State
from gpuloom.serve.times import batch_times
from gpuloom.serve.triton.environment import Triton
from gpuloom.serve.triton.server import Phase
from tests.serve.backends import infer
from tests.serve.plans import row, write_plan

TIMING = Timing(tick_s=0.01, correct_s=0.01, health_s=0.05, scrape_s=0.02, answer_s=0.3, silences=2, grace_s=1.0)


@asynccontextmanager
async def fleet_of(
    folder: Path, triton: Triton, rows: list[dict[str, object]], standby: bool = True, rules: Rules | None = None
) -> AsyncIterator[Fleet]:
    deployment = read_plan(write_plan(folder, *rows))
    with State(folder / "state") as state:
        options = Options(standby=standby, rules=rules or Rules(), timing=TIMING)
        wish = prepare(deployment, batch_times(deployment, None), state, options)
        fleet = Fleet(deployment.plan.replicas, wish, triton, NoDevices(), state)
        try:
            await fleet.until_ready()
            running = asyncio.create_task(fleet.run())
            yield fleet
            running.cancel()
        finally:
            fleet.end()
    assert State(folder / "state").take_down(1.0) is False  # nothing was left


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


def run(work: Awaitable[None]) -> None:
    async def all_of_it() -> None:
        await work

    asyncio.run(all_of_it())


async def answer(fleet: Fleet, body: bytes = b"{}") -> int:
    """Who answered."""
    return int((await fleet.pools["W6"].send(infer(body))).body)


def all_ready(place: Place) -> bool:
    both = all(server.phase is Phase.READY for server in place.servers.values())
    return both and place.active is place.wanted


def test_a_killed_server_is_replaced_and_its_standby_serves_meanwhile(tmp_path: Path, fake_triton: Triton) -> None:
    async def work() -> None:
        async with fleet_of(tmp_path, fake_triton, [row()]) as fleet:
            (place,) = fleet.places.values()
            await until(lambda: all_ready(place))
            first = await answer(fleet)
            assert first == place.servers[Level.PLANNED].pid
            os.kill(first, signal.SIGKILL)
            assert await answer(fleet) == place.servers[Level.SHADOW].pid
            await until(lambda: all_ready(place))
            assert await answer(fleet) == place.servers[Level.PLANNED].pid != first
            assert fleet.pools["W6"].refused == 0
            assert [event["event"] for event in fleet.journal.events].count("crashed") == 1

    run(work())


def test_a_request_that_kills_its_server_is_answered_all_the_same(tmp_path: Path, fake_triton: Triton) -> None:
    async def work() -> None:
        async with fleet_of(tmp_path, fake_triton, [row()], standby=False) as fleet:
            (place,) = fleet.places.values()
            assert place.servers[Level.SHADOW].phase is Phase.DOWN
            before = place.wanted.pid
            answers = await asyncio.gather(*(answer(fleet, b"die") for _ in range(5)))
            assert before not in answers
            assert fleet.observer.tallies["W6"].requests == 5
            assert not place.window.latencies_ms(fleet.observer.plan_s())  # it says nothing of the new server's speed

    run(work())


def test_a_server_that_hangs_is_killed_and_its_requests_go_on(tmp_path: Path, fake_triton: Triton) -> None:
    async def work() -> None:
        async with fleet_of(tmp_path, fake_triton, [row()]) as fleet:
            (place,) = fleet.places.values()
            await until(lambda: all_ready(place))
            before = place.wanted.pid
            hang = place.wanted.spec.log.parent / "hang"
            hang.touch()
            stuck = asyncio.create_task(answer(fleet))
            assert await stuck == place.servers[Level.SHADOW].pid
            hang.unlink()
            await until(lambda: all_ready(place))
            assert place.wanted.pid != before

    run(work())


@pytest.mark.parametrize("standby", [True, False])
def test_a_violation_moves_it_to_the_larger_share_and_calm_moves_it_back(
    tmp_path: Path, fake_triton: Triton, standby: bool
) -> None:
    async def work() -> None:
        rules = Rules(windows_s=(0.5, 1.0), calm_s=0.5)
        async with fleet_of(tmp_path, fake_triton, [row(slo_ms=0.001)], standby, rules) as fleet:
            (place,) = fleet.places.values()

            await until(lambda: place.active is place.wanted)
            await asyncio.gather(*(answer(fleet) for _ in range(20)))  # nobody answers within a microsecond
            await until(lambda: place.health.level is Level.SHADOW and place.active is place.wanted)
            assert place.grant.share_pct == 40.0
            assert await answer(fleet) == place.servers[Level.SHADOW].pid
            await until(lambda: place.servers[Level.PLANNED].phase is (Phase.READY if standby else Phase.DOWN))
            await until(lambda: place.health.level is Level.PLANNED and place.active is place.wanted)  # nobody asks
            assert await answer(fleet) == place.servers[Level.PLANNED].pid
            assert fleet.pools["W6"].retried == fleet.pools["W6"].refused == 0

    run(work())


def test_clients_that_give_up_are_a_violation_too(tmp_path: Path, fake_triton: Triton) -> None:
    async def work() -> None:
        async with fleet_of(tmp_path, fake_triton, [row(slo_ms=1.0)]) as fleet:
            (place,) = fleet.places.values()
            await until(lambda: all_ready(place))
            (place.wanted.spec.log.parent / "hang").touch()
            asked = [asyncio.create_task(answer(fleet)) for _ in range(20)]
            await until(lambda: place.wanted.backend is not None and place.wanted.backend.outstanding == 20)
            await asyncio.sleep(0.002)  # longer than the SLO
            for task in asked:
                task.cancel()
            await until(lambda: fleet.observer.tallies["W6"].above == 20)
            assert fleet.observer.tallies["W6"].failed == 0
            await until(lambda: place.health.level is Level.SHADOW)

    run(work())


def test_without_room_it_stays_and_says_so(tmp_path: Path, fake_triton: Triton) -> None:
    async def work() -> None:
        rows = [row(slo_ms=0.001), row("other", share_pct=70)]
        async with fleet_of(tmp_path, fake_triton, rows, standby=False) as fleet:
            place = fleet.places["W6", 0]
            await until(lambda: place.active is place.wanted)
            await asyncio.gather(*(answer(fleet) for _ in range(20)))
            await until(lambda: place.verdict is Verdict.STUCK)
            assert place.health.level is Level.PLANNED
            assert [event["event"] for event in fleet.journal.events].count("stuck") == 1

    run(work())


def test_room_that_one_has_been_promised_is_not_given_to_another(tmp_path: Path, fake_triton: Triton) -> None:
    """Both count on the same ten points; the larger servers take their time to start, so neither holds them yet."""

    async def work() -> None:
        rows = [row("a", slo_ms=0.001, share_pct=45), row("b", slo_ms=0.001, share_pct=45)]
        async with fleet_of(tmp_path, fake_triton, rows, standby=False) as fleet:
            a, b = fleet.places["a", 0], fleet.places["b", 0]
            await until(lambda: a.active is a.wanted and b.active is b.wanted)
            asked = [fleet.pools[name].send(infer(b"{}")) for name in ("a", "b") for _ in range(20)]
            await asyncio.gather(*asked)
            await until(lambda: {a.health.level, b.health.level} == {Level.PLANNED, Level.SHADOW})
            kept = a if a.health.level is Level.PLANNED else b
            await until(lambda: kept.verdict is Verdict.STUCK)
            assert a.grant.share_pct + b.grant.share_pct <= 100.0

    run(work())


def test_a_larger_share_that_does_not_start_is_given_up_when_the_need_is_gone(
    tmp_path: Path, fake_triton: Triton
) -> None:
    async def work() -> None:
        rules = Rules(windows_s=(0.2, 0.4), calm_s=0.2)
        async with fleet_of(tmp_path, fake_triton, [row(slo_ms=0.001)], standby=False, rules=rules) as fleet:
            (place,) = fleet.places.values()
            await until(lambda: place.active is place.wanted)
            (place.servers[Level.SHADOW].spec.repository / "crash").touch()
            await asyncio.gather(*(answer(fleet) for _ in range(20)))
            await until(lambda: place.health.level is Level.SHADOW)
            assert await answer(fleet) == place.servers[Level.PLANNED].pid  # it serves on meanwhile
            await until(lambda: place.health.level is Level.PLANNED)
            told = [event["event"] for event in fleet.journal.events if event["event"] in ("grow", "shrink", "stuck")]
            assert told == ["grow", "shrink"]

    run(work())


def test_what_it_tells_of_itself(tmp_path: Path, fake_triton: Triton) -> None:
    async def work() -> None:
        async with fleet_of(tmp_path, fake_triton, [row(), row(replica=1)]) as fleet:
            await until(lambda: all(all_ready(place) for place in fleet.places.values()))
            for _ in range(4):
                await answer(fleet)
            await until(lambda: all(place.active and place.active.counters for place in fleet.places.values()))
            status = status_of(fleet, standin=True)
            (service,) = status["services"]
            assert (service["requests"], service["failed"], service["slo_ms"]) == (4, 0, 40.0)
            assert [replica["share_pct"] for replica in service["replicas"]] == [30.0, 30.0]
            assert status["gpu"] is False
            text = metrics_page(fleet)[1].decode()
            assert 'gpuloom_serve_requests_total{service="W6"} 4' in text
            assert 'gpuloom_serve_server_ready{service="W6",server="W6-1-planned"} 1' in text

    run(work())


def test_a_server_that_never_starts_is_an_answer(tmp_path: Path, fake_triton: Triton) -> None:
    async def work() -> None:
        with State(tmp_path / "state") as state:
            deployment = read_plan(write_plan(tmp_path, row()))
            wish = prepare(deployment, batch_times(deployment, None), state, Options(timing=TIMING))
            for spec in wish.specs["W6", 0]:
                (spec.repository / "crash").touch()
            fleet = Fleet(deployment.plan.replicas, wish, fake_triton, NoDevices(), state)
            try:
                with pytest.raises(StartError, match="W6-0-planned does not start: error: this model does not load"):
                    await fleet.until_ready()
            finally:
                fleet.end()

    run(work())
