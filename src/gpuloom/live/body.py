"""The local body: carries the engine's instructions out with real processes on this machine's GPUs, and tells it.

One loop, one thread, one turn a round: everything that could have happened is looked at, the policy is asked once, the
turn is on disk, and only then what it instructs is carried out. So a runner that is killed at any moment can be started
again: see `recover`. Cuts and MPS commands are waited for.
"""

import heapq
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import count

from gpuloom.contract.view import Phase, Report
from gpuloom.engine.events import (
    Event,
    JobArrived,
    JobCancelled,
    JobCompleted,
    JobCrashed,
    JobDisplaced,
    JobReported,
    JobStalled,
    JobStarted,
    JobStopped,
)
from gpuloom.engine.instructions import Cut, GiveUp, Instruction, Probe, Rescale, Start, Stop, WakeAt
from gpuloom.engine.machine import Decision, Engine
from gpuloom.engine.memory import recall
from gpuloom.engine.seen import SeenInRun
from gpuloom.gpus.grant import Device
from gpuloom.live.clock import Clock
from gpuloom.live.devices import Devices
from gpuloom.live.elastic.reports import Reports
from gpuloom.live.elastic.resizing import Resizing
from gpuloom.live.jobs import Fate, LiveJob, ending, has_stalled
from gpuloom.live.keeper import NO_ROOM, NOT_WRITTEN
from gpuloom.live.launch import Launcher, Left, kill, left_of
from gpuloom.live.launching import Launching
from gpuloom.live.probes.measure import Predict, by_share
from gpuloom.live.probes.running import Probing
from gpuloom.live.store import Exit, Progress, Store
from gpuloom.live.timing import Timing
from gpuloom.live.trouble.blame import Blame, Blamed, Then
from gpuloom.live.trouble.cutting import Cutting
from gpuloom.live.trouble.restoring import Restoring
from gpuloom.work.model import NO_HINTS, Hints, Job, Kind


class NoRoomError(Exception):
    """The runner leaves, and could not write that down."""


OUT_OF_SIGHT = (
    "its keeper was killed, and without cgroups nobody can tell whether its processes have ended: "
    "look for them by hand, then run it again"
)
STUBBORN_S = 5.0
"""Real seconds after which somebody who does not die of SIGKILL is told of."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How a runner goes about it, and who hears of it."""

    timing: Timing
    working_dir: str
    predict: Predict = by_share
    watch: Callable[[Event | Decision], None] | None = None
    """Everything that happens."""
    notice: Callable[[str], None] = lambda _: None
    """What somebody should know who looks at the runner now."""
    look: "Callable[[LocalBody], None] | None" = None
    """After every round: all that there is, for whoever shows it."""


