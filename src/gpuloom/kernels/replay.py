"""What would happen if these programs shared a device: an event simulation of recorded kernel sequences.

The decisions are the data plane's own: the compiled core (csrc/gate.c) with a simulated clock. Simulated are the
hosts, which launch as they did when recorded, and the device: it runs one kernel at a time, and each queue's kernels in
order; where several queues have one ready, the one that became ready first goes first, as PoCL does.

A task repeats its launches as often as it has to. Before it starts again it waits for its results, also where the
recorded host never did: nothing else would hold it back.
"""

import ctypes
import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from gpuloom.errors import InputError
from gpuloom.kernels import FLOOR, SLOWDOWN
from gpuloom.kernels.core import SLOTS, U64, Policy, Region, load
from gpuloom.kernels.profile import Launch, Profile

WAKE_NS = 50_000
"""From a change to the moment at which a sleeping host acts on it: a thread's wake-up on another core."""
LEAST_NS = 1_000
"""No kernel takes less, whatever the profile says: simulated time has to pass."""
LOOK_NS = 50_000_000
"""A sleeping host looks around at least this often, as runtime.c does."""


@dataclass(frozen=True, slots=True)
class Task:
    name: str
    profile: Profile
    priority: int
    requests: int | None
    """How many it serves; None: until all tasks that have a number are done."""
    slowdown: float = SLOWDOWN
    floor: float = FLOOR
    launches: int | None = None
    """Of one request; None: as often as the sequence repeats."""


@dataclass(frozen=True, slots=True)
class Outcome:
    name: str
    latencies_ns: list[int]
    """Of each request: from its first launch to the end of its last kernel."""
    finished_ns: int
    """When it had served all of them, or was stopped."""
    ran_ns: int
    waited_ns: int
    overruns: int


@dataclass(slots=True)
class _Host:
    task: Task
    queue: int
    launches: Sequence[Launch]
    period: int
    at: int = 0
    """Launches made."""
    ended: int = 0
    asked_ns: int = 0
    waiting: bool = False
    look_ns: int | None = None
    """When it looks around next, while it waits."""
    finished_ns: int | None = None
    ran_ns: int = 0
    starts_ns: deque[int] = field(default_factory=deque)
    latencies_ns: list[int] = field(default_factory=list)
    queued: deque[Launch] = field(default_factory=deque)

    def next(self) -> Launch:
        return self.launches[self.at % len(self.launches)]


def _repeated(task: Task) -> tuple[list[Launch], int]:
    """What it does again and again, and how many launches of it are one request."""
    period = task.launches or task.profile.period()
    recorded = len(task.profile.longest())
    if period > recorded:
        raise InputError(f"replay: {task.name} has {recorded} launches: expected {period} for one request")
    launches = [replace(one, held_ns=max(one.held_ns, LEAST_NS)) for one in task.profile.steady(period)]
    launches[0] = replace(launches[0], waited=True)
    return launches, period


def rate_alone(task: Task) -> float:
    """The part of the time in which the device computes for it while nobody else is there."""
    launches, _ = _repeated(task)
    launched = ended = 0
    for launch in launches:
        launched = (ended if launch.waited else launched) + launch.host_ns
        ended = max(launched, ended) + launch.held_ns
    return sum(launch.ran_ns for launch in launches) / ended


def replay(
    tasks: Sequence[Task], policy: Policy, wake_ns: int = WAKE_NS, limit_ns: int = 600_000_000_000
) -> list[Outcome]:
    """The tasks' outcomes, in their order. They start together. InputError if `limit_ns` is not enough for all."""
    if not tasks or all(task.requests is None for task in tasks):
        raise InputError("replay: expected a task with a number of requests")
    if len(tasks) > SLOTS:
        raise InputError(f"replay: {len(tasks)} tasks: expected at most {SLOTS}")
    simulation = _Simulation(tasks, policy, wake_ns, limit_ns)
    try:
        return simulation.run()
    finally:
        simulation.close()


