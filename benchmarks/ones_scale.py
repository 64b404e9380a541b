"""How long a round of `ones` takes, on one core: 64 GPUs with 64 jobs, and 1,024 GPUs with 512.

    python benchmarks/ones_scale.py

A steady synthetic cluster: jobs of 24 names, whose agents measure as they go. In every round a tenth of the jobs tells
of another gradient and of a batch that it has tried; plans are carried out, one job in a hundred ends and another one
comes. Prints the median and the worst of 20 rounds in ms of CPU time, after those in which everybody has started.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import json
import time
from random import Random
from statistics import median

from gpuloom.contract.view import JobView, MoveCosts, Phase, Report, View
from gpuloom.engine.state import State
from gpuloom.gpus.cluster import parse_cluster
from gpuloom.perf.goodput.fit import fit_step_times
from gpuloom.perf.goodput.goodput import split_batch, step_s
from gpuloom.perf.goodput.model import BatchLimits, GoodputModel, Observation, StepTimes
from gpuloom.policies.ones.policy import Ones
from gpuloom.work.model import Job, Kind

SIZES = (("16x4xV100-16GB", 64), ("256x4xV100-16GB", 512))
NAMES = 24
WARM_UP = 6
LIMITS = BatchLimits(init_batch=128, max_batch=8192, min_local=16, max_local=256)


class Floor:
    """The cluster and its jobs, moved on by hand between rounds."""

    def __init__(self, gpus: str, jobs: int, seed: int) -> None:
        self.cluster = parse_cluster(gpus)
        self.state = State(self.cluster)
        self.policy = Ones(self.cluster)
        self._dice = Random(seed)
        self._laws = [self._law() for _ in range(NAMES)]
        self._seen: dict[str, list[Observation]] = {}
        self._came = 0
        for _ in range(jobs):
            self._arrive()

    def _law(self) -> StepTimes:
        dice = self._dice
        a_r = dice.uniform(0.005, 0.05)
        return StepTimes(0.02, dice.uniform(5e-4, 2e-3), 3 * a_r, a_r / 20, a_r, a_r / 40, dice.uniform(1.2, 2.5))

    def _arrive(self) -> None:
        name = f"net-{self._came % NAMES}"
        job = Job(f"job-{self._came}", self.state.now_s, Kind.ELASTIC, name, max_gpus=64, in_place=self._came % 2 == 0)
        self._came += 1
        self.state.admit(JobView(job))

    def round_ms(self, number: int) -> float:
        """One round, timed; then what it decided happens."""
        state = self.state
        state.now_s = 60.0 * number
        ended, state.finished = tuple(state.finished), []
        costs = MoveCosts()
        view = View(state.now_s, "round", self.cluster, state.jobs, state.waiting, state.gpus, state.idle, costs, ended)
        began = time.process_time()
        plan = self.policy.decide(view)
        took_ms = 1e3 * (time.process_time() - began)
        for job_id in plan.grants:
            state.plan_grants(job_id, ())
        for job_id, grants in plan.grants.items():
            state.plan_grants(job_id, grants)
            job = state.jobs[job_id]
            state.put(job._replace(phase=Phase.RUNNING if grants else Phase.WAITING, starts=job.starts + bool(grants)))
            if grants:
                self._report(job_id, new_size=True)
        self._live()
        return took_ms

    def _live(self) -> None:
        """A tenth of the jobs has news; one in a hundred ends, and another one comes."""
        dice, state = self._dice, self.state
        running = [job_id for job_id, job in state.jobs.items() if job.grants]
        for job_id in dice.sample(running, len(running) // 10):
            self._report(job_id, new_size=False)
        for job_id in dice.sample(running, max(len(state.jobs) // 100, 1)):
            state.finished.append(state.jobs[job_id])
            state.plan_grants(job_id, ())
            state.forget(job_id)
            self._arrive()

    def _report(self, job_id: str, *, new_size: bool) -> None:
        """What an agent tells that has measured its present size, or has tried another batch on it."""
        job, dice = self.state.jobs[job_id], self._dice
        law = self._laws[int((job.job.workload or "-0").split("-")[1])]
        replicas, nodes = len(job.grants), len({self.cluster.node_of[grant.gpu] for grant in job.grants})
        batch = LIMITS.init_batch * replicas if new_size else dice.randint(LIMITS.init_batch, LIMITS.max_batch)
        local = split_batch(min(batch, LIMITS.max_batch), replicas, LIMITS)
        seconds = step_s(law, nodes > 1, replicas, local.samples)
        one = Observation(nodes, replicas, local.samples, law.a_c + law.b_c * local.samples, seconds)
        before = job.report.goodput if job.report is not None else None
        seen = tuple(sorted({row[:3]: row for row in (*(before.seen if before else ()), one)}.values()))
        times = before.times if before is not None else fit_step_times(seen)
        most = max(row.replicas for row in seen)
        noise = dice.uniform(100.0, 5000.0)
        model = GoodputModel(times, 1.0, noise, LIMITS, most, 64, LIMITS.init_batch, seen=seen)
        progress = (job.report.progress if job.report is not None else 0.0) + dice.uniform(50.0, 5000.0)
        self.state.put(job._replace(report=Report(self.state.now_s, 1, progress, goodput=model)))


def measure(gpus: str, jobs: int, rounds: int) -> dict[str, object]:
    floor = Floor(gpus, jobs, seed=1)
    took_ms = [floor.round_ms(number) for number in range(WARM_UP + rounds)][WARM_UP:]
    return {"gpus": gpus, "jobs": jobs, "rounds": rounds, "median_ms": median(took_ms), "worst_ms": max(took_ms)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--output", choices=["json"], default="json")
    args = parser.parse_args()
    print(json.dumps({"sizes": [measure(gpus, jobs, args.rounds) for gpus, jobs in SIZES]}, indent=2))


if __name__ == "__main__":
    main()
