"""The state machine: `turn(events) -> instructions`. It asks the policy and closes the gap between plan and world.

A turn is a batch of events, applied one by one, and then at most one question to the policy. Who recovers from a log
follows what was decided instead of asking.

Level-triggered: after every event the jobs and GPUs that it touched are looked at again, and whatever can be done
towards the plan is instructed. A failure in the middle leaves a difference, and closing differences is all this does.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import ceil
from types import MappingProxyType
from typing import Any, get_args

from gpuloom.contract.plan import Plan
from gpuloom.contract.policy import Policy
from gpuloom.contract.view import USUAL_COSTS, JobView, MoveCosts, Phase, View
from gpuloom.engine.events import (
    CutFailed,
    Event,
    GpuClosed,
    GpuCut,
    GpuJoined,
    GpuLeft,
    GpuLost,
    GpuProbed,
    GpuRestored,
    JobArrived,
    JobCancelled,
    JobCompleted,
    JobCrashed,
    JobDisplaced,
    JobReported,
    JobRescaled,
    JobStalled,
    JobStarted,
    PolicyReset,
    RescaleFailed,
    SeenEarlier,
    Tick,
)
from gpuloom.engine.feasible import why_infeasible
from gpuloom.engine.instructions import Cut, GiveUp, Instruction, Probe, Start, WakeAt
from gpuloom.engine.outages import freeze, lose, stop
from gpuloom.engine.rescale import is_free, is_in_the_way, rescale
from gpuloom.engine.state import State
from gpuloom.engine.transitions import ENDED, TRANSITIONS, JobEvent
from gpuloom.errors import InputError
from gpuloom.gpus.cluster import Cluster, as_gpu
from gpuloom.gpus.steps import plan_steps
from gpuloom.perf.slices.memory import fingerprint


class IllegalEvent(Exception):  # noqa: N818  (it is the event that is wrong)
    """An event that cannot have happened in this state. The state is unchanged."""


class IllegalDecision(Exception):  # noqa: N818  (it is the decision that is wrong)
    """A decision that cannot have been accepted in this state."""


MATTERS = frozenset(
    {JobArrived, JobCompleted, JobCrashed, JobDisplaced, JobCancelled, CutFailed, GpuProbed}
    | {GpuLost, GpuClosed, GpuRestored, GpuJoined, GpuLeft}
)
"""After these a policy that wants to be asked on events is asked; the others only report what was instructed."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What became of one plan."""

    at_s: float
    cause: str
    plan: Plan
    rejected: str | None = None
    """Why the plan was refused; None if it was accepted."""


