"""The local body: carries the engine's instructions out with real processes on this machine's GPUs, and tells it.

One loop, one thread. Everything the engine is told is on disk before what it then instructs is carried out, so that a
runner that is killed at any moment can be started again: see `recover`. Cuts and MPS commands are waited for.
"""

import heapq
import signal
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import count

from gpuloom.contract.view import Phase, Report
from gpuloom.engine.events import (
    CutFailed,
    Event,
    GpuCut,
    GpuLost,
    GpuProbed,
    GpuRestored,
    JobArrived,
    JobCompleted,
    JobCrashed,
    JobReported,
    JobStarted,
    JobStopped,
)
from gpuloom.engine.instructions import Cut, GiveUp, Instruction, Probe, Start, Stop, WakeAt
from gpuloom.engine.machine import Decision, Engine
from gpuloom.engine.memory import recall
from gpuloom.gpus.grant import Grants
from gpuloom.gpus.host.processes import ProcessId, born_ticks
from gpuloom.gpus.model import Layout
from gpuloom.live import processes
from gpuloom.live.clock import Clock
from gpuloom.live.devices import DeviceError, Devices
from gpuloom.live.jobs import Fate, LiveJob, ending
from gpuloom.live.launch import start_keeper
from gpuloom.live.probe import Predict, Rates, by_share, measure
from gpuloom.live.store import Progress, Store
from gpuloom.live.timing import Timing
from gpuloom.work.model import NO_HINTS, Hints, Job


@dataclass(frozen=True, slots=True)
class Settings:
    timing: Timing
    working_dir: str
    predict: Predict = by_share


