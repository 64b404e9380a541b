"""The agent inside an elastic job: what it measured, what it concludes, which batch it chooses (Pollux, section 4.1).

Knows only what its own job has run on. Fits are shared between jobs that have seen the same, because equal evidence
gives equal conclusions.
"""

from dataclasses import replace

from gpuloom.perf.goodput.fit import fit_step_times
from gpuloom.perf.goodput.goodput import best_batch, split_batch
from gpuloom.perf.goodput.model import BatchLimits, GoodputModel, LocalBatch, Observation, StepTimes


class Fits:
    """Fitted step times by evidence."""

    def __init__(self) -> None:
        self._known: dict[tuple[Observation, ...], StepTimes] = {}

    def of(self, evidence: tuple[Observation, ...]) -> StepTimes:
        if evidence not in self._known:
            self._known[evidence] = fit_step_times(evidence)
        return self._known[evidence]


class Agent:
    def __init__(self, limits: BatchLimits, max_replicas: int, fits: Fits, *, chooses_batch: bool = False) -> None:
        self.limits = limits
        self.chooses_batch = chooses_batch
        self.max_replicas = max_replicas
        self.model: GoodputModel | None = None
        """What it reports; None before its first step."""
        self._fits = fits
        self._seen: dict[tuple[int, int, int], Observation] = {}

    def observe(self, seen: Observation, grad_sqr: float, grad_var: float, batch: int) -> None:
        """A step was measured. The first measurement of a configuration counts; gradients are the latest."""
        configuration = seen[:3]
        if configuration in self._seen and self.model is not None:
            self.model = replace(self.model, grad_sqr=grad_sqr, grad_var=grad_var, grad_batch=batch)
            return
        self._seen[configuration] = seen
        evidence = tuple(sorted(self._seen.values()))
        most = max(observation.replicas for observation in evidence)
        self.model = GoodputModel(
            self._fits.of(evidence),
            grad_sqr,
            grad_var,
            self.limits,
            most,
            self.max_replicas,
            grad_batch=batch,
            seen=evidence,
            chooses_batch=self.chooses_batch,
        )

    def has_seen(self, nodes: int, replicas: int, local: LocalBatch) -> bool:
        return (nodes, replicas, local.samples) in self._seen

    def choose(self, nodes: int, replicas: int) -> LocalBatch:
        """The batch with the best predicted goodput; before anything is known, the smallest that is allowed."""
        if self.model is None:
            smallest = max(self.limits.init_batch, self.limits.min_local * replicas)
            return split_batch(smallest, replicas, self.limits)
        return best_batch(self.model, nodes > 1, replicas)
