"""ONES, ours: every round the schedule that is worth most, a job's worth being its weight times its speed, less moving.

The idea is the paper's (SC'21): training jobs grow and shrink, and who has little left goes first. What differs: speed
is goodput, so that a larger batch counts for what it brings; weights are ranks of remaining work, which need no scale;
what a change costs is weighed; and the numbers of GPUs are found exactly instead of by chance.
"""

from bisect import bisect_left
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpuloom.contract.plan import NO_CHANGE, Plan, Reason
from gpuloom.contract.policy import Policy, When
from gpuloom.contract.view import JobView, MoveCosts, Phase, View
from gpuloom.gpus.cluster import Cluster
from gpuloom.gpus.grant import Grants
from gpuloom.perf.arrays import Floats, Ints
from gpuloom.policies.ones.batches import with_batches
from gpuloom.policies.ones.beliefs import Belief, Beliefs
from gpuloom.policies.ones.counts import best_counts
from gpuloom.policies.ones.division import (
    any_sliceable,
    as_counted,
    free_for_slices,
    is_for_slices,
    largest_slice_mib,
    uncut,
    without_pool,
)
from gpuloom.policies.ones.owed import Owed
from gpuloom.policies.ones.place import place
from gpuloom.policies.ones.slices import NOBODY, Placed, Pool
from gpuloom.policies.ones.steady import Steady
from gpuloom.policies.ones.tuning import without
from gpuloom.policies.ones.weights import rank_weights, soft_ranks
from gpuloom.policies.placing import describe, usable_gpus

CLAIM = 1e6
"""More than all values together."""

MOST_WORK_S = 1e18
"""Whatever jobs report, logarithms and ranks stay finite."""

ATTEMPTS = 4
"""Of choosing numbers and placing them, in one round."""


@dataclass(frozen=True, slots=True)
class Options:
    """What each job (row) could have (columns): the number of GPUs, and what it is worth; -inf is not to be had."""

    counts: Ints
    values: Floats

    def with_row(self, counts: Ints, values: Floats) -> "Options":
        """And one more, that of the GPUs which are cut."""
        rows, columns = len(self.counts) + 1, max(self.counts.shape[1], len(counts))
        table, worth = np.zeros((rows, columns), dtype=np.intp), np.full((rows, columns), -np.inf)
        for row, (these, those) in enumerate([*zip(self.counts, self.values, strict=True), (counts, values)]):
            table[row, : len(these)], worth[row, : len(these)] = these, those
        return Options(table, worth)

    def worth(self, counts: Sequence[int]) -> float:
        """Of each row with its number of GPUs."""
        there = [values[row == count] for row, values, count in zip(self.counts, self.values, counts, strict=True)]
        return sum(float(values.max()) for values in there if len(values))

    def at_most(self, chosen: Ints, counts: Sequence[int]) -> "Options":
        """Without what is more than these numbers, in the rows where more was chosen."""
        values = self.values.copy()
        for row, count in enumerate(counts):
            if count < self.counts[row, chosen[row]]:
                values[row, self.counts[row] > count] = -np.inf
        return Options(self.counts, values)


@dataclass(frozen=True, slots=True)
class Round:
    """What is known in one round; lists and arrays have a row for each job."""

    view: View
    jobs: Sequence[JobView]
    beliefs: Sequence[Belief]
    weights: Floats
    floors: Mapping[str, int]
    """What those with a claim are to have at least."""
    counts: Sequence[int]
    """Numbers of GPUs that are looked at."""
    gpus: int
    node_size: int

    def without(self, others: Container[str]) -> "Round":
        rows = [row for row, job in enumerate(self.jobs) if job.id not in others]
        jobs, beliefs = [self.jobs[row] for row in rows], [self.beliefs[row] for row in rows]
        return replace(self, jobs=jobs, beliefs=beliefs, weights=self.weights[rows])


