"""Who was where, when, in which phase: what a Gantt chart and a Perfetto trace are drawn from. Kept on request."""

from dataclasses import dataclass
from typing import NamedTuple

from gpuloom.engine.events import (
    CutFailed,
    Event,
    GpuCut,
    GpuLost,
    JobCompleted,
    JobCrashed,
    JobDisplaced,
    JobStarted,
    JobStopped,
)
from gpuloom.engine.instructions import Cut, Instruction, Rescale, Start, Stop
from gpuloom.gpus.cluster import Cluster
from gpuloom.gpus.grant import Grant, Grants
from gpuloom.sim.body import Watcher


class Segment(NamedTuple):
    """One job (or, with an empty job_id, one cut) on one device for one stretch of time."""

    begin_s: float
    end_s: float
    job_id: str
    grant: Grant
    phase: str
    """starting, running, stopping, cutting."""


@dataclass(slots=True)
class _Open:
    since_s: float
    phase: str
    grants: Grants


class Timeline(Watcher):
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.segments: list[Segment] = []
        self._open: dict[str, _Open] = {}
        self._cutting: dict[int, float] = {}

    def _turn(self, at_s: float, job_id: str, phase: str | None, grants: Grants = ()) -> None:
        """The job leaves its phase and, unless None, enters another."""
        before = self._open.pop(job_id, None)
        if before is not None and at_s > before.since_s:
            self.segments += [Segment(before.since_s, at_s, job_id, grant, before.phase) for grant in before.grants]
        if phase is not None:
            self._open[job_id] = _Open(at_s, phase, grants or (before.grants if before else ()))

    def event(self, event: Event) -> None:
        if isinstance(event, JobStarted):
            if event.job_id in self._open and self._open[event.job_id].phase == "starting":
                self._turn(event.at_s, event.job_id, "running")
        elif isinstance(event, JobStopped | JobCompleted | JobCrashed | JobDisplaced):
            self._turn(event.at_s, event.job_id, None)
        elif isinstance(event, GpuCut | CutFailed | GpuLost) and event.gpu in self._cutting:
            self.segments.append(Segment(self._cutting.pop(event.gpu), event.at_s, "", Grant(event.gpu), "cutting"))

    def instruction(self, at_s: float, instruction: Instruction) -> None:
        if isinstance(instruction, Start):
            self._turn(at_s, instruction.job_id, "starting", instruction.grants)
        elif isinstance(instruction, Rescale):
            self._turn(at_s, instruction.job_id, "running", instruction.grants)
        elif isinstance(instruction, Stop):
            self._turn(at_s, instruction.job_id, "stopping")
        elif isinstance(instruction, Cut):
            self._cutting[instruction.gpu] = at_s
