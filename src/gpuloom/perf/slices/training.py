"""Training the `predictor` from measured mixes: the trend here, the networks in `net_training`.

Nothing is judged on what it was trained on. The smoothness of the trend and the intervals for unknown families come
from leaving each family out in turn: mixes that contain it are not trained on, and its jobs are predicted. Solo
slowdowns, latencies and speeds are means over the mixes that are trained on. The trend takes a second, the networks a
minute.
"""

from collections.abc import Sequence
from itertools import product

import numpy as np

from gpuloom.errors import InputError
from gpuloom.perf.arrays import Bools, Floats
from gpuloom.perf.slices.intervals import Intervals, crowd_of, intervals_of_strangers
from gpuloom.perf.slices.mix import MOST_JOBS
from gpuloom.perf.slices.net import Recipe
from gpuloom.perf.slices.net_training import MEMBERS, Tick, train_familiar
from gpuloom.perf.slices.predictor import SlicePredictor, speeds_from, trend_outputs
from gpuloom.perf.slices.small import SmallPoint, SmallSlices, fit_small
from gpuloom.perf.slices.table import MeasuredSpeeds, Table
from gpuloom.perf.slices.trend import Ridges, Smoothness, SoloModel, Trend, fit_ridges, fit_trend
from gpuloom.work.measured.mps_mixes import MeasuredMix

RIDGES, LENGTHS, NOISES = (3.0, 10.0, 30.0, 100.0), (0.3, 0.5, 0.8), (0.003, 0.01, 0.03)
"""Among which the smoothness is chosen."""
FEWEST_FAMILIES = 3
"""Below, nothing is left to learn from when one is left out and another is predicted."""
RECIPE = Recipe()


def train(
    mixes: Sequence[MeasuredMix],
    figures: MeasuredSpeeds,
    rng: np.random.Generator,
    *,
    recipe: Recipe | None = None,
    members: int = MEMBERS,
    tick: Tick = lambda: None,
) -> SlicePredictor:
    """Networks and trend. `tick` is called members x epochs times."""
    table = Table.of(mixes, figures)
    solo, small, intervals = _train_trend(table)
    familiar = train_familiar(table, small, rng, recipe or RECIPE, members, tick)
    return SlicePredictor(frozenset(table.families), solo, small, intervals, familiar)


def train_trend(
    mixes: Sequence[MeasuredMix], figures: MeasuredSpeeds, *, without_family: str | None = None
) -> SlicePredictor:
    """The trend alone, in a second. Without a family, nothing is used of a mix in which it takes part."""
    table = Table.of([mix for mix in mixes if without_family not in mix.families], figures)
    solo, small, intervals = _train_trend(table)
    return SlicePredictor(frozenset(table.families), solo, small, intervals)


def _train_trend(table: Table) -> tuple[SoloModel, SmallSlices, Intervals]:
    alone = {int(family) for family in table.family_of_workload[np.isfinite(table.means.solo)]}
    if len(alone) < FEWEST_FAMILIES:
        raise InputError(
            f"too few model families were measured alone to train on: found {len(alone)},"
            f" expected mixes of one job from at least {FEWEST_FAMILIES} families"
        )
    smoothness = choose_smoothness(table)
    everybody = np.ones(len(table.workloads), bool)
    model = _fit(table, np.ones(len(table.jobs), bool), everybody, smoothness)
    return model, _small(table, everybody), _strangers(table, smoothness)


def choose_smoothness(table: Table) -> Smoothness:
    """The one with the smallest mean error over families, each left out in turn."""
    errors: dict[Smoothness, list[float]] = {}
    for strength, family in product(RIDGES, range(len(table.families))):
        ridges = _step_one(table, table.without(family), strength)
        known, out = table.family_of_workload != family, table.family == family
        solo = _solo(table, out, *ridges)
        for length, noise in product(LENGTHS, NOISES):
            smoothness = Smoothness(strength, length, noise)
            on_7g, on_4g = _step_two(table, known, smoothness)(solo).T
            on_7g = np.clip(on_7g, 0.0, 1.0)
            guess = np.column_stack([on_7g, np.clip(on_4g, on_7g, 1.0)])
            errors.setdefault(smoothness, []).append(float(np.abs(guess - table.latencies[out]).mean()))
    return min(errors, key=lambda smoothness: sum(errors[smoothness]))


def _fit(table: Table, rows: Bools, workloads: Bools, smoothness: Smoothness) -> SoloModel:
    gauged, bare = _step_one(table, rows, smoothness.ridge)
    return SoloModel(gauged, bare, _step_two(table, workloads, smoothness))


def _step_one(table: Table, rows: Bools, strength: float) -> tuple[Ridges, Ridges]:
    """With the gauge, and without it."""
    solo = table.means.solo[table.workload]
    crowded = rows & (table.sizes > 1) & np.isfinite(solo)
    gauged = crowded & table.gauged
    return (
        fit_ridges(table.inputs[gauged], table.sizes[gauged], solo[gauged], MOST_JOBS - 1, strength),
        fit_ridges(table.inputs[crowded, :-2], table.sizes[crowded], solo[crowded], MOST_JOBS, strength),
    )


def _step_two(table: Table, workloads: Bools, smoothness: Smoothness) -> Trend:
    known = workloads & np.isfinite(table.means.solo)
    return fit_trend(table.means.solo[known], table.means.latencies[known], smoothness)


def _solo(table: Table, rows: Bools, gauged: Ridges, bare: Ridges, use_gauge: bool = True) -> Floats:
    """Estimated solo slowdown of those rows."""
    solo = table.inputs[:, 0].copy()
    for size in range(2, MOST_JOBS + 1):
        crowded = rows & (table.sizes == size)
        seen = crowded & table.gauged if use_gauge else np.zeros_like(crowded)
        solo[seen] = gauged(size, table.inputs[seen])
        solo[crowded & ~seen] = bare(size, table.inputs[crowded & ~seen, :-2])
    return solo[rows]


def _small(table: Table, workloads: Bools) -> SmallSlices:
    known = np.flatnonzero(workloads & np.isfinite(table.means.solo))
    return fit_small(
        [SmallPoint(float(np.exp(table.means.solo[row])), *map(float, table.means.speeds[row, 1:])) for row in known]
    )


def _strangers(table: Table, smoothness: Smoothness) -> Intervals:
    """Errors on each family by a model that has not seen it, with the gauge and without."""
    crowd = np.array([crowd_of(mix) for mix in table.mixes for _ in range(mix.size)])
    crowd_if_bare = np.array([crowd_of(mix.without_gauge()) for mix in table.mixes for _ in range(mix.size)])
    crowds, families, predicted, truth = [], [], [], []
    for family in range(len(table.families)):
        known, out = table.family_of_workload != family, table.family == family
        model, small = _fit(table, table.without(family), known, smoothness), _small(table, known)
        for use_gauge in (True, False):
            solo = _solo(table, out, model.gauged, model.bare, use_gauge)
            predicted.append(speeds_from(trend_outputs(model, solo), small))
            truth.append(table.speeds[out])
            crowds.append((crowd if use_gauge else crowd_if_bare)[out])
            families.append(table.family[out])
    return intervals_of_strangers(
        np.concatenate(crowds), np.concatenate(families), np.concatenate(predicted), np.concatenate(truth)
    )
