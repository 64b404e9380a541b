"""What a run was worth: completion times, waits, slowdowns, throughput, use. Grows with jobs, not with time."""

from array import array
from dataclasses import dataclass, field

from gpuloom.engine.events import (
    CutFailed,
    Event,
    GpuClosed,
    GpuCut,
    GpuLost,
    GpuRestored,
    JobArrived,
    JobCompleted,
    JobCrashed,
    JobDisplaced,
    JobStarted,
    JobStopped,
)
from gpuloom.engine.instructions import Cut, GiveUp, Instruction, Rescale, Start, Stop
from gpuloom.engine.machine import Engine
from gpuloom.gpus.cluster import Cluster
from gpuloom.gpus.fragmentation import fragmentation
from gpuloom.gpus.grant import Grant
from gpuloom.sim.body import RunningJob, Watcher
from gpuloom.sim.curves import Curves
from gpuloom.sim.worlds.world import World
from gpuloom.work.model import TraceJob


@dataclass(frozen=True, slots=True)
class Summary:
    """The figures of one run. Times in seconds; None where a run has nothing to measure it by."""

    jobs: int
    completed: int
    given_up: int
    avg_jct_s: float | None
    p50_jct_s: float | None
    p90_jct_s: float | None
    p99_jct_s: float | None
    max_jct_s: float | None
    avg_wait_s: float | None
    p99_wait_s: float | None
    max_wait_s: float | None
    avg_slowdown: float | None
    p99_slowdown: float | None
    max_slowdown: float | None
    makespan_s: float
    stp_per_gpu: float
    utilisation: float
    gpu_hours: float
    avg_queue: float
    repartitions: int
    checkpoints: int
    restarts: int
    rescales: int
    fragmentation: float
    plans_rejected: int


QUEUE, USE, HELD, FRAGMENTATION = range(4)
"""The curves of a run: jobs waiting, share of all compute at work, GPUs planned on, mean fragmentation."""


@dataclass(slots=True)
class Outcomes:
    """One row per completed job, in order of completion."""

    ids: list[str] = field(default_factory=list)
    submit_s: "array[float]" = field(default_factory=lambda: array("d"))
    jct_s: "array[float]" = field(default_factory=lambda: array("d"))
    wait_s: "array[float]" = field(default_factory=lambda: array("d"))
    slowdown: "array[float]" = field(default_factory=lambda: array("d"))


