"""A run's log, followed once more: who sat where, when, and what each device was cut into meanwhile.

The engine itself is asked, event by event, so that a stretch on the page is what the runner took for true. Nobody
decides anything here: what was decided is in the log. Knows nothing of figures or of how they are shown.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Generic, TypeVar

from gpuloom.contract.plan import NO_CHANGE, Plan
from gpuloom.contract.policy import Policy
from gpuloom.contract.view import GpuView, JobView, Phase, View
from gpuloom.engine.events import (
    Event,
    GpuProbed,
    JobArrived,
    JobCancelled,
    JobCompleted,
    JobCrashed,
    JobDisplaced,
    JobReported,
)
from gpuloom.engine.log import Header, read_turns
from gpuloom.engine.machine import Decision, Engine
from gpuloom.engine.recovery import follow
from gpuloom.engine.state import State
from gpuloom.gpus.cluster import Cluster
from gpuloom.gpus.grant import Grant, Grants
from gpuloom.gpus.model import Layout


class Doing(StrEnum):
    """What a job did on its devices."""

    STARTING = "starting"
    RUNNING = "running"
    PROBING = "probing"
    """It ran while its device was being probed."""
    RESIZING = "resizing"
    """It goes on while it is told to have other devices, and holds both."""
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True)
class Segment:
    """One job on its devices for one stretch of time."""

    begin_s: float
    end_s: float
    grants: Grants
    doing: Doing

    @property
    def lasted_s(self) -> float:
        return self.end_s - self.begin_s


class Condition(StrEnum):
    THERE = "there"
    CUTTING = "being cut"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class LayoutSpan:
    """One device in one condition for one stretch of time."""

    begin_s: float
    end_s: float
    layout: Layout
    condition: Condition


@dataclass(frozen=True, slots=True)
class Rate:
    """A job's speed on a device that it had for itself, as it was reported."""

    at_s: float
    job_id: str
    grant: Grant
    batches_per_s: float


@dataclass(frozen=True, slots=True)
class Course:
    """What the log says of one job, beside where it sat."""

    arrived_s: float
    starts: int = 0
    crashes: int = 0
    rescales: int = 0
    ended_s: float | None = None
    state: str = Phase.WAITING.value
    cause: str | None = None
    """Of its end or, while it has not ended, of its last crash."""


@dataclass(frozen=True, slots=True)
class Replay:
    header: Header
    cluster: Cluster
    """With the devices that joined."""
    end_s: float
    """When the last thing happened."""
    courses: dict[str, Course]
    segments: dict[str, tuple[Segment, ...]]
    spans: dict[int, tuple[LayoutSpan, ...]]
    rates: tuple[Rate, ...]
    probes: tuple[GpuProbed, ...]
    decisions: tuple[Decision, ...]


def replay(lines: Iterable[str], name: str) -> Replay:
    """`name` is the log's, for whoever has to look into it; InputError if it is not one."""
    header, turns = read_turns(lines, name)
    engine = Engine(header.begins_on(), _NotAsked(), freezes=header.freezes)
    watcher = _Watcher(engine.state)
    for turn in turns:
        follow(engine, turn, name, watcher.take)
        watcher.decided(turn.decision)
    return watcher.ended(header)


class _NotAsked(Policy):
    def __init__(self) -> None:
        """It needs to know nothing."""

    def decide(self, view: View) -> Plan:  # noqa: ARG002
        return NO_CHANGE


_Sits = tuple[Grants, Doing]
_Is = tuple[Layout, Condition]
K = TypeVar("K")
W = TypeVar("W")


