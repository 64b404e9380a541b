"""One job's way through the log of a run. Knows the log's entries, not how they are printed.

Logs are long and a job is in few of their turns: a line is parsed only if it can be about the job. When a job's
processes are told to stop is not an event, but follows from the decision or loss that takes its place away.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from gpuloom.contract.plan import Reason
from gpuloom.contract.view import Estimates, Report
from gpuloom.engine import log
from gpuloom.engine.events import (
    CutFailed,
    GpuClosed,
    GpuCut,
    GpuLeft,
    GpuLost,
    GpuProbed,
    JobArrived,
    JobCancelled,
    JobCompleted,
    JobCrashed,
    JobDisplaced,
    JobReported,
    JobRescaled,
    JobStalled,
    JobStarted,
    JobStopped,
    PolicyReset,
    RescaleFailed,
    SeenEarlier,
)
from gpuloom.engine.machine import Decision
from gpuloom.gpus.grant import Grants
from gpuloom.gpus.model import Layout
from gpuloom.perf.slices.earlier import Earlier
from gpuloom.perf.slices.memory import fingerprint
from gpuloom.work.model import Job


class What(StrEnum):
    ARRIVED = "arrived"
    SEEN_EARLIER = "seen earlier"
    """Its workload, before this run."""
    PLACED = "placed"
    MOVED = "moved"
    KEPT = "kept"
    RESIZING = "resizing"
    """It is to have other grants, and goes on meanwhile."""
    PAUSED = "paused"
    CONSIDERED = "considered"
    """The plan has reasons about it, but leaves it as it is."""
    REJECTED = "rejected"
    """The engine refused the whole plan."""
    GPU_CUT = "gpu cut"
    CUT_FAILED = "cut failed"
    GPU_LOST = "gpu lost"
    GPU_LEFT = "gpu left"
    GPU_CLOSED = "gpu closed"
    PROBED = "probed"
    STARTED = "started"
    RESCALED = "rescaled"
    RESCALE_FAILED = "rescale failed"
    REPORTED = "reported"
    STALLED = "stalled"
    STOPPED = "stopped"
    CRASHED = "crashed"
    DISPLACED = "displaced"
    CANCELLED = "cancelled"
    COMPLETED = "completed"
    POLICY_RESET = "policy reset"
    """Who decides about it has forgotten what it knew."""


@dataclass(frozen=True, slots=True)
class Totals:
    """What the job has been through so far."""

    waited_s: float = 0.0
    """From its arrival to its first start."""
    ran_s: float = 0.0
    starts: int = 0
    moves: int = 0
    rescales: int = 0


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that happened to the job."""

    at_s: float
    event: What
    cause: str
    grants: Grants = ()
    """What it was to get, of a decision; what it sits on, of anything else."""
    reasons: tuple[Reason, ...] = ()
    rejected: str | None = None
    """Why the engine refused the plan."""
    lasted_s: float | None = None
    """Seconds of the wait or of the work that ended here."""
    others: int = 0
    """Decisions since the entry before that were not about this job."""
    totals: Totals = Totals()
    job: Job | None = None
    report: Report | None = None
    gpu: int | None = None
    layout: Layout = ()
    estimates: Estimates | None = None
    """What a probe predicts of it."""
    earlier: Earlier | None = None
    """What was seen before this run, on one model of GPU."""


_ENDS: dict[type, What] = {
    JobStopped: What.STOPPED,
    JobCrashed: What.CRASHED,
    JobDisplaced: What.DISPLACED,
    JobCancelled: What.CANCELLED,
    JobCompleted: What.COMPLETED,
}
_GPU_EVENTS: dict[type, What] = {
    GpuCut: What.GPU_CUT,
    CutFailed: What.CUT_FAILED,
    GpuLost: What.GPU_LOST,
    GpuLeft: What.GPU_LEFT,
    GpuClosed: What.GPU_CLOSED,
}
_ABOUT_GPUS = ('{"GpuCut":', '{"CutFailed":', '{"GpuLost":', '{"GpuClosed":', '{"GpuLeft":')