class LocalBody:
    def __init__(
        self,
        engine: Engine,
        devices: Devices,
        store: Store,
        clock: Clock,
        settings: Settings,
        watch: Callable[[Event | Decision], None] | None = None,
    ) -> None:
        self.engine, self.devices, self.store, self.clock = engine, devices, store, clock
        self.timing, self.settings = settings.timing, settings
        self.watch = watch
        self.jobs: dict[str, LiveJob] = {}
        self.wake_s: float | None = None
        self.interrupts = 0
        """How often somebody has asked the runner itself to stop; may be raised by a signal handler."""
        self.closing = False
        self._posted: deque[Callable[[], None]] = deque()
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._counter = count()
        self._expected = 0
        """Jobs that have not been submitted yet."""
        self._probes: dict[int, Generator[None, None, dict[str, Rates]]] = {}
        self._probed_start: dict[str, int] = {}
        """Which start of a job is being measured: one that crashed and came back elsewhere is not."""
        self._restoring: set[int] = set()

    # ---- the loop ----------------------------------------------------------------------------------------------

    def expect(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            self._expected += 1
            self._at(job.submit_s, partial(self._arrive, job))

    def run(self) -> None:
        """Until every job has ended, or nothing can happen any more, or the runner was asked to stop."""
        while not self._is_over():
            self.step()
            if not self._posted:
                time.sleep(self.timing.poll_real_s)

    def step(self) -> None:
        """Look once at everything that could have happened."""
        if self.interrupts and not self.closing:
            self._close()
        if self.interrupts > 1:
            for job in self.jobs.values():
                job.kill_at_s = 0.0
        while self._posted:
            self._posted.popleft()()
        for job in list(self.jobs.values()):
            self._look_at(job)
        for gpu in list(self._probes):
            self._advance(gpu)
        if self.wake_s is not None and self.wake_s <= self.now_s():
            self._tick(self.now_s())
        while self._agenda and self._agenda[0][0] <= self.now_s() and not self.closing:
            heapq.heappop(self._agenda)[2]()

    def _is_over(self) -> bool:
        if self._posted or self.jobs or self._probes or (self.interrupts and not self.closing):
            return False
        if self.closing or not (self._expected or self.engine.state.jobs):
            return True
        # Jobs that nobody runs, nothing to come: the policy has no place for them, and never will.
        return not self._agenda and self.wake_s is None

    def now_s(self) -> float:
        return max(self.clock.now_s(), self.engine.state.now_s)

    def post(self, act: Callable[[], None]) -> None:
        """Soon, but not in the middle of carrying out what the last event led to."""
        self._posted.append(act)

    def _at(self, at_s: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._agenda, (at_s, next(self._counter), act))

    def tell(self, event: Event) -> None:
        while self.wake_s is not None and self.wake_s <= event.at_s:
            self._tick(event.at_s)  # first things first: the engine takes no event from the past
        instructions = self.engine.turn((event,))
        decision = self.engine.decision
        self.store.write((event,), decision, recall(self.engine.policy) if self.engine.asked else None)
        if self.watch is not None:
            self.watch(event)
            if decision is not None:
                self.watch(decision)
        for instruction in instructions:
            self._carry_out(instruction)
        self._plan_restoring()

    def _tick(self, now_s: float) -> None:
        tick, self.wake_s = self.engine.due_round(now_s), None
        if tick is not None:
            self.tell(tick)

    def _arrive(self, job: Job) -> None:
        self._expected -= 1
        hints = Hints(length_s=job.estimate_s) if "length_s" in self.engine.policy.told else NO_HINTS
        self.tell(JobArrived(self.now_s(), "submitted", job, hints))

    # ---- instructions ------------------------------------------------------------------------------------------

    def _carry_out(self, instruction: Instruction) -> None:
        match instruction:
            case Start():
                if not self.closing:
                    self.start(instruction.job_id, instruction.grants)
            case Stop():
                self._stop(instruction)
            case Cut():
                if not self.closing:
                    self._cut(instruction)
            case Probe():
                self.probe(instruction.gpu, instruction.job_ids)
            case WakeAt():
                self.wake_s = instruction.at_s
            case GiveUp():
                processes.end(self.store.job_dir(instruction.job_id))

    def start(self, job_id: str, grants: Grants) -> None:
        """Launch the job for the engine's latest start of it."""
        try:
            self.jobs[job_id] = self._launch(job_id, grants, None)
        except (DeviceError, OSError) as error:
            self._release_devices()
            self.post(partial(self._crashed, job_id, f"cannot be launched: {error}"))

    def _launch(self, job_id: str, grants: Grants, share_pct: float | None) -> LiveJob:
        view, last = self.engine.state.jobs[job_id], self.store.last_launch(job_id)
        processes.end(self.store.job_dir(job_id))  # never two at once, whatever happened before
        device = self.devices.environment(grants, share_pct)
        number = 1 if last is None else last.number + 1
        launch = self.store.new_launch(job_id, number, view.starts, share_pct)
        child = start_keeper(self.store, launch, view.job, device, self.settings.working_dir, self.clock.pace)
        process = ProcessId(child.pid, born_ticks(child.pid) or 0)
        return LiveJob(job_id, grants, launch, process, child, up_by_s=self.now_s() + self.timing.up_s)

    def _stop(self, stop: Stop) -> None:
        job = self.jobs.get(stop.job_id)
        if job is None:
            self.post(partial(self._stopped, stop.job_id, "it had no process"))
            return
        job.stopping = True
        self.ask_to_leave(job, save=stop.save or self.closing)

    def ask_to_leave(self, job: LiveJob, *, save: bool) -> None:
        deadline_s = self.now_s() + self.timing.grace_s if save else 0.0
        job.kill_at_s = deadline_s if job.kill_at_s is None else min(job.kill_at_s, deadline_s)
        if save and job.process is not None:
            job.process.signal(signal.SIGTERM)

    def _cut(self, cut: Cut) -> None:
        layout, reason = self.devices.cut(cut.gpu, cut.target)
        if layout is None:
            act = partial(self._gpu_lost, cut.gpu, reason or "it does not answer")
        elif reason is None:
            act = partial(self._after_cut, GpuCut, "cut", cut.gpu, layout)
        else:
            act = partial(self._after_cut, CutFailed, reason, cut.gpu, layout)
        self.post(act)

    def _after_cut(self, kind: type[GpuCut] | type[CutFailed], cause: str, gpu: int, layout: Layout) -> None:
        self.tell(kind(self.now_s(), cause, gpu, layout))

    # ---- jobs --------------------------------------------------------------------------------------------------

    def _look_at(self, job: LiveJob) -> None:
        if job.has_ended():
            self.ended(job)
            return
        if job.kill_at_s is not None and job.kill_at_s <= self.now_s():
            job.killed = True
            processes.end(job.launch.folder)
            return
        progress = job.launch.progress()
        if not job.up and (progress is not None or self.now_s() >= job.up_by_s):
            job.up = True
            if self.engine.state.jobs[job.id].phase is Phase.STARTING:
                self.tell(JobStarted(self.now_s(), "it reports" if progress else "its process is up", job.id))
        if progress is not None and job.id in self.jobs:
            self._measure(job, progress)

    def _measure(self, job: LiveJob, progress: Progress) -> None:
        """Tell how fast a job is that has one device for itself."""
        if len(job.grants) != 1 or job.grants[0].share_pct < 100 or job.stopping:
            return
        rate = job.batches_per_s(progress, self.now_s(), self.timing.report_s, self.clock.pace)
        if rate is not None:
            report = Report(self.now_s(), progress=float(progress.step), batches_per_s=rate)
            self.tell(JobReported(report.at_s, "report", job.id, report))

    def ended(self, job: LiveJob) -> None:
        """Its process is gone."""
        self.jobs.pop(job.id, None)
        processes.end(job.launch.folder)
        fate, cause = ending(job, job.launch.exit(), self.timing.grace_s)
        if fate is Fate.COMES_BACK:
            self._come_back(job)
            return
        self._release_devices()
        match fate:
            case Fate.COMPLETED:
                self.tell(JobCompleted(self.now_s(), cause, job.id))
            case Fate.STOPPED:
                self._stopped(job.id, cause)
            case Fate.CRASHED:
                self._crashed(job.id, cause)

    def _come_back(self, job: LiveJob) -> None:
        try:
            self.jobs[job.id] = self._launch(job.id, job.grants, job.next_share_pct)
        except (DeviceError, OSError) as error:
            self._release_devices()
            self._crashed(job.id, f"cannot be launched: {error}")

    # A launch that failed and a stop that came meanwhile are both answered; whichever is later has nothing to say.

    def _stopped(self, job_id: str, cause: str) -> None:
        view = self.engine.state.jobs.get(job_id)
        if view is not None and view.phase is Phase.STOPPING and job_id not in self.jobs:
            self.tell(JobStopped(self.now_s(), cause, job_id))

    def _crashed(self, job_id: str, cause: str) -> None:
        view = self.engine.state.jobs.get(job_id)
        if view is not None and view.phase is not Phase.WAITING and job_id not in self.jobs:
            self.tell(JobCrashed(self.now_s(), cause, job_id))

    def _release_devices(self) -> None:
        """A device that nobody shares any more needs no MPS daemon, and could not be cut with one."""
        used = {grant.device for job in self.jobs.values() for grant in job.grants if grant.share_pct < 100}
        for device in self.devices.shared():
            if device not in used:
                self.devices.stop_sharing(device)

    # ---- probing -----------------------------------------------------------------------------------------------

    def probe(self, gpu: int, job_ids: tuple[str, ...]) -> None:
        self._probed_start |= {job_id: self.engine.state.jobs[job_id].starts for job_id in job_ids}
        self._probes[gpu] = measure(self, job_ids, self.timing.level_s)

    def _advance(self, gpu: int) -> None:
        try:
            next(self._probes[gpu])
        except StopIteration as done:
            del self._probes[gpu]
            self._probed(gpu, done.value)

    def _probed(self, gpu: int, rates: dict[str, Rates]) -> None:
        there = {job_id: view.job for job_id in rates if (view := self.engine.state.jobs.get(job_id)) is not None}
        model = self.engine.state.cluster.gpus[gpu].model
        found = self.settings.predict(list(there.values()), [rates[job_id] for job_id in there], model)
        estimates = dict(zip(there, found, strict=True))
        self.tell(GpuProbed(self.now_s(), "probed under MPS", gpu, estimates))
        for job_id in rates:
            job = self.jobs.get(job_id)
            if job is not None and not job.stopping and job.launch.share_pct is not None:
                self.relaunch(job_id, None)  # it stays: with the share that it was granted

    def relaunch(self, job_id: str, share_pct: float | None) -> None:
        job = self.jobs[job_id]
        job.next_share_pct, job.up = share_pct, False
        self.ask_to_leave(job, save=True)

    def is_there(self, job_id: str) -> bool:
        job = self.jobs.get(job_id)
        return job is not None and not job.stopping and job.launch.start == self._probed_start.get(job_id)

    def is_up(self, job_id: str) -> bool:
        job = self.jobs[job_id]
        return job.up and job.kill_at_s is None

    def progress(self, job_id: str) -> Progress | None:
        return self.jobs[job_id].launch.progress()

    # ---- GPUs that are lost, and giving them back ----------------------------------------------------------------

    def _gpu_lost(self, gpu: int, cause: str) -> None:
        self.tell(GpuLost(self.now_s(), cause, gpu))

    def _plan_restoring(self) -> None:
        if self.closing:
            return
        for gpu, view in self.engine.state.gpus.items():
            if view.lost and gpu not in self._restoring:
                self._restoring.add(gpu)
                self._at(self.now_s() + self.timing.restore_s, partial(self.restore, gpu))

    def restore(self, gpu: int) -> None:
        """Take a GPU into service again, if it answers and can be made uncut, as the engine expects it then."""
        self._restoring.discard(gpu)
        if not self.engine.state.gpus[gpu].lost:
            return
        if not any(grant.gpu == gpu for job in self.jobs.values() for grant in job.grants):
            reason = self.devices.clear(gpu)
            if reason is None:
                self.tell(GpuRestored(self.now_s(), "it answers again", gpu))
        self._plan_restoring()

    def _close(self) -> None:
        """Stop everything with a checkpoint. To the engine every GPU is lost, until the run goes on."""
        self.closing = True
        self._probes.clear()
        for gpu in self.engine.state.gpus:
            self._gpu_lost(gpu, "the runner was asked to stop")
