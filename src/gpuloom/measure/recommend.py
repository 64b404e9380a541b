"""Which slice, which share, alone or together: an answer for each goal, with its numbers and how sure it is.

Options are what was measured and, beside it, what is predicted: copies in parallel from one alone, if nobody slows
anybody down, and places that were not run from a belief (`explore`). An answer says which. How sure: the chance, by
draws from what is known of each option (Student's t of its repetitions), that the choice is as good as it says.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import exp, inf, log

import numpy as np
from scipy.special import stdtrit

from gpuloom.gpus.model import GpuModel
from gpuloom.measure.arrangement import Way
from gpuloom.measure.explore.belief import RUN_SPREAD, Belief
from gpuloom.measure.explore.goals import NEAR, SURELY
from gpuloom.measure.explore.places import slices_of
from gpuloom.measure.figures import LEVEL, Figure, Interval, LogMean, alone, in_parallel
from gpuloom.measure.verdicts import part_of
from gpuloom.perf.arrays import Floats

TIE = 0.02
"""Options this close to the best are as good, and the smallest of them is taken. Which may be as close, though their
figures are not, are named: only who is surely worse by more is no tie."""
DRAWS, FAR = 4000, 500.0
SURE, LIKELY = 0.95, 0.8


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
    energy_j: float | None = None
    fits: float = 1.0
    """The chance that it runs at all: below 1 only where it was not tried."""


@dataclass(frozen=True, slots=True)
class Answer:
    goal: str
    choice: Option | None
    value: Interval | None
    unit: str
    sure: float | None
    """The chance that the choice is as good as it says; None if nothing was chosen, or that cannot be said."""
    ties: tuple[str, ...]
    """As good, or not to be told apart."""
    alternatives: tuple[tuple[str, Interval, bool], ...]
    """The others, best first, with the same figure, and whether they were measured."""
    says: str

    @property
    def confidence(self) -> str:
        if self.sure is None:
            return "unknown"
        return "sure" if self.sure >= SURE else "likely" if self.sure >= LIKELY else "cannot be told yet"


def options(found: Sequence[Figure], model: GpuModel, workload: str, belief: Belief | None = None) -> list[Option]:
    """One copy and several, in every place that is known or believed; small parts of the device first."""
    solo = alone(found, workload)
    ready = [_measured(f, model) for f in [*solo.values(), *in_parallel(found, workload)] if f.step is not None]
    if belief is not None:
        ready += _believed(belief, {f.seat.place for f in solo.values()})
    names = {option.name for option in ready}
    most = {place.name: place.most for place in slices_of(model)}
    tried = {f.arrangement for f in in_parallel(found, workload)}
    for option in [option for option in ready if option.copies == 1 and most.get(option.place, 1) > 1]:
        several = most[option.place]
        name = f"{several} x {option.place}"
        if name not in names | tried:
            rate = option.rate.plus(log(several))
            ready.append(replace(option, name=name, copies=several, rate=rate, measured=False, energy_j=None))
    return sorted(ready, key=lambda option: (option.part, option.copies, option.name))


def _measured(figure: Figure, model: GpuModel) -> Option:
    assert figure.step is not None, "only of figures that have one"
    assert figure.rate is not None, "it comes with the step"
    part = 1 / figure.copies if figure.way is Way.TOGETHER else part_of(figure, model)
    name, place = figure.arrangement, figure.seat.place
    return Option(name, place, figure.way, figure.copies, part, figure.step, figure.rate, energy_j=figure.energy_j)


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
        found.append(Option(place.name, place.name, way, 1, place.part, step, rate, False, fits=fits))
    return found


def one_copy(all_options: Sequence[Option]) -> Answer:
    """The smallest slice within 5 % of the fastest."""
    single = [option for option in all_options if option.copies == 1]
    if not single:
        return _nothing("one copy", "ms a step")
    ms = np.exp(_draws(single, lambda option: option.step))
    near = ms <= ms.min(axis=1, keepdims=True) / NEAR
    middle = [option.step.mean if option.fits >= 0.5 else inf for option in single]
    good = [at for at, mean in enumerate(middle) if mean <= min(middle) - log(NEAR)] or [int(np.argmin(middle))]
    chosen = min(good, key=lambda at: (single[at].part, middle[at]))
    unclear = [at for at in range(len(single)) if 0.05 < near[:, at].mean() < 0.95]
    fastest = single[int(np.argmin(middle))]
    smaller = [at for at in range(len(single)) if single[at].part < single[chosen].part]
    sure = float((near[:, chosen] & ~near[:, smaller].any(axis=1)).mean())
    option = single[chosen]
    reason = (
        "the fastest, and no smaller one comes within 5 % of it"
        if option is fastest
        else f"{exp(fastest.step.mean - option.step.mean):.1%} of the speed of {fastest.name}, with less of the device"
    )
    ties = tuple(single[at].name for at in unclear if at != chosen)
    return _answer("one copy", option, single, "ms a step", lambda o: o.step, sure, ties, reason, small_is_good=True)


def most_work(all_options: Sequence[Option], goal: str = "most work an hour") -> Answer:
    """Over all arrangements, everybody's steps together."""
    if not all_options:
        return _nothing(goal, "steps/s")
    draws = _draws(all_options, lambda option: option.rate, worst=-inf)
    means = [option.rate.mean + (0.0 if option.fits >= 0.5 else -inf) for option in all_options]
    best, chosen, ties, sure = _with_ties(all_options, means, draws)
    reason = _lead(all_options, means, best, "the work")
    return _answer(
        goal, all_options[chosen], all_options, "steps/s", lambda o: o.rate, sure, ties, reason, small_is_good=False
    )