def follow(lines: Iterable[log.Line], job_id: str) -> Iterator[Entry]:
    """The entries of one job, in order; none if the log does not know it. The lines are those after the header."""
    from pydantic_core import to_json

    needle, follower = to_json(job_id).decode(), _Follower(job_id)
    for line in lines:
        if needle in line.text or follower.may_concern(line.text):
            for entry in log.entries_of(line):
                yield from follower.take(entry)
        elif '"decision":{' in line.text or line.text.startswith('{"Decision":'):
            follower.others += 1
    yield from follower.last_report()


def job_ids(lines: Iterable[log.Line]) -> Iterator[str]:
    """Every job that arrived."""
    for line in lines:
        if '{"JobArrived":' in line.text:
            yield from (entry.job.id for entry in log.entries_of(line) if isinstance(entry, JobArrived))


class _Follower:
    """Where the job is, as far as the log has been read."""

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        self.others = 0
        self._is_here = False
        self._job: Job | None = None
        self._grants: Grants = ()
        self._totals = Totals()
        self._arrived_s = 0.0
        self._since_s = 0.0
        """Since when it works or, if it does not, waits."""
        self._working = False
        self._report: JobReported | None = None
        self._earlier: list[Earlier] = []
        """What was seen before this run of any workload: which one the job is, its arrival says."""

    def may_concern(self, text: str) -> bool:
        """Does the line tell of something that does not name the job, but may be about it?"""
        about_gpus = bool(self._grants) and any(kind in text for kind in _ABOUT_GPUS)
        return about_gpus or (self._is_here and '{"PolicyReset":' in text) or '{"SeenEarlier":' in text

    def take(self, entry: log.Entry) -> Iterator[Entry]:
        match entry:
            case JobArrived() if entry.job.id == self.job_id:
                self._arrived_s = self._since_s = entry.at_s
                self._grants, self._working, self._totals = (), False, Totals()
                self.others, self._is_here, self._job = 0, True, entry.job
                yield self._entry(What.ARRIVED, entry.at_s, entry.cause, job=entry.job)
                for known in self._earlier:
                    if known.workload == fingerprint(entry.job):
                        yield self._entry(What.SEEN_EARLIER, entry.at_s, known.by_whom, earlier=known)
            case SeenEarlier():
                self._earlier += entry.seen
            case Decision():
                yield from self._decided(entry)
            case JobReported() if entry.job_id == self.job_id:
                self._report = entry
            case JobStalled() if entry.job_id == self.job_id:
                yield from self.last_report()
                yield self._entry(What.STALLED, entry.at_s, entry.cause)
            case PolicyReset() if self._is_here:
                yield from self.last_report()
                yield self._entry(What.POLICY_RESET, entry.at_s, entry.cause)
            case JobStarted() if entry.job_id == self.job_id:
                yield self._started(entry)
            case JobRescaled() | RescaleFailed() if entry.job_id == self.job_id:
                done = isinstance(entry, JobRescaled)
                what = What.RESCALED if done else What.RESCALE_FAILED
                yield from self.last_report()
                self._totals = replace(self._totals, rescales=self._totals.rescales + done)
                yield self._entry(what, entry.at_s, entry.cause)
            case JobStopped() | JobCrashed() | JobDisplaced() | JobCancelled() | JobCompleted() if (
                entry.job_id == self.job_id
            ):
                yield from self.last_report()
                yield self._entry(_ENDS[type(entry)], entry.at_s, entry.cause, lasted_s=self._halt(entry.at_s))
                if not isinstance(entry, JobStopped):
                    self._grants = ()
                self._is_here = not isinstance(entry, JobCompleted | JobCancelled)
            case GpuProbed() if self.job_id in entry.estimates:
                yield from self.last_report()
                estimates = entry.estimates[self.job_id]
                yield self._entry(What.PROBED, entry.at_s, entry.cause, gpu=entry.gpu, estimates=estimates)
            case GpuCut() | CutFailed() | GpuLost() | GpuClosed() | GpuLeft() if self._is_on(entry.gpu):
                yield from self._gpu(entry)
            case _:
                pass  # its name is somewhere in the line, but the line is not about it

    def last_report(self) -> Iterator[Entry]:
        """Of the reports since the last entry the latest: what the next decision was made with."""
        if self._report is not None:
            event, self._report = self._report, None
            yield self._entry(What.REPORTED, event.at_s, event.cause, report=event.report)

    def _started(self, event: JobStarted) -> Entry:
        waited_s = event.at_s - self._since_s
        starts = self._totals.starts
        first_wait_s = self._totals.waited_s if starts else event.at_s - self._arrived_s
        self._totals = replace(self._totals, waited_s=first_wait_s, starts=starts + 1)
        self._since_s, self._working = event.at_s, True
        return self._entry(What.STARTED, event.at_s, event.cause, lasted_s=waited_s)

    def _halt(self, at_s: float) -> float | None:
        """It works no longer; how long it did, if it did."""
        if not self._working:
            return None
        worked_s = at_s - self._since_s
        self._totals = replace(self._totals, ran_s=self._totals.ran_s + worked_s)
        self._since_s, self._working = at_s, False
        return worked_s

    def _decided(self, decision: Decision) -> Iterator[Entry]:
        given = decision.plan.grants.get(self.job_id)
        reasons = tuple(reason for reason in decision.plan.reasons if reason.subject == self.job_id)
        if given is None and not reasons:
            self.others += 1
            return
        yield from self.last_report()
        what, lasted_s = What.REJECTED, None
        if decision.rejected is None:
            what = self._outcome(given)
            if what in (What.MOVED, What.PAUSED):
                lasted_s = self._halt(decision.at_s)
            self._totals = replace(self._totals, moves=self._totals.moves + (what is What.MOVED))
            self._grants = self._grants if given is None else given
        wanted = self._grants if given is None else given
        more = {"grants": wanted, "reasons": reasons, "rejected": decision.rejected, "lasted_s": lasted_s}
        yield self._entry(what, decision.at_s, decision.cause, **more)

    def _outcome(self, given: Grants | None) -> What:
        if given is None or (not given and not self._grants):
            return What.CONSIDERED
        if given == self._grants:
            return What.KEPT
        if not given:
            return What.PAUSED
        if self._goes_on():
            return What.RESIZING
        return What.MOVED if self._grants else What.PLACED

    def _goes_on(self) -> bool:
        """It works, and takes other grants in place. Where that cannot be it is stopped, which is an event."""
        return self._working and self._job is not None and self._job.in_place

    def _is_on(self, gpu: int) -> bool:
        return gpu in [grant.gpu for grant in self._grants]

    def _gpu(self, event: GpuCut | CutFailed | GpuLost | GpuClosed | GpuLeft) -> Iterator[Entry]:
        """Cuts of the GPUs it waits for, and losses of those it is on."""
        gone = isinstance(event, GpuLost | GpuLeft)
        if self._working and not gone:
            return
        yield from self.last_report()
        layout = event.layout if isinstance(event, GpuCut | CutFailed) else ()
        lasted_s = None
        rest = tuple(grant for grant in self._grants if grant.gpu != event.gpu)
        if gone and self._goes_on() and self._job is not None and len(rest) >= self._job.min_gpus:
            self._grants = rest
        elif gone:
            lasted_s, self._grants = self._halt(event.at_s), ()
        what = _GPU_EVENTS[type(event)]
        yield self._entry(what, event.at_s, event.cause, lasted_s=lasted_s, gpu=event.gpu, layout=layout)

    def _entry(self, event: What, at_s: float, cause: str, **more: Any) -> Entry:
        others, self.others = self.others, 0
        return Entry(at_s, event, cause, others=others, totals=self._totals, **{"grants": self._grants, **more})