class Engine:
    """One brain for every body: the simulator's and the live ones'."""

    def __init__(
        self,
        cluster: Cluster,
        policy: Policy,
        *,
        costs: MoveCosts = USUAL_COSTS,
        max_crashes: int = 3,
        max_failed_cuts: int = 3,
        freezes: bool = True,
    ) -> None:
        self.state = State(cluster)
        self.policy = policy
        self.costs = costs
        """What the policy is told of them."""
        self.max_crashes = max_crashes
        self.max_failed_cuts = max_failed_cuts
        self.freezes = freezes
        """Whether a GPU that cannot be cut is frozen; else it is lost, as in the logs that were written before."""
        self.decision: Decision | None = None
        """What the last turn led to, if the policy was asked and had something to say."""
        self.asked = False
        """Whether the policy was asked in the last turn."""
        self.last_refusal: str | None = None
        self._wanted: str | None = None
        """The cause of the latest event since then after which the policy wants to be asked."""
        self._jobs = MappingProxyType(self.state.jobs)
        self._waiting = MappingProxyType(self.state.waiting)
        self._gpus = MappingProxyType(self.state.gpus)

    def turn(self, events: Iterable[Event]) -> list[Instruction]:
        """All of these, then one question to the policy if one of them gives reason to.

        IllegalEvent ends it at the event that cannot be: those before it have been applied, and nobody was asked.
        """
        out = list[Instruction]()
        for event in events:
            out += self.apply(event)
        out += self.decide()
        return out

    def apply(self, event: Event) -> list[Instruction]:
        """What follows from the event itself. The policy is not asked yet: see `decide`."""
        state = self.state
        if event.at_s < state.now_s:
            raise IllegalEvent(f"{type(event).__name__} at {event.at_s} s, but it is already {state.now_s} s")
        before, state.now_s = state.now_s, event.at_s
        try:
            out = _HANDLERS[type(event)](self, event)
        except IllegalEvent:
            state.now_s = before
            raise
        kind, when = type(event), self.policy.when
        matters = kind in MATTERS or (when.on_reports and kind is JobReported)
        if matters:
            state.changed = True
        if matters if when.every_s is None else kind is Tick or (matters and when.on_events):
            self._wanted = event.cause
        return out

    def decide(self) -> list[Instruction]:
        """End the turn: ask the policy, once, if one of its events gave reason to."""
        cause = self._reason_to_ask()
        if cause is None:
            return self._wake()
        plan = self.policy.decide(self.view(cause))
        self.state.finished.clear()
        if not isinstance(plan, Plan):
            raise InputError(f"policy {type(self.policy).__name__}: decide returned {type(plan).__name__}, not a Plan")
        if not (plan.grants or plan.layouts or plan.probes or plan.reasons):
            return self._wake()
        return self._take(Decision(self.state.now_s, cause, plan, why_infeasible(self.state, plan))) + self._wake()

    def follow(self, decision: Decision | None) -> list[Instruction]:
        """End the turn as `decide` does, but with what was decided before: nobody is asked."""
        if self._reason_to_ask() is not None:
            self.state.finished.clear()
        if decision is None:
            return self._wake()
        if decision.rejected is None:
            reason = why_infeasible(self.state, decision.plan)
            if reason is not None:
                raise IllegalDecision(reason)
        return self._take(decision) + self._wake()

    def due_round(self, now_s: float) -> Tick | None:
        """The tick that answers the wake that was asked for, if that is due: the last round until now.

        After a pause of a week this one suffices.
        """
        wake_s, every_s = self.state.next_wake_s, self.policy.when.every_s
        if wake_s is None or wake_s > now_s:
            return None
        missed = 0.0 if every_s is None else (now_s - wake_s) // every_s
        return Tick(max(wake_s + missed * (every_s or 0.0), self.state.now_s), "round")

    # ---- events ------------------------------------------------------------------------------------------------

    def _tick(self, event: Tick) -> list[Instruction]:
        if self.state.next_wake_s is not None and event.at_s >= self.state.next_wake_s:
            self.state.next_wake_s = None
        self.state.last_tick_s = event.at_s
        return []

    def _stalled(self, event: JobStalled) -> list[Instruction]:  # noqa: ARG002 - every handler's signature
        return []

    def _reset(self, event: PolicyReset) -> list[Instruction]:  # noqa: ARG002
        self.state.changed = True  # a policy that skips idle rounds has seen nothing of what there is
        return []

    def _seen_earlier(self, event: SeenEarlier) -> list[Instruction]:
        state = self.state
        late = {fingerprint(job.job) for job in state.jobs.values()}
        new = {(one.workload, one.model): one for one in event.seen}
        for workload, model in new:
            if workload in late or (workload, model) in state.earlier:
                raise IllegalEvent(f"SeenEarlier of {workload} on {model}, but that is told once, before its first job")
        state.earlier = MappingProxyType({**state.earlier, **new})
        return []

    def _reported(self, event: JobReported) -> list[Instruction]:
        self.state.put(self._job(event.job_id)._replace(report=event.report))
        return []

    def _job(self, job_id: str) -> JobView:
        try:
            return self.state.jobs[job_id]
        except KeyError:
            raise IllegalEvent(f"job {job_id} is unknown") from None

    def _arrive(self, event: JobArrived) -> list[Instruction]:
        if event.job.id in self.state.jobs:
            raise IllegalEvent(f"job {event.job.id} is already here")
        self.state.admit(JobView(event.job, since_s=event.at_s, hints=event.hints))
        return []

    def _apply_to_job(self, event: JobEvent) -> list[Instruction]:
        state, job = self.state, self._job(event.job_id)
        if (job.phase, type(event)) not in TRANSITIONS:
            raise IllegalEvent(f"{type(event).__name__} for job {job.id}, which is {job.phase.value}")
        after = TRANSITIONS[job.phase, type(event)]
        if isinstance(event, JobStarted):
            if after is Phase.RUNNING:
                first = event.at_s if job.first_start_s is None else job.first_start_s
                state.enter(job, Phase.RUNNING, first_start_s=first)
            probes = [probe for grant in job.held for probe in self._probe(grant.gpu)]
            late = after is Phase.RUNNING and job.held != job.grants  # it was planned elsewhere while it came up
            return [*rescale(state, state.jobs[job.id]), *probes] if late else probes
        if isinstance(event, JobCancelled) and after is Phase.STOPPING:
            state.cancelled.add(job.id)
            state.plan_grants(job.id, ())
            return stop(state, state.jobs[job.id], save=False)
        if isinstance(event, JobRescaled | RescaleFailed):
            return self._rescaled(job, failed=isinstance(event, RescaleFailed))
        freed = [grant.gpu for grant in job.held]
        if after is ENDED or job.id in state.cancelled:
            state.forget(job.id)
            if isinstance(event, JobCompleted):
                state.completed += 1
                state.finished.append(job)
            state.given_up += not isinstance(event, JobCompleted)
            give_up = [] if isinstance(event, JobCompleted) else [GiveUp(job.id, event.cause)]
            return [*give_up, *self._close_gaps(freed)]
        state.release(job)
        crashes = job.crashes + isinstance(event, JobCrashed)
        state.enter(job, Phase.WAITING, held=(), crashes=crashes)
        if isinstance(event, JobCrashed):
            return self._crashed(job.id, crashes, event.cause, freed)
        if isinstance(event, JobDisplaced):
            state.plan_grants(job.id, ())
        return self._close_gaps([*freed, *(grant.gpu for grant in job.grants)])

    def _rescaled(self, job: JobView, *, failed: bool) -> list[Instruction]:
        """It has what it was told to have; or nobody knows what, and it is stopped and started on what it should have.

        Until it has stopped it holds what it had and what it was to get: some of it may be there.
        """
        state = self.state
        if job.id not in state.rescaling:
            raise IllegalEvent(f"an answer of job {job.id}, which was not told to rescale")
        change = state.rescaling[job.id]
        if failed or job.phase is Phase.STOPPING:
            return stop(state, job, save=True)
        state.release(job)
        state.occupy(job, change.after)
        state.put(job._replace(held=change.after, rescales=job.rescales + 1))
        return self._close_gaps([grant.gpu for grant in (*job.held, *job.grants)])

    def _crashed(self, job_id: str, crashes: int, cause: str, freed: list[int]) -> list[Instruction]:
        state = self.state
        state.plan_grants(job_id, ())
        if crashes <= self.max_crashes:
            return self._close_gaps(freed)
        state.forget(job_id)
        state.given_up += 1
        return [GiveUp(job_id, f"crashed {crashes} times, last: {cause}"), *self._close_gaps(freed)]

    def _apply_to_gpu(self, event: GpuCut | CutFailed | GpuLost | GpuClosed | GpuRestored) -> list[Instruction]:
        state = self.state
        if event.gpu not in state.gpus:
            raise IllegalEvent(f"{type(event).__name__} for GPU {event.gpu}, which is unknown")
        gpu = state.gpus[event.gpu]
        if isinstance(event, GpuRestored):
            if event.gpu in state.left:
                raise IllegalEvent(f"GpuRestored for GPU {event.gpu}, which has left for good")
            if gpu.lost:
                state.frozen.discard(event.gpu)
                state.gpus[event.gpu] = gpu._replace(lost=False, failed_cuts=0)
                if not gpu.tenants:
                    state.idle.add(state.cluster.node_of[event.gpu], event.gpu)
            return []
        if isinstance(event, GpuLost):
            return lose(state, event.gpu) if not gpu.lost or event.gpu in state.frozen else []
        if gpu.lost:  # the answer to a cut that was under way then
            if event.gpu in state.frozen and isinstance(event, GpuCut | CutFailed):
                state.gpus[event.gpu] = gpu._replace(layout=event.layout, actual=event.layout, cutting=False)
            return []
        if isinstance(event, GpuClosed):
            return freeze(state, event.gpu)
        failed = gpu.failed_cuts + 1 if isinstance(event, CutFailed) else 0
        state.gpus[event.gpu] = gpu._replace(actual=event.layout, cutting=False, failed_cuts=failed)
        if failed >= self.max_failed_cuts:
            return freeze(state, event.gpu) if self.freezes else lose(state, event.gpu)
        return self._close_gaps([event.gpu])

    def _joined(self, event: GpuJoined) -> list[Instruction]:
        state = self.state
        if event.gpu.index != len(state.cluster):
            raise IllegalEvent(f"GpuJoined as GPU {event.gpu.index}, but the next index is {len(state.cluster)}")
        try:
            state.join(as_gpu(event.gpu))
        except InputError as error:
            raise IllegalEvent(f"GpuJoined as GPU {event.gpu.index}: {error}") from None
        return []

    def _left(self, event: GpuLeft) -> list[Instruction]:
        state = self.state
        if event.gpu not in state.gpus or event.gpu in state.left:
            raise IllegalEvent(f"GpuLeft for GPU {event.gpu}, which is not here")
        state.left.add(event.gpu)
        gone = state.gpus[event.gpu].lost and event.gpu not in state.frozen
        return [] if gone else lose(state, event.gpu)

    def _probed(self, event: GpuProbed) -> list[Instruction]:
        state = self.state
        if event.gpu not in state.gpus:
            raise IllegalEvent(f"GpuProbed for GPU {event.gpu}, which is unknown")
        state.gpus[event.gpu] = state.gpus[event.gpu]._replace(probing=False)
        for job_id, estimates in event.estimates.items():
            if job_id in state.jobs:  # it may have ended while it was measured
                state.put(state.jobs[job_id]._replace(estimates=estimates))
        return self._probe(event.gpu)

    # ---- asking the policy -------------------------------------------------------------------------------------

    def _reason_to_ask(self) -> str | None:
        """The cause for which the policy is to be asked now; None if it is not. A new turn begins."""
        cause, self._wanted, self.decision = self._wanted, None, None
        when, state = self.policy.when, self.state
        if when.every_s is not None and not (state.jobs and (state.changed or not when.only_if_changed)):
            cause = None
        self.asked = cause is not None
        if self.asked:
            state.changed = False
        return cause

    def view(self, cause: str) -> View:
        state = self.state
        jobs, gpus = (self._jobs, self._waiting), (self._gpus, state.idle)
        return View(state.now_s, cause, state.cluster, *jobs, *gpus, self.costs, tuple(state.finished), state.earlier)

    def _take(self, decision: Decision) -> list[Instruction]:
        self.decision = decision
        if decision.rejected is not None:
            self.state.plans_rejected += 1
            self.last_refusal = decision.rejected
            return []
        self.state.plans_accepted += 1
        return self._accept(decision.plan)

    def _accept(self, plan: Plan) -> list[Instruction]:
        state = self.state
        touched = dict.fromkeys(plan.layouts)
        for gpu, layout in plan.layouts.items():
            state.gpus[gpu] = state.gpus[gpu]._replace(layout=layout)
        for gpu in plan.probes:
            state.gpus[gpu] = state.gpus[gpu]._replace(probe_wanted=True)
        out = list[Instruction]()
        for job_id, grants in plan.grants.items():
            job = state.jobs[job_id]
            if job.grants == grants or job_id in state.cancelled:
                continue
            state.plan_grants(job_id, grants)
            touched.update((grant.gpu, None) for grant in (*job.grants, *grants))
            stays = bool(grants) and job.job.in_place
            if job.phase in (Phase.STARTING, Phase.RUNNING) and job.held != grants and not stays:
                out += stop(state, state.jobs[job_id], save=True)
        return out + self._close_gaps([*touched, *plan.probes])

    def _wake(self) -> list[Instruction]:
        state, every_s = self.state, self.policy.when.every_s
        if every_s is None or not state.jobs or state.next_wake_s is not None:
            return []
        at_s = ceil(state.now_s / every_s) * every_s
        if state.last_tick_s is not None and at_s <= state.last_tick_s:
            at_s += every_s
        at_s = max(at_s, state.now_s)  # the product may round to before now; last, so that other rounds stay as logged
        state.next_wake_s = at_s
        return [WakeAt(at_s)]

    # ---- closing the gap between plan and world ----------------------------------------------------------------

    def _close_gaps(self, gpus: Iterable[int]) -> list[Instruction]:
        """Cut what can be cut on these GPUs, start or resize who can be there, measure who is to be measured."""
        state, out = self.state, list[Instruction]()
        tenants: dict[str, None] = {}
        touched = dict.fromkeys(gpus)
        for index in touched:
            gpu = state.gpus[index]
            if gpu.layout != gpu.actual:
                out += self._cut(index)
            tenants.update(dict.fromkeys(gpu.tenants))
        stuck: list[JobView] = []
        for job_id in tenants:
            job = state.jobs[job_id]
            if job.phase is Phase.WAITING and all(is_free(state, grant) for grant in job.grants):
                out.append(self._start(job))
            elif job.phase is Phase.RUNNING and job.held != job.grants:
                told = rescale(state, job)
                stuck += [] if told else [job]
                out += told
        # Only now is it known who of them is about to leave what another is to get.
        out += [told for job in stuck if is_in_the_way(state, job) for told in stop(state, job, save=True)]
        for index in touched:
            if state.gpus[index].probe_wanted:
                out += self._probe(index)
        return out

    def _cut(self, index: int) -> list[Instruction]:
        state, gpu = self.state, self.state.gpus[index]
        if gpu.cutting or gpu.lost or (index, None) in state.held:
            return []
        busy = frozenset(instance for instance in gpu.actual if (index, instance) in state.held)
        plan = plan_steps(state.cluster.gpus[index].model, gpu.actual, gpu.layout, busy)
        if plan.must_stop:
            return []  # their jobs have been told to stop; the answer brings us back here
        state.gpus[index] = gpu._replace(cutting=True)
        return [Cut(index, plan.steps, gpu.layout)]

    def _start(self, job: JobView) -> Start:
        self.state.occupy(job, job.grants)
        self.state.enter(job, Phase.STARTING, held=job.grants, starts=job.starts + 1)
        return Start(job.job.id, job.grants, resume=job.starts > 0)

    def _probe(self, index: int) -> list[Instruction]:
        """Measure the tenants of a GPU that is to be probed, if they are all there and at work."""
        gpu = self.state.gpus[index]
        if not gpu.probe_wanted or gpu.probing or gpu.lost:
            return []
        tenants = [self.state.jobs[job_id] for job_id in gpu.tenants]
        if not all(job.phase is Phase.RUNNING and job.held == job.grants for job in tenants):
            return []
        self.state.gpus[index] = gpu._replace(probe_wanted=False, probing=bool(tenants))
        return [Probe(index, gpu.tenants)] if tenants else []


_HANDLERS: dict[type[Event], Callable[[Engine, Any], list[Instruction]]] = {
    Tick: Engine._tick,
    PolicyReset: Engine._reset,
    SeenEarlier: Engine._seen_earlier,
    JobArrived: Engine._arrive,
    JobReported: Engine._reported,
    JobStalled: Engine._stalled,
    GpuJoined: Engine._joined,
    GpuLeft: Engine._left,
    GpuProbed: Engine._probed,
    **dict.fromkeys(get_args(JobEvent), Engine._apply_to_job),
    **dict.fromkeys((GpuCut, CutFailed, GpuLost, GpuClosed, GpuRestored), Engine._apply_to_gpu),
}
