"""A run's log, followed once more: who sat where, when, and what each device was cut into meanwhile.

The engine itself is asked, event by event, so that a stretch on the page is what the runner took for true. Nobody
decides anything here: what was decided is in the log. Knows nothing of figures or of how they are shown.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from gpuloom.contract.plan import NO_CHANGE, Plan
from gpuloom.contract.policy import Policy
from gpuloom.contract.view import GpuView, JobView, Phase, View
from gpuloom.engine.events import Event, GpuProbed, JobArrived, JobCancelled, JobCompleted, JobCrashed, JobReported
from gpuloom.engine.log import Header, Turn, read_turns
from gpuloom.engine.machine import Decision, Engine, IllegalDecision, IllegalEvent
from gpuloom.engine.state import State
from gpuloom.errors import InputError
from gpuloom.gpus.cluster import Cluster
from gpuloom.gpus.grant import Grant, Grants
from gpuloom.gpus.model import Layout


class Doing(StrEnum):
    """What a job did on its devices."""

    STARTING = "starting"
    RUNNING = "running"
    PROBING = "probing"
    """It ran while its device was being probed."""
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
    engine = Engine(header.begins_on(), _NotAsked())
    watcher = _Watcher(engine.state)
    for turn in turns:
        _follow(engine, watcher, turn, name)
    return watcher.ended(header)


class _NotAsked(Policy):
    def __init__(self) -> None:
        """It needs to know nothing."""

    def decide(self, view: View) -> Plan:  # noqa: ARG002
        return NO_CHANGE


def _follow(engine: Engine, watcher: "_Watcher", turn: Turn, name: str) -> None:
    try:
        for event in turn.events:
            engine.apply(event)
            watcher.take(event)
        engine.follow(turn.decision)
    except (IllegalEvent, IllegalDecision) as error:
        raise InputError(f"{name}: turn {turn.number} cannot have happened after those before it: {error}") from None
    watcher.look()
    if turn.decision is not None:
        watcher.decisions.append(turn.decision)


_Sat = tuple[Doing, Grants]
_Was = tuple[Layout, Condition]


class _Watcher:
    """Compares what is with what was, and keeps the stretch that ended."""

    def __init__(self, state: State) -> None:
        self.decisions: list[Decision] = []
        self._state = state
        self._courses: dict[str, Course] = {}
        self._completed: set[str] = set()
        self._segments: dict[str, list[Segment]] = {}
        self._spans: dict[int, list[LayoutSpan]] = {}
        self._sitting: dict[str, tuple[float, _Sat]] = {}
        self._being: dict[int, tuple[float, _Was]] = {}
        self._rates: list[Rate] = []
        self._probes: list[GpuProbed] = []
        self.look()

    def take(self, event: Event) -> None:
        """Something that the engine has just applied."""
        match event:
            case JobArrived():
                self._courses[event.job.id] = Course(event.at_s)
                self._segments[event.job.id] = []
            case JobCompleted() | JobCrashed() | JobCancelled():
                course = self._courses[event.job_id]
                crashes = course.crashes + isinstance(event, JobCrashed)
                self._courses[event.job_id] = replace(course, crashes=crashes, cause=event.cause)
                self._completed |= {event.job_id} if isinstance(event, JobCompleted) else set()
            case JobReported():
                self._rated(event)
            case GpuProbed():
                self._probes.append(event)
        self.look()

    def _rated(self, event: JobReported) -> None:
        rate, held = event.report.batches_per_s, self._state.jobs[event.job_id].held
        if rate is not None and len(held) == 1 and held[0].share_pct >= 100:
            self._rates.append(Rate(event.at_s, event.job_id, held[0], rate))

    def look(self) -> None:
        state = self._state
        for job_id, course in self._courses.items():
            view = state.jobs.get(job_id)
            self._sit(job_id, None if view is None else self._doing(view))
            if view is not None:
                self._courses[job_id] = replace(course, starts=view.starts, state=view.phase.value)
            elif course.ended_s is None:
                how = "completed" if job_id in self._completed else "given up"
                self._courses[job_id] = replace(course, ended_s=state.now_s, state=how)
        for index, gpu in state.gpus.items():
            self._be(index, (gpu.actual, _condition(gpu)))

    def _doing(self, view: JobView) -> _Sat | None:
        match view.phase:
            case Phase.WAITING:
                return None
            case Phase.STARTING:
                return Doing.STARTING, view.held
            case Phase.STOPPING:
                return Doing.STOPPING, view.held
        probing = any(self._state.gpus[grant.gpu].probing for grant in view.held)
        return Doing.PROBING if probing else Doing.RUNNING, view.held

    def _sit(self, job_id: str, sits: _Sat | None) -> None:
        now_s, before = self._state.now_s, self._sitting.get(job_id)
        if before is not None and before[1] != sits:
            del self._sitting[job_id]
            if now_s > before[0]:
                doing, grants = before[1]
                self._segments[job_id].append(Segment(before[0], now_s, grants, doing))
        if sits is not None:
            self._sitting.setdefault(job_id, (now_s, sits))

    def _be(self, index: int, is_now: _Was | None) -> None:
        now_s, before = self._state.now_s, self._being.get(index)
        if before is not None and before[1] != is_now:
            del self._being[index]
            if now_s > before[0]:
                self._spans.setdefault(index, []).append(LayoutSpan(before[0], now_s, *before[1]))
        if is_now is not None:
            self._being.setdefault(index, (now_s, is_now))

    def ended(self, header: Header) -> Replay:
        """The log has no more: whatever goes on is cut off there."""
        for job_id in [*self._sitting]:
            self._sit(job_id, None)
        for index in [*self._being]:
            self._be(index, None)
        return Replay(
            header,
            self._state.cluster,
            self._state.now_s,
            self._courses,
            {job_id: tuple(found) for job_id, found in self._segments.items()},
            {index: tuple(self._spans.get(index, ())) for index in self._state.gpus},
            tuple(self._rates),
            tuple(self._probes),
            tuple(self.decisions),
        )


def _condition(gpu: GpuView) -> Condition:
    return Condition.LOST if gpu.lost else Condition.CUTTING if gpu.cutting else Condition.THERE
