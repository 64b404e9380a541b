"""Whatever a policy asks for and whatever breaks, the state stays sound, no job is lost, and a replay ends the same."""

import io
from dataclasses import dataclass
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.contract.plan import NO_CHANGE, Plan
from gpuloom.contract.policy import ON_EVENTS, Policy, When
from gpuloom.contract.view import View
from gpuloom.engine.audit import audit
from gpuloom.engine.events import Event, GpuLost, GpuRestored, JobCancelled, JobCrashed
from gpuloom.engine.log import Header, header_line
from gpuloom.engine.machine import Engine
from gpuloom.engine.recovery import recover
from gpuloom.errors import InputError
from gpuloom.gpus import layouts
from gpuloom.gpus.cluster import Cluster, describe, parse_cluster
from gpuloom.gpus.grant import Grant, Grants
from gpuloom.gpus.model import Layout
from gpuloom.sim.body import VirtualBody, Watcher
from gpuloom.sim.costs import Costs
from gpuloom.sim.faults import Faults
from gpuloom.sim.run import LogWriter
from gpuloom.sim.worlds.probes import AuthorsError
from gpuloom.sim.worlds.slices import SliceWorld
from gpuloom.work.measured.figures import load_figures
from gpuloom.work.model import Job, Kind, TraceJob
from tests.engine.conftest import check_invariants
from tests.engine.dump import dump

GPUS = "2x2xA100-40GB,1xA30"
WORKLOADS = sorted(load_figures().workloads)


class Wild(Policy):
    """Asks for anything: sound plans, silly ones, moves for no reason. Deterministic by its seed."""

    def __init__(self, cluster: Cluster, seed: int, when: When = ON_EVENTS) -> None:
        self.when = when
        self.cluster = cluster
        self.dice = Random(seed)
        self.patience = 40
        self.pools = {gpu.index: (*layouts.every(gpu.model), ()) for gpu in cluster.gpus}

    def decide(self, view: View) -> Plan:
        dice = self.dice
        self.patience -= 1
        if self.patience < 0:
            return NO_CHANGE  # somebody who is moved every round never gets anywhere
        cuts = {gpu: dice.choice(pool) for gpu, pool in self.pools.items() if dice.random() < 0.3}
        grants: dict[str, Grants] = {}
        for job_id in view.jobs:
            if dice.random() < 0.5:
                count = view.jobs[job_id].job.gpus if dice.random() < 0.9 else dice.randrange(4)
                gpus = [dice.randrange(len(self.cluster) + (dice.random() < 0.02)) for _ in range(count)]
                grants[job_id] = tuple(self._grant(view, gpu, cuts) for gpu in gpus)
        return Plan(cuts, grants, probes=tuple(gpu for gpu in self.pools if dice.random() < 0.1))

    def _grant(self, view: View, gpu: int, cuts: dict[int, Layout]) -> Grant:
        seen = view.gpus.get(gpu)
        layout = cuts.get(gpu, seen.layout if seen else ())
        share = self.dice.choice((100.0, 100.0, 100 / 3))
        return Grant(gpu, self.dice.choice(layout) if layout else None, share)


class Restless(Wild):
    """Its plans are sound, and it never leaves anything in place for long: cuts anew, evicts, reseats."""

    def decide(self, view: View) -> Plan:
        dice = self.dice
        self.patience -= 1
        usable = [gpu for gpu, seen in view.gpus.items() if not seen.lost]
        if self.patience < 0 or not usable:
            return NO_CHANGE
        chosen = set(dice.sample(usable, dice.randint(1, len(usable))))
        moving = {job.id for job in view.jobs.values() if not job.grants or any(g.gpu in chosen for g in job.grants)}
        chosen -= {grant.gpu for job in view.jobs.values() if job.id not in moving for grant in job.grants}
        cuts = {gpu: dice.choice(self.pools[gpu]) for gpu in chosen}
        seats = [Grant(gpu, instance) for gpu, layout in cuts.items() for instance in layout or (None,)]
        dice.shuffle(seats)
        grants: dict[str, Grants] = dict.fromkeys(sorted(moving), ())
        for job_id in grants:
            job = view.jobs[job_id].job
            gpus = dice.randint(job.min_gpus, job.max_gpus) if job.kind is Kind.ELASTIC else job.gpus
            fitting = [seat for seat in seats if self._suits(job, seat)][:gpus]
            if len(fitting) == gpus:
                grants[job_id] = tuple(fitting)
                seats = [seat for seat in seats if seat not in fitting]
        return Plan(cuts, grants, probes=tuple(gpu for gpu in cuts if dice.random() < 0.3))

    def _suits(self, job: Job, seat: Grant) -> bool:
        model = self.cluster.gpus[seat.gpu].model
        has_mib = model.mem_mib if seat.instance is None else model.by_name[seat.instance.profile].mem_mib
        return has_mib >= (job.mem_mib or 0) and (job.kind is Kind.SLICEABLE or seat.instance is None)


class Careful(Wild):
    """Gives a whole GPU to whoever waits, so that a run comes to its end."""

    def decide(self, view: View) -> Plan:
        if self.dice.random() < 0.4:
            return super().decide(view)
        idle, grants = view.idle.copy(), dict[str, Grants]()
        for job in view.waiting.values():
            gpus = idle.take(job.job.gpus)
            if gpus:
                grants[job.id] = tuple(map(Grant, gpus))
        uncut = {grant.gpu: () for job in grants.values() for grant in job}
        return Plan(uncut, grants)


