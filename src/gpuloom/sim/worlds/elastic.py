"""The measured world of elastic training jobs: Pollux's tables (OSDI'21) decide how fast a job truly advances.

Work is counted in steps of the initial batch; a job's marks are the ends of its epochs. A job splits the batch that it
was tuned for over its GPUs; in an `adaptive` world its agent chooses the batch itself. Rules and peculiarities are
those of the authors' simulator, so that published figures can be reproduced.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence

from gpuloom.contract.view import Estimates, Report
from gpuloom.errors import InputError
from gpuloom.gpus.cluster import Cluster
from gpuloom.gpus.grant import Grant, Grants
from gpuloom.gpus.model import GpuModel
from gpuloom.perf.goodput.fit import LEAST, Observation
from gpuloom.perf.goodput.goodput import gain, split_batch
from gpuloom.perf.goodput.model import LocalBatch
from gpuloom.perf.goodput.tables import ElasticTables, Placement, packed, placement_of
from gpuloom.sim.worlds.elastic_agent import Agent, Fits
from gpuloom.work.model import Hints, TraceJob

START_S = 30.0
"""From a start or a restart to the first step."""
PINNED_BATCH = {"ncf": 32768}
"""Models whose batch is not free even in an adaptive world, and that run on one GPU."""


class ElasticWorld:
    """`tables` by name of the model; `adaptive`: jobs choose their batch (the policies that count on it say so)."""

    quantum_s: float | None = 1.0

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
        self._alone_s: dict[tuple[str | None, int, int | None], float] = {}

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
        if not self.adaptive:
            return ElasticRun(tables, self.cluster, self.batch_of(entry))
        most = self.max_replicas(entry, tables.limits.max_batch)
        return ElasticRun(tables, self.cluster, PINNED_BATCH.get(tables.model), Agent(tables.limits, most, self._fits))

    def hints(self, entry: TraceJob) -> Hints:
        """Step time on 1, 2, … GPUs as Optimus's oracle has it, and the steps after which each epoch ends."""
        tables, batch = self.tables_of(entry), self.batch_of(entry)
        steps = []
        for replicas in range(1, self.max_replicas(entry, batch) + 1):
            local = split_batch(batch, replicas, tables.limits, always_accumulate_alone=True)
            steps.append(total_step_s(tables, packed(replicas, self._node_size), local))
        iterations = tuple(tables.at_epoch(batch, epoch).iteration for epoch in range(tables.epochs))
        return Hints(length_s=self.alone_s(entry), step_s=tuple(steps), iterations=iterations)

    def probe(self, entries: Sequence[TraceJob], model: GpuModel) -> dict[str, Estimates]:  # noqa: ARG002
        raise InputError("elastic jobs hold whole GPUs: this policy, which probes for slices, is not for them")

    def alone_s(self, entry: TraceJob) -> float:
        key = (entry.job.workload, entry.job.gpus, entry.job.batch)
        if key not in self._alone_s:
            self._alone_s[key] = self._time_alone(entry)
        return self._alone_s[key]

    def _time_alone(self, entry: TraceJob) -> float:
        """Packed on the GPUs it asks for, with the batch it was tuned for, from the first step to the last."""
        tables, placement = self.tables_of(entry), packed(entry.job.gpus, self._node_size)
        local = split_batch(self.batch_of(entry), entry.job.gpus, tables.limits)
        marks = (0.0, *tables.epoch_marks)
        return sum(
            (marks[epoch + 1] - marks[epoch]) / progress_per_s(tables, placement, local, epoch)
            for epoch in range(tables.epochs)
        )

    def single_gpu_s(self, entry: TraceJob) -> float:
        tables = self.tables_of(entry)
        local = split_batch(tables.limits.init_batch, 1, tables.limits)
        return tables.epoch_marks[-1] * total_step_s(tables, (1,), local)

    def start_s(self, entry: TraceJob, resumed: bool) -> float:  # noqa: ARG002 - costs are the same for every job
        return self._restart_s if resumed else self._start_s


