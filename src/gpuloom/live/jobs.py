"""A job that has a process: how fast it is, whether it still says anything, and what its end means. Decides nothing.

No speed comes from the wall clock, which can be set: it comes from the kernel's monotonic clock, as the job reports it,
or else as the runner had it when it first saw each step.
"""

import signal
import subprocess
from dataclasses import dataclass
from enum import Enum, auto

from gpuloom.gpus.grant import Grants
from gpuloom.gpus.host.homes import is_home
from gpuloom.gpus.host.processes import ProcessId
from gpuloom.live.store import Exit, Launch, Progress
from gpuloom.live.trouble.blame import Blamed


@dataclass(slots=True)
class LiveJob:
    """A job that has a process, or had one a moment ago."""

    id: str
    grants: Grants
    launch: Launch
    keeper: ProcessId | None
    """None if that has ended before anybody looked."""
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
    killed_real_s: float | None = None
    """When it was first killed, by the monotonic clock."""
    restarting: bool = False
    """It had stalled, and was asked to leave for that."""
    let_down: Blamed | None = None
    """Its device cannot be used any more, and it was asked to leave for that."""
    oom_kills: int = 0
    """Processes of it that the kernel ended for want of memory."""
    heard: Progress | None = None
    """Its last report."""
    heard_at_s: float = 0.0
    """When that was seen first."""
    step_at_s: float | None = None
    """When its step was seen first; None if it may have been done long before anybody looked."""
    stall_told: bool = False
    """That it has stalled has been told, and nothing was heard since."""
    seen: Progress | None = None
    """The report from which its speed is measured next."""
    seen_step_at_s: float | None = None
    """`step_at_s` of that report."""
    measured_at_s: float = 0.0

    def keeper_has_gone(self) -> bool:
        if self.child is not None:
            return self.child.poll() is not None
        return self.keeper is None or not self.keeper.lives

    def hear(self, progress: Progress, now_s: float) -> bool:
        """Its report as it is now, looked at as often as there is time: what is new came just now. Is it further?"""
        if progress == self.heard:
            return False
        is_further = self.heard is not None and progress.step > self.heard.step
        if self.heard is None or progress.step != self.heard.step:
            self.step_at_s = None if self.heard is None else now_s
        self.heard, self.heard_at_s, self.stall_told = progress, now_s, False
        return is_further

    def batches_per_s(self, progress: Progress, now_s: float, every_s: float, pace: float) -> float | None:
        """Since the last time that this was told; None if it is too early, or has nothing to say."""
        self.hear(progress, now_s)
        if self.seen is None or progress.step < self.seen.step:
            self._measure_from(progress, now_s)
            return None
        if progress.step == self.seen.step:
            return None
        passed_s = self._passed_s(self.seen, progress, pace)
        if passed_s is None or passed_s < 0:  # it cannot be measured from there
            self._measure_from(progress, now_s)
            return None
        if now_s - self.measured_at_s < every_s or passed_s == 0:
            return None
        rate = (progress.step - self.seen.step) / passed_s
        self._measure_from(progress, now_s)
        return rate if 0 < rate < float("inf") else None

    def _measure_from(self, progress: Progress, now_s: float) -> None:
        self.seen, self.seen_step_at_s, self.measured_at_s = progress, self.step_at_s, now_s

    def _passed_s(self, before: Progress, after: Progress, pace: float) -> float | None:
        """Of the engine's seconds, between two steps."""
        if before.at_monotonic_s is not None and after.at_monotonic_s is not None:
            return (after.at_monotonic_s - before.at_monotonic_s) * pace
        if self.seen_step_at_s is None or self.step_at_s is None:
            return None
        return self.step_at_s - self.seen_step_at_s


def has_stalled(job: LiveJob, now_s: float, stall_s: float | None) -> bool:
    """Whether a job that works, as far as anybody knows, has had nothing new to say for so long (None: nobody minds).

    One that never reports is taken to work from `up_by_s` on. One that was asked to leave has its grace time instead.
    """
    if stall_s is None or job.kill_at_s is not None or (job.heard is None and not job.up):
        return False
    since_s = job.up_by_s if job.heard is None else job.heard_at_s
    return now_s - since_s >= stall_s


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
        return Fate.STOPPED, _left(job, left, grace_s)
    if job.oom_kills and (left is None or left.code != 0):
        return Fate.CRASHED, f"out of memory on {_whose_memory(job.launch)}: the kernel killed it"
    if job.restarting:
        return Fate.CRASHED, "it had stalled, and was stopped to be started again"
    if job.killed or (job.kill_at_s is not None if left is None else left.asked):
        return Fate.COMES_BACK, "another share"
    return Fate.CRASHED, "its processes were killed" if left is None else f"exit code {left.code}"


def _whose_memory(launch: Launch) -> str:
    """A launch on a CPU device lives in its instance, and has the memory of that."""
    around = None if launch.group is None else launch.group.path.parent
    return "the host" if around is None or is_home(around) else f"its device, {around.name}"


def _left(job: LiveJob, left: Exit | None, grace_s: float) -> str:
    """Of one that was asked to. Launchers (torchrun, accelerate) leave with any code then: that is no crash."""
    if job.killed or left is None:
        return f"killed {grace_s:g} s after SIGTERM" if job.killed and job.kill_at_s else "killed"
    if left.code == 0:
        return "checkpointed"
    return "ended by SIGTERM" if left.code == -signal.SIGTERM else f"exit code {left.code} after SIGTERM"
