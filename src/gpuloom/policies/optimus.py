"""Optimus (EuroSys'18): one GPU for every job, then one more at a time to whom it saves the most time.

An oracle, as in Pollux's evaluation (OSDI'21, section 5.1): it is told every job's true step time on any number of GPUs
and the steps that it still has to run at the batch that it was tuned for.
"""

import heapq

from gpuloom.contract.plan import Plan, Reason
from gpuloom.contract.policy import Policy, When
from gpuloom.contract.view import JobView, View
from gpuloom.errors import InputError
from gpuloom.gpus.cluster import Cluster
from gpuloom.policies.placing import describe, place_fullest_first, usable_gpus

ROUND_S = 60.0


class Optimus(Policy):
    told = frozenset({"step_s", "iterations"})

    def __init__(self, cluster: Cluster, seed: int = 0, arg: str = "") -> None:  # noqa: ARG002 - the policies' signature
        self.when = When(every_s=ROUND_S)

    def decide(self, view: View) -> Plan:
        wanted = share_out(list(view.jobs.values()), usable_gpus(view))
        order = sorted(wanted, key=wanted.__getitem__)  # the smallest first; ties in order of arrival
        grants = place_fullest_first(view, wanted, order)
        reasons = (self._reason(view.jobs[job_id], len(new)) for job_id, new in grants.items())
        return Plan(grants=grants, reasons=tuple(reasons))

    def _reason(self, job: JobView, gpus: int) -> Reason:
        remaining = remaining_steps(job)
        steps_s = job.hints.step_s or ()
        near = range(max(gpus - 1, 1), min(gpus + 1, len(steps_s)) + 1)
        return Reason(
            job.id,
            describe(len(job.grants), gpus),
            "the most seconds saved per GPU; predicted seconds left",
            remaining * steps_s[gpus - 1] if gpus else None,
            tuple((f"{n} GPUs", remaining * steps_s[n - 1]) for n in near if n != gpus),
        )


def remaining_steps(job: JobView) -> float:
    """Steps from the end of the present epoch to the end of the last; 1 in the last one."""
    iterations = job.hints.iterations or (1.0,)
    epoch, last = job.report.epoch if job.report else 0, len(iterations) - 1
    return iterations[last] - iterations[epoch] if epoch < last else 1.0


def share_out(jobs: list[JobView], gpus: int) -> dict[str, int]:
    """How many GPUs each job (in order of arrival) is to hold."""
    steps_s = [_step_times(job) for job in jobs]
    remaining = [remaining_steps(job) for job in jobs]
    counts = [1 if order < gpus else 0 for order in range(len(jobs))]
    spare = max(gpus - len(jobs), 0)

    def entry(order: int) -> tuple[float, int]:
        """The seconds that one more GPU would cost, negative if it saves; then the order of arrival."""
        times, count = steps_s[order], counts[order]
        return (times[count] - times[count - 1]) * remaining[order], order

    heap = [entry(order) for order in range(len(jobs)) if spare and len(steps_s[order]) > 1]
    heapq.heapify(heap)
    while spare and heap and heap[0][0] < 0:
        _, order = heapq.heappop(heap)
        counts[order] += 1
        spare -= 1
        if counts[order] < len(steps_s[order]):
            heapq.heappush(heap, entry(order))
    return {job.id: count for job, count in zip(jobs, counts, strict=True)}


def _step_times(job: JobView) -> tuple[float, ...]:
    if not job.hints.step_s:
        raise InputError(f"policy optimus needs elastic jobs with measured step times: job {job.id} has none")
    return job.hints.step_s
