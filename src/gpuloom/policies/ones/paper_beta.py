"""How far a job is: ONES's progress predictor (SC'21, section 3.1), a regression with a Beta density.

Progress is taken as Beta(a, b) distributed: a = epochs done, b = expected epochs left. b follows from five regressors
through one hidden layer, fitted to epochs of completed jobs by the likelihood of the progress that they turned out to
have had. Published are log epoch size, initial loss, epochs done, the share of the initial loss that is gone, and
accuracy; jobs here report one metric and no loss, so the metric stands for both. As there, every fit starts afresh.
Unlike there, regressors are standardised, b is 1 plus an exponential (not cut off at 1, where the gradient vanishes),
and L-BFGS replaces Adam: the same likelihood, maximised sooner.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from math import log

import numpy as np
from scipy.optimize import minimize
from scipy.special import betaln, digamma

from gpuloom.perf.arrays import Floats

HIDDEN = 8
STEPS = 60
RIDGE = 1e-3
MOST_EPOCHS_LEFT = 1e4
EPOCHS = 2
"""The regressor that is a."""
MOST_LESSONS = 10
"""Epochs of one job that are learned from, evenly spaced."""
Lesson = tuple[list[float], float]
"""The regressors of an epoch, and the progress that the job had then as is known now."""


@dataclass(slots=True)
class Path:
    """What a job has reported epoch by epoch, as far as rounds have seen it."""

    by_epoch: dict[int, tuple[float, float]] = field(default_factory=dict)
    """By epochs done, in order: the samples until then, and the metric."""

    @property
    def epochs(self) -> int:
        return max(self.by_epoch, default=0)

    @property
    def samples(self) -> float:
        return self.by_epoch[self.epochs][0] if self.by_epoch else 0.0

    def reach(self, epochs: int, samples: float, metric: float) -> None:
        """A job that lost work is back at an earlier epoch: what it had reported beyond is void."""
        self.by_epoch = {epoch: seen for epoch, seen in self.by_epoch.items() if epoch < epochs}
        if epochs:
            self.by_epoch[epochs] = (samples, metric)

    def regressors(self, epoch: int) -> list[float]:
        samples, metric = self.by_epoch[epoch]
        first = next(iter(self.by_epoch.values()))[1] or 1.0
        return [log(max(samples / epoch, 1.0)), first, float(epoch), 1.0 - metric / first, metric]

    def lessons(self) -> list[Lesson]:
        """What a job that ended teaches. Its last epoch ended it, unreported: it had one more than was seen."""
        if not self.samples:
            return []
        total = self.samples * (self.epochs + 1) / self.epochs
        epochs = [*self.by_epoch]
        chosen = dict.fromkeys(epochs[int(at)] for at in np.linspace(0, len(epochs) - 1, MOST_LESSONS))
        return [(self.regressors(epoch), self.by_epoch[epoch][0] / total) for epoch in chosen]


@dataclass(frozen=True, slots=True)
class Predictor:
    """Epochs left as a function of the regressors."""

    centre: Floats
    spread: Floats
    weights: Floats

    def epochs_left(self, regressors: Floats) -> Floats:
        """Of each row."""
        inputs = _inputs((regressors - self.centre) / self.spread)
        return np.asarray(_forward(inputs, self.weights)[1])


def fit(lessons: Sequence[Lesson]) -> Predictor | None:
    """None while nobody has completed an epoch and ended."""
    if not lessons:
        return None
    rows = np.array([regressors for regressors, _ in lessons])
    done = np.clip([progress for _, progress in lessons], 1e-3, 1 - 1e-3)
    centre, spread = rows.mean(axis=0), np.maximum(rows.std(axis=0), 1e-6)
    inputs = _inputs((rows - centre) / spread)
    dice = np.random.default_rng(0)  # the same for every fit: what a predictor says follows from its lessons alone
    first = 0.3 * dice.normal(size=(inputs.shape[1] + 1) * HIDDEN + 1)
    loss = partial(_loss, inputs=inputs, epochs=rows[:, EPOCHS], done=done)
    found = minimize(loss, first, jac=True, method="L-BFGS-B", options={"maxiter": STEPS})
    return Predictor(centre, spread, found.x)


def _inputs(standardised: Floats) -> Floats:
    """With a constant; what lies far outside of all that was fitted is pulled to its edge."""
    return np.column_stack([np.clip(standardised, -4.0, 4.0), np.ones(len(standardised))])


def _forward(inputs: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """The hidden layer and b."""
    split = inputs.shape[1] * HIDDEN
    hidden = np.tanh(inputs @ weights[:split].reshape(-1, HIDDEN))
    out = hidden @ weights[split:-1] + weights[-1]
    return hidden, 1.0 + np.exp(np.minimum(out, np.log(MOST_EPOCHS_LEFT)))


def _loss(weights: Floats, inputs: Floats, epochs: Floats, done: Floats) -> tuple[float, Floats]:
    """Minus the mean log-likelihood, and its gradient."""
    split = inputs.shape[1] * HIDDEN
    hidden, left = _forward(inputs, weights)
    likely = (epochs - 1) * np.log(done) + (left - 1) * np.log1p(-done) - betaln(epochs, left)
    by_left = digamma(left) - digamma(epochs + left) - np.log1p(-done)
    by_out = by_left * (left - 1) / len(done)
    by_hidden = by_out[:, None] * weights[split:-1] * (1 - hidden**2)
    gradient = np.concatenate([(inputs.T @ by_hidden).reshape(-1), hidden.T @ by_out, [by_out.sum()]])
    return float(RIDGE * weights @ weights - likely.mean()), gradient + 2 * RIDGE * weights
