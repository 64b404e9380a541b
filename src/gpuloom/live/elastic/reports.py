"""What elastic jobs tell of themselves, made into what policies know of them: at steady intervals, with a fitted model.

One agent for each job learns its step times from the configurations that it has been seen in. It outlives the job's
launches, but not the runner: after that it learns anew.
"""

from dataclasses import dataclass
from math import ceil

from gpuloom.contract.view import Report
from gpuloom.live.store import Progress
from gpuloom.perf.goodput.agent import Agent, Fits
from gpuloom.perf.goodput.fit import LEAST, Observation
from gpuloom.perf.goodput.model import BatchLimits
from gpuloom.work.model import Job

Configuration = tuple[int, int, int]
MOST = 1_000_000
"""Of workers, nodes, passes: whoever reports more does not mean what it says."""


@dataclass(slots=True)
class _Known:
    """What is known of one job."""

    agent: Agent
    told_at_s: float
    configuration: Configuration | None = None
    """In its last report."""


class Reports:
    def __init__(self, every_s: float, pace: float) -> None:
        """`pace`: engine seconds in one of the job's."""
        self._every_s, self._pace = every_s, pace
        self._fits = Fits()
        self._known: dict[str, _Known] = {}

    def of(self, job: Job, progress: Progress, now_s: float) -> Report | None:
        """What is to be told now; None if it is too early, or if the job tells nothing of the kind."""
        figures = progress.figures
        if "progress" not in figures and "epoch" not in figures:
            return None
        known = self._known.get(job.id)
        if known is None:
            batch = job.batch or _count(figures.get("batch"))
            agent = Agent(_limits(job, batch), job.max_gpus, self._fits) if batch else None
            if agent is None:
                return Report(now_s, *_plain(progress))
            known = self._known[job.id] = _Known(agent, now_s - self._every_s)
        if now_s - known.told_at_s < self._every_s:
            return None
        known.told_at_s = now_s
        self._observe(known, progress)
        return Report(now_s, *_plain(progress), goodput=known.agent.model)

    def _observe(self, known: _Known, progress: Progress) -> None:
        """A configuration counts when it has lasted from one report to the next: first steps are not like others."""
        seen = _observation(progress, self._pace)
        before, known.configuration = known.configuration, None if seen is None else seen[:3]
        if seen is None or known.configuration != before:
            return
        grad_sqr, grad_var = (progress.figures.get(name, 0.0) for name in ("grad_sqr", "grad_var"))
        known.agent.observe(seen, max(grad_sqr, 0.0), max(grad_var, 0.0))


def _plain(progress: Progress) -> tuple[int, float, float | None]:
    figures = progress.figures
    done = figures.get("progress", float(progress.step))
    return int(min(max(figures.get("epoch", 0.0), 0.0), 1e9)), done, figures.get("metric")


def _limits(job: Job, batch: int) -> BatchLimits:
    most = max(job.max_batch or batch, batch)
    return BatchLimits(batch, most, 1, job.max_local_batch or most)


def _observation(progress: Progress, pace: float) -> Observation | None:
    """One pass on one device and its exchange of gradients, from a step of several passes."""
    figures = progress.figures
    nodes, workers = _count(figures.get("nodes", 1.0)), _count(figures.get("workers"))
    passes, samples = _count(figures.get("accumulation", 1.0)), _count(figures.get("local_batch"))
    step_s, compute_s = figures.get("step_s", 0.0), figures.get("compute_s", 0.0)
    if not (nodes and workers and passes and samples and compute_s > 0 and 0 < step_s < 1e9):
        return None
    each_s = min(compute_s, step_s) / passes
    last_s = step_s - (passes - 1) * each_s
    return Observation(nodes, workers, ceil(samples / passes), max(each_s * pace, LEAST), max(last_s * pace, LEAST))


def _count(value: float | None) -> int | None:
    return int(value) if value is not None and 1 <= value <= MOST else None
