"""The virtual body: carries instructions out on a virtual clock, in the measured world, and tells the engine.

The clock jumps from one thing that happens to the next. What the policy believes plays no part here: a job advances at
the rate that the world gives it on what it holds, so that a wrong belief costs what it would cost in reality.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from gpuloom.contract.view import Phase, Report
from gpuloom.engine.events import (
    CutFailed,
    Event,
    GpuCut,
    GpuLeft,
    GpuLost,
    GpuProbed,
    GpuRestored,
    JobArrived,
    JobCompleted,
    JobCrashed,
    JobReported,
    JobRescaled,
    JobStarted,
    JobStopped,
    RescaleFailed,
    SeenEarlier,
    Tick,
)
from gpuloom.engine.instructions import Cut, GiveUp, Instruction, Probe, Rescale, Start, Stop, WakeAt
from gpuloom.engine.machine import Decision, Engine
from gpuloom.gpus.grant import Device, Grant, Grants
from gpuloom.gpus.steps import apply_step
from gpuloom.perf.slices.earlier import Earlier
from gpuloom.sim.costs import Costs
from gpuloom.sim.faults import NO_FAULTS, Faults
from gpuloom.sim.worlds.world import JobRun, World
from gpuloom.work.model import NO_HINTS, Hints, TraceJob

# Of things at the same moment, what has happened comes before who is asked about it; see `_schedule_mark`.
BEFORE_TICK, TICK, AFTER_TICK = 0, 1, 2

THAW_S = 30.0
"""So long after its last failed cut a frozen GPU may be cut again."""
IDLE_ROUNDS = 1000
"""After so many rounds in which nothing else was pending, nothing will happen any more: the policy is stuck."""


@dataclass(slots=True)
class RunningJob:
    """One admitted job as the world sees it."""

    entry: TraceJob
    run: JobRun
    done: float = 0.0
    """Work done, in the world's unit, up to `since_s`."""
    saved: float = 0.0
    """Work that a checkpoint keeps."""
    rate: float = 0.0
    since_s: float = 0.0
    working: bool = False
    grants: Grants = ()
    shared: bool = False
    """Others may sit on one of its devices too."""
    version: int = 0
    """Raised whenever what was scheduled for the job no longer holds."""
    has_worked: bool = False
    """Since when there is something to be resumed."""
    reporting: bool = False
    """Its next steady report is on the agenda."""


class Watcher:
    """Sees all that happens, after the engine has, and changes nothing: metrics, timelines and logs derive from it."""

    def turn(self, events: Sequence[Event], decision: Decision | None) -> None: ...
    def event(self, event: Event) -> None: ...
    def decision(self, decision: Decision) -> None: ...
    def instruction(self, at_s: float, instruction: Instruction) -> None: ...
    def rate(self, at_s: float, job: RunningJob) -> None: ...


