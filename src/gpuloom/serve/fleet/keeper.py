"""Servers kept running: launched, asked whether they are ready, ended when they crash or hang.

Knows nothing of replicas and shares: which servers are to run is `fleet`'s to say, and what becomes of the requests of
one that ends is its pool's.
"""

import asyncio
import time
from collections.abc import Coroutine, Mapping, Sequence

from gpuloom.serve.fleet.journal import Journal
from gpuloom.serve.fleet.wish import Timing
from gpuloom.serve.gateway.pool import Backend, Pool
from gpuloom.serve.seats import DeviceError, Devices
from gpuloom.serve.state import State
from gpuloom.serve.triton.environment import Triton
from gpuloom.serve.triton.server import STARVED, Phase, Server


class Keeper:
    def __init__(
        self,
        servers: Sequence[Server],
        pools: Mapping[str, Pool],
        triton: Triton,
        devices: Devices,
        state: State,
        journal: Journal,
        timing: Timing,
    ) -> None:
        self.servers, self.pools, self.timing = servers, pools, timing
        self.triton, self.devices, self.state, self.journal = triton, devices, state, journal
        self.restarts = 0
        self.hurry = asyncio.Event()
        """Something is to be decided now rather than at the next tick."""
        self._launching: set[str] = set()
        self._scraped_s = 0.0
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, server: Server) -> None:
        """One that is down, unless it is being started, or has crashed too often to be tried again so soon."""
        if time.monotonic() >= server.retry_s and server.spec.name not in self._launching:
            self._launching.add(server.spec.name)
            self._spawn(self._launch(server))

    async def _launch(self, server: Server) -> None:
        try:
            # Starting an MPS daemon takes its time; requests go on meanwhile.
            seat = await asyncio.to_thread(self.devices.seat, server.spec.grant, server.spec.name)
            assert self.state.alive is not None
            prefix = f"{self.state.shm_prefix}{server.spec.name}-"
            server.launch(self.triton, seat, self.state.alive, prefix)
            server.enter(Phase.STARTING, time.monotonic())
            self.journal.note("started", server, str(server.spec.grant))
        except (DeviceError, OSError) as error:
            server.failures += 1
            server.retry_s = time.monotonic() + _pause_s(server.failures)
            self.journal.note("crashed", server, f"cannot be launched: {error}")
        finally:
            self._launching.discard(server.spec.name)

    def look(self) -> None:
        """At every server: whether it has ended, whether it is ready; now and then also at what it counts."""
        now_s = time.monotonic()
        for server in self.servers:
            self._look_at(server, now_s)
        if now_s - self._scraped_s >= self.timing.scrape_s:
            self._scraped_s = now_s
            self._spawn(self._scrape())

    def _look_at(self, server: Server, now_s: float) -> None:
        if server.phase is Phase.DOWN:
            return
        if server.process is not None and server.has_ended():
            self._crashed(server, f"its process ended with {server.process.returncode}")
        elif not server.asking and (server.phase is not Phase.READY or now_s - server.asked_s >= self.timing.health_s):
            if server.lacked_memory():  # the kernel may have taken one process and left the others
                self._crashed(server, "one of its processes is gone")
                return
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
                self.journal.note("ready", server, f"after {now_s - server.since_s:.2f} s")
                server.enter(Phase.READY, now_s)
                self.hurry.set()
        elif server.phase is Phase.STARTING:
            if now_s - server.since_s > self.timing.start_s:
                self._crashed(server, f"not ready within {self.timing.start_s:g} s")
        else:
            server.silent += 1
            if server.silent >= self.timing.silences:
                self._crashed(server, "it does not answer")

    async def _scrape(self) -> None:
        ready = [server for server in self.servers if server.phase is Phase.READY]
        await asyncio.gather(*(server.scrape(self.timing.answer_s) for server in ready))

    def suspect(self, backend: Backend) -> None:
        """It lost a request: not asked until it has answered us."""
        for server in self.servers:
            if server.backend is backend and server.phase is Phase.READY:
                server.enter(Phase.SUSPECT, time.monotonic())
        self.hurry.set()

    def _crashed(self, server: Server, why: str) -> None:
        now_s = time.monotonic()
        peaceful = server.phase is Phase.READY and now_s - server.since_s > self.timing.peace_s
        server.failures = 1 if peaceful else server.failures + 1
        self.restarts += 1
        server.starved = server.lacked_memory()
        if server.starved:
            self.journal.note("oom-killed", server, f"{STARVED}: {why}")
        else:
            self.journal.note("crashed", server, why)
        self.end(server)
        server.retry_s = now_s + (0.0 if server.failures == 1 else _pause_s(server.failures))

    def end(self, server: Server) -> None:
        if server.backend is not None:
            self.pools[server.spec.service].forget(server.backend)
        server.kill()
        server.backend = None
        server.enter(Phase.DOWN, time.monotonic())
        self.state.remove_shared_memory(f"{server.spec.name}-")

    def end_all(self) -> None:
        for task in self._tasks:
            task.cancel()
        for server in self.servers:
            self.end(server)
        self.state.remove_shared_memory()

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _pause_s(failures: int) -> float:
    """Before another try, after so many in a row that failed."""
    return min(0.2 * 2.0**failures, 30.0)
