"""A body without a world: whatever can happen to jobs and GPUs happens at random, in turns of any size.

It applies events as it comes upon them and decides at the end of a turn, as a body on a real machine does. What an
instruction is answered with may come late, or never if its GPU is lost.
"""

from dataclasses import dataclass, replace
from random import Random

from gpuloom.contract.policy import Policy
from gpuloom.contract.view import Phase, Report
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
    JobStopped,
    RescaleFailed,
    SeenEarlier,
)
from gpuloom.engine.instructions import Cut, Instruction
from gpuloom.engine.log import Header, Scribe, header_line
from gpuloom.engine.machine import Engine
from gpuloom.engine.memory import recall
from gpuloom.engine.recovery import MakePolicy
from gpuloom.engine.transitions import TRANSITIONS
from gpuloom.gpus.catalogue import find
from gpuloom.gpus.cluster import Cluster, Gpu, describe, describe_gpu, parse_cluster
from gpuloom.gpus.model import GpuModel, Layout
from gpuloom.perf.slices.earlier import Earlier
from gpuloom.perf.speed import Estimate
from gpuloom.policies.registry import make_policy
from gpuloom.work.model import Hints, Job, Kind
from tests.engine.conftest import check_invariants
from tests.engine.dump import dump
from tests.policies.conftest import scales_well

STRETCHED, SETTLING = "stretched", 60
"""A policy of the tests' own, under which jobs may need several GPUs; and so many turns it is then left in peace."""
ELASTIC = frozenset({"tiresias", "optimus", "pollux", "ones", "ones-paper", STRETCHED})
MIXED = "ones among all kinds"
"""The same policy in a world of elastic, rigid and sliceable jobs, on GPUs of which some can be cut."""
KNOWING = "miso that is told of earlier runs"
WORKLOADS = (None, "a", "b", "c")
MOST_JOBS = 7


@dataclass(frozen=True, slots=True)
class Lived:
    """A run that was logged, with what the state was after each turn."""

    lines: list[str]
    states: list[bytes]
    engine: Engine


def fresh(header: Header, cluster: Cluster) -> Policy:
    return make_policy(header.policy, cluster, header.seed)


def live(policy: str, seed: int, turns: int, make: MakePolicy = fresh) -> Lived:
    gpus = "2x2xV100" if policy in ELASTIC else "2xA100-40GB,1xA100-80GB"
    gpus = "2x2xA100-40GB,1xA30,1xV100" if policy == MIXED else gpus
    cluster = parse_cluster(gpus)
    header = Header(gpus, policy.split()[0], seed, cluster=describe(cluster), freezes=True)
    engine, scribe = Engine(cluster, make(header, cluster)), Scribe()
    elastic = None if policy == MIXED else policy in ELASTIC
    world = RandomWorld(engine, Random(seed), elastic=elastic, stretched=policy == STRETCHED)
    lines, states = [header_line(header)], [dump(engine.state)]
    if policy == KNOWING:
        engine.turn([told := SeenEarlier(0.0, "kept", earlier_at_random(Random(seed)))])
        lines.append(scribe.line([told]))
        states.append(dump(engine.state))
    for number in range(turns + SETTLING if world.stretched else turns):
        events = world.turn() if number < turns else world.settle()
        memory = recall(engine.policy) if engine.asked else None
        lines.append(scribe.line(events, engine.decision, memory))
        states.append(dump(engine.state))
        check_invariants(engine)
    return Lived(lines, states, engine)


def earlier_at_random(dice: Random) -> tuple[Earlier, ...]:
    """Of some workloads on some models, and not always in agreement with what their jobs will report."""
    found = []
    for name in ("A100-40GB", "A100-80GB"):
        model = find(name)
        for workload in [one for one in WORKLOADS if one is not None and dice.random() < 0.8]:
            profiles = dice.sample(model.profiles, dice.randint(0, 4))
            rates = {profile.name: profile.slices ** dice.uniform(0.3, 1) for profile in profiles}
            small_mib = dice.choice((None, None, model.by_name[model.profiles[-1].name].mem_mib))
            found.append(Earlier(workload, name, rates, small_mib, dice.random() < 0.5, True))
    return tuple(found)


