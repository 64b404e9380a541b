"""What elastic jobs tell of themselves, made into what policies know of them: at steady intervals, with a fitted model.

One agent for each job learns its step times from the configurations that it has been seen in. It outlives the job's
launches, but not the runner: after that it learns anew.
"""

from dataclasses import dataclass
from math import ceil

from gpuloom.contract.view import Report
from gpuloom.live.store import Progress
from gpuloom.perf.goodput.agent import Agent, Fits
from gpuloom.perf.goodput.fit import LEAST
from gpuloom.perf.goodput.model import BatchLimits, Observation
from gpuloom.work.model import Job

Configuration = tuple[int, int, int]
MOST = 1_000_000
"""Of workers, nodes, samples, seconds: whoever reports more does not mean what it says."""
SETTLED = 0.5
"""A configuration counts when it has lasted so much of the time between reports: first steps are not like others."""


@dataclass(slots=True)
class _Known:
    """What is known of one job."""

    agent: Agent
    told_at_s: float
    configuration: Configuration | None = None
    since_s: float = 0.0
    """Since when it has had that."""

    def has(self, configuration: Configuration | None, now_s: float) -> None:
        if configuration != self.configuration:
            self.configuration, self.since_s = configuration, now_s


class Reports:
    def __init__(self, every_s: float, pace: float) -> None:
        """`pace`: engine seconds in one of the job's."""
        self._every_s, self._pace = every_s, pace
        self._fits = Fits()
        self._known: dict[str, _Known] = {}

    def of(self, job: Job, progress: Progress, now_s: float) -> Report | None:
        """What is to be told now; None if it is too early, or if the job tells nothing of the kind.

        Called whenever somebody looks, so that it sees how long a configuration has lasted.
        """
        figures = progress.figures
        batch = job.batch or _count(figures.get("batch"))
        if batch is None or ("progress" not in figures and "epoch" not in figures):
            return None
        if job.id not in self._known:
            limits = _limits(job, batch)
            agent = Agent(limits, min(job.max_gpus, limits.max_batch), self._fits)  # a sample for each, at least
            self._known[job.id] = _Known(agent, now_s - self._every_s)
        known, seen = self._known[job.id], _observation(progress, self._pace)
        known.has(None if seen is None else seen[:3], now_s)
        if now_s - known.told_at_s < self._every_s:
            return None
        known.told_at_s = now_s
        if seen is not None and now_s - known.since_s >= SETTLED * self._every_s:
            grad_sqr, grad_var = (max(figures.get(name, 0.0), 0.0) for name in ("grad_sqr", "grad_var"))
            known.agent.observe(seen, grad_sqr, grad_var, _count(figures.get("batch")) or batch)
        return Report(now_s, *_plain(progress), goodput=known.agent.model)


def _plain(progress: Progress) -> tuple[int, float, float | None]:
    figures = progress.figures
    done = figures.get("progress", float(progress.step))
    return int(min(max(figures.get("epoch", 0.0), 0.0), 1e9)), done, figures.get("metric")


def _limits(job: Job, batch: int) -> BatchLimits:
    most = max(job.max_batch or batch, batch)
    return BatchLimits(batch, most, 1, job.max_local_batch or most)


def _observation(progress: Progress, pace: float) -> Observation | None:
    """One pass on one device and its exchange of gradients, from a step of several passes.

    Of its whole batch: the last one of an epoch may be smaller, and times are means over many steps.
    """
    figures = progress.figures
    nodes, workers = _count(figures.get("nodes", 1.0)), _count(figures.get("workers"))
    passes, batch = _count(figures.get("accumulation", 1.0)), _count(figures.get("batch"))
    step_s, compute_s = figures.get("step_s", 0.0), figures.get("compute_s", 0.0)
    if not (nodes and workers and passes and batch and compute_s > 0 and 0 < step_s < MOST):
        return None
    each_s = min(compute_s, step_s) / passes
    last_s = step_s - (passes - 1) * each_s
    samples = ceil(batch / workers / passes)
    return Observation(nodes, workers, samples, max(each_s * pace, LEAST), max(last_s * pace, LEAST))


def _count(value: float | None) -> int | None:
    return int(value) if value is not None and 1 <= value <= MOST else None
