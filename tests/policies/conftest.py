"""A desk at which a policy can be asked: the engine's state without the engine, changed by hand between rounds."""

from dataclasses import replace
from typing import Any

import pytest

from gpuloom.contract.plan import Plan
from gpuloom.contract.policy import Policy
from gpuloom.contract.view import JobView, Report, View
from gpuloom.engine.state import State
from gpuloom.gpus.cluster import parse_cluster
from gpuloom.gpus.grant import Grant
from gpuloom.perf.goodput.model import BatchLimits, GoodputModel, StepTimes
from gpuloom.work.model import NO_HINTS, Hints, Job, Kind


class Desk:
    def __init__(self, gpus: str = "4x4xV100-16GB") -> None:
        self.cluster = parse_cluster(gpus)
        self.state = State(self.cluster)

    def arrive(self, job_id: str, gpus: int = 1, *, hints: Hints = NO_HINTS, **fields: Any) -> None:
        job = Job(job_id, self.state.now_s, Kind.ELASTIC, gpus=gpus, max_gpus=64)
        self.state.admit(JobView(replace(job, **fields), hints=hints))

    def put(self, job_id: str, *gpus: int) -> None:
        self.state.plan_grants(job_id, tuple(map(Grant, gpus)))
        job = self.state.jobs[job_id]
        self.state.put(job._replace(starts=job.starts + 1))

    def report(self, job_id: str, report: Report) -> None:
        self.state.put(self.state.jobs[job_id]._replace(report=report))

    def lose(self, gpu: int) -> None:
        self.state.gpus[gpu] = self.state.gpus[gpu]._replace(lost=True)
        self.state.idle.remove(self.cluster.node_of[gpu], gpu)

    def view(self, now_s: float) -> View:
        self.state.now_s = now_s
        state = self.state
        return View(now_s, "test", self.cluster, state.jobs, state.waiting, state.gpus, state.idle)

    def ask(self, policy: Policy, now_s: float) -> Plan:
        """Ask, and carry the plan out at once: who stops before who starts, as the engine would."""
        plan = policy.decide(self.view(now_s))
        for job_id in plan.grants:
            self.state.plan_grants(job_id, ())
        for job_id, grants in plan.grants.items():
            self.put(job_id, *(grant.gpu for grant in grants)) if grants else None
        return plan

    def held(self, job_id: str) -> tuple[int, ...]:
        return tuple(grant.gpu for grant in self.state.jobs[job_id].grants)

    def nodes(self, job_id: str) -> list[int]:
        return [self.cluster.node_of[gpu] for gpu in self.held(job_id)]

    def check_no_gpu_is_given_twice(self) -> None:
        given = [grant.gpu for job in self.state.jobs.values() for grant in job.grants]
        assert len(given) == len(set(given))
        assert not any(self.state.gpus[gpu].lost for gpu in given)


@pytest.fixture
def desk() -> Desk:
    return Desk()


def scales_well(most_replicas: int, max_replicas: int = 64) -> Report:
    """The report of a job with a quick network and so much noise that large batches pay."""
    times = StepTimes(a_c=0.01, b_c=0.01, a_n=0.002, b_n=1e-6, a_r=0.001, b_r=1e-6, gamma=1.5)
    limits = BatchLimits(init_batch=64, max_batch=8192, min_local=8, max_local=64)
    return Report(0.0, goodput=GoodputModel(times, 1.0, 1000.0, limits, most_replicas, max_replicas))
