"""How the learning rate follows the batch. Pure."""

from dataclasses import dataclass

from gpuloom.train.elastic.settings import Scaling
from gpuloom.train.elastic.steps.noise import Noise, gain


def factor(scaling: Scaling, scale: float, noise: Noise) -> float:
    """By how much a batch `scale` times the initial one lets the learning rate grow."""
    match scaling:
        case Scaling.LINEAR:
            return scale
        case Scaling.SQRT:
            return float(scale**0.5)
        case Scaling.GAIN:
            return gain(noise, scale)
        case _:
            return 1.0


def chosen(scaling: Scaling, optimiser: str) -> Scaling:
    """What AUTO means for an optimiser, by the name of its class."""
    if scaling is not Scaling.AUTO:
        return scaling
    adaptive = any(
        word in optimiser.lower() for word in ("adam", "adagrad", "adadelta", "rmsprop", "lamb", "adafactor")
    )
    return Scaling.SQRT if adaptive else Scaling.LINEAR


@dataclass(frozen=True, slots=True)
class Ramp:
    """The factor on its way from one batch to the next."""

    start: float = 1.0
    begun: int = 0
    """The step at which the batch changed."""

    def at(self, step: int, goal: float, warmup_steps: int) -> float:
        """The factor of this step: a line from where it was to where it is to be."""
        if warmup_steps <= 0 or step - self.begun >= warmup_steps:
            return goal
        return self.start + (goal - self.start) * (step - self.begun) / warmup_steps