class _Stretches(Generic[K, W]):
    """What each of several was, and from when to when: what is is compared with what was."""

    def __init__(self) -> None:
        self._since: dict[K, tuple[float, W]] = {}
        self._ended: dict[K, list[tuple[float, float, W]]] = {}

    def see(self, key: K, now_s: float, what: W | None) -> None:
        """None: it is nothing that lasts."""
        before = self._since.get(key)
        if before is not None and before[1] != what:
            del self._since[key]
            if now_s > before[0]:
                self._ended.setdefault(key, []).append((before[0], now_s, before[1]))
        if what is not None:
            self._since.setdefault(key, (now_s, what))

    def of(self, key: K, end_s: float) -> list[tuple[float, float, W]]:
        """All of one, in order; what goes on is cut off at the end."""
        self.see(key, end_s, None)
        return self._ended.get(key, [])


class _Watcher:
    """Looks at the engine after everything that happens, and keeps what the page tells of it."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._courses: dict[str, Course] = {}
        self._completed: set[str] = set()
        self._jobs: _Stretches[str, _Sits] = _Stretches()
        self._gpus: _Stretches[int, _Is] = _Stretches()
        self._decisions: list[Decision] = []
        self._rates: list[Rate] = []
        self._probes: list[GpuProbed] = []
        self._look()

    def take(self, event: Event) -> None:
        """Something that the engine has just applied."""
        match event:
            case JobArrived():
                self._courses[event.job.id] = Course(event.at_s)
            case JobCompleted() | JobCrashed() | JobDisplaced() | JobCancelled():
                course = self._courses[event.job_id]
                crashes = course.crashes + isinstance(event, JobCrashed)
                self._courses[event.job_id] = replace(course, crashes=crashes, cause=event.cause)
                self._completed |= {event.job_id} if isinstance(event, JobCompleted) else set()
            case JobReported():
                self._rated(event)
            case GpuProbed():
                self._probes.append(event)
        self._look()

    def decided(self, decision: Decision | None) -> None:
        """The turn is over."""
        self._decisions += [] if decision is None else [decision]
        self._look()

    def _rated(self, event: JobReported) -> None:
        rate, held = event.report.batches_per_s, self._state.jobs[event.job_id].held
        if rate is not None and len(held) == 1 and held[0].share_pct >= 100:
            self._rates.append(Rate(event.at_s, event.job_id, held[0], rate))

    def _look(self) -> None:
        state = self._state
        for job_id, course in self._courses.items():
            view = state.jobs.get(job_id)
            self._jobs.see(job_id, state.now_s, None if view is None else self._sits(view))
            if view is not None:
                self._courses[job_id] = replace(
                    course, starts=view.starts, rescales=view.rescales, state=view.phase.value
                )
            elif course.ended_s is None:
                how = "completed" if job_id in self._completed else "given up"
                self._courses[job_id] = replace(course, ended_s=state.now_s, state=how)
        for index, gpu in state.gpus.items():
            self._gpus.see(index, state.now_s, (gpu.actual, _condition(gpu)))

    def _sits(self, view: JobView) -> _Sits | None:
        match view.phase:
            case Phase.WAITING:
                return None
            case Phase.STARTING:
                return view.held, Doing.STARTING
            case Phase.STOPPING:
                return view.held, Doing.STOPPING
        if view.id in self._state.rescaling:
            return view.held, Doing.RESIZING
        probing = any(self._state.gpus[grant.gpu].probing for grant in view.held)
        return view.held, Doing.PROBING if probing else Doing.RUNNING

    def ended(self, header: Header) -> Replay:
        """The log has no more: whatever goes on is cut off there."""
        end_s = self._state.now_s
        segments = {
            job_id: tuple(Segment(begin, end, *sat) for begin, end, sat in self._jobs.of(job_id, end_s))
            for job_id in self._courses
        }
        spans = {
            index: tuple(LayoutSpan(begin, end, *was) for begin, end, was in self._gpus.of(index, end_s))
            for index in self._state.gpus
        }
        return Replay(
            header,
            self._state.cluster,
            end_s,
            self._courses,
            segments,
            spans,
            tuple(self._rates),
            tuple(self._probes),
            tuple(self._decisions),
        )


def _condition(gpu: GpuView) -> Condition:
    return Condition.LOST if gpu.lost and not gpu.tenants else Condition.CUTTING if gpu.cutting else Condition.THERE
