"""What is believed of a workload before it is measured, learned from others: how step times fall with a larger part.

A normal distribution over log step times on places and the log of the memory that is needed, together: long steps
need much of a device, and workloads that need much memory do too. Mean and covariance are estimated by EM, as small
slices are missing where memory ran out, each family of models counting alike; the covariance is then shrunk.
Other devices are reached through the part of the whole that a place is, with a stated inaccuracy. Knows no file.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log

import numpy as np

from gpuloom.measure.explore.places import Place
from gpuloom.perf.arrays import Floats
from gpuloom.work.measured.figures import SLICE_MEM_MIB, WHOLE, WorkloadFigures

SLICES = tuple(SLICE_MEM_MIB)
PARTS = (1 / 7, 2 / 7, 3 / 7, 4 / 7, 1.0)
SHARES = (0.14, 0.5)
COLUMNS = len(SLICES) + len(SHARES)
"""Of log step times: on the slices, then at shares of the whole. The last column of all is the memory."""
MEMORY = COLUMNS
NEXT = {3: 4, 2: 3, 1: 2, 0: 1, 6: 4, 5: 6}
"""From each column of times but the whole's to that of the next larger place; large ones first."""
NO_STEP = 0.5
"""In logs, between neighbours of which nothing was measured."""
EM_ROUNDS = 60
SHRINK, LEVEL_SD, WIDEN = 0.1, 1.0, 1.5
"""Chosen by the likelihood of families left out: `benchmarks/recommend.py --choose`, half of the families."""
ELSEWHERE_SD = 0.1
"""How far off a step time may be that is carried over to another kind of device, or between the measured parts."""

Shares = Mapping[str, Mapping[str, float]]
"""By workload: speed at 14 and 50 % relative to 100 %, alone. Workloads that are absent have none."""


@dataclass(frozen=True, slots=True)
class Knobs:
    shrink: float = SHRINK
    """How far correlations between the steps from place to place are drawn to none."""
    level_sd: float = LEVEL_SD
    """More doubt about how long a step is at all: a step is what the user calls so."""
    widen: float = WIDEN
    """The whole covariance, as a stranger differs more than the ones that were seen."""


@dataclass(frozen=True, slots=True)
class Prior:
    """Over the columns of this file, in log ms; memory in log MiB."""

    mean: Floats
    cov: Floats

    def at(self, places: Sequence[Place], elsewhere: bool = False) -> "Prior":
        """The same belief over these places, memory last. `elsewhere`: on another device than the one learned on."""
        weights = np.zeros((len(places) + 1, COLUMNS + 1))
        for row, place in zip(weights, places, strict=False):
            row[:COLUMNS] = _between(place)
        weights[-1, MEMORY] = 1.0
        off = np.array([ELSEWHERE_SD if elsewhere or row.max() < 1.0 else 1e-3 for row in weights])
        off[-1] = 0.0
        return Prior(weights @ self.mean, weights @ self.cov @ weights.T + np.diag(off**2))


def _between(place: Place) -> Floats:
    """Weights of the learned columns for a place between them, by the log of its part."""
    row = np.zeros(COLUMNS)
    known = list(zip(PARTS, range(len(PARTS)), strict=True))
    if not place.cut:
        known = [*((share, len(PARTS) + at) for at, share in enumerate(SHARES)), (1.0, len(PARTS) - 1)]
    part = min(max(place.part, known[0][0]), 1.0)
    for (low, left), (high, right) in pairwise(known):
        if low <= part <= high:
            along = (log(part) - log(low)) / (log(high) - log(low))
            along = round(along, 2)  # 0.14 and 1/7 are the same place
            row[left], row[right] = 1 - along, along
            return row
    raise AssertionError("parts reach to the whole")


def learn(workloads: Sequence[WorkloadFigures], shares: Shares, knobs: Knobs | None = None) -> Prior:
    """From measured workloads, at least two."""
    knobs = knobs or Knobs()
    rows = np.array([workload_row(figures, shares.get(figures.name, {})) for figures in workloads])
    families = [figures.model for figures in workloads]
    weights = np.array([1 / families.count(family) for family in families])
    mean, cov = _moments(rows, weights / weights.sum())
    return Prior(mean, _shrunk(cov, knobs))


