"""Small worlds for the engine's tests: a cluster, a policy that does as told, and checks that must always hold."""

from collections.abc import Iterable
from typing import Any

import pytest

from gpuloom.contract.plan import NO_CHANGE, Plan
from gpuloom.contract.policy import ON_EVENTS, Policy, When
from gpuloom.contract.view import Phase, View
from gpuloom.engine.events import Event, JobArrived
from gpuloom.engine.instructions import Instruction
from gpuloom.engine.machine import Engine
from gpuloom.gpus import layouts
from gpuloom.gpus.cluster import Cluster, parse_cluster
from gpuloom.work.model import Job, Kind


class Puppet(Policy):
    """A policy that returns the plans it was given, one each time it is asked."""

    def __init__(self, plans: Iterable[Plan] = (), when: When = ON_EVENTS) -> None:
        self.plans = list(plans)
        self.when = when
        self.seen: list[float] = []

    def decide(self, view: View) -> Plan:
        self.seen.append(view.now_s)
        return self.plans.pop(0) if self.plans else NO_CHANGE


class Bench:
    """An engine whose policy is a puppet, driven event by event."""

    def __init__(self, gpus: str = "2xA100-40GB", when: When = ON_EVENTS) -> None:
        self.cluster: Cluster = parse_cluster(gpus)
        self.policy = Puppet(when=when)
        self.engine = Engine(self.cluster, self.policy)

    def tell(self, event: Event, plan: Plan | None = None) -> list[Instruction]:
        if plan is not None:
            self.policy.plans.append(plan)
        out = self.engine.turn((event,))
        check_invariants(self.engine)
        return out

    def arrive(
        self, job_id: str = "a", at_s: float = 0.0, plan: Plan | None = None, **fields: Any
    ) -> list[Instruction]:
        job = Job(job_id, at_s, **{"kind": Kind.SLICEABLE, **fields})
        return self.tell(JobArrived(at_s, "test", job), plan)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def check_invariants(engine: Engine) -> None:
    """What must hold after every event, whatever the policy did."""
    state = engine.state
    planned: dict[object, float] = {}
    for job in state.jobs.values():
        assert (job.id in state.waiting) == (not job.grants and job.id not in state.cancelled)
        assert bool(job.held) == (job.phase is not Phase.WAITING)
        assert job.grants or job.phase not in (Phase.STARTING, Phase.RUNNING)
        for grant in job.held:
            assert state.held[grant.device][job.id] == grant.share_pct
            gpu = state.gpus[grant.gpu]
            gone = gpu.lost and grant.gpu not in state.frozen
            assert gone or (grant.instance in gpu.actual if grant.instance else not gpu.actual)
        for grant in job.grants:
            planned[grant.device] = planned.get(grant.device, 0.0) + grant.share_pct
            gpu = state.gpus[grant.gpu]
            assert job.id in gpu.tenants
            assert not gpu.lost or grant.gpu in state.frozen
            assert grant.instance in gpu.layout if grant.instance else not gpu.layout
    assert all(total <= 100.001 for total in planned.values())
    for job_id, change in state.rescaling.items():
        job = state.jobs[job_id]
        assert job.job.in_place
        assert job.phase in (Phase.RUNNING, Phase.STOPPING)
        assert change.after
        assert {grant.device for grant in job.held} == {grant.device for grant in (*change.before, *change.after)}
    for shares in state.held.values():
        assert 0 < sum(shares.values()) <= 100.001
        assert shares.keys() <= state.jobs.keys()
    for index in state.frozen:
        assert state.gpus[index].lost
        assert state.gpus[index].layout == state.gpus[index].actual
        # Nobody is to come: who is planned there works there, or is about to leave it.
        assert all(state.jobs[tenant].phase is not Phase.WAITING for tenant in state.gpus[index].tenants)
    idle = [gpu for node in state.cluster.nodes for gpu in state.idle.on(node)]
    assert state.idle.total == len(idle)
    for index, gpu in state.gpus.items():
        model = state.cluster.gpus[index].model
        assert layouts.check(model, gpu.layout) is None
        assert layouts.check(model, gpu.actual) is None
        assert (index in idle) == (not gpu.tenants and not gpu.lost)
        assert all(any(grant.gpu == index for grant in state.jobs[tenant].grants) for tenant in gpu.tenants)
    assert [*state.waiting] == sorted(state.waiting, key=state.order.__getitem__)