class ElasticRun:
    """One job: the epoch it is in, the batch it runs with and, in an adaptive world, what its agent has learned."""

    __slots__ = ("_agent", "_batch", "_cluster", "_epoch", "_grants", "_local", "_placement", "_tables")

    def __init__(self, tables: ElasticTables, cluster: Cluster, batch: int | None, agent: Agent | None = None) -> None:
        self._tables = tables
        self._cluster = cluster
        self._batch = batch
        self._agent = agent
        self._epoch = 0
        self._grants: Grants = ()
        self._placement: Placement = ()
        self._local = LocalBatch(0, 0)

    def start(self, now_s: float, grants: Grants) -> Report | None:
        self._place(grants)
        self._tune(grants)
        return self._report(now_s)

    def rate(self, grants: Grants, beside: Sequence[Grant]) -> float:  # noqa: ARG002 - whole GPUs have no neighbours
        self._place(grants)
        return progress_per_s(self._tables, self._placement, self._local, self._epoch)

    def mark(self) -> float:
        return self._tables.epoch_marks[self._epoch]

    def reach_mark(self, now_s: float, grants: Grants) -> tuple[bool, Report | None]:
        self._epoch += 1
        complete = self._epoch == self._tables.epochs
        if not complete and self._agent is not None:
            self._tune(grants)
        return complete, self._report(now_s)

    def rewind(self, done: float) -> None:
        self._epoch = bisect_right(self._tables.epoch_marks, done)

    def _place(self, grants: Grants) -> None:
        if grants != self._grants:
            self._grants = grants
            self._placement = placement_of(self._cluster.node_of[grant.gpu] for grant in grants)

    def _tune(self, grants: Grants) -> None:
        """Choose the batch for what it holds, in this epoch."""
        wanted = sum(grant.batch or 0 for grant in grants) or self._batch
        if wanted is not None:
            limits = self._tables.limits
            self._local = split_batch(max(wanted, limits.init_batch), len(grants), limits)
            self._observe()
            return
        assert self._agent is not None, "a job without a batch of its own has an agent that chooses it"
        tried: set[LocalBatch] = set()
        # A job that has measured a configuration tunes again, until it would choose what it has (or had).
        while (local := self._agent.choose(len(self._placement), len(grants))) not in tried:
            tried.add(local)
            self._local = local
            self._observe()

    def _observe(self) -> None:
        """What the agent sees of the present configuration: one measured step."""
        if self._agent is None:
            return
        placement, replicas = self._placement, sum(self._placement)
        step_s, sync_s = self._tables.step_sync_s(placement, self._local.samples)
        row = self._tables.at_epoch(self._local.total(replicas), self._epoch)
        seen = Observation(len(placement), replicas, self._local.samples, max(step_s - sync_s, LEAST), step_s)
        self._agent.observe(seen, row.grad_sqr, row.grad_var)

    def _report(self, now_s: float) -> Report:
        done = self._epoch
        row = self._tables.at_epoch(self._local.total(sum(self._placement)), done - 1) if done else None
        return Report(
            at_s=now_s,
            epoch=done,
            progress=self._tables.epoch_marks[done - 1] if done else 0.0,
            metric=row.metric if row else None,
            goodput=self._agent.model if self._agent else None,
        )


def total_step_s(tables: ElasticTables, placement: Placement, local: LocalBatch) -> float:
    """Seconds of a whole step; passes that only accumulate do not wait for the network."""
    step_s, sync_s = tables.step_sync_s(placement, local.samples)
    return step_s + (step_s - sync_s) * local.accumulation


def progress_per_s(tables: ElasticTables, placement: Placement, local: LocalBatch, epoch: int) -> float:
    """Steps of the initial batch per second that a job truly advances."""
    batch = local.total(sum(placement))
    row = tables.at_epoch(batch, epoch)
    return gain(row.grad_sqr, row.grad_var, batch / tables.limits.init_batch) / total_step_s(tables, placement, local)
