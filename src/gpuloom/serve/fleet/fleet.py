"""The servers of a deployment: started, watched, switched, replaced, and ended.

Each replica of the plan is a place with two servers: one with the planned share, one with the larger share of its
shadow. The place wants one of them. Whoever is wanted and ready is given the requests; while it is not, the other one
if that is ready; while neither is, requests wait. All follows from this rule: a crash, a switch to the larger share, a
switch back, the first start. With a standby both are kept running, so that a switch or a crash costs nothing but the
moment in which it is noticed; without, the one that is not wanted is started when it is needed.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial

from gpuloom.gpus.host.mps import MpsError
from gpuloom.provision.plan import Replica
from gpuloom.serve.devices import Devices
from gpuloom.serve.fleet.correct import Level, Means, Seen, Verdict, correct
from gpuloom.serve.fleet.place import Place, Tally, Wish
from gpuloom.serve.fleet.shadows import Slot, fits
from gpuloom.serve.gateway.pool import GAVE_UP, LIMITS, Backend, Done, Limits, Pool
from gpuloom.serve.latencies import Window, percentile
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
        on_event: Callable[[dict[str, object]], None] = lambda _: None,
        limits: Limits = LIMITS,
    ) -> None:
        self.wish, self.triton, self.devices, self.state, self.on_event = wish, triton, devices, state, on_event
        self.timing = wish.timing
        span_s = wish.rules.windows_s[-1]
        self.places: dict[Slot, Place] = {}
        for replica in replicas:
            slot = (replica.service, replica.number)
            servers = {spec.level: Server(spec) for spec in wish.specs[slot]}
            self.places[slot] = Place(replica, servers, Window(span_s, wish.slo_ms[replica.service]))
        self._place_of = {
            server.spec.name: place for place in self.places.values() for server in place.servers.values()
        }
        self.tallies = {name: Tally(Window(span_s, slo_ms)) for name, slo_ms in wish.slo_ms.items()}
        self.pools = {
            name: Pool(limits, partial(self._on_done, name), partial(self._on_lost, name)) for name in wish.slo_ms
        }
        self.events: deque[dict[str, object]] = deque(maxlen=100)
        self.restarts = 0
        self._began_s = time.monotonic()
        self._hurry = asyncio.Event()
        self._launching: set[str] = set()
        self._corrected_s = self._scraped_s = 0.0
        self._tasks: set[asyncio.Task[None]] = set()

    # ---- from start to end -----------------------------------------------------------------------------------------

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
        for task in self._tasks:
            task.cancel()
        for server in self._servers():
            self._end(server)
        self.state.remove_shared_memory()

    async def _step(self) -> None:
        now_s = time.monotonic()
        for server in self._servers():
            self._look_at(server, now_s)
        if now_s - self._corrected_s >= self.timing.correct_s:
            self._corrected_s = now_s
            for place in self.places.values():
                self._correct(place)
        for place in self.places.values():
            self._settle(place)
        if now_s - self._scraped_s >= self.timing.scrape_s:
            self._scraped_s = now_s
            self._spawn(self._scrape())
        with suppress(TimeoutError):
            async with asyncio.timeout(self.timing.tick_s):
                await self._hurry.wait()
        self._hurry.clear()

    def _servers(self) -> list[Server]:
        return [server for place in self.places.values() for server in place.servers.values()]

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ---- one server ------------------------------------------------------------------------------------------------

    def _look_at(self, server: Server, now_s: float) -> None:
        if server.phase is Phase.DOWN:
            return
        if server.process is not None and server.has_ended():
            self._crashed(server, f"its process ended with {server.process.returncode}")
        elif not server.asking and (server.phase is not Phase.READY or now_s - server.asked_s >= self.timing.health_s):
            server.asking, server.asked_s = True, now_s
            self._spawn(self._ask(server))

    async def _ask(self, server: Server) -> None:
        """Whether it is ready. Nobody else waits for the answer."""
        process = server.process
        ready = await server.is_ready(self.timing.answer_s)
        server.asking = False
        if server.process is not process or process is None or server.has_ended():
            return  # about one that is gone
        now_s = time.monotonic()
        if ready:
            server.silent = 0
            if server.phase is not Phase.READY:
                self._note("ready", server, f"after {now_s - server.since_s:.2f} s")
                server.enter(Phase.READY, now_s)
                self._hurry.set()
        elif server.phase is Phase.STARTING:
            if now_s - server.since_s > self.timing.start_s:
                self._crashed(server, f"not ready within {self.timing.start_s:g} s")
        else:
            server.silent += 1
            if server.silent >= self.timing.silences:
                self._crashed(server, "it does not answer")

    def _crashed(self, server: Server, why: str) -> None:
        now_s = time.monotonic()
        peaceful = server.phase is Phase.READY and now_s - server.since_s > self.timing.peace_s
        server.failures = 1 if peaceful else server.failures + 1
        self.restarts += 1
        self._note("crashed", server, why)
        self._end(server)
        server.retry_s = now_s + (0.0 if server.failures == 1 else min(0.2 * 2.0**server.failures, 30.0))

    def _end(self, server: Server) -> None:
        if server.backend is not None:
            self.pools[server.spec.service].forget(server.backend)
        server.kill()
        server.backend = None
        server.enter(Phase.DOWN, time.monotonic())
        self.state.remove_shared_memory(f"{server.spec.name}-")

    async def _launch(self, server: Server) -> None:
        self._launching.add(server.spec.name)
        try:
            # Starting an MPS daemon takes its time; requests go on meanwhile.
            environment = await asyncio.to_thread(self.devices.environment, server.spec.grant)
            assert self.state.alive is not None
            prefix = f"{self.state.shm_prefix}{server.spec.name}-"
            server.launch(self.triton, environment, self.state.alive, prefix)
            server.enter(Phase.STARTING, time.monotonic())
            self._note("started", server, str(server.spec.grant))
        except (MpsError, OSError) as error:
            server.failures += 1
            server.retry_s = time.monotonic() + min(0.2 * 2.0**server.failures, 30.0)
            self._note("crashed", server, f"cannot be launched: {error}")
        finally:
            self._launching.discard(server.spec.name)

    async def _scrape(self) -> None:
        ready = [server for server in self._servers() if server.phase is Phase.READY]
        await asyncio.gather(*(server.scrape(self.timing.answer_s) for server in ready))

    # ---- one replica -----------------------------------------------------------------------------------------------

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
                self._note("switched", active, f"requests go to it instead of {before}")
                place.window.clear()
            place.active = active
        for server in order:
            if server is not active and server.backend is not None and server.backend.open:
                pool.withdraw(server.backend)
            self._fill_or_empty(place, server)

    def _fill_or_empty(self, place: Place, server: Server) -> None:
        needed = self.wish.standby or server in (place.wanted, place.active)
        if needed and server.phase is Phase.DOWN:
            if time.monotonic() >= server.retry_s and server.spec.name not in self._launching:
                self._launching.add(server.spec.name)
                self._spawn(self._launch(server))
        elif not needed and server.phase is Phase.READY and server.backend and not server.backend.outstanding:
            self._note("ended", server, "it is not needed any more")
            self._end(server)

    def _correct(self, place: Place) -> None:
        rules, slot = self.wish.rules, (place.replica.service, place.replica.number)
        grown, settled = place.health.level is Level.SHADOW, place.active is place.wanted
        if place.active is None or not (settled or grown):
            return  # a crash has put the larger one in its place
        now_s, slo_ms = self.plan_s(), self.wish.slo_ms[place.replica.service]
        counts = tuple(place.window.counts(now_s, span_s) for span_s in rules.windows_s)
        # Sorting takes a while, and is only asked for when it may shrink.
        seen = Seen(now_s, counts, percentile(place.window.latencies_ms(now_s), 99.0) if grown else None)
        # While the larger one is on its way, or does not start, the planned one is what is seen.
        slower = self.wish.slower[slot] if settled else 1.0
        means = Means(slo_ms, slower, self._room(place), place.replica.grant.batch or 1)
        place.health, verdict = correct(place.health, seen, means, rules)
        if not settled and verdict is Verdict.STUCK:
            verdict = Verdict.STAY
        if verdict in (Verdict.GROW, Verdict.SHRINK) or (verdict is Verdict.STUCK and place.verdict is not verdict):
            (total, above), *_ = counts
            self._note(verdict.value, place.active, f"{above} of the last {total} requests took above {slo_ms:g} ms")
        place.verdict = verdict

    def _room(self, place: Place) -> bool:
        shadow, planned = place.servers[Level.SHADOW].spec.grant, place.servers[Level.PLANNED].spec.grant
        others = [grant for other in self.places.values() if other is not place for grant in other.claims]
        return shadow.share_pct > planned.share_pct and fits(shadow, others)

    # ---- what the pools tell ---------------------------------------------------------------------------------------

    def plan_s(self) -> float:
        """The plan's seconds since the start."""
        return (time.monotonic() - self._began_s) / self.wish.dilate

    def _on_done(self, service: str, done: Done) -> None:
        now_s, latency_ms = self.plan_s(), done.took_s * 1000.0 / self.wish.dilate
        above, gave_up = latency_ms > self.wish.slo_ms[service], done.status == GAVE_UP
        if gave_up and not above:
            return  # whether it would have been answered in time is not known
        tally = self.tallies[service]
        tally.requests += 1
        tally.above += above
        tally.failed += done.status >= 400 and not gave_up
        tally.window.add(now_s, latency_ms)
        place = self._place_of[done.backend.name]
        if done.undisturbed and place.active is not None and place.active.backend is done.backend:
            place.window.add(now_s, latency_ms)

    def _on_lost(self, service: str, backend: Backend, why: str) -> None:  # noqa: ARG002
        for server in self._place_of[backend.name].servers.values():
            if server.backend is backend and server.phase is Phase.READY:
                server.enter(Phase.SUSPECT, time.monotonic())
        self._hurry.set()

    def _note(self, what: str, server: Server, detail: str) -> None:
        event: dict[str, object] = {
            "at_unix_s": round(time.time(), 3),
            "event": what,
            "service": server.spec.service,
            "server": server.spec.name,
            "level": server.spec.level.value,
            "share_pct": server.spec.grant.share_pct,
            "pid": server.pid,
            "detail": detail,
        }
        self.events.append(event)
        self.state.write_event(event)
        self.on_event(event)