class Metrics(Watcher):
    def __init__(self, engine: Engine, world: World) -> None:
        self._engine = engine
        self._world = world
        self._cluster = engine.state.cluster
        self._gpus = len(self._cluster)
        self._entries: dict[str, TraceJob] = {}
        self._first_start_s: dict[str, float] = {}
        self._compute: dict[str, float] = {}
        """Whole-GPU equivalents on which each working job sits."""
        self._working = 0.0
        self._fragmented: dict[int, float] = {}
        self._touched: set[int] = set()
        self._seats: dict[str, list[int]] = {}
        """GPUs on whose slices each job sits."""
        self._lost = 0
        self.curves: Curves | None = None
        self._levels = [0.0, 0.0, 0.0, 0.0]
        """What the curves are at now."""
        self._last_end_s = 0.0
        self._work_s = 0.0
        self._cuts = self._checkpoints = self._restarts = self._rescales = self._jobs = self._given_up = 0
        self.outcomes = Outcomes()

    # ---- watching ----------------------------------------------------------------------------------------------

    def arrival(self, entry: TraceJob) -> None:
        """Called by the runner with each job before it enters."""
        self._entries[entry.job.id] = entry
        self._jobs += 1

    def event(self, event: Event) -> None:
        at_s = event.at_s
        if self.curves is not None:
            self.curves.advance(at_s, self._levels)
        # The three that every job brings come first: this is the hottest place of a long trace.
        if isinstance(event, JobStarted):
            self._first_start_s.setdefault(event.job_id, at_s)
        elif isinstance(event, JobArrived):
            if self.curves is None:  # the run begins; a fault before the first job is not part of it
                self.curves = Curves(4, at_s)
        elif isinstance(event, JobCompleted):
            self._complete(event.job_id, at_s)
            self._touched.update(self._seats.pop(event.job_id, ()))
        elif isinstance(event, JobStopped | JobCrashed | JobDisplaced):
            self._touched.update(self._seats.pop(event.job_id, ()))
        elif isinstance(event, GpuCut | CutFailed | GpuLost | GpuClosed | GpuRestored):
            self._touched.add(event.gpu)
            self._lost = sum(gpu.lost and not gpu.tenants for gpu in self._engine.state.gpus.values())
        self._update_levels()

    def _update_levels(self) -> None:
        state, levels = self._engine.state, self._levels
        levels[QUEUE] = len(state.waiting)
        levels[HELD] = self._gpus - state.idle.total - self._lost
        if self._touched:
            for gpu in self._touched:
                actual = state.gpus[gpu].actual
                used = tuple(instance for instance in actual if (gpu, instance) in state.held)
                self._fragmented[gpu] = fragmentation(self._cluster.gpus[gpu].model, used) if actual else 0.0
            self._touched.clear()
            levels[FRAGMENTATION] = sum(self._fragmented.values()) / self._gpus

    def _complete(self, job_id: str, at_s: float) -> None:
        entry, rows = self._entries.pop(job_id), self.outcomes
        submit_s = entry.job.submit_s
        rows.ids.append(job_id)
        rows.submit_s.append(submit_s)
        rows.jct_s.append(at_s - submit_s)
        rows.wait_s.append(self._first_start_s.pop(job_id) - submit_s)
        rows.slowdown.append((at_s - submit_s) / max(self._world.alone_s(entry), 1e-9))
        self._work_s += self._world.single_gpu_s(entry)
        self._last_end_s = at_s

    def instruction(self, at_s: float, instruction: Instruction) -> None:
        if isinstance(instruction, Start):
            self._restarts += instruction.resume
            gpus = [grant.gpu for grant in instruction.grants if grant.instance is not None]
            if gpus:
                self._seats[instruction.job_id] = gpus
                self._touched.update(gpus)
                self._update_levels()
        elif isinstance(instruction, Stop):
            self._checkpoints += instruction.save
        elif isinstance(instruction, Rescale):
            self._rescales += 1
        elif isinstance(instruction, Cut):
            self._cuts += 1
        elif isinstance(instruction, GiveUp):
            self._given_up += 1
            self._entries.pop(instruction.job_id)
            self._first_start_s.pop(instruction.job_id, None)
            self._last_end_s = at_s

    def rate(self, at_s: float, job: RunningJob) -> None:
        if self.curves is not None:
            self.curves.advance(at_s, self._levels)
        job_id = job.entry.job.id
        self._working -= self._compute.pop(job_id, 0.0)
        if job.working:
            self._compute[job_id] = compute = sum([compute_share(self._cluster, grant) for grant in job.grants])
            self._working += compute
        elif not self._compute:
            self._working = 0.0  # no rounding error survives an idle moment
        self._levels[USE] = self._working / self._gpus

    # ---- results -----------------------------------------------------------------------------------------------

    def summary(self) -> Summary:
        rows = self.outcomes
        curves = self.curves or Curves(4, 0.0)
        makespan_s = max(self._last_end_s - curves.start_s, 0.0)
        return Summary(
            jobs=self._jobs,
            completed=len(rows.ids),
            given_up=self._given_up,
            avg_jct_s=_mean(rows.jct_s),
            p50_jct_s=_percentile(rows.jct_s, 50),
            p90_jct_s=_percentile(rows.jct_s, 90),
            p99_jct_s=_percentile(rows.jct_s, 99),
            max_jct_s=max(rows.jct_s, default=None),
            avg_wait_s=_mean(rows.wait_s),
            p99_wait_s=_percentile(rows.wait_s, 99),
            max_wait_s=max(rows.wait_s, default=None),
            avg_slowdown=_mean(rows.slowdown),
            p99_slowdown=_percentile(rows.slowdown, 99),
            max_slowdown=max(rows.slowdown, default=None),
            makespan_s=makespan_s,
            stp_per_gpu=self._work_s / (len(self._cluster) * makespan_s) if makespan_s > 0 else 0.0,
            utilisation=curves.totals[USE] / makespan_s if makespan_s else 0.0,
            gpu_hours=curves.totals[HELD] / 3600,
            avg_queue=curves.totals[QUEUE] / makespan_s if makespan_s else 0.0,
            repartitions=self._cuts,
            checkpoints=self._checkpoints,
            restarts=self._restarts,
            rescales=self._rescales,
            fragmentation=curves.totals[FRAGMENTATION] / makespan_s if makespan_s else 0.0,
            plans_rejected=self._engine.state.plans_rejected,
        )


def compute_share(cluster: Cluster, grant: Grant) -> float:
    """How much of a whole GPU's compute a grant is."""
    if grant.instance is None:
        return grant.share_pct / 100
    model = cluster.gpus[grant.gpu].model
    most = max(profile.slices for profile in model.profiles)
    return model.by_name[grant.instance.profile].slices / most * grant.share_pct / 100


def _mean(column: "array[float]") -> float | None:
    return sum(column) / len(column) if column else None


def _percentile(column: "array[float]", percent: float) -> float | None:
    """Linear between the two nearest ranks."""
    if not column:
        return None
    ordered = sorted(column)
    rank = (len(ordered) - 1) * percent / 100
    below = int(rank)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (rank - below)