class LocalBody:
    def __init__(
        self,
        engine: Engine,
        devices: Devices,
        store: Store,
        clock: Clock,
        launcher: Launcher,
        settings: Settings,
    ) -> None:
        self.engine, self.devices, self.store, self.clock, self.launcher = engine, devices, store, clock, launcher
        self.timing, self.settings = settings.timing, settings
        self.jobs: dict[str, LiveJob] = {}
        self.seen = SeenInRun()
        """What its jobs have shown, of the whole run."""
        self.wake_s: float | None = None
        self.interrupts = 0
        """How often somebody has asked the runner itself to stop; may be raised by a signal handler."""
        self.closing = False
        self.probing, self.restoring, self.resizing = Probing(self), Restoring(self), Resizing(self)
        self.launching, self.cutting, self.blame = Launching(self), Cutting(self), Blame(devices)
        self._reports = Reports(self.timing.elastic_s, clock.pace)
        self._turn: list[Event] = []
        self._out: list[Instruction] = []
        self._posted: deque[Callable[[], None]] = deque()
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._counter = count()
        self._expected = 0
        """Jobs that have not been submitted yet."""
        self._said: set[str] = set()

    # ---- the loop ----------------------------------------------------------------------------------------------

    def expect(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            self._expected += 1
            self.at(job.submit_s, partial(self._arrive, job))

    def run(self) -> None:
        """Until every job has ended, or nothing can happen any more, or the runner was asked to stop."""
        try:
            while not self._is_over():
                self.step()
                if not self._posted:
                    time.sleep(self.timing.poll_real_s)
        except NoRoomError:
            self.closing = True

    def step(self) -> None:
        """Look once at everything that could have happened: one turn."""
        if self.interrupts and not self.closing:
            self._close()
        if self.interrupts > 1:
            for job in self.jobs.values():
                job.kill_at_s = 0.0
        if self.wake_s is not None and self.wake_s <= self.now_s():
            self._tick()
        while self._posted:
            self._posted.popleft()()
        for job in list(self.jobs.values()):
            self._look_at(job)
        self._look_at_shares()
        self.probing.advance()
        self.resizing.advance()
        self.launching.advance()
        while self._agenda and self._agenda[0][0] <= self.now_s() and not self.closing:
            heapq.heappop(self._agenda)[2]()
        self.commit()
        if self.settings.look is not None:
            self.settings.look(self)

    def _is_over(self) -> bool:
        if self.interrupts > 2:  # whoever does not even die of SIGKILL is found again by --resume
            return True
        if self._posted or self.jobs or self.probing.active or (self.interrupts and not self.closing):
            return False
        if self.closing:
            return True
        if self.launching:
            return False
        if not (self._expected or self.engine.state.jobs):
            return True
        # Jobs that nobody runs, nothing to come: the policy has no place for them, and never will.
        return not self._agenda and self.wake_s is None

    def now_s(self) -> float:
        return max(self.clock.now_s(), self.engine.state.now_s)

    def post(self, act: Callable[[], None]) -> None:
        """Soon, but not in the middle of carrying out what the last turn led to."""
        self._posted.append(act)

    def at(self, at_s: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._agenda, (at_s, next(self._counter), act))

    def tell(self, event: Event) -> None:
        """The engine knows at once; what it instructs is carried out when the turn is on disk."""
        self._out += self.engine.apply(event)
        self.seen.hear(self.engine.state, event)
        self._turn.append(event)

    def commit(self) -> None:
        """End the turn: ask the policy once, write all of it down, carry it out."""
        if not self._turn:
            return
        instructions = self._out + self.engine.decide()
        events, self._turn, self._out = self._turn, [], []
        decision = self.engine.decision
        self._write(events, decision)
        if self.settings.watch is not None:
            for entry in (*events, *([] if decision is None else [decision])):
                self.settings.watch(entry)
        for instruction in instructions:
            self._carry_out(instruction)
        self.restoring.plan()

    def _write(self, events: list[Event], decision: Decision | None) -> None:
        """On a full disk nothing is decided until there is room again; jobs go on meanwhile."""
        memory = recall(self.engine.policy) if self.engine.asked else None
        while True:
            try:
                self.store.write(events, decision, memory)
                self._said.discard("full")
                return
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise
                self.say("full", f"{self.store.folder}: no room on the disk; nothing is decided until there is")
            if self.interrupts and self._has_left_without_a_word():
                raise NoRoomError
            time.sleep(self.timing.poll_real_s)

    def _has_left_without_a_word(self) -> bool:
        """Asked to stop, but nothing can be written down: stop the jobs all the same. `recover` finds them so."""
        for job in self.jobs.values():
            if job.kill_at_s is None:
                self.ask_to_leave(job, save=True)
            if self.interrupts > 1 or (job.kill_at_s or 0.0) <= self.now_s():
                kill(job.launch)
        gone = all(job.keeper_has_gone() and left_of(job.launch) is Left.NOBODY for job in self.jobs.values())
        return gone or self.interrupts > 2

    def _tick(self) -> None:
        """After a pause one round is enough: those that were missed are not caught up."""
        tick, self.wake_s = self.engine.due_round(self.now_s()), None
        if tick is not None:
            self.tell(tick)

    def _arrive(self, job: Job) -> None:
        self._expected -= 1
        hints = Hints(length_s=job.estimate_s) if "length_s" in self.engine.policy.told else NO_HINTS
        self.tell(JobArrived(self.now_s(), "submitted", job, hints))

    def say(self, about: str, text: str) -> None:
        """Once, until it is over."""
        if about not in self._said:
            self._said.add(about)
            self.settings.notice(text)

    def said(self, about: str) -> None:
        """It is over."""
        self._said.discard(about)

    # ---- instructions ------------------------------------------------------------------------------------------

    def _carry_out(self, instruction: Instruction) -> None:
        match instruction:
            case Start():
                self.launching.begin(instruction.job_id, instruction.grants)
            case Stop():
                self._stop(instruction)
            case Rescale():
                if not self.closing:  # it is told to stop as well
                    self.resizing.begin(instruction.job_id, instruction.grants)
            case Cut():
                if not self.closing:
                    self.cutting.begin(instruction)
            case Probe():
                self.probing.begin(instruction.gpu, instruction.job_ids)
            case WakeAt():
                self.wake_s = instruction.at_s
            case GiveUp():
                self.launching.drop(instruction.job_id)

    def let_down(self, job_id: str, blamed: Blamed, cause: str | None = None) -> None:
        """Its device is to blame: it is not charged, as long as it gets on. And the device gets what is due to it."""
        cause = cause or f"{self.devices.noun} {self.devices.hosts[blamed.gpu]}: {blamed.why}"
        if self.blame.forgives(job_id, blamed):
            view = self.engine.state.jobs.get(job_id)
            if view is not None and view.phase is not Phase.WAITING and job_id not in self.jobs:
                self.tell(JobDisplaced(self.now_s(), cause, job_id))
        else:
            self.crashed(job_id, cause)
        match blamed.then:
            case Then.IS_LOST:
                self.restoring.lost(blamed.gpu, blamed.why)
            case Then.IS_CLOSED:
                self.restoring.closed(blamed.gpu, blamed.why)
            case Then.HAS_LESS:
                self.restoring.closed(blamed.gpu, blamed.why)
                self.restoring.soon(blamed.gpu)

    def _stop(self, stop: Stop) -> None:
        job = self.jobs.get(stop.job_id)
        if job is None:
            self.launching.drop(stop.job_id)
            self.post(partial(self._stopped, stop.job_id, "it had no process"))
            return
        job.stopping = True
        self.ask_to_leave(job, save=stop.save or self.closing)

    def ask_to_leave(self, job: LiveJob, *, save: bool) -> None:
        deadline_s = self.now_s() + self.timing.grace_s if save else 0.0
        job.kill_at_s = deadline_s if job.kill_at_s is None else min(job.kill_at_s, deadline_s)
        if save and job.keeper is not None:
            job.keeper.signal(signal.SIGTERM)
            job.keeper.signal(signal.SIGCONT)  # one that is stopped hears nothing else

    # ---- jobs --------------------------------------------------------------------------------------------------

    def _look_at(self, job: LiveJob) -> None:
        if job.keeper_has_gone():
            self._look_at_what_is_left(job)
            return
        if job.kill_at_s is not None and job.kill_at_s <= self.now_s():
            self._kill(job)
            return
        progress = job.launch.progress()
        if not job.up and (progress is not None or self.now_s() >= job.up_by_s):
            job.up = True
            if self.engine.state.jobs[job.id].phase is Phase.STARTING:
                self.tell(JobStarted(self.now_s(), "it reports" if progress else "its process is up", job.id))
        if progress is not None:
            if job.hear(progress, self.now_s()):
                self._has_worked(job)
            self._measure(job, progress)
        self._look_for_a_stall(job)

    def _has_worked(self, job: LiveJob) -> None:
        self.blame.worked(job.id, job.grants, 0 if job.heard is None else job.heard.step)
        self.restoring.worked(job.grants)

    def _kill(self, job: LiveJob) -> None:
        if not job.killed and job.launch.group is not None:
            for grant in job.grants:
                self.devices.before_kill(grant, job.launch.group.processes())
        job.killed = True
        kill(job.launch)
        self._say_if_stubborn(job)

    def _say_if_stubborn(self, job: LiveJob) -> None:
        """Of one that was just killed, perhaps not for the first time."""
        if job.killed_real_s is None:
            job.killed_real_s = time.monotonic()
        if time.monotonic() - job.killed_real_s >= STUBBORN_S:
            words = f"job {job.id}: its processes do not die; its device is not free until they do"
            self.say(f"stubborn {job.id}", words)

    def _look_at_what_is_left(self, job: LiveJob) -> None:
        job.oom_kills = max(job.oom_kills, job.launch.oom_kills())
        match left_of(job.launch):
            case Left.NOBODY:
                self.ended(job)
            case Left.SOMEBODY:
                self._say_if_stubborn(job)
            case Left.UNKNOWN:
                del self.jobs[job.id]
                self.lost_sight(job.id)

    def _measure(self, job: LiveJob, progress: Progress) -> None:
        """Tell what an elastic job says of itself, and how fast one is that has one device for itself."""
        described = self.engine.state.jobs[job.id].job
        if described.kind is Kind.ELASTIC and progress.figures and not job.stopping:
            news = self._reports.of(described, progress, self.now_s())
            if news is not None:
                self.tell(JobReported(news.at_s, "report", job.id, news))
            return
        if len(job.grants) != 1 or job.grants[0].share_pct < 100 or job.stopping:
            return
        rate = job.batches_per_s(progress, self.now_s(), self.timing.report_s, self.clock.pace)
        if rate is not None:
            report = Report(self.now_s(), progress=float(progress.step), batches_per_s=rate)
            self.tell(JobReported(report.at_s, "report", job.id, report))

    def _look_for_a_stall(self, job: LiveJob) -> None:
        host = self.engine.state.jobs[job.id].job.host
        if job.stopping or job.stall_told or not has_stalled(job, self.now_s(), host.stall_s):
            return
        job.stall_told = True
        self.tell(JobStalled(self.now_s(), f"it has reported nothing new for {host.stall_s:g} s", job.id))
        if host.restart_stalled:
            job.restarting = True
            self.ask_to_leave(job, save=True)

    def ended(self, job: LiveJob) -> None:
        """Nobody of it is left."""
        self.jobs.pop(job.id, None)
        self._said -= {job.id, f"stubborn {job.id}"}
        left = job.launch.exit()
        fate, cause = ending(job, left, self.timing.grace_s)
        if fate is Fate.CRASHED and self._is_nobodys_fault(job, left):
            if not self.resizing.interrupted(job.id):
                self.launching.begin(job.id, job.grants, job.launch.share_pct, needs_room=True)
            return
        if fate is Fate.COMES_BACK and job.let_down is None:
            if not self.resizing.interrupted(job.id):
                self.launching.begin(job.id, job.grants, job.next_share_pct)
            return
        if left is None:
            cause = job.launch.trouble() or cause
        blamed = self._to_blame(job, fate)
        self.release_devices()
        if blamed is not None:
            self.let_down(job.id, blamed, f"{cause}; {blamed.why}")
            return
        for gpu in self.blame.cleared:
            self.restoring.soon(gpu)
        self.blame.cleared.clear()
        match fate:
            case Fate.COMPLETED:
                self._has_worked(job)
                self.tell(JobCompleted(self.now_s(), cause, job.id))
            case Fate.STOPPED:
                self._stopped(job.id, cause)
            case Fate.CRASHED:
                self.crashed(job.id, cause)

    def _to_blame(self, job: LiveJob, fate: Fate) -> Blamed | None:
        """The device, if it is to blame that the job has ended. What it did itself it is charged with."""
        if job.let_down is not None and fate in (Fate.CRASHED, Fate.COMES_BACK):
            return job.let_down
        if fate is not Fate.CRASHED or job.oom_kills or job.restarting:
            return None
        blamed = self.blame.of_device({grant.gpu for grant in job.grants})
        why = next(filter(None, map(self.devices.why_no_share, job.grants)), None) if blamed is None else None
        if why is not None:
            return self._share_broke(job.grants[0].device, why)
        return blamed or self.blame.of_suspicion(job.id, job.grants)

    def _look_at_shares(self) -> None:
        for device, why in self.devices.broken_shares().items():
            self._share_broke(device, why)

    def _share_broke(self, device: Device, why: str) -> Blamed:
        """Whoever shares this device has to be started again: nobody can work there any more."""
        blamed = self.blame.of_sharing(device[0], why)
        for job in self.jobs.values():
            if job.let_down is None and any(grant.device == device for grant in job.grants):
                job.let_down = blamed
                self.ask_to_leave(job, save=True)
        self.say(f"share {device}", f"{self.devices.noun} {self.devices.hosts[device[0]]}: {why}")
        self.devices.stop_sharing(device, broken=True)
        return blamed

    def _is_nobodys_fault(self, job: LiveJob, left: Exit | None) -> bool:
        """The machine was restarted, or there was no room on the disk: the job is launched again, when there is."""
        if left is None and job.launch.before_boot:
            return True
        not_written = job.child is not None and job.child.poll() == NOT_WRITTEN
        if (left is None or left.room) and not not_written and self.store.has_room():
            return False
        self.say("full", f"{self.store.folder}: no room on the disk; job {job.id} is launched again when there is")
        return True

    # A launch that failed and a stop that came meanwhile are both answered; whichever is later has nothing to say.

    def _stopped(self, job_id: str, cause: str) -> None:
        view = self.engine.state.jobs.get(job_id)
        if view is not None and view.phase is Phase.STOPPING and job_id not in self.jobs:
            self.tell(JobStopped(self.now_s(), cause, job_id))

    def crashed(self, job_id: str, cause: str) -> None:
        view = self.engine.state.jobs.get(job_id)
        if view is not None and view.phase is not Phase.WAITING and job_id not in self.jobs:
            self.tell(JobCrashed(self.now_s(), cause, job_id))

    def lost_sight(self, job_id: str) -> None:
        """It must not be launched again: its processes may still be there, and nobody can tell."""
        if job_id in self.engine.state.jobs:
            self.tell(JobCancelled(self.now_s(), OUT_OF_SIGHT, job_id))
            self.post(partial(self._stopped, job_id, "lost sight of"))

    def release_devices(self) -> None:
        """A device that nobody shares any more needs no MPS daemon, and could not be cut with one."""
        held = [grant for job in self.jobs.values() for grant in job.grants]
        used = {grant.device for grant in held if grant.share_pct < 100} | self.launching.devices()
        for device in self.devices.shared():
            if device not in used:
                self.devices.stop_sharing(device)

    def _close(self) -> None:
        """Stop everything with a checkpoint. To the engine every GPU is lost, until the run goes on."""
        self.closing = True
        self.launching.clear()
        self.probing.clear()
        for gpu in self.engine.state.gpus:
            self.restoring.lost(gpu, "the runner was asked to stop")
