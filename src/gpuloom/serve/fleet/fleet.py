"""The servers of a deployment: who is to run, and who of them is given the requests.

Each replica of the plan is a place with two servers: one with the planned share, one with the larger share of its
shadow. The place wants one of them. Whoever is wanted and ready is given the requests; while it is not, the other one
if that is ready; while neither is, requests wait. All follows from this rule: a crash, a switch to the larger share, a
switch back, the first start. With a standby both are kept running, so that a switch or a crash costs nothing but the
moment in which it is noticed; without, the one that is not wanted is started when it is needed.

How a server is started and replaced is the `keeper`'s, which share a place wants the `observer`'s.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from gpuloom.provision.plan import Replica
from gpuloom.serve.deployment import Slot, slot_of
from gpuloom.serve.fleet.journal import Event, Journal
from gpuloom.serve.fleet.keeper import Keeper
from gpuloom.serve.fleet.observer import Observer
from gpuloom.serve.fleet.place import Place
from gpuloom.serve.fleet.wish import Wish
from gpuloom.serve.gateway.pool import LIMITS, Backend, Limits, Pool
from gpuloom.serve.latencies import Window
from gpuloom.serve.seats import Devices
from gpuloom.serve.state import State
from gpuloom.serve.triton.environment import Triton
from gpuloom.serve.triton.server import Phase, Server


class StartError(Exception):
    """The servers do not start; the text says why."""


class Fleet:
    def __init__(
        self,
        replicas: tuple[Replica, ...],
        wish: Wish,
        triton: Triton,
        devices: Devices,
        state: State,
        on_event: Callable[[Event], None] = lambda _: None,
        limits: Limits = LIMITS,
    ) -> None:
        self.wish, self.devices = wish, devices
        self.places: dict[Slot, Place] = {slot_of(replica): _place(replica, wish) for replica in replicas}
        self.journal = Journal(state, on_event)
        self.observer = Observer(self.places.values(), wish, self.journal)
        self.pools = {
            service: Pool(limits, partial(self.observer.add, service), self._on_lost) for service in wish.slo_ms
        }
        servers = [server for place in self.places.values() for server in place.servers.values()]
        self.keeper = Keeper(servers, self.pools, triton, devices, state, self.journal, wish.timing)
        self._reviewed_s = 0.0

    async def until_ready(self) -> None:
        """Start everything; StartError if a server crashes again and again without ever having been ready."""
        while not all(place.active is not None for place in self.places.values()):
            await self._step()
            for place in self.places.values():
                server = place.wanted
                if server.failures >= 3:
                    raise StartError(f"server {server.spec.name} does not start: {server.last_words()}")

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._step()

    def end(self) -> None:
        """Kill every server; requests are no longer taken. Releasing the devices is for whoever found them."""
        self.keeper.end_all()

    async def _step(self) -> None:
        timing, now_s = self.wish.timing, time.monotonic()
        self.keeper.look()
        if now_s - self._reviewed_s >= timing.correct_s:
            self._reviewed_s = now_s
            for place in self.places.values():
                self.observer.review(place)
        for place in self.places.values():
            self._settle(place)
        with suppress(TimeoutError):
            async with asyncio.timeout(timing.tick_s):
                await self.keeper.hurry.wait()
        self.keeper.hurry.clear()

    def _settle(self, place: Place) -> None:
        """Bring what is in line with what is wanted."""
        order = sorted(place.servers.values(), key=lambda server: server is not place.wanted)
        active = next((server for server in order if server.phase is Phase.READY), None)
        pool = self.pools[place.replica.service]
        if active is not None and active.backend is not None and not active.backend.open:
            pool.admit(active.backend)
        if active is not place.active:
            if active is not None:
                before = "nobody" if place.active is None else place.active.spec.name
                self.journal.note("switched", active, f"requests go to it instead of {before}")
                place.window.clear()
            place.active = active
        for server in order:
            if server is not active and server.backend is not None and server.backend.open:
                pool.withdraw(server.backend)
            self._fill_or_empty(place, server)

    def _fill_or_empty(self, place: Place, server: Server) -> None:
        needed = self.wish.standby or server in (place.wanted, place.active)
        if needed and server.phase is Phase.DOWN:
            self.keeper.start(server)
        elif not needed and server.phase is Phase.READY and server.backend and not server.backend.outstanding:
            self.journal.note("ended", server, "it is not needed any more")
            self.keeper.end(server)

    def _on_lost(self, backend: Backend, why: str) -> None:  # noqa: ARG002
        self.keeper.suspect(backend)


def _place(replica: Replica, wish: Wish) -> Place:
    servers = {spec.level: Server(spec) for spec in wish.specs[slot_of(replica)]}
    return Place(replica, servers, Window(wish.rules.windows_s[-1], wish.slo_ms[replica.service]))
