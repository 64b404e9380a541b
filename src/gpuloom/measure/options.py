"""What can be chosen: what was measured and, beside it, what is predicted from it.

Copies in parallel are predicted from one alone, if nobody slows anybody down; places that were not run, from a belief
(`explore`). What of it to choose is `recommend`'s.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import log, sqrt
from statistics import fmean

import numpy as np
from scipy.special import stdtrit

from gpuloom.gpus.model import GpuModel
from gpuloom.measure.arrangement import Way
from gpuloom.measure.explore.belief import RUN_SPREAD, Belief
from gpuloom.measure.explore.places import slices_of
from gpuloom.measure.figures import Figure, LogMean, alone, in_parallel
from gpuloom.measure.verdicts import part_of
from gpuloom.perf.arrays import Floats

DRAWS, FAR = 4096, 500.0
DOUBT, LEAST_DOUBT = 0.1, 0.02
"""Of how much copies slow each other down: where none were run side by side, and at least, where some were."""


@dataclass(frozen=True, slots=True)
class Option:
    """Something that can be chosen: so many copies, each in such a place."""

    name: str
    place: str
    way: Way
    copies: int
    part: float
    """Of the device, that one copy has."""
    step: LogMean
    """Log ms of a copy's step."""
    rate: LogMean
    """Log of steps a second, of all copies."""
    measured: bool = True
    tried: bool = True
    """One copy was run in such a place; if not, all of this is a belief."""
    energy_j: float | None = None
    fits: float = 1.0
    """The chance that it runs at all: below 1 where it was not tried, or failed in some runs."""
    doubt: float = 0.0
    """Standard error of the log of what copies side by side, who never were, may slow each other down."""
    failures: str = ""
    """What went wrong in some runs, in words."""


def options(found: Sequence[Figure], model: GpuModel, workload: str, belief: Belief | None = None) -> list[Option]:
    """One copy and several, in every place that is known or believed; small parts of the device first."""
    solo = alone(found, workload)
    ready = [_measured(f, model) for f in [*solo.values(), *in_parallel(found, workload)] if f.step is not None]
    if belief is not None:
        ready += _believed(belief, {f.seat.place for f in solo.values()})
    names, doubt = {option.name for option in ready}, _doubt(found, workload)
    most = {place.name: place.most for place in slices_of(model)}
    tried = {f.arrangement for f in in_parallel(found, workload)}
    for option in [option for option in ready if option.copies == 1 and most.get(option.place, 1) > 1]:
        several = most[option.place]
        name = f"{several} x {option.place}"
        if name not in names | tried:
            rate = option.rate.plus(log(several)).doubted(doubt)
            failures = f"would need {option.place}, where one copy {option.failures}" if option.failures else ""
            changed = replace(option, name=name, copies=several, rate=rate, doubt=doubt, failures=failures)
            ready.append(replace(changed, measured=False, energy_j=None))
    return sorted(ready, key=lambda option: (option.part, option.copies, option.name))


def _doubt(found: Sequence[Figure], workload: str) -> float:
    """How far copies on instances were from what one alone did there: the root of the mean square of the logs."""
    solo = alone(found, workload)
    pairs = [(f.step, solo[f.seat.place].step) for f in in_parallel(found, workload) if f.seat.place in solo]
    ratios = [step.mean - base.mean for step, base in pairs if step is not None and base is not None]
    return max(sqrt(fmean(ratio**2 for ratio in ratios)), LEAST_DOUBT) if ratios else DOUBT


def _measured(figure: Figure, model: GpuModel) -> Option:
    assert figure.step is not None, "only of figures that have one"
    assert figure.rate is not None, "it comes with the step"
    part = 1 / figure.copies if figure.way is Way.TOGETHER else part_of(figure, model)
    name, place = figure.arrangement, figure.seat.place
    fits, failures = 1 - figure.failed / figure.runs, figure.failures if figure.failed else ""
    energy = figure.energy_j
    return Option(
        name,
        place,
        figure.way,
        figure.copies,
        part,
        figure.step,
        figure.rate,
        energy_j=energy,
        fits=fits,
        failures=failures,
    )


def _believed(belief: Belief, known: Iterable[str]) -> list[Option]:
    found = []
    for at, place in enumerate(belief.places):
        fits = belief.chance_to_fit(at)
        if place.name in known or not fits:
            continue
        mean, error = float(belief.prior.mean[at]), float(belief.prior.cov[at, at] ** 0.5)
        step = LogMean(mean, error, 1e3)
        way = Way.CUT if place.cut else Way.SHARED if place.share_pct < 100 else Way.WHOLE
        rate = LogMean(log(1e3) - mean, error, 1e3)
        found.append(Option(place.name, place.name, way, 1, place.part, step, rate, False, False, fits=fits))
    return found


def sound(all_options: Sequence[Option]) -> list[Option]:
    """Without what failed in some run, unless there is nothing else."""
    return [option for option in all_options if not option.failures] or list(all_options)


def step_draws(all_options: Sequence[Option], belief: Belief | None = None) -> Floats:
    """Logs of a copy's step in ms, a row for each draw; infinite where it does not run. What a belief is about is drawn
    from it, together; the rest by Student's t, and what was measured once is taken to vary as runs usually do."""
    columns = _independent(all_options, [option.step for option in all_options], np.inf)
    if belief is not None:
        together = np.log(belief.draws(DRAWS))
        names = [place.name for place in belief.places]
        for at, option in enumerate(all_options):
            if option.place in names and (option.copies == 1 or not option.measured):
                failed = np.isinf(columns[:, at]) & option.tried  # of others the belief itself has whether they fit
                columns[:, at] = np.where(failed, np.inf, together[:, names.index(option.place)])
    return columns


def rate_draws(all_options: Sequence[Option], belief: Belief | None = None) -> Floats:
    """Logs of the steps a second of all copies; minus infinity where it does not run. If copies who never were side by
    side slow each other down, they do so wherever they are, so each draw has one such factor."""
    slower = np.random.default_rng(2).standard_normal(DRAWS)
    steps = step_draws(all_options, belief)
    measured = _independent(all_options, [option.rate for option in all_options], -np.inf)
    for at, option in enumerate(all_options):
        if option.copies == 1 or not option.measured:
            measured[:, at] = log(1e3 * option.copies) - steps[:, at] - option.doubt * slower
    return measured


def _independent(all_options: Sequence[Option], values: Sequence[LogMean], worst: float) -> Floats:
    dice = np.random.default_rng(1).random((DRAWS, len(all_options), 2))
    columns = []
    for at, (option, value) in enumerate(zip(all_options, values, strict=True)):
        spread, freedom = (RUN_SPREAD, 1e3) if value.error is None else (value.error, value.freedom)
        drawn = value.mean + spread * stdtrit(freedom, dice[:, at, 0])
        # Of what is hardly known some draws have no exponential.
        columns.append(np.where(dice[:, at, 1] < option.fits, np.clip(drawn, -FAR, FAR), worst))
    found: Floats = np.stack(columns, axis=1)
    return found