class _Simulation:
    def __init__(self, tasks: Sequence[Task], policy: Policy, wake_ns: int, limit_ns: int) -> None:
        self._core = load()
        self._region = Region()
        self._core.loom_region_init(ctypes.byref(self._region))
        self._region.head.policy = policy
        self._wake_ns, self._limit_ns = wake_ns, limit_ns
        self._hosts = [self._host(index, task) for index, task in enumerate(tasks)]
        self._events: list[tuple[int, int, str, _Host]] = []
        self._numbers = count()
        self._ready: deque[_Host] = deque()
        self._running: _Host | None = None
        self._now = 1_000_000_000

    def _host(self, index: int, task: Task) -> _Host:
        name = task.name.encode()[:20]
        self._core.loom_take(ctypes.byref(self._region), index, index + 1, 0, 1, task.priority, name)
        slot = self._region.slot(index)
        slot.slowdown_ppm, slot.floor_ppm = int(task.slowdown * 1e6), int(task.floor * 1e6)
        queue = self._core.loom_queue_new(ctypes.byref(self._region), index)
        for kernel, _, ran, gap in task.profile.summary():
            self._core.loom_expect(queue, kernel.id, int(ran.mean_ns), int(gap.mean_ns))
        launches, period = _repeated(task)
        return _Host(task, queue, launches, period)

    def close(self) -> None:
        for host in self._hosts:
            self._core.loom_queue_free(host.queue)

    def run(self) -> list[Outcome]:
        began = self._now
        for host in self._hosts:
            self._plan(host, self._now + host.next().host_ns)
        while self._events and any(h.finished_ns is None for h in self._hosts if h.task.requests is not None):
            self._now, _, kind, host = heapq.heappop(self._events)
            if self._now - began > self._limit_ns:
                raise InputError(self._too_long())
            if kind == "end":
                self._end(host)
            elif kind == "launch":
                host.asked_ns = self._now
                self._launch(host)
            elif host.look_ns == self._now:
                self._launch(host)
        slots = [self._region.slot(index) for index in range(len(self._hosts))]
        return [
            Outcome(
                host.task.name,
                host.latencies_ns,
                (host.finished_ns or self._now) - began,
                host.ran_ns,
                slot.waited_ns,
                slot.overruns,
            )
            for host, slot in zip(self._hosts, slots, strict=True)
        ]

    def _too_long(self) -> str:
        task, served = next((h.task, len(h.latencies_ns)) for h in self._hosts if h.task.requests and not h.finished_ns)
        return (
            f"replay: {task.name} served {served} of {task.requests} requests in the {self._limit_ns / 1e9:g} s of"
            " simulated time that there are: expected fewer (--requests)"
        )

    def _plan(self, host: _Host, at_ns: int, kind: str = "launch") -> None:
        heapq.heappush(self._events, (at_ns, next(self._numbers), kind, host))

    def _look(self, host: _Host, at_ns: int) -> None:
        """The host looks around then, unless it does so earlier anyway."""
        if host.look_ns is None or not self._now < host.look_ns <= at_ns:
            host.look_ns = at_ns
            self._plan(host, at_ns, "look")

    def _launch(self, host: _Host) -> None:
        if host.finished_ns is not None:
            return
        launch, again = host.next(), U64()
        host.waiting = not self._core.loom_ask(host.queue, launch.kernel, self._now, ctypes.byref(again))
        if host.waiting:
            self._look(host, min(again.value, self._now + LOOK_NS))
            return
        host.look_ns = None
        if host.at % host.period == 0:
            host.starts_ns.append(host.asked_ns)
        host.at += 1
        host.queued.append(launch)
        if len(host.queued) == 1:
            self._ready.append(host)
            self._start()
        if not host.next().waited:
            self._plan(host, self._now + host.next().host_ns)

    def _start(self) -> None:
        if self._running is None and self._ready:
            self._running = self._ready.popleft()
            self._plan(self._running, self._now + self._running.queued[0].held_ns, "end")

    def _end(self, host: _Host) -> None:
        launch = host.queued.popleft()
        wake = self._core.loom_ended(host.queue, launch.kernel, launch.ran_ns, self._now)
        self._running = None
        host.ended += 1
        host.ran_ns += launch.ran_ns
        if host.queued:
            self._ready.append(host)
        self._start()
        if host.ended % host.period == 0:
            host.latencies_ns.append(self._now - host.starts_ns.popleft())
            if len(host.latencies_ns) == host.task.requests:
                host.finished_ns = self._now
        if host.ended == host.at and host.next().waited:
            self._plan(host, self._now + host.next().host_ns)
        if wake:
            for other in self._hosts:
                if other.waiting:
                    self._look(other, self._now + self._wake_ns)
