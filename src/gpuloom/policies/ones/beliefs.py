"""What `ones` believes of a job: how fast it would be on n GPUs, and how much work it has left.

All of it is learned from what jobs report. With names, jobs of one name learn from each other; without, each alone.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpuloom.contract.view import JobView, View
from gpuloom.perf.arrays import Floats
from gpuloom.perf.goodput.evidence import Evidence, factors, times_of
from gpuloom.perf.goodput.goodput import goodput_at
from gpuloom.perf.goodput.model import BatchLimits, GoodputModel, Observation
from gpuloom.perf.goodput.path import Paths
from gpuloom.perf.goodput.remaining import Lengths, index
from gpuloom.policies.ones.tuning import Tuning

UNKNOWN_SCALING = 0.9
"""A job of which nothing is known is taken to speed up as n to this."""

FITS = 1
"""Names in a round whose step times are fitted again, at most."""


@dataclass(frozen=True, slots=True)
class Belief:
    speed: Floats
    """On each number of GPUs that is looked at, relative to one GPU; as far as it may grow."""
    work_s: float
    """Expected work left in seconds of one GPU; 0 if nothing is known."""
    known: bool
    """Something was measured."""


class Beliefs:
    def __init__(self, tuning: Tuning) -> None:
        self._tuning = tuning
        self._lengths = Lengths()
        self._paths = Paths()
        self._evidence: dict[str, Evidence] = {}
        self._young: dict[str, GoodputModel] = {}
        """By name: the first report of a job, for those that have not reported yet."""
        self._models: dict[str, tuple[tuple[int, ...], GoodputModel, GoodputModel]] = {}
        """Of each job: by what it is known to hold still, what it was made from, and the model itself."""
        self._curves: dict[str, tuple[tuple[object, ...], Floats]] = {}

    def learn_ends(self, finished: Iterable[JobView]) -> None:
        """From who has finished since the last question: that is told once."""
        for job in finished:
            self._curves.pop(job.id, None)
            if job.report is not None:
                self._paths.finish(job.id, job.report.progress)
                if job.job.workload is not None:
                    self._lengths.add(job.job.workload, job.report.progress)

    def learn(self, view: View) -> None:
        """From what was reported since the last round."""
        for job in view.jobs.values():
            if job.report is not None:
                self._paths.see(job.id, job.report.progress, job.report.metric)
        for job in view.jobs.values():
            model, name = job.report.goodput if job.report else None, job.job.workload
            if model is None or name is None or not model.seen:
                continue
            self._young.setdefault(name, replace(model, seen=()))
            self._evidence.setdefault(name, Evidence()).add(model.seen)
        self._fit()
        self._curves = {job_id: curve for job_id, curve in self._curves.items() if job_id in view.jobs}
        self._models = {job_id: known for job_id, known in self._models.items() if job_id in view.jobs}
        self._paths.keep(view.jobs)

    def _fit(self) -> None:
        """What has not been fitted yet, and of the others some that are due: fits are most of what a round costs."""
        due = [known for known in self._evidence.values() if known.is_due()]
        again = [known for known in due if known.fitted]
        again.sort(key=lambda known: known.fitted - len(known.seen))
        for known in (*(known for known in due if not known.fitted), *again[:FITS]):
            known.fit_all()

    def of(self, jobs: Sequence[JobView], counts: Sequence[int], node_size: int) -> list[Belief]:
        """Of each job on these numbers of GPUs (from 1 on)."""
        furthest: dict[str | None, float] = {}
        for job in jobs:
            furthest[job.job.workload] = max(furthest.get(job.job.workload, 0.0), _done(job))
        return [self._one(job, counts, node_size, furthest[job.job.workload]) for job in jobs]

    def _one(self, job: JobView, counts: Sequence[int], node_size: int, furthest: float) -> Belief:
        tuning = self._tuning
        model = self.model(job)
        if model is None:
            within = counts[: _reach(counts, min(tuning.start_gpus, node_size), job)]
            return Belief(np.array(within, dtype=float) ** UNKNOWN_SCALING, 0.0, known=False)
        most = min(max(int(tuning.growth * model.most_replicas), tuning.start_gpus), model.max_replicas)
        within = counts[: _reach(counts, most, job)]
        goodput = self._curve(job, model, tuple(within), node_size)
        left = index(self.left(job, furthest))
        return Belief(goodput / goodput[0], left / float(goodput[0]), known=True)

    def left(self, job: JobView, furthest: float) -> Floats:
        """Equally likely amounts of work left, by its name, or else by its metric and what it has done."""
        by_metric = self.left_by_metric(job)
        name = job.job.workload if self._tuning.by_name else None
        return self._lengths.left(name, _done(job), furthest) if by_metric is None else by_metric

    def left_by_metric(self, job: JobView) -> Floats | None:
        """Of a job without a name that counts, and if its metric tells anything."""
        if not self._tuning.metric or (self._tuning.by_name and job.job.workload is not None):
            return None
        return self._paths.left(job.id, _done(job))

    @property
    def finished_names(self) -> Container[str]:
        return self._lengths.finished

    def model(self, job: JobView) -> GoodputModel | None:
        """The job's own; with what jobs of its name know of step times, where names count."""
        own, evidence = job.report.goodput if job.report else None, self._shared(job)
        base = own if evidence is None or own is not None else self._young[job.job.workload or ""]
        if base is None:
            return None
        key = (id(base), evidence.fitted if evidence else 0, evidence.most_replicas if evidence else 0)
        known = self._models.get(job.id)
        if known is None or known[0] != key:
            known = self._models[job.id] = (key, base, self._informed(base, evidence))
        return known[2]

    def _informed(self, base: GoodputModel, evidence: Evidence | None) -> GoodputModel:
        seen, most = (evidence.part(), evidence.most_replicas) if evidence else (base.seen, base.most_replicas)
        times = times_of(seen) if seen else base.times
        return replace(base, times=times, most_replicas=most, noise_exponent=self._tuning.noise_exponent, seen=seen)

    def _shared(self, job: JobView) -> Evidence | None:
        """What those of its name have seen, where names count."""
        name = job.job.workload
        return self._evidence.get(name) if name is not None and self._tuning.by_name else None

    def _curve(self, job: JobView, model: GoodputModel, counts: tuple[int, ...], node_size: int) -> Floats:
        key = (model, counts, node_size)
        known = self._curves.get(job.id)
        if known is None or known[0] != key:
            goodput = goodput_at(model, counts, node_size)
            for count, factor in factors(model.times, model.seen, node_size).items():
                at = bisect_right(counts, count) - 1
                if at >= 0 and counts[at] == count:
                    goodput[at] *= factor
            known = self._curves[job.id] = (key, goodput)
        return known[1]

    # ---- memory ------------------------------------------------------------------------------------------------

    def remember(self) -> dict[str, Any]:
        return {
            "finished": self._lengths.finished,
            "paths": self._paths.remember(),
            "evidence": {name: [known.fitted, [*known.seen.values()]] for name, known in self._evidence.items()},
            "young": {name: _flat(model) for name, model in self._young.items()},
        }

    def restore(self, memory: Any) -> None:
        for name, lengths in dict(memory["finished"]).items():
            for length in lengths:
                self._lengths.add(name, float(length))
        self._paths.restore(memory["paths"])
        for name, (fitted, seen) in dict(memory["evidence"]).items():
            rows = [Observation(int(a), int(b), int(c), float(d), float(e)) for a, b, c, d, e in seen]
            self._evidence[name] = Evidence({row[:3]: row for row in rows}, int(fitted))
        self._young = {name: _unflat(flat, self._evidence[name]) for name, flat in dict(memory["young"]).items()}


def _done(job: JobView) -> float:
    return job.report.progress if job.report else 0.0


def _reach(counts: Sequence[int], most: int, job: JobView) -> int:
    """How many of the counts are open to it: as far as the first that is enough for it in any case; at least one."""
    enough = bisect_left(counts, job.job.min_gpus) + 1
    return max(min(max(bisect_right(counts, most), enough), bisect_right(counts, job.job.max_gpus)), 1)


def _flat(model: GoodputModel) -> list[Any]:
    return [model.grad_sqr, model.grad_var, model.grad_batch, [*_limits(model.limits)], model.max_replicas]


def _unflat(flat: Any, evidence: Evidence) -> GoodputModel:
    grad_sqr, grad_var, grad_batch, limits, most = flat
    bounds = BatchLimits(*map(int, limits))
    return GoodputModel(times_of(evidence.part()), grad_sqr, grad_var, bounds, 1, int(most), grad_batch)


def _limits(limits: BatchLimits) -> tuple[int, int, int, int]:
    return limits.init_batch, limits.max_batch, limits.min_local, limits.max_local
