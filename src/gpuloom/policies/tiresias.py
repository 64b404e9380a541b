"""Tiresias (NSDI'19), discretised two-dimensional LAS: who has used the least GPU time runs first, in two queues.

Every job gets exactly the GPUs it asks for, or none. New jobs enter the first queue; a job whose GPU time reaches the
threshold moves to the end of the second and stays there. Each round both queues are walked in order, and whoever still
fits runs. Constants as in Pollux's evaluation (OSDI'21, section 5.1).
"""

from typing import Any

from gpuloom.contract.plan import Plan, Reason
from gpuloom.contract.policy import Policy, When
from gpuloom.contract.view import View
from gpuloom.gpus.cluster import Cluster
from gpuloom.gpus.grant import Grants
from gpuloom.policies.placing import describe, place_fullest_first, usable_gpus

ROUND_S = 60.0
THRESHOLD_GPU_S = 57_600.0
"""16 GPU hours in the first queue."""


class Tiresias(Policy):
    def __init__(self, cluster: Cluster, seed: int = 0, arg: str = "") -> None:  # noqa: ARG002 - the policies' signature
        self.when = When(every_s=ROUND_S)
        self._first: dict[str, None] = {}
        self._second: dict[str, None] = {}
        self._executed_s: dict[str, float] = {}
        self._running: frozenset[str] = frozenset()
        self._last_s = 0.0

    def decide(self, view: View) -> Plan:
        self._account(view)
        free, wanted = usable_gpus(view), dict[str, int]()
        for job_id in (*self._first, *self._second):
            gpus = view.jobs[job_id].job.gpus
            wanted[job_id] = gpus if gpus <= free else 0
            free -= wanted[job_id]
        self._running = frozenset(job_id for job_id, gpus in wanted.items() if gpus)
        # Who is to stop has nothing to take, so the order of the queues serves for both.
        grants = place_fullest_first(view, wanted, wanted)
        return Plan(grants=grants, reasons=tuple(self._reason(view, job_id, new) for job_id, new in grants.items()))

    def remember(self) -> object:
        return {
            "first": [*self._first],
            "second": [*self._second],
            "executed_s": self._executed_s,
            "running": sorted(self._running),
            "last_s": self._last_s,
        }

    def restore(self, memory: Any) -> None:
        self._first, self._second = dict.fromkeys(memory["first"]), dict.fromkeys(memory["second"])
        self._executed_s = {job_id: float(memory["executed_s"][job_id]) for job_id in (*self._first, *self._second)}
        self._running = frozenset(memory["running"])
        self._last_s = float(memory["last_s"])

    def _account(self, view: View) -> None:
        """Admit newcomers, forget who left, count GPU time since the last round, demote who has used up its share."""
        for queue in (self._first, self._second):
            for job_id in [job_id for job_id in queue if job_id not in view.jobs]:
                del queue[job_id], self._executed_s[job_id]
        round_s, self._last_s = view.now_s - self._last_s, view.now_s
        for job_id, job in view.jobs.items():
            if job_id not in self._executed_s:
                self._executed_s[job_id] = 0.0
                self._first[job_id] = None
            elif job_id in self._running and job.grants:
                self._executed_s[job_id] += round_s
            if job_id in self._first and self._used_gpu_s(view, job_id) >= THRESHOLD_GPU_S:
                del self._first[job_id]
                self._second[job_id] = None

    def _used_gpu_s(self, view: View, job_id: str) -> float:
        return self._executed_s[job_id] * view.jobs[job_id].job.gpus

    def _reason(self, view: View, job_id: str, grants: Grants) -> Reason:
        used_gpu_s = self._used_gpu_s(view, job_id)
        queue = "first" if job_id in self._first else "second"
        why = "its turn" if grants else "those before it in line leave too few GPUs"
        return Reason(
            job_id,
            describe(len(view.jobs[job_id].grants), len(grants)),
            f"{why}; {queue} queue by GPU seconds used",
            used_gpu_s,
            (("threshold of the second queue", THRESHOLD_GPU_S),),
        )
