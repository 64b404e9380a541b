"""What a policy may know: a view of all live jobs and GPUs, as they are planned and as they are.

No clock, no socket and no true speed: only what has been observed and predicted.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from gpuloom.gpus.cluster import Cluster, IdleGpus
from gpuloom.gpus.grant import Grants
from gpuloom.gpus.model import Layout
from gpuloom.perf.goodput.model import GoodputModel
from gpuloom.perf.slices.earlier import Earlier
from gpuloom.perf.speed import Estimate
from gpuloom.work.model import NO_HINTS, Hints, Job


class Phase(StrEnum):
    """Where a live job is. A job that ended is no longer in the view."""

    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True)
class Report:
    """The latest news from a running job."""

    at_s: float
    epoch: int = 0
    progress: float = 0.0
    metric: float | None = None
    goodput: GoodputModel | None = None
    batches_per_s: float | None = None
    """How fast it works on the one device that it has for itself."""


Estimates = Mapping[str, Estimate]
"""By profile; a profile that is absent lacks the memory."""


@dataclass(frozen=True, slots=True)
class MoveCosts:
    """What it costs to move a job about, as far as is known: seconds in which it does not work."""

    start_s: float = 30.0
    """From its first start to its first step."""
    resume_s: float = 30.0
    """The same after a pause, from a checkpoint. A job that is not resized in place pays it for every change too."""
    resize_s: float = 1.0
    """Another number of GPUs or another batch, in place."""

    def of_change(self, in_place: bool) -> float:
        return self.resize_s if in_place else self.resume_s


SeenBefore = Mapping[tuple[str, str], Earlier]
"""By fingerprint of the workload and model of GPU."""
NOTHING_BEFORE: SeenBefore = MappingProxyType({})

USUAL_COSTS = MoveCosts()
"""Where nobody knows better: what Pollux's authors charge, and a resize as it was measured on small models."""


class JobView(NamedTuple):
    """One live job. Never changed in place: the engine replaces it, so often that it is a tuple for speed."""

    job: Job
    phase: Phase = Phase.WAITING
    grants: Grants = ()
    """What the last accepted plan gives it; () means that it waits."""
    held: Grants = ()
    """What its processes occupy at this moment; differs from `grants` while it is being moved."""
    since_s: float = 0.0
    """When it entered this phase."""
    ran_s: float = 0.0
    """Seconds spent running before `since_s`."""
    first_start_s: float | None = None
    starts: int = 0
    crashes: int = 0
    report: Report | None = None
    hints: Hints = NO_HINTS
    estimates: Estimates | None = None
    """What its last probe predicts; None if it was never probed."""
    rescales: int = 0
    """How often it was resized in place."""

    @property
    def id(self) -> str:
        return self.job.id


class GpuView(NamedTuple):
    """One GPU as planned."""

    gpu: int
    """Its index."""
    layout: Layout = ()
    """The layout of the last accepted plan."""
    actual: Layout = ()
    """What is there at this moment; differs while the GPU is being cut."""
    tenants: tuple[str, ...] = ()
    """Jobs planned on it, in order of arrival on this GPU."""
    cutting: bool = False
    lost: bool = False
    """Nobody new can be placed on it. Who works on one that could not be cut goes on all the same."""
    failed_cuts: int = 0
    probe_wanted: bool = False
    """To be probed as soon as all its tenants run."""
    probing: bool = False


@dataclass(frozen=True, slots=True)
class View:
    """Everything a policy may know. Its mappings are read-only and follow the engine's state: do not keep them."""

    now_s: float
    cause: str
    cluster: Cluster
    jobs: Mapping[str, JobView]
    """All live jobs, in order of arrival."""
    waiting: Mapping[str, JobView]
    """Those without grants, in order of arrival."""
    gpus: Mapping[int, GpuView]
    idle: IdleGpus
    """GPUs that nobody is planned on. Take from `idle.copy()`."""
    costs: MoveCosts = USUAL_COSTS
    finished: tuple[JobView, ...] = ()
    """Jobs that completed since the policy was last asked, as they were then, in order."""
    earlier: SeenBefore = field(default_factory=lambda: NOTHING_BEFORE)
    """What earlier runs and measurements saw of these jobs' workloads: another object when there is more of it."""
