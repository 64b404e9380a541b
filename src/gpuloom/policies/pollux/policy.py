"""Pollux (OSDI'21): every round, the allocation that promises the best goodput for all, found by a genetic search.

Each job's agent reports what it has learned; the policy turns that into the speed-up over a fair share for every number
of GPUs, within a node or across nodes. Maximised is the power mean (exponent -1) of the speed-ups, a job that would be
moved being discounted by the restarts it has had, at what they cost here. Other constants are the published ones.
"""

from base64 import b64decode, b64encode
from math import ceil
from typing import Any
from zlib import compress, decompress
from zlib import error as ZlibError  # noqa: N812 - it is a class

import numpy as np

from gpuloom.contract.plan import NO_CHANGE, Plan, Reason
from gpuloom.contract.policy import Policy, When
from gpuloom.contract.view import JobView, View
from gpuloom.errors import InputError
from gpuloom.gpus.cluster import Cluster
from gpuloom.gpus.grant import Grant, Grants
from gpuloom.perf.arrays import Floats, Ints
from gpuloom.perf.goodput.goodput import best_goodput
from gpuloom.perf.goodput.model import GoodputModel
from gpuloom.policies.dice import dice_of, remembered, restore_dice
from gpuloom.policies.placing import describe, usable_gpus
from gpuloom.policies.pollux.search import MEMBERS, Bytes, Problem, Search, padded
from gpuloom.work.model import Kind

ROUND_S = 60.0
NEVER_ZERO = 1e-3
"""Added to every scaled speed-up, so that a job without GPUs costs much, but not everything."""


