"""A bound on how long anybody waits: whoever has had too little of the GPUs for its age is given its part.

A job's fair part at a moment is the GPUs over the live jobs, or what it can use, if that is less. Over its life it is
owed half of that (`PART`); what it holds pays. Who is owed more than its fair part for `patience_s` has a claim: it
gets its fair part, or the next smaller number of GPUs that is allowed, until it has held some for as long. However many
short jobs keep coming, each has had half of its fair part at any time, but for what the patience allows. GPUs bring
less the more one has of them, so it takes about twice as long as with the fair part, at most. Where there are many more
jobs than GPUs claims queue up, and turns that long cost few restarts. Nobody is passed over in that queue: who needs
more GPUs than others have left of theirs has them kept until their turns are over.
"""

from collections.abc import Sequence
from math import ceil
from typing import Any

from gpuloom.contract.view import JobView
from gpuloom.gpus.cluster import Cluster
from gpuloom.gpus.layouts import part_of

PART = 0.5
TURN_COSTS = 10.0
"""A turn is at least so many times as long as it takes to start again, or it would be spent on that."""


class Owed:
    """Seconds of GPUs that each job is owed; below 0 it has had more than its part."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._owed: dict[str, float] = {}
        self._claims: dict[str, float] = {}
        """Who has a claim, and the seconds for which it has held GPUs since: who is served stays for its turn."""
        self._at_s = 0.0

    def count(self, jobs: Sequence[JobView], cluster: Cluster, gpus: int, now_s: float) -> None:
        """Since the last round everybody has held what it holds now."""
        passed_s, self._at_s = now_s - self._at_s, now_s
        owed: dict[str, float] = {}
        for job in jobs:
            lived_s = max(min(passed_s, now_s - job.job.submit_s), 0.0)
            balance = PART * fair_part(job, gpus / len(jobs)) - held(job, cluster)
            owed[job.id] = self._owed.get(job.id, 0.0) + lived_s * balance
            if job.id in self._claims and job.grants:
                self._claims[job.id] += passed_s
        self._owed = owed

    def floors(self, jobs: Sequence[JobView], counts: Sequence[int], gpus: int, again_s: float = 0.0) -> dict[str, int]:
        """What those with a claim are to have at least, as long as half of the GPUs will do for it: no more is owed.

        Who is being served comes first, then who is owed longest. The first gets what it takes in any case. `again_s`:
        what it costs to start again.
        """
        patience_s = max(self._patience_s, TURN_COSTS * again_s)
        parts = {job.id: fair_part(job, gpus / len(jobs)) for job in jobs}
        waited_s = {job.id: self._owed[job.id] / parts[job.id] for job in jobs}
        served_s = {job_id: seconds for job_id, seconds in self._claims.items() if seconds < patience_s}
        claims = [job for job in jobs if job.id in served_s or waited_s[job.id] > patience_s]
        self._claims = {job.id: served_s.get(job.id, 0.0) for job in claims}
        left, floors = ceil(PART * gpus), dict[str, int]()
        for job in sorted(claims, key=lambda job: (not self._claims[job.id], -waited_s[job.id])):
            floor = max([1, job.job.min_gpus, *(count for count in counts if count <= parts[job.id])])
            if floor <= (left if floors else gpus):
                floors[job.id] = floor
                left -= floor
            elif not self._claims[job.id]:
                break  # what is left is kept for it
        return floors

    def remember(self) -> dict[str, object]:
        return {"owed": self._owed, "claims": self._claims, "at_s": self._at_s}

    def restore(self, memory: Any) -> None:
        self._owed = {job_id: float(seconds) for job_id, seconds in dict(memory["owed"]).items()}
        self._claims = {job_id: float(seconds) for job_id, seconds in dict(memory["claims"]).items()}
        self._at_s = float(memory["at_s"])


def held(job: JobView, cluster: Cluster) -> float:
    """In GPUs: a slice is a part of one."""
    return sum(part_of(cluster.gpus[grant.gpu].model, grant.instance) * grant.share_pct / 100 for grant in job.grants)


def fair_part(job: JobView, each: float) -> float:
    """Of the GPUs, if everybody has so many: no more than the job can use."""
    model = job.report.goodput if job.report else None
    return min(each, float(job.job.max_gpus), float(model.max_replicas) if model else each)