class RandomWorld:
    def __init__(self, engine: Engine, dice: Random, *, elastic: bool | None, stretched: bool = False) -> None:
        """`elastic`: all jobs are, or none is; None: some are."""
        self.engine, self.dice, self.elastic, self.stretched = engine, dice, elastic, stretched
        self.now_s = 0.0
        self.arrived = 0
        self.targets: dict[int, Layout] = {}
        """Of each cut that is under way."""
        self.cuts_fail = dice.choice((0.1, 0.1, 0.8))

    def turn(self) -> list[Event]:
        """Live through one turn; returns its events."""
        dice = self.dice
        self.now_s += dice.choice((0.0, dice.uniform(0, 40), dice.uniform(0, 40), dice.uniform(100, 1000)))
        events: list[Event] = []
        instructions: list[Instruction] = []
        tick = self.engine.due_round(self.now_s)
        for _ in range(dice.choice((1, 1, 2, 5))):
            event = tick or self._something()
            if tick is not None:
                tick = None
            elif event is None or event.at_s < self.engine.state.now_s:
                continue
            assert event is not None
            instructions += self.engine.apply(event)
            events.append(event)
        instructions += self.engine.decide()
        self.targets |= {one.gpu: one.target for one in instructions if isinstance(one, Cut)}
        return events

    def settle(self) -> list[Event]:
        """A turn in which everything that was instructed is answered well, and nothing else happens."""
        state, events = self.engine.state, list[Event]()
        for job_id, view in [*state.jobs.items()]:
            phase, rescaling = view.phase, job_id in state.rescaling
            kind: type[JobStarted] | type[JobStopped] | type[JobRescaled] | None
            kind = JobStarted if phase is Phase.STARTING else JobStopped if phase is Phase.STOPPING else None
            kind = JobRescaled if rescaling and phase is Phase.RUNNING else kind
            if kind is not None:
                events.append(kind(self.now_s, "settles", job_id))
                self.engine.apply(events[-1])
        self.engine.decide()
        return events

    def _something(self) -> Event | None:
        dice, state = self.dice, self.engine.state
        kind = dice.choices(("arrive", "job", "gpu", "trouble"), (3, 8, 6, 1))[0]
        if kind == "arrive":
            return self._arrive() if len(state.jobs) < MOST_JOBS else None
        if kind == "job":
            return self._about_a_job(dice.choice([*state.jobs])) if state.jobs else None
        gpu = dice.choice([*state.gpus])
        return self._answer(gpu) if kind == "gpu" else self._trouble(gpu)

    # ---- jobs --------------------------------------------------------------------------------------------------

    def _arrive(self) -> Event:
        dice = self.dice
        self.arrived += 1
        elastic = dice.random() < 0.4 if self.elastic is None else self.elastic
        gpus = dice.randint(1, 2) if elastic else 1
        kind = Kind.ELASTIC if elastic else dice.choice((Kind.SLICEABLE, Kind.SLICEABLE, Kind.RIGID))
        job = Job(
            f"j{self.arrived}",
            self.now_s,
            kind,
            dice.choice(WORKLOADS),
            gpus=dice.randint(1, 3) if self.elastic is None and kind is Kind.RIGID else gpus,
            max_gpus=4,
            min_gpus=dice.choice((1, gpus)) if self.stretched else 1,
            in_place=elastic and dice.random() < 0.6,
            mem_mib=None if elastic else dice.choice((None, 4000, 9000)),
            priority=dice.choice((0, 0, 10)),
            estimate_s=dice.choice((None, 300.0, 3000.0)),
        )
        hints = self._hints(job)
        told = {name: getattr(hints, name) for name in self.engine.policy.told}
        return JobArrived(self.now_s, "submitted", job, Hints(**told))

    def _hints(self, job: Job) -> Hints:
        dice = self.dice
        models = [find(name) for name in ("A100-40GB", "A100-80GB", "A30")]
        by_model = {model.name: self._speeds(job, model) for model in models}
        steps = tuple(1 / (n**0.8) for n in range(1, 5))
        return Hints(dice.uniform(10, 1000), by_model, steps, (100.0, 250.0, 400.0))

    def _speeds(self, job: Job, model: GpuModel) -> dict[str, float]:
        most = max(profile.slices for profile in model.profiles)
        fitting = [profile for profile in model.profiles if profile.mem_mib >= (job.mem_mib or 0)]
        return {one.name: (one.slices / most) ** self.dice.uniform(0.3, 1) for one in fitting}

    def _about_a_job(self, job_id: str) -> Event | None:
        dice, view = self.dice, self.engine.state.jobs[job_id]
        if job_id in self.engine.state.rescaling and dice.random() < 0.6:
            failed = dice.random() < 0.2
            return (RescaleFailed if failed else JobRescaled)(self.now_s, "at random", job_id)
        kinds = (JobStarted, JobStopped, JobCompleted, JobCrashed, JobDisplaced, JobCancelled)
        kind = dice.choices(kinds, (8, 8, 1, 1, 1, 0.3))[0]
        if (view.phase, kind) in TRANSITIONS:
            return kind(self.now_s, "at random", job_id)
        if view.phase is Phase.RUNNING:
            return JobReported(self.now_s, "report", job_id, self._report(view.job))
        return JobStalled(self.now_s, "no step", job_id) if dice.random() < 0.1 else None

    def _report(self, job: Job) -> Report:
        dice = self.dice
        if job.kind is Kind.ELASTIC:
            return replace(scales_well(dice.randint(1, 4)), at_s=self.now_s, epoch=dice.randrange(3))
        return Report(self.now_s, progress=1.0, batches_per_s=dice.uniform(1, 1.02) * dice.choice((1, 1, 3)))

    # ---- GPUs --------------------------------------------------------------------------------------------------

    def _answer(self, gpu: int) -> Event | None:
        dice, view = self.dice, self.engine.state.gpus[gpu]
        if view.cutting and gpu in self.targets:
            target = self.targets.pop(gpu)
            if dice.random() < self.cuts_fail:
                return CutFailed(self.now_s, "half-way", gpu, view.actual)
            return GpuCut(self.now_s, "cut", gpu, target)
        if view.probing:
            model, jobs = self.engine.state.cluster.gpus[gpu].model, self.engine.state.jobs
            found = {job_id: self._estimates(jobs[job_id].job, model) for job_id in view.tenants}
            return GpuProbed(self.now_s, "probed", gpu, found)
        state = self.engine.state
        left = gpu in state.frozen or all(device[0] != gpu for device in state.held)  # a body waits for that
        if view.lost and gpu not in state.left and left and (gpu not in state.frozen or dice.random() < 0.3):
            return GpuRestored(self.now_s, "back", gpu)
        return None

    def _estimates(self, job: Job, model: GpuModel) -> dict[str, Estimate]:
        return {name: Estimate(speed, speed * 0.9, speed * 1.1) for name, speed in self._speeds(job, model).items()}

    def _trouble(self, gpu: int) -> Event | None:
        dice, state = self.dice, self.engine.state
        kind = dice.choice(("lost", "closed", "left", "joined", "joined"))
        if kind == "joined":
            return self._join() if len(state.cluster) < 7 else None
        if gpu in state.left or (kind == "left" and len(state.cluster) - len(state.left) < 3):
            return None
        if kind == "closed":
            return GpuClosed(self.now_s, "at random", gpu)
        self.targets.pop(gpu, None)
        return GpuLost(self.now_s, "at random", gpu) if kind == "lost" else GpuLeft(self.now_s, "at random", gpu)

    def _join(self) -> Event:
        """To a node that is there, or to a new one; one in three cannot be cut, or has another size."""
        cluster = self.engine.state.cluster
        node = self.dice.choice((*cluster.nodes, max(cluster.nodes) + 1))
        model = "V100" if self.elastic else self.dice.choice(("A100-40GB", "A30", "V100"))
        return GpuJoined(self.now_s, "at random", describe_gpu(Gpu(len(cluster), node, find(model)), f"GPU-{node}"))