class Pollux(Policy):
    adaptive = True
    """Jobs choose their batch themselves."""

    def __init__(self, cluster: Cluster, seed: int = 0, arg: str = "") -> None:  # noqa: ARG002 - the policies' signature
        self.when = When(every_s=ROUND_S)
        self._rng = dice_of(seed)
        self._served_gpu_s: dict[str, float] = {}
        self._last_s = 0.0
        self._population: dict[str, Bytes] = {}
        """Each job's rows (members x nodes) of the last round's population."""
        self._curves: dict[str, tuple[GoodputModel, int, Floats]] = {}
        """Goodput of each job by model and largest number of replicas."""
        self._lay_out(cluster)

    def _lay_out(self, cluster: Cluster) -> None:
        """The columns of a schedule. A node that joins is the last one, so those that were there keep theirs."""
        self._cluster = cluster
        self._node = {node: column for column, node in enumerate(cluster.nodes)}
        self._column = [self._node[node] for node in cluster.node_of]
        """Of each GPU: the column of its node in a schedule."""
        self._node_size = max(map(len, cluster.nodes.values()))
        self._width = padded(len(self._node))
        self._curves.clear()  # they reach as far as a node does
        for job_id, rows in self._population.items():
            self._population[job_id] = np.pad(rows, ((0, 0), (0, self._width - rows.shape[1])))

    def decide(self, view: View) -> Plan:
        if view.cluster is not self._cluster:
            self._lay_out(view.cluster)
        self._account(view)
        gpus = usable_gpus(view)
        if not view.jobs or not gpus:
            return NO_CHANGE
        jobs = sorted(view.jobs.values(), key=lambda job: (self._served_gpu_s[job.id], job.job.submit_s))
        limits = np.array([_max_replicas(job) for job in jobs])
        now = np.stack([self._row(job) for job in jobs])
        speedups = self._speedups(jobs, limits, ceil(gpus / len(jobs)), int(max(limits.max(), now.sum(axis=1).max())))
        capacity = np.zeros(self._width, dtype=np.uint8)
        for gpu in view.gpus.values():
            capacity[self._column[gpu.gpu]] += not gpu.lost
        costs = _costs(view, jobs, speedups * (len(view.cluster.nodes) / gpus))
        found = Search(Problem(now, capacity, limits, costs, speedups), self._ancestors(jobs), self._rng)
        found.run()
        self._population = {job.id: rows for job, rows in zip(jobs, found.population, strict=True)}
        return self._plan(view, jobs, now, found.best, speedups)

    def remember(self) -> object:
        return {
            "dice": remembered(self._rng),
            "served_gpu_s": self._served_gpu_s,
            "last_s": self._last_s,
            "population": {job_id: _packed(rows) for job_id, rows in self._population.items()},
        }

    def restore(self, memory: Any) -> None:
        restore_dice(self._rng, memory["dice"])
        self._served_gpu_s = {job_id: float(gpu_s) for job_id, gpu_s in memory["served_gpu_s"].items()}
        self._last_s = float(memory["last_s"])
        # It may be as wide as more nodes than this one was made for: the next view has them all.
        self._population = {job_id: _unpacked(text) for job_id, text in memory["population"].items()}

    def _account(self, view: View) -> None:
        """Forget who left, and count the GPU time of those who are there."""
        round_s, self._last_s = view.now_s - self._last_s, view.now_s
        self._served_gpu_s = {
            job_id: self._served_gpu_s.get(job_id, 0.0)
            + (round_s * len(job.grants) if job_id in self._served_gpu_s else 0)
            for job_id, job in view.jobs.items()
        }
        self._curves = {job_id: curve for job_id, curve in self._curves.items() if job_id in view.jobs}

    def _row(self, job: JobView) -> Bytes:
        """GPUs that the job holds, by node."""
        row = np.zeros(self._width, dtype=np.uint8)
        for grant in job.grants:
            row[self._column[grant.gpu]] += 1
        return row

    def _ancestors(self, jobs: list[JobView]) -> Bytes:
        """The last population, newcomers being without GPUs in it."""
        members = next(iter(self._population.values())).shape[0] if self._population else 0
        nothing = np.zeros((members, self._width), dtype=np.uint8)
        return np.stack([self._population.get(job.id, nothing) for job in jobs])

    def _speedups(self, jobs: list[JobView], limits: Ints, fair: int, most: int) -> Floats:
        """Speed-up over the fair share: [job, does it span nodes, number of GPUs]."""
        speedups = np.zeros((len(jobs), 2, most + 1))
        for order, (job, limit) in enumerate(zip(jobs, limits, strict=True)):
            model = job.report.goodput if job.report else None
            if model is None:  # nothing is known: as if it scaled perfectly
                speedups[order] = np.arange(most + 1) / fair
            else:
                share = min(fair, model.limits.max_batch // model.limits.min_local)
                curve = self._curve(job.id, model, int(limit))
                speedups[order, :, : limit + 1] = curve / best_goodput(model, False, share, share)[0]
            speedups[order, :, 1 : job.job.min_gpus] = 0.0
        return speedups

    def _curve(self, job_id: str, model: GoodputModel, limit: int) -> Floats:
        """Predicted goodput of 0 to `limit` GPUs, within a node and across nodes."""
        known = self._curves.get(job_id)
        if known is None or known[0] is not model or known[1] != limit:
            curve, inside = np.zeros((2, limit + 1)), min(limit, self._node_size)
            curve[0, 1 : inside + 1] = best_goodput(model, False, 1, inside)
            if limit > 1:
                curve[1, 2:] = best_goodput(model, True, 2, limit)
            known = self._curves[job_id] = (model, limit, curve)
        return known[2]

    def _plan(self, view: View, jobs: list[JobView], now: Bytes, best: Bytes, speedups: Floats) -> Plan:
        """Grants for the jobs whose nodes change; the others keep their GPUs."""
        changed = [order for order in range(len(jobs)) if (now[order] != best[order]).any()]
        free: dict[int, list[int]] = {self._node[node]: list(view.idle.on(node)) for node in view.cluster.nodes}
        for order in changed:
            for grant in jobs[order].grants:
                free[self._column[grant.gpu]].append(grant.gpu)
        grants: dict[str, Grants] = {}
        reasons = []
        for order in changed:
            job, counts = jobs[order], best[order]
            if counts.sum() < job.job.min_gpus:
                counts = np.zeros_like(counts)
            taken = [free[int(column)].pop(0) for column in np.flatnonzero(counts) for _ in range(counts[column])]
            if not taken and not job.grants:
                continue
            grants[job.id] = tuple(map(Grant, taken))
            before, after = (
                float(speedups[order, int(np.count_nonzero(row) > 1), row.sum()]) for row in (now[order], counts)
            )
            why = f"on {np.count_nonzero(counts)} nodes; predicted speed-up over a fair share"
            what = describe(len(job.grants), len(taken))
            reasons.append(Reason(job.id, what, why, after, (("as it is", before),)))
        return Plan(grants=grants, reasons=tuple(reasons))


def _packed(rows: Bytes) -> str:
    """Rows of a population as text: mostly zeros, so it is short."""
    return b64encode(compress(np.ascontiguousarray(rows).tobytes())).decode()


def _unpacked(text: str) -> Bytes:
    try:
        flat = np.frombuffer(decompress(b64decode(text)), dtype=np.uint8)
    except ZlibError as error:
        raise ValueError(f"population: {error}") from None
    return flat.reshape(MEMBERS, -1).copy()


def _max_replicas(job: JobView) -> int:
    """At most double what the job has been seen on (section 4.2.1): beyond, its model is a guess."""
    if job.job.kind is not Kind.ELASTIC:
        raise InputError(f"policy pollux needs elastic jobs: job {job.id} is {job.job.kind.value}")
    model = job.report.goodput if job.report else None
    most = 1 if model is None else min(max(2 * model.most_replicas, 1), model.max_replicas)
    return max(min(most, job.job.max_gpus), job.job.min_gpus)


def _costs(view: View, jobs: list[JobView], speedups: Floats) -> Floats:
    """Reciprocals of the scaled speed-ups, left alone and moved: the smallest sum is the largest power mean (-1)."""
    age_s = np.array([view.now_s - job.job.submit_s for job in jobs])
    restarts = np.array([max(job.starts - 1, 0) for job in jobs])
    lost_s = view.costs.resume_s * restarts + view.costs.resize_s * np.array([job.rescales for job in jobs])
    again_s = np.array([view.costs.of_change(job.job.in_place) for job in jobs])
    moved = np.maximum(age_s - lost_s, 0.0) / (age_s + again_s)
    factor = np.stack([np.ones(len(jobs)), moved], axis=1)
    return np.asarray(1.0 / (speedups[:, None] * factor[:, :, None, None] + NEVER_ZERO))
