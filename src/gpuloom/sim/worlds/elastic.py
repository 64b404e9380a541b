"""The measured world of elastic training jobs: Pollux's tables (OSDI'21) decide how fast a job truly advances.

Work is counted in steps of the initial batch; a job's marks are the ends of its epochs. A job splits the batch that it
was tuned for over its GPUs; in an `adaptive` world its agent chooses the batch itself, and pays for those it tries.
Rules and peculiarities are those of the authors' simulator, so that published figures can be reproduced.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil

from gpuloom.contract.view import Estimates, Report
from gpuloom.errors import InputError
from gpuloom.gpus.cluster import Cluster
from gpuloom.gpus.grant import Grant, Grants
from gpuloom.gpus.model import GpuModel
from gpuloom.perf.goodput.agent import Agent, Fits
from gpuloom.perf.goodput.fit import LEAST
from gpuloom.perf.goodput.goodput import batches_of, gain, split_batch
from gpuloom.perf.goodput.model import LocalBatch, Observation
from gpuloom.perf.goodput.tables import ElasticTables, Placement, packed, placement_of
from gpuloom.work.model import Hints, TraceJob

START_S = 30.0
"""From a start or a restart to the first step."""
REPORT_S = 30.0
"""How often a job tells how far it is (AdaptDL's agents do so every 30 s)."""
TRIAL_STEPS = 20
"""Steps that an agent runs with a batch until it believes what it measured."""
PINNED_BATCH = {"ncf": 32768}
"""Models whose batch is not free even in an adaptive world, and that run on one GPU."""


class ElasticWorld:
    """`tables` by name of the model; `adaptive`: jobs choose their batch (the policies that count on it say so)."""

    quantum_s: float | None = 1.0
    report_every_s: float | None = REPORT_S

    def __init__(
        self,
        tables: Mapping[str, ElasticTables],
        cluster: Cluster,
        *,
        adaptive: bool = False,
        start_s: float = START_S,
        restart_s: float | None = None,
    ) -> None:
        self.tables = tables
        self.cluster = cluster
        self.adaptive = adaptive
        self._start_s = start_s
        self._restart_s = start_s if restart_s is None else restart_s
        self._node_size = max(map(len, cluster.nodes.values()))
        self._fits = Fits()
        self._best: dict[tuple[str, int, int], float] = {}
        self._alone_s: dict[tuple[str | None, int, int | None, float], float] = {}

    def tables_of(self, entry: TraceJob) -> ElasticTables:
        model = entry.job.workload or ""
        if model not in self.tables:
            known = ", ".join(self.tables)
            raise InputError(f"job {entry.job.id} runs {model!r}, which has not been measured: measured are {known}")
        return self.tables[model]

    def batch_of(self, entry: TraceJob) -> int:
        """The batch that the job was tuned for."""
        limits = self.tables_of(entry).limits
        return min(max(entry.job.batch or limits.init_batch, limits.init_batch), limits.max_batch)

    def max_replicas(self, entry: TraceJob, batch: int) -> int:
        """Beyond so many GPUs a step would be smaller than anything measured."""
        tables = self.tables_of(entry)
        most = 1 if tables.model in PINNED_BATCH else max(batch // tables.limits.min_local, 1)
        return min(most, max(entry.job.max_gpus, 1), len(self.cluster))

    def admit(self, entry: TraceJob) -> "ElasticRun":
        tables = self.tables_of(entry)
        marks = stretched(tables.epoch_marks, entry.stretch)
        if not self.adaptive:
            return ElasticRun(tables, marks, self.cluster, self.batch_of(entry))
        most = self.max_replicas(entry, tables.limits.max_batch)
        agent = Agent(tables.limits, most, self._fits, chooses_batch=True)
        return ElasticRun(tables, marks, self.cluster, PINNED_BATCH.get(tables.model), agent)

    def hints(self, entry: TraceJob) -> Hints:
        """Step time on 1, 2, … GPUs as Optimus's oracle has it, and the steps after which each epoch ends."""
        tables, batch = self.tables_of(entry), self.batch_of(entry)
        steps = []
        for replicas in range(1, self.max_replicas(entry, batch) + 1):
            local = split_batch(batch, replicas, tables.limits, always_accumulate_alone=True)
            steps.append(total_step_s(tables, packed(replicas, self._node_size), local))
        iterations = tuple(tables.at_epoch(batch, epoch).iteration for epoch in range(tables.epochs))
        told = stretched(iterations, entry.stretch)
        return Hints(length_s=self.alone_s(entry), step_s=tuple(steps), iterations=told)

    def probe(self, entries: Sequence[TraceJob], model: GpuModel) -> dict[str, Estimates]:  # noqa: ARG002
        raise InputError("elastic jobs hold whole GPUs: this policy, which probes for slices, is not for them")

    def alone_s(self, entry: TraceJob) -> float:
        key = (entry.job.workload, entry.job.gpus, entry.job.batch, entry.stretch)
        if key not in self._alone_s:
            self._alone_s[key] = self._time_alone(entry)
        return self._alone_s[key]

    def _time_alone(self, entry: TraceJob) -> float:
        """Packed on the GPUs it asks for, with the batch it was tuned for, from the first step to the last."""
        tables, placement = self.tables_of(entry), packed(entry.job.gpus, self._node_size)
        local = split_batch(self.batch_of(entry), entry.job.gpus, tables.limits)
        marks = (0.0, *stretched(tables.epoch_marks, entry.stretch))
        return sum(
            (marks[epoch + 1] - marks[epoch]) / progress_per_s(tables, placement, local, epoch)
            for epoch in range(len(marks) - 1)
        )

    def shared_s(self, entry: TraceJob, gpus: float) -> float:
        """Alone on a fair share of so many GPUs, packed, with the best batch of every epoch: what fairness is by."""
        tables, marks = self.tables_of(entry), (0.0, *stretched(self.tables_of(entry).epoch_marks, entry.stretch))
        most = self.max_replicas(entry, tables.limits.max_batch)
        whole = min(max(int(gpus), 1), most)
        part = min(gpus - whole, 1.0) if 1.0 <= gpus < most else 0.0
        seconds = self._start_s
        for epoch in range(len(marks) - 1):
            rate = self._best_rate(tables, whole, epoch)
            if part:
                rate += part * (self._best_rate(tables, whole + 1, epoch) - rate)
            seconds += (marks[epoch + 1] - marks[epoch]) / (rate * min(gpus, 1.0))
        return seconds

    def _best_rate(self, tables: ElasticTables, replicas: int, epoch: int) -> float:
        key = (tables.model, replicas, epoch)
        if key not in self._best:
            batches = (
                [PINNED_BATCH[tables.model]] if tables.model in PINNED_BATCH else batches_of(tables.limits, replicas)
            )
            placement = packed(replicas, self._node_size)
            locals_ = {split_batch(batch, replicas, tables.limits) for batch in batches}
            self._best[key] = max(progress_per_s(tables, placement, local, epoch) for local in locals_)
        return self._best[key]

    def single_gpu_s(self, entry: TraceJob) -> float:
        tables = self.tables_of(entry)
        local = split_batch(tables.limits.init_batch, 1, tables.limits)
        return tables.epoch_marks[-1] * entry.stretch * total_step_s(tables, (1,), local)

    def start_s(self, entry: TraceJob, resumed: bool) -> float:  # noqa: ARG002 - costs are the same for every job
        return self._restart_s if resumed else self._start_s


class ElasticRun:
    """One job: the epoch it is in, the batch it runs with and, in an adaptive world, what its agent has learned."""

    __slots__ = (
        "_agent",
        "_batch",
        "_cluster",
        "_epoch",
        "_grants",
        "_local",
        "_marks",
        "_placement",
        "_tables",
        "_tried",
    )

    def __init__(
        self,
        tables: ElasticTables,
        marks: tuple[float, ...],
        cluster: Cluster,
        batch: int | None,
        agent: Agent | None = None,
    ) -> None:
        self._tables = tables
        self._marks = marks
        self._cluster = cluster
        self._batch = batch
        self._agent = agent
        self._epoch = 0
        self._grants: Grants = ()
        self._placement: Placement = ()
        self._local = LocalBatch(0, 0)
        self._tried = 0.0

    def start(self, now_s: float, grants: Grants) -> Report | None:
        self._place(grants)
        self._tune(grants)
        return self._report(now_s)

    def rate(self, grants: Grants, beside: Sequence[Grant]) -> float:  # noqa: ARG002 - whole GPUs have no neighbours
        self._place(grants)
        return self._rate(self._local)

    def _rate(self, local: LocalBatch) -> float:
        return progress_per_s(self._tables, self._placement, local, self._epoch)

    def mark(self) -> float:
        return self._marks[self._epoch]

    def reach_mark(self, now_s: float, grants: Grants) -> tuple[bool, Report | None]:
        self._epoch += 1
        complete = self._epoch == len(self._marks)
        self._tried = 0.0
        if not complete and self._agent is not None:
            self._tune(grants)
        return complete, self._report(now_s)

    def rewind(self, done: float) -> None:
        self._epoch = bisect_right(self._marks, done)

    def report(self, now_s: float, done: float) -> Report | None:
        return replace(self._report(now_s), progress=done)

    def tried(self) -> float:
        return self._tried

    def _place(self, grants: Grants) -> None:
        """GPUs beyond what it can use stay idle."""
        if grants != self._grants:
            self._grants = grants
            used = grants if self._agent is None else grants[: self._agent.max_replicas]
            self._placement = placement_of(self._cluster.node_of[grant.gpu] for grant in used)

    def _tune(self, grants: Grants) -> None:
        """Choose the batch for what it holds, in this epoch."""
        self._tried = 0.0
        replicas = sum(self._placement)
        pinned = self._batch if self._agent is not None else None
        told = 0 if pinned else sum(grant.batch or 0 for grant in grants[:replicas])
        wanted = pinned or told or self._batch
        if wanted is not None:
            limits = self._tables.limits
            self._local = split_batch(max(wanted, limits.init_batch), replicas, limits)
            if (
                told
                and self._agent is not None
                and not self._agent.has_seen(len(self._placement), replicas, self._local)
            ):
                # It is known at once, so the steps that it takes to know it are paid at once.
                self._tried = self._rate(self._local) * self._trial_s()
            self._observe()
            return
        assert self._agent is not None, "a job without a batch of its own has an agent that chooses it"
        tried: dict[LocalBatch, float] = {}
        # A job that has measured a configuration tunes again, until it would choose what it has (or had).
        while (local := self._agent.choose(len(self._placement), replicas)) not in tried:
            self._local = local
            tried[local] = 0.0 if self._agent.has_seen(len(self._placement), replicas, local) else self._trial_s()
            self._observe()
        self._tried = sum((self._rate(self._local) - self._rate(local)) * spent_s for local, spent_s in tried.items())

    def _trial_s(self) -> float:
        return TRIAL_STEPS * total_step_s(self._tables, self._placement, self._local)

    def _observe(self) -> None:
        """What the agent sees of the present configuration: one measured step."""
        if self._agent is None:
            return
        placement, replicas = self._placement, sum(self._placement)
        step_s, sync_s = self._tables.step_sync_s(placement, self._local.samples)
        row = self._tables.at_epoch(self._local.total(replicas), min(self._epoch, self._tables.epochs - 1))
        seen = Observation(len(placement), replicas, self._local.samples, max(step_s - sync_s, LEAST), step_s)
        self._agent.observe(seen, row.grad_sqr, row.grad_var, self._local.total(replicas))

    def _report(self, now_s: float) -> Report:
        done = self._epoch
        last = min(done, self._tables.epochs) - 1
        row = self._tables.at_epoch(self._local.total(sum(self._placement)), last) if done else None
        return Report(
            at_s=now_s,
            epoch=done,
            progress=self._marks[done - 1] if done else 0.0,
            metric=row.metric if row else None,
            goodput=self._agent.model if self._agent else None,
        )


def stretched(marks: tuple[float, ...], stretch: float) -> tuple[float, ...]:
    """The marks of a job that trains so much longer or shorter: it ends between two epochs, or has more like the last.

    Nothing that it reports before its end gives away when that will be.
    """
    if stretch == 1.0:
        return marks
    last, more = marks[-1], marks[-1] - (marks[-2] if len(marks) > 1 else 0.0)
    end = last * stretch
    longer = (last + more * extra for extra in range(1, max(ceil((end - last) / more), 0) + 1)) if more > 0 else ()
    return (*[mark for mark in (*marks, *longer) if mark < end], end)


def total_step_s(tables: ElasticTables, placement: Placement, local: LocalBatch) -> float:
    """Seconds of a whole step; passes that only accumulate do not wait for the network."""
    step_s, sync_s = tables.step_sync_s(placement, local.samples)
    return step_s + (step_s - sync_s) * local.accumulation


def progress_per_s(tables: ElasticTables, placement: Placement, local: LocalBatch, epoch: int) -> float:
    """Steps of the initial batch per second that a job truly advances."""
    batch = local.total(sum(placement))
    row = tables.at_epoch(batch, min(epoch, tables.epochs - 1))
    return gain(row.grad_sqr, row.grad_var, batch / tables.limits.init_batch) / total_step_s(tables, placement, local)
