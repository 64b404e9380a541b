"""What a probe under MPS predicts, in simulation: the truth with an error. Which error, each class says."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Protocol

from gpuloom.contract.view import Estimates
from gpuloom.perf.speed import Estimate
from gpuloom.work.model import TraceJob


class Prober(Protocol):
    def predict(self, entries: Sequence[TraceJob], truth: Sequence[Mapping[str, float]]) -> list[Estimates]:
        """Of jobs that run side by side, with their true speeds by profile: what the probe predicts."""


class AuthorsError:
    """MISO's own evaluation: the error is drawn from N(0.016, 0.0032) with a random sign, whatever the workload."""

    MEAN, SPREAD = 0.016, 0.0032

    def __init__(self, seed: int) -> None:
        self._dice = Random(seed)

    def predict(self, entries: Sequence[TraceJob], truth: Sequence[Mapping[str, float]]) -> list[Estimates]:  # noqa: ARG002
        return [{name: self._off(speed) for name, speed in speeds.items()} for speeds in truth]

    def _off(self, speed: float) -> Estimate:
        error = self._dice.gauss(self.MEAN, self.SPREAD) * self._dice.choice((-1, 1))
        reach = self.MEAN + 2 * self.SPREAD
        guess = min(max(speed + error, 0.01), 1.0)
        return Estimate(guess, max(guess - reach, 0.01), guess + reach)
