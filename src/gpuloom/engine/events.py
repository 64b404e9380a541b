"""What can happen. Every event carries its time and its cause; the row of them is audit trail, recovery and replay."""

from collections.abc import Mapping
from dataclasses import dataclass

from gpuloom.contract.view import Estimates, Report
from gpuloom.gpus.cluster import DescribedGpu
from gpuloom.gpus.model import Layout
from gpuloom.perf.slices.earlier import Earlier
from gpuloom.work.model import NO_HINTS, Hints, Job


@dataclass(frozen=True, slots=True)
class JobArrived:
    at_s: float
    cause: str
    job: Job
    hints: Hints = NO_HINTS


@dataclass(frozen=True, slots=True)
class JobStarted:
    """Its processes are up and working on what it was granted."""

    at_s: float
    cause: str
    job_id: str


@dataclass(frozen=True, slots=True)
class JobStopped:
    """It has saved what it could and left its devices."""

    at_s: float
    cause: str
    job_id: str


@dataclass(frozen=True, slots=True)
class JobRescaled:
    """It works with the grants that it was told to go on with, and has left the others."""

    at_s: float
    cause: str
    job_id: str


@dataclass(frozen=True, slots=True)
class RescaleFailed:
    """It could not; what it works with is uncertain, so it is stopped and started again."""

    at_s: float
    cause: str
    job_id: str


@dataclass(frozen=True, slots=True)
class JobCompleted:
    at_s: float
    cause: str
    job_id: str


@dataclass(frozen=True, slots=True)
class JobCrashed:
    """Its processes ended by themselves, without being done."""

    at_s: float
    cause: str
    job_id: str


@dataclass(frozen=True, slots=True)
class JobDisplaced:
    """Its device let it down: it ended, or could not begin, through no fault of its own."""

    at_s: float
    cause: str
    job_id: str


@dataclass(frozen=True, slots=True)
class JobCancelled:
    """Its owner no longer wants it."""

    at_s: float
    cause: str
    job_id: str


@dataclass(frozen=True, slots=True)
class JobReported:
    at_s: float
    cause: str
    job_id: str
    report: Report


@dataclass(frozen=True, slots=True)
class JobStalled:
    """It lives and does nothing, as far as can be seen. Told for people: nothing changes by it."""

    at_s: float
    cause: str
    job_id: str


@dataclass(frozen=True, slots=True)
class GpuCut:
    """A cut is complete; this is the layout now."""

    at_s: float
    cause: str
    gpu: int
    layout: Layout


@dataclass(frozen=True, slots=True)
class CutFailed:
    """A cut stopped half-way; this is what was left."""

    at_s: float
    cause: str
    gpu: int
    layout: Layout


@dataclass(frozen=True, slots=True)
class GpuLost:
    at_s: float
    cause: str
    gpu: int


@dataclass(frozen=True, slots=True)
class GpuClosed:
    """Nobody can begin there for a while, as far as can be told. Who works there goes on."""

    at_s: float
    cause: str
    gpu: int


@dataclass(frozen=True, slots=True)
class GpuRestored:
    """It is back: one that was lost uncut, one that was closed or could not be cut as it is."""

    at_s: float
    cause: str
    gpu: int


@dataclass(frozen=True, slots=True)
class GpuJoined:
    """A new GPU, uncut. It takes the next index; a machine that joins is one of these for each of its GPUs."""

    at_s: float
    cause: str
    gpu: DescribedGpu


@dataclass(frozen=True, slots=True)
class GpuLeft:
    """It is out of service for good. Its index stays and is never used again."""

    at_s: float
    cause: str
    gpu: int


@dataclass(frozen=True, slots=True)
class GpuProbed:
    """The jobs of a GPU were measured side by side under MPS; this is what that predicts of each on each slice."""

    at_s: float
    cause: str
    gpu: int
    estimates: Mapping[str, Estimates]
    """By job."""


@dataclass(frozen=True, slots=True)
class Tick:
    """The moment that a WakeAt instruction asked for. A later one answers it too: what was missed is not caught up."""

    at_s: float
    cause: str


@dataclass(frozen=True, slots=True)
class PolicyReset:
    """What the policy remembered is gone, and it begins anew. What it had decided stands until it is next asked."""

    at_s: float
    cause: str


@dataclass(frozen=True, slots=True)
class SeenEarlier:
    """What earlier runs and measurements saw of workloads, told before the first job of each. So the log has it."""

    at_s: float
    cause: str
    """Where that was kept."""
    seen: tuple[Earlier, ...]


Event = (
    JobArrived
    | JobStarted
    | JobStopped
    | JobRescaled
    | RescaleFailed
    | JobCompleted
    | JobCrashed
    | JobDisplaced
    | JobCancelled
    | JobReported
    | JobStalled
    | GpuCut
    | CutFailed
    | GpuLost
    | GpuClosed
    | GpuRestored
    | GpuJoined
    | GpuLeft
    | GpuProbed
    | Tick
    | PolicyReset
    | SeenEarlier
)
