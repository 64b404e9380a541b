"""ONES, ours: every round the schedule that is worth most, a job's worth being its weight times its speed, less moving.

The idea is the paper's (SC'21): training jobs grow and shrink, and who has little left goes first. What differs: speed
is goodput, so that a larger batch counts for what it brings; weights are ranks of remaining work, which need no scale;
what a change costs is weighed; and the numbers of GPUs are found exactly instead of by chance.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpuloom.contract.plan import NO_CHANGE, Plan, Reason
from gpuloom.contract.policy import Policy, When
from gpuloom.contract.view import JobView, MoveCosts, Phase, View
from gpuloom.errors import InputError
from gpuloom.gpus.cluster import Cluster
from gpuloom.perf.arrays import Floats, Ints
from gpuloom.policies.ones.beliefs import Belief, Beliefs
from gpuloom.policies.ones.counts import best_counts
from gpuloom.policies.ones.place import place
from gpuloom.policies.ones.tuning import without
from gpuloom.policies.ones.weights import rank_weights, soft_ranks
from gpuloom.policies.placing import describe, usable_gpus
from gpuloom.work.model import Kind


@dataclass(frozen=True, slots=True)
class Options:
    """What each job (row) could have (columns): the number of GPUs, and what it is worth; -inf is not to be had."""

    counts: Ints
    values: Floats


class Ones(Policy):
    adaptive = True

    def __init__(self, cluster: Cluster, seed: int = 0, arg: str = "") -> None:  # noqa: ARG002 - the policies' signature
        self._tuning = without(arg)
        self.when = When(every_s=self._tuning.round_s)
        self._beliefs = Beliefs(self._tuning)

    def decide(self, view: View) -> Plan:
        self._beliefs.learn(view)
        jobs, gpus = list(view.jobs.values()), usable_gpus(view)
        if not jobs or not gpus:
            return NO_CHANGE
        for job in jobs:
            if job.job.kind is not Kind.ELASTIC:
                raise InputError(f"policy ones needs elastic jobs: job {job.id} is {job.job.kind.value}")
        node_size = max(map(len, view.cluster.nodes.values()))
        counts = allowed(gpus, node_size)
        beliefs = self._beliefs.of(jobs, counts, node_size)
        weights = self._weights(jobs, beliefs, view.now_s)
        options = self._options(jobs, beliefs, weights, counts, view.costs)
        chosen = best_counts(options.counts, options.values, gpus).chosen
        wanted = {job.id: int(options.counts[row, chosen[row]]) for row, job in enumerate(jobs)}
        grants = place(view, wanted, node_size)
        reasons = [
            self._reason(job, len(grants[job.id]), beliefs[row], float(weights[row]), options, row)
            for row, job in enumerate(jobs)
            if job.id in grants
        ]
        return Plan(grants=grants, reasons=tuple(reasons))

    def remember(self) -> object:
        return self._beliefs.remember()

    def restore(self, memory: Any) -> None:
        self._beliefs.restore(memory)

    def _weights(self, jobs: Sequence[JobView], beliefs: Sequence[Belief], now_s: float) -> Floats:
        tuning = self._tuning
        if not tuning.ranked:
            return np.ones(len(beliefs))
        left = np.array([max(belief.work_s, tuning.least_work_s) for belief in beliefs])
        ages_s = np.array([max(now_s - job.job.submit_s, 0.0) for job in jobs])
        ranks = soft_ranks(left / (1.0 + ages_s) ** tuning.ageing, tuning.rank_softness)
        return rank_weights(ranks, tuning.rank_exponent)

    def _options(
        self,
        jobs: Sequence[JobView],
        beliefs: Sequence[Belief],
        weights: Floats,
        counts: Sequence[int],
        costs: MoveCosts,
    ) -> Options:
        """Columns: no GPU, the allowed numbers, and the one that it has, or that it takes where no other will do."""
        table = np.zeros((len(jobs), len(counts) + 2), dtype=np.intp)
        table[:, 1:-1] = counts
        values = np.full(table.shape, -np.inf)
        values[:, 0] = 0.0
        for row, (job, belief) in enumerate(zip(jobs, beliefs, strict=True)):
            open_, now = len(belief.speed), len(job.grants)
            table[row, -1] = odd = now or _least(job, counts)
            speed = np.append(belief.speed, np.interp(odd, counts[:open_], belief.speed))
            worth = speed**self._tuning.value_exponent
            lost = self._lost(job, belief, speed, costs) if now else np.zeros(open_ + 1)
            gain = worth * (1.0 - lost)
            few = np.array(counts[:open_]) < job.job.min_gpus
            values[row, 1 : open_ + 1] = np.where(few, -np.inf, gain[:-1])
            if odd:
                values[row, -1] = worth[-1]
            if now:
                values[row, 1 : open_ + 1][np.array(counts[:open_]) == now] = worth[-1]
                values[row, 0] = -worth[-1] * self._lost_by_pause(job, belief, float(speed[-1]), costs)
        return Options(table, values * weights[:, None])

    def _lost(self, job: JobView, belief: Belief, speed: Floats, costs: MoveCosts) -> Floats:
        """The part of each option's worth that the change costs, for as long as it can be expected to last."""
        if not self._tuning.counts_costs:
            return np.zeros(len(speed))
        again_s = costs.start_s if job.phase is Phase.STARTING else costs.of_change(job.job.in_place)
        return np.minimum(again_s / self._horizon_s(belief, speed), 1.0)

    def _lost_by_pause(self, job: JobView, belief: Belief, speed: float, costs: MoveCosts) -> float:
        if not self._tuning.counts_costs:
            return 0.0
        again_s = costs.start_s if job.phase is Phase.STARTING else costs.resume_s
        return min(again_s / float(self._horizon_s(belief, np.array([speed]))[0]), 1.0)

    def _horizon_s(self, belief: Belief, speed: Floats) -> Floats:
        tuning = self._tuning
        if not belief.known:
            return np.full(len(speed), tuning.horizon_s)
        return np.asarray(np.clip(belief.work_s / speed, tuning.least_horizon_s, tuning.horizon_s))

    def _reason(self, job: JobView, gpus: int, belief: Belief, weight: float, options: Options, row: int) -> Reason:
        counts, values = options.counts[row], options.values[row]
        near = sorted(
            {int(count) for count in counts[values > -np.inf] if count != gpus}, key=lambda n: (abs(n - gpus), n)
        )
        worth = {int(count): float(value) for count, value in zip(counts, values, strict=True) if value > -np.inf}
        left = f"about {belief.work_s:,.0f} s of one GPU left" if belief.known else "nothing is known of it yet"
        why = f"{left}, weight {weight:.2f}; worth of its speed less the cost of changing"
        alternatives = tuple((f"{count} GPU{'s' * (count != 1)}", worth[count]) for count in near[:3])
        return Reason(job.id, describe(len(job.grants), gpus), why, worth.get(gpus), alternatives)


def _least(job: JobView, counts: Sequence[int]) -> int:
    """The least that it takes, where none of the allowed numbers will do for it; else 0."""
    at = bisect_left(counts, job.job.min_gpus)
    return 0 if at < len(counts) and counts[at] <= job.job.max_gpus else job.job.min_gpus


def allowed(gpus: int, node_size: int) -> list[int]:
    """Numbers of GPUs that a job may be given: any within a node, else whole nodes: a part of a node is a slow ring."""
    return [*range(1, min(gpus, node_size) + 1), *range(2 * node_size, gpus + 1, node_size)]
