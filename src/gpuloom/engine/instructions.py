"""What a body is told to do. Each is answered, sooner or later, by the event that its docstring names."""

from dataclasses import dataclass

from gpuloom.gpus.grant import Grants
from gpuloom.gpus.model import Layout
from gpuloom.gpus.steps import Step


@dataclass(frozen=True, slots=True)
class Start:
    """Launch the job on these grants. Answer: JobStarted."""

    job_id: str
    grants: Grants
    resume: bool
    """It has run before: restore its checkpoint."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Have it save and leave its devices. Answer: JobStopped (or JobCompleted, if it was done just then)."""

    job_id: str
    save: bool
    """False: nothing can or need be saved (its GPU is gone, or nobody wants it)."""


@dataclass(frozen=True, slots=True)
class Rescale:
    """Have it go on with these grants, without leaving those that it keeps. Answer: JobRescaled or RescaleFailed.

    Until then it has what it had, and the new ones are kept free for it.
    """

    job_id: str
    grants: Grants


@dataclass(frozen=True, slots=True)
class Cut:
    """Take these steps, in order; every instance they destroy is empty. Answer: GpuCut or CutFailed."""

    gpu: int
    steps: tuple[Step, ...]
    target: Layout


@dataclass(frozen=True, slots=True)
class Probe:
    """Measure these jobs, which share the GPU and all run, at a few MPS levels. Answer: GpuProbed."""

    gpu: int
    job_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Send a Tick at this time: the policy wants to be asked then."""

    at_s: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The job will not be started again; no answer. `cause` says why."""

    job_id: str
    cause: str


Instruction = Start | Stop | Rescale | Cut | Probe | WakeAt | GiveUp