def learn_without(
    workloads: Sequence[WorkloadFigures], shares: Shares, family: str, knobs: Knobs | None = None
) -> Prior:
    """As if this family of models had never been seen."""
    return learn([figures for figures in workloads if figures.model != family], shares, knobs)


def scenarios(workloads: Sequence[WorkloadFigures], shares: Shares, places: Sequence[Place]) -> Floats:
    """What these workloads did in such places, in ms: infinite where they did not fit, or that is not known."""
    weights = np.array([_between(place) for place in places])
    rows = np.array([workload_row(figures, shares.get(figures.name, {}))[:COLUMNS] for figures in workloads])
    known = np.isfinite(rows)
    log_ms = np.where(known, rows, 0.0) @ weights.T
    missing = (~known).astype(float) @ weights.T > 0
    found: Floats = np.where(missing, np.inf, np.exp(log_ms))
    return found


def workload_row(figures: WorkloadFigures, shares: Mapping[str, float]) -> list[float]:
    """One workload's columns; NaN where it was not measured. Memory: the middle of what is known of it."""
    whole_ms = figures.batch_s * 1e3
    speeds = {**figures.speeds, **{f"{share:.0%}": shares.get(f"{share * 100:g}") for share in SHARES}}
    names = [*SLICES, *(f"{share:.0%}" for share in SHARES)]
    times = [log(whole_ms / speed) if (speed := speeds.get(name)) else np.nan for name in names]
    below = [mib for mib in SLICE_MEM_MIB.values() if mib < figures.mem_mib]
    return [*times, (log(figures.mem_mib) + log(below[-1] if below else figures.mem_mib / 2)) / 2]


def _moments(rows: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Weighted mean and covariance of a normal distribution of which some figures are missing, by EM."""
    filled, rest = _steps_filled(rows), np.zeros((rows.shape[1], rows.shape[1]))
    for _ in range(EM_ROUNDS):
        mean = weights @ filled
        off = filled - mean
        cov = (off * weights[:, None]).T @ off + rest + 1e-6 * np.eye(len(mean))
        conditioned = [condition(mean, cov, np.isfinite(row), row[np.isfinite(row)]) for row in rows]
        filled = np.array([there for there, _ in conditioned])
        rest = np.einsum("w,wij->ij", weights, np.array([spread for _, spread in conditioned]))
    return mean, cov


def _steps_filled(rows: Floats) -> Floats:
    """What is missing taken from the next larger place and the usual step: from there EM is soon done."""
    filled = rows.copy()
    for column, larger in NEXT.items():
        steps = rows[:, column] - rows[:, larger]
        known, missing = np.isfinite(steps), np.isnan(filled[:, column])
        usual = steps[known].mean() if known.any() else NO_STEP
        filled[missing, column] = filled[missing, larger] + usual
    return filled


def condition(mean: Floats, cov: Floats, seen: Floats, values: Floats, noise: float = 0.0) -> tuple[Floats, Floats]:
    """Mean and covariance once these entries were seen with this variance of noise."""
    part = cov[seen][:, seen] + (noise + 1e-9) * np.eye(int(np.count_nonzero(seen)))
    gain = np.linalg.solve(part, cov[seen]).T
    return mean + gain @ (values - mean[seen]), cov - gain @ cov[seen]


def _shrunk(cov: Floats, knobs: Knobs) -> Floats:
    """Towards steps from one place to the next that do not depend on each other nor on the whole's step time."""
    steps = np.eye(COLUMNS + 1)
    whole = SLICES.index(WHOLE)
    for column, larger in NEXT.items():
        steps[column, larger] = -1.0
    inner = steps @ cov @ steps.T * knobs.widen
    inner = (1 - knobs.shrink) * inner + knobs.shrink * np.diag(np.diag(inner))
    inner[whole, whole] += knobs.level_sd**2
    back = np.linalg.inv(steps)
    return back @ inner @ back.T
