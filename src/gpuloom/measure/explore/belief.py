"""What is believed of one workload on the places of a device, after some runs: step times, and whether it fits.

Runs are seen with noise from run to run. Running somewhere says that memory suffices in all places that have as much;
running out of it says that none with as little will do. What a belief says is said by draws: step times that go
together, infinite where the workload does not fit. They are made from numbers that never change, so that the same
belief always says the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf, log

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import qmc

from gpuloom.measure.explore.places import Place
from gpuloom.measure.explore.prior import Prior, condition
from gpuloom.perf.arrays import Floats

RUN_SPREAD = 0.03
"""Relative standard deviation of a step time from run to run, until repetitions say more."""


HINT_TIMES, HINT_SPREAD = 2.5, 0.6
"""A deadline that is asked for is so many times what the whole device needs, give or take a factor of e to the 0.6."""


@dataclass(frozen=True, slots=True)
class Belief:
    places: tuple[Place, ...]
    prior: Prior
    """Over these places, memory last; what was seen is in it."""
    fits_mib: float = inf
    """It ran with so much memory."""
    lacks_mib: float = 0.0
    """It did not with so much."""
    ran: frozenset[int] = frozenset()
    """The places in which it was run, whatever came out."""
    spread: float = RUN_SPREAD

    def asked(self, step_ms: float) -> "Belief":
        """Somebody asks for steps as short as this: he knows the order of magnitude of what the whole device does."""
        parts = [place.part for place in self.places]
        seen = np.arange(len(self.prior.mean)) == parts.index(max(parts))
        hint = np.array([log(step_ms / HINT_TIMES)])
        return replace(self, prior=Prior(*condition(self.prior.mean, self.prior.cov, seen, hint, HINT_SPREAD**2)))

    def saw(self, at: Sequence[int], log_ms: Sequence[float]) -> "Belief":
        """After runs in which it did these step times in these places."""
        seen = np.zeros(len(self.prior.mean), bool)
        seen[list(at)] = True
        order = np.argsort(list(at))
        mean, cov = condition(self.prior.mean, self.prior.cov, seen, np.asarray(log_ms, float)[order], self.spread**2)
        fits = min([self.fits_mib, *(self.places[place].mem_mib for place in at)])
        lacks = min(self.lacks_mib, fits * (1 - 1e-9))
        return replace(self, prior=Prior(mean, cov), fits_mib=fits, lacks_mib=lacks, ran=self.ran | set(at))

    def ran_out(self, at: int) -> "Belief":
        """After a run in which it was out of memory there."""
        lacks = max(self.lacks_mib, self.places[at].mem_mib)
        fits = max(self.fits_mib, lacks * (1 + 1e-9))
        return replace(self, lacks_mib=lacks, fits_mib=fits, ran=self.ran | {at})

    def chance_to_fit(self, at: int) -> float:
        mem_mib = self.places[at].mem_mib
        if mem_mib >= self.fits_mib or mem_mib <= self.lacks_mib:
            return 1.0 if mem_mib >= self.fits_mib else 0.0
        low, high = self._bounds()
        return float((ndtr(self._z(mem_mib)) - low) / max(high - low, 1e-12))

    def _z(self, mem_mib: float) -> float:
        if not 0.0 < mem_mib < inf:
            return -inf if mem_mib <= 0.0 else inf
        return float((log(mem_mib) - self.prior.mean[-1]) / self.prior.cov[-1, -1] ** 0.5)

    def _bounds(self) -> tuple[float, float]:
        return float(ndtr(self._z(self.lacks_mib))), float(ndtr(self._z(self.fits_mib)))

    def draws(self, count: int) -> Floats:
        """Step times in ms, a row for each draw, a column for each place; infinite where it does not fit."""
        dice = _numbers(count, len(self.places) + 1)
        mean, cov = self.prior.mean, self.prior.cov
        low, high = self._bounds()
        inside = np.clip(low + dice[:, -1] * (high - low), 1e-12, 1 - 1e-12)
        memory = mean[-1] + ndtri(inside) * cov[-1, -1] ** 0.5
        slope = cov[:-1, -1] / cov[-1, -1]
        rest = cov[:-1, :-1] - np.outer(slope, cov[-1, :-1])
        times = mean[:-1] + np.outer(memory - mean[-1], slope) + dice[:, :-1] @ _root(rest).T
        fits = np.array([place.mem_mib for place in self.places])
        known, lacks = fits >= self.fits_mib, fits <= self.lacks_mib
        out = (np.exp(memory)[:, None] > fits) & ~known | lacks
        drawn: Floats = np.where(out, inf, np.exp(times))
        return drawn


def _root(cov: Floats) -> Floats:
    """A matrix whose square is this one, which may be a hair from singular."""
    values, vectors = np.linalg.eigh((cov + cov.T) / 2)
    root: Floats = vectors * np.sqrt(np.maximum(values, 0.0))
    return root


@lru_cache(maxsize=64)
def _numbers(count: int, columns: int) -> Floats:
    """Evenly spread, always the same: normal ones, and in the last column some between 0 and 1."""
    spread = qmc.Sobol(columns, scramble=True, seed=7).random(1 << (count - 1).bit_length())[:count]
    spread = np.clip(spread, 1e-9, 1 - 1e-9)
    spread[:, :-1] = ndtri(spread[:, :-1])
    found: Floats = spread
    return found