class Ones(Policy):
    adaptive = True

    def __init__(self, cluster: Cluster, seed: int = 0, arg: str = "") -> None:  # noqa: ARG002 - the policies' signature
        self._tuning = without(arg)
        self.cuts = self._tuning.slices and any(gpu.model.mig for gpu in cluster.gpus)
        self.when = When(every_s=self._tuning.round_s, on_events=any(gpu.model.mig for gpu in cluster.gpus))
        self._beliefs = Beliefs(self._tuning)
        self._owed = Owed(self._tuning.patience_s)
        self._steady = Steady(self._tuning)
        self._number = -1
        """Of the round in which it was asked last."""

    def decide(self, view: View) -> Plan:
        self._beliefs.learn_ends(view.finished)
        self._steady.learn_ends(view)
        if not self._is_due(view):
            return NO_CHANGE
        self._beliefs.learn(view)
        self._steady.learn(view)
        gpus = usable_gpus(view)
        if not view.jobs or not gpus:
            return NO_CHANGE
        now = self._round(as_counted(view), gpus)
        pool = self._pool(now)
        if pool is not None:
            now = now.without(pool.jobs)
        options = self._options(now)
        table = Options(options.counts, options.values + claims(now.jobs, now.floors, options))
        if pool is not None:
            table = table.with_row(*pool.row())
        grants, cut = self._schedule(now, table, pool)
        grants = with_batches(now.view, self._beliefs, now.jobs, grants)
        reasons = [
            self._reason(now, row, options, grants[job.id]) for row, job in enumerate(now.jobs) if job.id in grants
        ]
        layouts = uncut(now.view, grants.values()) | cut.layouts
        return Plan(layouts, grants | cut.grants, (*reasons, *cut.reasons))

    def _is_due(self, view: View) -> bool:
        """It is another round; events lead to something only where a round is long for somebody.

        By the time, not by the cause: a round that comes together with an event is called after the event.
        """
        number = int(view.now_s // (self.when.every_s or self._tuning.round_s))
        last, self._number = self._number, number
        return not self.when.on_events or number != last or any_sliceable(view)

    def remember(self) -> object:
        steady = self._steady.remember()
        found = {**self._beliefs.remember(), **self._owed.remember(), "round": self._number}
        return found | ({"steady": steady} if steady else {})

    def restore(self, memory: Any) -> None:
        self._beliefs.restore(memory)
        self._owed.restore(memory)
        self._number = int(memory["round"])
        self._steady.restore(memory.get("steady", {}))

    def _round(self, view: View, gpus: int) -> Round:
        jobs, node_size = list(view.jobs.values()), max(map(len, view.cluster.nodes.values()))
        counts = allowed(gpus, node_size)
        beliefs = self._steady.informed(jobs, self._beliefs.of(jobs, counts, node_size))
        weights = self._weights(jobs, beliefs, view.now_s)
        self._owed.count(jobs, view.cluster, gpus, view.now_s)
        floors = self._owed.floors(jobs, counts, gpus, max(view.costs.start_s, view.costs.resume_s))
        return Round(view, jobs, beliefs, weights, floors, counts, gpus, node_size)

    def _schedule(self, now: Round, table: Options, pool: Pool | None) -> tuple[dict[str, Grants], Placed]:
        """The most valuable numbers, placed. Where some do not fit they are chosen again without those; the best stays.

        The dynamic programme does not see nodes: what it gave to a job that cannot have it, somebody else may use.
        """
        found = list[tuple[float, dict[str, Grants], Placed]]()
        for _ in range(ATTEMPTS):
            chosen = self._choose(now, table)
            wanted = {job.id: int(table.counts[row, chosen[row]]) for row, job in enumerate(now.jobs)}
            cut = NOBODY if pool is None else pool.place(int(chosen[-1]), free_for_slices(now.view, wanted))
            there = now.view if pool is None else without_pool(now.view, wanted, cut.gpus)
            grants = self._place(replace(now, view=there), wanted, cut.gpus)
            has = [len(grants.get(job.id, job.grants)) for job in now.jobs]
            if pool is not None:
                has.append(len(cut.gpus))
            found.append((table.worth(has), grants, cut))
            if all(count >= int(table.counts[row, chosen[row]]) for row, count in enumerate(has)):
                break
            table = table.at_most(chosen, has)
        _, grants, cut = max(found, key=lambda one: one[0])
        return grants, cut

    def _choose(self, now: Round, table: Options) -> Ints:
        """The column of each row."""
        return best_counts(table.counts, table.values, now.gpus).chosen

    def _place(self, now: Round, wanted: Mapping[str, int], given_away: Container[int]) -> dict[str, Grants]:
        return place(now.view, wanted, now.node_size, given_away, now.floors)

    def _pool(self, now: Round) -> Pool | None:
        """Of the jobs that can do with a part of a GPU, where there are any and GPUs can be cut."""
        if not self._tuning.slices:
            return None
        largest_mib = largest_slice_mib(now.view.cluster)
        rows = [row for row, job in enumerate(now.jobs) if is_for_slices(job.job, largest_mib)]
        believed = {now.jobs[row].id: now.beliefs[row] for row in rows}
        costs = replace(now.view.costs, resume_s=now.view.costs.resume_s + self._tuning.cut_s)

        def lost(job: JobView, speed: float) -> float:
            return self._lost_by_pause(job, believed[job.id], speed, costs)

        weights = {now.jobs[row].id: float(now.weights[row]) for row in rows}
        claims = {job_id: CLAIM for job_id in weights if job_id in now.floors}
        return Pool(now.view, weights, self._steady.speeds, lost, self._tuning.value_exponent, claims) if rows else None

    def _weights(self, jobs: Sequence[JobView], beliefs: Sequence[Belief], now_s: float) -> Floats:
        tuning = self._tuning
        if not tuning.ranked:
            return np.ones(len(beliefs))
        left = np.clip([belief.work_s for belief in beliefs], tuning.least_work_s, MOST_WORK_S)
        ages_s = np.array([max(now_s - job.job.submit_s, 0.0) for job in jobs])
        ranks = soft_ranks(left / (1.0 + ages_s) ** tuning.ageing, tuning.rank_softness)
        return rank_weights(ranks, tuning.rank_exponent)

    def _options(self, now: Round) -> Options:
        """Columns: no GPU, the allowed numbers, and the one that it has, or that it takes where no other will do."""
        counts, costs = now.counts, now.view.costs
        table = np.zeros((len(now.jobs), len(counts) + 2), dtype=np.intp)
        table[:, 1:-1] = counts
        values = np.full(table.shape, -np.inf)
        values[:, 0] = 0.0
        for row, (job, belief) in enumerate(zip(now.jobs, now.beliefs, strict=True)):
            open_, has = len(belief.speed), len(job.grants)
            table[row, -1] = odd = has or _least(job, counts)
            speed = np.append(belief.speed, np.interp(odd, counts[:open_], belief.speed))
            worth = speed**self._tuning.value_exponent
            lost = self._lost(job, belief, speed, costs) if has else np.zeros(open_ + 1)
            gain = worth * (1.0 - lost)
            few = np.array(counts[:open_]) < job.job.min_gpus
            values[row, 1 : open_ + 1] = np.where(few, -np.inf, gain[:-1])
            if odd:
                values[row, -1] = worth[-1]
            if has:
                values[row, 1 : open_ + 1][np.array(counts[:open_]) == has] = worth[-1]
                values[row, 0] = -worth[-1] * self._lost_by_pause(job, belief, float(speed[-1]), costs)
        return Options(table, values * now.weights[:, None])

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

    def _reason(self, now: Round, row: int, options: Options, grants: Grants) -> Reason:
        job, belief, gpus = now.jobs[row], now.beliefs[row], len(grants)
        counts, values = options.counts[row], options.values[row]
        near = sorted(
            {int(count) for count in counts[values > -np.inf] if count != gpus}, key=lambda n: (abs(n - gpus), n)
        )
        worth = {int(count): float(value) for count, value in zip(counts, values, strict=True) if value > -np.inf}
        left = f"about {belief.work_s:,.0f} s of one GPU left" if belief.known else "nothing is known of it yet"
        why = f"{left}, weight {now.weights[row]:.2f}; worth of its speed less the cost of changing"
        if gpus >= now.floors.get(job.id, gpus + 1):
            why += f"; it has had too little for its age and gets no less than {describe(0, now.floors[job.id])}"
        batch = sum(grant.batch or 0 for grant in grants)
        if batch:
            why += f"; {batch} samples a step are the best batch there"
        alternatives = tuple((f"{count} GPU{'s' * (count != 1)}", worth[count]) for count in near[:3])
        what = describe(len(job.grants), gpus) if gpus != len(job.grants) else f"{describe(0, gpus)}, as before"
        return Reason(job.id, what, why, worth.get(gpus), alternatives)


def claims(jobs: Sequence[JobView], floors: Mapping[str, int], options: Options) -> Floats:
    """What outweighs everything else: that those with a claim get what they are owed, or as much as they can take."""
    more = np.zeros(options.values.shape)
    for row, job in enumerate(jobs):
        if job.id in floors:
            open_ = options.values[row] > -np.inf
            enough = min(floors[job.id], int(options.counts[row][open_].max()))
            more[row] = np.where(options.counts[row] >= enough, CLAIM, 0.0)
    return more


def _least(job: JobView, counts: Sequence[int]) -> int:
    """The least that it takes, where none of the allowed numbers will do for it; else 0."""
    at = bisect_left(counts, job.job.min_gpus)
    return 0 if at < len(counts) and counts[at] <= job.job.max_gpus else job.job.min_gpus


def allowed(gpus: int, node_size: int) -> list[int]:
    """Numbers of GPUs that a job may be given: any within a node, else whole nodes: a part of a node is a slow ring."""
    return [*range(1, min(gpus, node_size) + 1), *range(2 * node_size, gpus + 1, node_size)]