def least_energy(all_options: Sequence[Option]) -> Answer:
    """Of the whole device a step of anybody, where that was measured."""
    known = [option for option in all_options if option.energy_j]
    goal, unit = "least energy a step", "J a step"
    if not known:
        return replace(_nothing(goal, unit), says=f"{goal}: energy was not measured")
    best = min(known, key=lambda option: option.energy_j or inf)
    close = [option for option in known if (option.energy_j or inf) <= (best.energy_j or inf) * (1 + TIE)]
    chosen = min(close, key=lambda option: (option.part, option.copies))
    ties = tuple(option.name for option in close if option is not chosen)
    value = Interval(chosen.energy_j or inf)
    others = sorted(((o.name, Interval(o.energy_j or inf), True) for o in known if o is not chosen), key=_value)
    says = f"{goal}: {chosen.name}, {_number(value.value)} {unit}{_tied(ties)} (how sure is not known: no intervals)"
    return Answer(goal, chosen, value, unit, None, ties, tuple(others), says)


def by_deadline(all_options: Sequence[Option], steps: int, seconds: float) -> Answer:
    """The smallest part of the device on which one copy surely does so many steps in time."""
    return _fast_enough(all_options, seconds * 1e3 / steps, f"{steps:,} steps in {seconds:g} s")


def least_speed(all_options: Sequence[Option], steps_per_s: float) -> Answer:
    """The smallest part of the device on which one copy surely is so fast."""
    return _fast_enough(all_options, 1e3 / steps_per_s, f"at least {steps_per_s:g} steps a second")


def _fast_enough(all_options: Sequence[Option], limit_ms: float, goal: str) -> Answer:
    single = [option for option in all_options if option.copies == 1]
    if not single:
        return _nothing(goal, "ms a step")
    chances = (_draws(single, lambda option: option.step) <= log(limit_ms)).mean(axis=0)
    good = [at for at, chance in enumerate(chances) if chance >= SURELY]
    if not good:
        at = max(range(len(single)), key=lambda at: (round(float(chances[at]), 2), -single[at].step.mean))
        took = f"{_number(exp(single[at].step.mean))} ms a step, {_number(limit_ms)} ms are allowed"
        says = f"{goal}: none surely is; the likeliest is {single[at].name}: {took} ({chances[at]:.0%})"
        return replace(_nothing(goal, "ms a step"), sure=float(chances[at]), says=says)
    chosen = min(good, key=lambda at: (single[at].part, single[at].step.mean))
    unclear = [at for at in range(len(single)) if at not in good and chances[at] > 1 - SURELY]
    ties = tuple(single[at].name for at in unclear if single[at].part <= single[chosen].part)
    reason = f"{_number(exp(single[chosen].step.mean))} ms a step, {_number(limit_ms)} ms are allowed"
    sure = float(chances[chosen])
    return _answer(goal, single[chosen], single, "ms a step", lambda o: o.step, sure, ties, reason, small_is_good=True)


def mig_mps_or_neither(all_options: Sequence[Option]) -> Answer:
    """By the most work an hour that each way of keeping copies apart does."""
    best: dict[str, Option] = {}
    for option in all_options:
        word = _way_word(option)
        if option.fits >= 0.5 and (word not in best or option.rate.mean > best[word].rate.mean):
            best[word] = option
    answer = most_work(list(best.values()), "MIG, MPS or neither")
    if answer.choice is None:
        return answer
    others = [
        f"{word}: {best[word].name}, {_number(exp(best[word].rate.mean))} steps/s"
        if word in best
        else f"{word}: not measured"
        for word in ("MIG", "MPS", "neither")
        if best.get(word) != answer.choice
    ]
    chosen = answer.choice
    claim = f"{answer.goal}: {_way_word(chosen)}: {chosen.name}, {_number(exp(chosen.rate.mean))} steps/s"
    how = "" if chosen.measured else ", predicted, not measured"
    says = f"{claim}{how}; {'; '.join(others)}{_tied(answer.ties)} ({answer.confidence}: {answer.sure or 0:.0%})"
    return replace(answer, says=says)