class VirtualBody:
    def __init__(
        self, engine: Engine, world: World, costs: Costs, watchers: Sequence[Watcher] = (), faults: Faults = NO_FAULTS
    ) -> None:
        self.engine = engine
        self.world = world
        self.costs = costs
        self.watchers = watchers
        # Most look at events one by one, and an event is the hottest thing there is.
        self._turn_watchers = [watcher for watcher in watchers if type(watcher).turn is not Watcher.turn]
        self.faults = faults
        self.jobs: dict[str, RunningJob] = {}
        self.now_s = 0.0
        self._agenda: list[tuple[float, int, int, Callable[[], None]]] = []
        self._scheduled = 0
        self._pending = 0
        """How much on the agenda is not just the next round."""
        self._sharing: dict[Device, dict[str, Grant]] = {}
        self._cuts = 0
        self._resizes = 0
        self._losses: Counter[int] = Counter()
        """How often each GPU was lost."""
        self._told = engine.policy.told

    # ---- the clock ---------------------------------------------------------------------------------------------

    def run(
        self,
        trace: Iterable[TraceJob],
        on_progress: Callable[[float, int], None] | None = None,
        earlier: tuple[Earlier, ...] = (),
    ) -> None:
        """Live through a trace (in order of submission) until nothing more can happen; `earlier` is told first."""
        if earlier:
            self._tell(SeenEarlier(self.now_s, "it was handed in", earlier))
        arrivals = iter(trace)
        self._expect_arrival(arrivals)
        for fault in self.faults.events:
            self._at(fault.at_s, BEFORE_TICK, partial(self._fail, fault))
        idle_rounds = 0
        while self._agenda and idle_rounds < IDLE_ROUNDS:
            at_s, rank, _, act = heapq.heappop(self._agenda)
            self.now_s = at_s
            self._pending -= rank != TICK
            act()
            idle_rounds = 0 if self._pending else idle_rounds + 1
            if on_progress is not None:
                on_progress(at_s, self.engine.state.completed + self.engine.state.given_up)

    def _at(self, at_s: float, rank: int, act: Callable[[], None]) -> None:
        self._scheduled += 1
        self._pending += rank != TICK
        heapq.heappush(self._agenda, (at_s, rank, self._scheduled, act))

    def _expect_arrival(self, arrivals: Iterable[TraceJob]) -> None:
        """Only the next arrival is on the agenda, so that a long trace does not fill it."""
        entry = next(iter(arrivals), None)
        if entry is not None:
            self._at(entry.job.submit_s, BEFORE_TICK, partial(self._arrive, entry, arrivals))

    def _arrive(self, entry: TraceJob, arrivals: Iterable[TraceJob]) -> None:
        self._expect_arrival(arrivals)
        self.jobs[entry.job.id] = RunningJob(entry, self.world.admit(entry), since_s=self.now_s)
        hints = _only(self.world.hints(entry), self._told) if self._told else NO_HINTS
        self._tell(JobArrived(self.now_s, "submitted", entry.job, hints))

    def _tell(self, event: Event) -> None:
        """A turn of one event: things that happen at the same moment are still decided on one by one."""
        events = (event,)
        instructions = self.engine.turn(events)
        for watcher in self._turn_watchers:
            watcher.turn(events, self.engine.decision)
        for watcher in self.watchers:
            watcher.event(event)
        if self.engine.decision is not None:
            for watcher in self.watchers:
                watcher.decision(self.engine.decision)
        for instruction in instructions:
            for watcher in self.watchers:
                watcher.instruction(self.now_s, instruction)
            self._carry_out(instruction)

    # ---- instructions ------------------------------------------------------------------------------------------

    def _carry_out(self, instruction: Instruction) -> None:
        match instruction:
            case Start():
                self._start(instruction)
            case Stop():
                self._stop(self.jobs[instruction.job_id], save=instruction.save)
            case Rescale():
                self._rescale(self.jobs[instruction.job_id], instruction.grants)
            case Cut():
                self._cut(instruction)
            case Probe():
                self._answer(instruction.gpu, self.costs.probe_s, partial(self._finish_probe, instruction))
            case WakeAt():
                self._at(instruction.at_s, TICK, lambda: self._tell(Tick(self.now_s, "round")))
            case GiveUp():
                del self.jobs[instruction.job_id]

    def _start(self, start: Start) -> None:
        job = self.jobs[start.job_id]
        job.grants = start.grants
        job.shared = any(grant.share_pct < 100 for grant in start.grants)
        job.version += 1
        delay_s = self.world.start_s(job.entry, start.resume and job.has_worked)
        if job.shared:
            delay_s += self.costs.mps_start_s
        self._at(self.now_s + delay_s, BEFORE_TICK, partial(self._begin, job, job.version))

    def _begin(self, job: RunningJob, version: int) -> None:
        if job.version != version:
            return  # stopped before it came up
        job_id = job.entry.job.id
        job.working = job.has_worked = True
        report = self._put_to_run(job)
        self._tell(JobStarted(self.now_s, "processes are up", job_id))
        self._report(job_id, report)
        if job.version == version:
            self._set_to_work(job)

    def _put_to_run(self, job: RunningJob) -> Report | None:
        """What it tells as it begins: where jobs report steadily how far it truly is, not what its last epoch was."""
        report = job.run.start(self.now_s, job.grants)
        steady = report is not None and self.world.report_every_s is not None
        return job.run.report(self.now_s, job.done) if steady else report

    def _set_to_work(self, job: RunningJob) -> None:
        job.done -= job.run.tried()
        self._enter_neighbourhood(job)
        if self.world.report_every_s is not None and not job.reporting:
            job.reporting = True
            self._at(self.now_s + self.world.report_every_s, BEFORE_TICK, partial(self._report_again, job))

    def _report_again(self, job: RunningJob) -> None:
        """At steady intervals for as long as it works."""
        job.reporting = job.working
        if job.working and self.world.report_every_s is not None:
            self._at(self.now_s + self.world.report_every_s, BEFORE_TICK, partial(self._report_again, job))
            # A mark that a quantum has put off is not passed before it is reached.
            done = min(job.done + job.rate * (self.now_s - job.since_s), job.run.mark())
            self._report(job.entry.job.id, job.run.report(self.now_s, done))

    def _rescale(self, job: RunningJob, grants: Grants) -> None:
        """It stands still for a moment, and goes on with the new grants. Another batch alone costs nothing.

        If it is to fail, it stands still for as long, and says so: then it is stopped and started again.
        """
        self._resizes += 1
        fails = self._resizes in self.faults.failing_resizes
        moved = [grant.device for grant in grants] != [grant.device for grant in job.grants]
        self._stand_still(job)  # its workers hand on what they have; nobody writes it to a disk
        job.grants = grants
        delay_s = self.costs.told().resize_s if moved else 0.0
        answer = self._cannot_go_on if fails else self._go_on
        self._at(self.now_s + delay_s, BEFORE_TICK, partial(answer, job, job.version))

    def _cannot_go_on(self, job: RunningJob, version: int) -> None:
        if job.version == version:
            self._tell(RescaleFailed(self.now_s, "injected", job.entry.job.id))

    def _go_on(self, job: RunningJob, version: int) -> None:
        if job.version != version:
            return
        job.working = True
        report = self._put_to_run(job)
        self._tell(JobRescaled(self.now_s, "goes on", job.entry.job.id))
        self._report(job.entry.job.id, report)
        if job.version == version:
            self._set_to_work(job)

    def _report(self, job_id: str, report: Report | None) -> None:
        if report is not None:
            self._tell(JobReported(self.now_s, "report", job_id, report))

    def _stop(self, job: RunningJob, *, save: bool) -> None:
        self._halt(job, save=save)
        delay_s = self.costs.checkpoint_s if save else 0.0
        job_id = job.entry.job.id
        cause = "checkpointed" if save else "killed"
        self._at(self.now_s + delay_s, BEFORE_TICK, lambda: self._tell(JobStopped(self.now_s, cause, job_id)))

    def _halt(self, job: RunningJob, *, save: bool) -> None:
        """The job's processes no longer work; without saving, what was done since the last checkpoint is lost."""
        self._stand_still(job)
        job.done = job.saved = job.done if save else job.saved
        if not save:
            job.run.rewind(job.saved)

    def _stand_still(self, job: RunningJob) -> None:
        job.done += job.rate * (self.now_s - job.since_s)
        job.version += 1
        job.working = False
        self._set_rate(job, 0.0)
        self._leave_neighbourhood(job)

    def _cut(self, cut: Cut) -> None:
        self._cuts += 1
        gpu, fails = cut.gpu, self._cuts in self.faults.failing_cuts
        layout = self.engine.state.gpus[gpu].actual
        for step in cut.steps[: len(cut.steps) // 2] if fails else cut.steps:
            layout = apply_step(self.engine.state.cluster.gpus[gpu].model, layout, step)
        kind, cause = (CutFailed, "stopped half-way") if fails else (GpuCut, "cut")
        if self.costs.stay_s:
            self._disturb(gpu)
        self._answer(gpu, self.costs.cut_s, lambda: self._after_cut(kind(self.now_s, cause, gpu, layout)))

    def _after_cut(self, event: GpuCut | CutFailed) -> None:
        self._tell(event)
        if event.gpu in self.engine.state.frozen:
            thaws = GpuRestored(self.now_s + THAW_S, "it may be cut again", event.gpu)
            self._answer(event.gpu, THAW_S, partial(self._tell, thaws))

    def _disturb(self, gpu: int) -> None:
        for job_id in self.engine.state.gpus[gpu].tenants:
            job = self.jobs[job_id]
            if job.working:
                job.done -= job.rate * self.costs.stay_s
                self._rerate(job)

    def _answer(self, gpu: int, delay_s: float, act: Callable[[], None]) -> None:
        """Something that ends on a GPU after a while, unless the GPU is lost before."""
        losses = self._losses[gpu]

        def unless_lost() -> None:
            if self._losses[gpu] == losses:
                act()

        self._at(self.now_s + delay_s, BEFORE_TICK, unless_lost)

    def _finish_probe(self, probe: Probe) -> None:
        """Whoever ended meanwhile was measured in vain."""
        there = [self.jobs[job_id].entry for job_id in probe.job_ids if job_id in self.jobs]
        model = self.engine.state.cluster.gpus[probe.gpu].model
        self._tell(GpuProbed(self.now_s, "probed under MPS", probe.gpu, self.world.probe(there, model)))

    def _fail(self, fault: Event) -> None:
        if isinstance(fault, JobCrashed):
            view = self.engine.state.jobs.get(fault.job_id)
            if view is None or view.phase not in (Phase.STARTING, Phase.RUNNING):
                return  # there is nothing that could crash
            self._halt(self.jobs[fault.job_id], save=False)
        if isinstance(fault, GpuLost | GpuLeft):
            self._losses[fault.gpu] += 1
        self._tell(fault)

    # ---- progress ----------------------------------------------------------------------------------------------

    def _enter_neighbourhood(self, job: RunningJob) -> None:
        """It begins to work; whoever shares a device with it has a new neighbour."""
        if job.shared:
            for grant in job.grants:
                self._sharing.setdefault(grant.device, {})[job.entry.job.id] = grant
        self._rerate(job)
        self._rerate_neighbours(job)

    def _leave_neighbourhood(self, job: RunningJob) -> None:
        if job.shared:
            for grant in job.grants:
                self._sharing.get(grant.device, {}).pop(job.entry.job.id, None)
            self._rerate_neighbours(job)

    def _rerate_neighbours(self, job: RunningJob) -> None:
        if job.shared:
            for job_id, _ in self._beside(job):
                self._rerate(self.jobs[job_id])

    def _beside(self, job: RunningJob) -> list[tuple[str, Grant]]:
        """Grants of other working jobs on the devices of this one."""
        own = job.entry.job.id
        return [
            (job_id, other)
            for grant in job.grants
            for job_id, other in self._sharing.get(grant.device, {}).items()
            if job_id != own
        ]

    def _rerate(self, job: RunningJob) -> None:
        beside = [grant for _, grant in self._beside(job)] if job.shared else []
        job.done += job.rate * (self.now_s - job.since_s)
        job.version += 1
        self._set_rate(job, job.run.rate(job.grants, beside))
        if job.rate > 0:
            self._schedule_mark(job)
        else:
            self._halt(job, save=False)
            self._tell(JobCrashed(self.now_s, "out of memory", job.entry.job.id))

    def _set_rate(self, job: RunningJob, rate: float) -> None:
        job.rate, job.since_s = rate, self.now_s
        for watcher in self.watchers:
            watcher.rate(self.now_s, job)

    def _schedule_mark(self, job: RunningJob) -> None:
        """Put the next mark on the agenda.

        A world with a quantum rounds the time; a mark that was rounded down to the very moment of a round lies after it
        in truth, and is handled after it (Pollux's simulator steps 60 s, then asks).
        """
        exact_s = self.now_s + max(job.run.mark() - job.done, 0.0) / job.rate
        quantum_s = self.world.quantum_s
        at_s = exact_s if quantum_s is None else max(round(exact_s / quantum_s) * quantum_s, self.now_s)
        rank = AFTER_TICK if exact_s > at_s else BEFORE_TICK
        self._at(at_s, rank, partial(self._reach, job, job.version))

    def _reach(self, job: RunningJob, version: int) -> None:
        if job.version != version:
            return
        job_id = job.entry.job.id
        job.done, job.since_s = job.run.mark(), self.now_s
        complete, report = job.run.reach_mark(self.now_s, job.grants)
        self._report(job_id, report)
        if complete:
            self._halt(job, save=True)
            del self.jobs[job_id]
            self._tell(JobCompleted(self.now_s, "done", job_id))
        elif job.version == version:
            job.done -= job.run.tried()
            self._rerate(job)


def _only(hints: Hints, names: frozenset[str]) -> Hints:
    return Hints(**{name: getattr(hints, name) for name in names})
