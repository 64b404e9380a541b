"""A job that has a process: how fast it is, and what its end means. Decides nothing about it."""

import signal
import subprocess
from dataclasses import dataclass
from enum import Enum, auto

from gpuloom.gpus.grant import Grants
from gpuloom.gpus.host.processes import ProcessId
from gpuloom.live.store import Exit, Launch, Progress

_WENT = (0, -signal.SIGTERM, -signal.SIGKILL)
"""Exit codes of a job that left because it was asked to."""


@dataclass(slots=True)
class LiveJob:
    """A job that has a process, or had one a moment ago."""

    id: str
    grants: Grants
    launch: Launch
    process: ProcessId | None
    """Its keeper; None if that has ended before anybody looked."""
    child: "subprocess.Popen[bytes] | None" = None
    """Only if this very runner launched it."""
    stopping: bool = False
    """The engine wants it to leave."""
    next_share_pct: float | None = None
    """The MPS share it is to come back with, when it was asked to leave only for that; None is its grant's."""
    up: bool = False
    up_by_s: float = 0.0
    kill_at_s: float | None = None
    killed: bool = False
    seen: Progress | None = None
    """The report from which its speed is measured next."""
    seen_at_s: float = 0.0

    def has_ended(self) -> bool:
        if self.child is not None:
            return self.child.poll() is not None
        return self.process is None or not self.process.lives

    def batches_per_s(self, progress: Progress, now_s: float, every_s: float, pace: float) -> float | None:
        """Since the last time that this was told; None if it is too early, or has nothing to say."""
        if self.seen is None:
            self.seen, self.seen_at_s = progress, now_s
            return None
        passed_s = progress.at_unix_s - self.seen.at_unix_s
        if now_s - self.seen_at_s < every_s or passed_s <= 0 or progress.step <= self.seen.step:
            return None
        rate = (progress.step - self.seen.step) / passed_s / pace
        if not 0 < rate < float("inf"):
            return None
        self.seen, self.seen_at_s = progress, now_s
        return rate


class Fate(Enum):
    """What becomes of a job whose process is gone."""

    COMPLETED = auto()
    STOPPED = auto()
    CRASHED = auto()
    COMES_BACK = auto()
    """It was asked to leave only to come back with another share."""


def ending(job: LiveJob, left: Exit | None, grace_s: float) -> tuple[Fate, str]:
    """Its fate and the cause: by who wanted it to end, and by what its keeper has written down (None: nothing)."""
    if left is not None and left.code == 0 and not left.asked:
        return Fate.COMPLETED, "done"
    if job.stopping:
        return _left(job, left, grace_s)
    if job.killed or (job.kill_at_s is not None if left is None else left.asked and left.code in _WENT):
        return Fate.COMES_BACK, "another share"
    return Fate.CRASHED, "its processes were killed" if left is None else f"exit code {left.code}"


def _left(job: LiveJob, left: Exit | None, grace_s: float) -> tuple[Fate, str]:
    if job.killed or left is None:
        waited = job.killed and job.kill_at_s
        return Fate.STOPPED, f"killed {grace_s:g} s after SIGTERM" if waited else "killed"
    if left.code in _WENT:
        return Fate.STOPPED, "checkpointed" if left.code == 0 else "ended by SIGTERM without saving"
    return Fate.CRASHED, f"exit code {left.code} when asked to stop"
