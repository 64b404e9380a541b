"""Which samples a step takes and who computes them. Pure: a seed, an epoch and a position say it all.

An epoch is a seeded permutation of the data set. A step takes the next `batch` of it, whoever is there to compute
them, so neither a change of workers nor a failure can lose or double a sample: what has been visited is one number.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

MIXER = 0x9E3779B97F4A7C15
"""Spreads neighbouring numbers over 64 bits, so that epochs and steps have unrelated seeds."""


def mixed(*numbers: int) -> int:
    """One seed of several numbers: splitmix64 over them."""
    state = 0
    for number in numbers:
        state = (state + MIXER + (number & 0xFFFFFFFFFFFFFFFF)) & 0xFFFFFFFFFFFFFFFF
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
        state ^= state >> 31
    return state >> 1  # generators take signed numbers


@lru_cache(maxsize=2)
def permutation(samples: int, seed: int, epoch: int) -> Any:
    """The order of an epoch, as a tensor of indices."""
    import torch

    return torch.randperm(samples, generator=torch.Generator().manual_seed(mixed(seed, epoch)))


def even(total: int, parts: int) -> list[int]:
    """As even as can be; the first ones get what is left over."""
    each, over = divmod(total, parts)
    return [each + (part < over) for part in range(parts)]


@dataclass(frozen=True, slots=True)
class Pass:
    """What one worker computes at once: a range of the step's samples. One that counts for nothing has weight 0."""

    start: int
    stop: int
    counts: bool

    @property
    def samples(self) -> int:
        return self.stop - self.start if self.counts else 0


def passes(batch: int, workers: int, rank: int, limit: int | None) -> list[Pass]:
    """A rank's passes over a step's `batch` samples, none longer than `limit`. All ranks have the same number.

    Where there are fewer samples than workers (or passes) somebody would have none. It computes the first range of the
    step once more and counts for nothing: whatever all workers do together in a pass, as a synchronised batch norm
    does, is done by all of them.
    """
    shares = even(batch, workers)
    rounds = max(1, -(-shares[0] // limit)) if limit else 1
    begin = sum(shares[:rank])
    spare = Pass(0, even(shares[0], rounds)[0], counts=False)
    found = []
    for size in even(shares[rank], rounds):
        found.append(Pass(begin, begin + size, counts=True) if size else spare)
        begin += size
    return found


def batches_of(samples: int, batch: int, position: int, drop_last: bool) -> Iterator[tuple[int, int]]:
    """Start and end of every step from `position` on, if nothing changes."""
    while (end := step_end(samples, batch, position, drop_last)) is not None:
        yield position, end
        position = end


def step_end(samples: int, batch: int, position: int, drop_last: bool) -> int | None:
    """Where the step that begins at `position` ends; None if the epoch is over."""
    if position >= samples or (drop_last and position + batch > samples):
        return None
    return min(position + batch, samples)
