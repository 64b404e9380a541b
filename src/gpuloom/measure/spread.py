"""How much repetitions vary: in one arrangement, and in all of them together. Pure.

A campaign repeats until figures look steady, so what was repeated seldom looks steadier than it is, and its own
variance misleads. That of all arrangements does so less, and two or three repetitions of each are enough to know it.
But a run that something disturbed, as another program may, would make it large for everybody: whoever varies more than
the rest by so much that chance does not explain it is left out of what is usual.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from scipy.special import fdtri

UNLIKE = 0.01
"""Who varies so much, or so little, as chance makes it less often than this is not like the others (F test)."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Sum of the squares of what was off its mean, and its degrees of freedom."""

    squares: float
    freedom: int

    @property
    def variance(self) -> float:
        return self.squares / self.freedom

    def without(self, part: "Spread") -> "Spread":
        return Spread(max(self.squares - part.squares, 0.0), self.freedom - part.freedom)


@dataclass(frozen=True, slots=True)
class Pools:
    usual: Spread
    """Without arrangements that vary so much more than the rest that something must have disturbed them."""
    every: Spread
    """With them: what was run once may have been disturbed too, and nobody can see it."""


def spread(samples: Iterable[Sequence[float]]) -> Spread | None:
    """Over all that were repeated; None if nothing was."""
    repeated = [sample for sample in samples if len(sample) > 1]
    squares = sum((value - fmean(sample)) ** 2 for sample in repeated for value in sample)
    return Spread(squares, sum(len(sample) - 1 for sample in repeated)) if repeated else None


def pools(samples: Sequence[Sequence[float]]) -> Pools | None:
    every = spread(samples)
    if every is None:
        return None
    left = sorted((one for sample in samples if (one := spread([sample]))), key=lambda one: one.variance)
    usual = every
    while len(left) > 1 and _is_above(left[-1], rest := usual.without(left[-1]), UNLIKE / len(left)):
        left.pop()
        usual = rest
    return Pools(usual, every)


def differs(own: Spread, usual: Spread) -> bool:
    """From what is usual, by more than chance."""
    return _is_above(own, usual, UNLIKE) or _is_above(usual, own, UNLIKE)


def _is_above(one: Spread, other: Spread, chance: float) -> bool:
    """Whether its variance is larger by more than this chance allows."""
    return one.variance > other.variance * float(fdtri(one.freedom, other.freedom, 1 - chance))