def _way_word(option: Option) -> str:
    """One copy on an instance that is all of the device shares it with nobody."""
    if option.way is Way.CUT and (option.copies > 1 or option.part < 1):
        return "MIG"
    return "MPS" if option.way is Way.SHARED else "neither"


def _draws(all_options: Sequence[Option], of: Callable[[Option], LogMean], worst: float = inf) -> Floats:
    """A row for each draw. A figure measured once is taken to vary as runs usually do."""
    dice = np.random.default_rng(1).random((DRAWS, len(all_options), 2))
    columns = []
    for at, option in enumerate(all_options):
        value = of(option)
        if value.error is None:
            drawn = value.mean + RUN_SPREAD * stdtrit(1e3, dice[:, at, 0])
        else:
            drawn = value.mean + value.error * stdtrit(value.freedom, dice[:, at, 0])
        # Of what is hardly known some draws have no exponential.
        columns.append(np.where(dice[:, at, 1] < option.fits, np.clip(drawn, -FAR, FAR), worst))
    found: Floats = np.stack(columns, axis=1)
    return found


def _with_ties(
    all_options: Sequence[Option], means: Sequence[float], draws: Floats
) -> tuple[int, int, tuple[str, ...], float]:
    """The best by its figure; the smallest of those that are as good; their names; the chance that the choice is."""
    best = max(range(len(means)), key=means.__getitem__)
    close = [at for at, mean in enumerate(means) if mean >= means[best] + log(1 - TIE)]
    chosen = min(close, key=lambda at: (all_options[at].part, all_options[at].copies))
    as_good = (draws >= draws[:, [best]] + log(1 - TIE)).mean(axis=0)
    unclear = [at for at in range(len(means)) if as_good[at] > (1 - LEVEL) / 2]
    ties = tuple(all_options[at].name for at in sorted({*close, *unclear}) if at != chosen)
    sure = float((draws[:, chosen] >= draws.max(axis=1) + log(1 - TIE)).mean())
    return best, chosen, ties, sure


def _lead(all_options: Sequence[Option], means: Sequence[float], best: int, what: str) -> str:
    """How far the best is ahead of one copy on the largest part."""
    single = [at for at, option in enumerate(all_options) if option.copies == 1]
    if not single or all_options[best].copies == 1:
        return "no division of the device does more"
    largest = max(single, key=lambda at: all_options[at].part)
    return f"{exp(means[best] - means[largest]):.2f}x {what} of one copy on {all_options[largest].name}"


def _answer(
    goal: str,
    option: Option,
    all_options: Sequence[Option],
    unit: str,
    of: Callable[[Option], LogMean],
    sure: float,
    ties: tuple[str, ...],
    reason: str,
    small_is_good: bool,
) -> Answer:
    value = of(option).interval
    rest = [(o.name, of(o).interval, o.measured) for o in all_options if o is not option]
    rest.sort(key=_value, reverse=not small_is_good)
    found = Answer(goal, option, value, unit, sure, ties, tuple(rest), "")
    span = "" if value.low is None or value.high is None else f" ({_number(value.low)} to {_number(value.high)})"
    once = "" if of(option).error is not None else "; measured once, runs are taken to vary by 3 %"
    how = "" if option.measured else ", predicted, not measured"
    says = f"{goal}: {option.name}, {_number(value.value)} {unit}{span}{how}: {reason}{_tied(ties)}"
    return replace(found, says=f"{says} ({found.confidence}: {sure:.0%}{once})")


def _number(value: float) -> str:
    """Three figures that count, and all of those before the point."""
    return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.3g}"


def _tied(ties: Sequence[str]) -> str:
    return f"; {', '.join(ties)} cannot be told from it or {'is' if len(ties) == 1 else 'are'} as good" if ties else ""


def _nothing(goal: str, unit: str) -> Answer:
    return Answer(goal, None, None, unit, None, (), (), f"{goal}: nothing was measured that could be chosen")


def _value(row: tuple[str, Interval, bool]) -> float:
    return row[1].value


def recommend(all_options: Sequence[Option]) -> tuple[Answer, ...]:
    """The answers that need no more to be asked."""
    asked = (one_copy, most_work, least_energy, mig_mps_or_neither)
    return tuple(question(all_options) for question in asked)