class Checker(Watcher):
    """Looks at the engine after every event."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def event(self, event: Event) -> None:  # noqa: ARG002
        check_invariants(self.engine)


@dataclass
class Run:
    engine: Engine
    body: VirtualBody
    log: str


def trace(dice: Random, jobs: int) -> list[TraceJob]:
    entries, now_s = [], 0.0
    for number in range(jobs):
        now_s += dice.choice((0.0, dice.uniform(0, 200)))
        kind = dice.choice([*Kind])
        gpus = 1 if kind is Kind.SLICEABLE else dice.randint(1, 3)
        workload = dice.choice((None, *WORKLOADS)) if kind is Kind.SLICEABLE else None
        in_place = kind is Kind.ELASTIC and dice.random() < 0.5
        memory = dice.choice((None, 9000))
        job = Job(
            f"j{number}",
            now_s,
            kind,
            workload,
            gpus=gpus,
            min_gpus=1,
            max_gpus=4,
            mem_mib=memory,
            in_place=in_place,
        )
        entries.append(TraceJob(job, dice.uniform(1, 500)))
    return entries


def faults(dice: Random, jobs: int) -> Faults:
    events: list[Event] = []
    for _ in range(dice.randrange(6)):
        at_s, gpu, job_id = dice.uniform(0, 1500), dice.randrange(5), f"j{dice.randrange(jobs)}"
        events.append(dice.choice((GpuLost(at_s, "test", gpu), JobCrashed(at_s, "test", job_id))))
        events.append(GpuRestored(at_s + dice.uniform(1, 300), "test", gpu))
    return Faults(tuple(events), frozenset(dice.sample(range(1, 40), dice.randrange(8))))


def live(kind: type[Wild], seed: int, when: When = ON_EVENTS, jobs: int = 12) -> Run:
    dice, cluster, log = Random(seed), parse_cluster(GPUS), io.StringIO()
    engine = Engine(cluster, kind(cluster, seed, when))
    log.write(header_line(Header(GPUS, "wild", seed, when.every_s, describe(cluster), freezes=True)))
    world = SliceWorld(load_figures(), cluster, Costs(checkpoint_s=dice.choice((0.0, 3.0))), lambda: AuthorsError(seed))
    body = VirtualBody(engine, world, world.costs, [Checker(engine), LogWriter(log)], faults(dice, jobs))
    body.run(trace(dice, jobs))
    check_invariants(engine)
    return Run(engine, body, log.getvalue())


def rebuilt(log: str, kind: type[Wild], when: When = ON_EVENTS) -> Engine:
    """As the policy, asked again, leaves it: which is as what was decided leaves it."""
    lines = log.splitlines(keepends=True)
    asked = audit(lines, "run.log", lambda header, cluster: kind(cluster, header.seed, when))
    assert asked.difference is None
    followed = recover(lines, "run.log", lambda header, cluster: kind(cluster, header.seed, when))
    assert dump(followed.engine.state) == dump(asked.engine.state)
    return asked.engine


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from([Wild, Restless]), seed=st.integers(0, 2**31), every_s=st.sampled_from([None, 5.0, 10.0, 60.0])
)
def test_no_plan_and_no_fault_makes_the_state_unsound(kind: type[Wild], seed: int, every_s: float | None) -> None:
    when = When(every_s)
    run = live(kind, seed, when)
    assert dump(rebuilt(run.log, kind, when).state) == dump(run.engine.state)


def test_the_restless_policy_is_as_restless_as_it_claims() -> None:
    state = live(Restless, 3, When(10.0)).engine.state
    assert state.plans_accepted > 20
    assert state.plans_rejected == 0


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**31))
def test_no_job_is_lost(seed: int) -> None:
    run = live(Careful, seed, When(20.0))
    state = run.engine.state
    assert state.completed + state.given_up == 12
    assert not state.jobs
    assert not state.held
    assert not run.body.jobs


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**31), keep=st.floats(0, 1))
def test_a_log_that_was_cut_off_replays_up_to_its_last_whole_line(seed: int, keep: float) -> None:
    log = live(Wild, seed, jobs=5).log
    header_end = log.index("\n") + 1
    short = log[: max(int(len(log) * keep), header_end)]
    whole = short[: short.rindex("\n") + 1]
    assert dump(rebuilt(short, Wild).state) == dump(rebuilt(whole, Wild).state)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{}\n",
        '{"Tick":{"at_s":1}}\n',
        "\x00\n",
        '{"Header":{"gpus":"A100","policy":"x","seed":1,"version":9}}\n',
        '{"Header":{"version":2,"gpus":"A100","policy":"x","seed":1},"crc32":"00000000"}\n',
        "[1]\n",
    ],
)
def test_what_is_not_a_log_is_refused(content: str) -> None:
    with pytest.raises(InputError, match=r"run\.log"):
        rebuilt(content, Wild)


def test_cancelling_every_job_empties_the_engine() -> None:
    run = live(Wild, 5, jobs=6)
    at_s = run.engine.state.now_s
    for job_id in [*run.engine.state.jobs]:
        run.engine.turn([JobCancelled(at_s, "test", job_id)])
    assert all(not job.grants for job in run.engine.state.jobs.values())
