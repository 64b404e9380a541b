"""Which slice, which share, alone or together: an answer for each goal, with its numbers and how sure it is.

Of options, an answer says whether they were measured or predicted. How sure: the chance, by draws from what is known of
each option, that the choice is as good as it says. Where not all places were run, a belief about the workload goes with
the options, and the choice is the explorer's.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import exp, inf, log

import numpy as np

from gpuloom.measure.arrangement import Way
from gpuloom.measure.explore.belief import Belief
from gpuloom.measure.explore.goals import DOUBT_PCT, NEAR, SURELY, OneCopy
from gpuloom.measure.figures import LEVEL, Interval, LogMean
from gpuloom.measure.options import Option, rate_draws, sound, step_draws
from gpuloom.perf.arrays import Floats

TIE = 0.02
"""Options this close to the best are as good, and of them the one with the fewest copies is taken, which are the
fastest, then the smallest. Which may be as close, though their
figures are not, are named: only who is surely worse by more is no tie."""
SURE, LIKELY, HOPE = 0.95, 0.8, 0.005
WAYS = ("MIG", "MPS", "neither")
ONLY = "the only one that is known"


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


def one_copy(all_options: Sequence[Option], belief: Belief | None = None) -> Answer:
    """The smallest slice within 5 % of the fastest. With a belief, what is expected to cost least by that measure: a
    little speed that it lacks, or a part of the device that it wastes."""
    every = [option for option in all_options if option.copies == 1]
    single = sound(every)
    if not single:
        return _nothing("one copy", "ms a step")
    ms = np.exp(step_draws(single, belief))
    near = (ms <= ms.min(axis=1, keepdims=True) / NEAR) & np.isfinite(ms)
    middle = [option.step.mean if option.fits >= 0.5 else inf for option in single]
    chosen = _smallest_near(single, middle) if belief is None else OneCopy().choose(single, ms)
    unclear = [at for at in range(len(single)) if 0.05 < near[:, at].mean() < 0.95]
    fastest = single[int(np.argmin(middle))]
    smaller = [at for at in range(len(single)) if single[at].part < single[chosen].part]
    sure = float((near[:, chosen] & ~near[:, smaller].any(axis=1)).mean()) if len(every) > 1 else None
    option = single[chosen]
    reason = (
        f"{exp(fastest.step.mean - option.step.mean):.1%} of the speed of {fastest.name}, with less of the device"
        if option is not fastest
        else "the fastest, and no smaller one of those known comes within 5 % of it"
        if smaller
        else "the fastest, and none smaller is known"
        if len(single) > 1
        else ONLY
    )
    ties = tuple(single[at].name for at in unclear if at != chosen)
    return _answer("one copy", option, every, "ms a step", lambda o: o.step, sure, ties, reason, small_is_good=True)


def _smallest_near(single: Sequence[Option], middle: Sequence[float]) -> int:
    near = [at for at, mean in enumerate(middle) if mean <= min(middle) - log(NEAR)] or [int(np.argmin(middle))]
    return min(near, key=lambda at: (single[at].part, middle[at]))


def most_work(all_options: Sequence[Option], goal: str = "most work an hour", belief: Belief | None = None) -> Answer:
    """Over all arrangements, everybody's steps together. What nobody ran has to be much better."""
    if not all_options:
        return _nothing(goal, "steps/s")
    able = sound(all_options)
    draws = rate_draws(able, belief)
    worth = _worth(able, draws, belief)
    chosen = _fewest(able, worth)
    ties, chance = _beside(able, chosen, worth, draws)
    reason = _lead(able, chosen, "the work")
    sure = chance if any(option.copies > 1 for option in able) else None
    return _answer(
        goal, able[chosen], all_options, "steps/s", lambda o: o.rate, sure, ties, reason, small_is_good=False
    )


def least_energy(all_options: Sequence[Option]) -> Answer:
    """Of the whole device a step of anybody, where that was measured."""
    known = sound([option for option in all_options if option.energy_j])
    goal, unit = "least energy a step", "J a step"
    if not known:
        return replace(_nothing(goal, unit), says=f"{goal}: energy was not measured")
    best = min(known, key=lambda option: option.energy_j or inf)
    close = [option for option in known if (option.energy_j or inf) <= (best.energy_j or inf) * (1 + TIE)]
    chosen = min(close, key=lambda option: (option.copies, option.part))
    ties = tuple(option.name for option in close if option is not chosen)
    value = Interval(chosen.energy_j or inf)
    others = sorted(((o.name, Interval(o.energy_j or inf), True) for o in known if o is not chosen), key=_value)
    warning = _failed(chosen, all_options)
    says = f"{goal}: {chosen.name}, {_number(value.value)} {unit}{warning}{_tied(ties)}"
    says += " (how sure is not known: no intervals)"
    return Answer(goal, chosen, value, unit, None, ties, tuple(others), says)


def by_deadline(all_options: Sequence[Option], steps: int, seconds: float, belief: Belief | None = None) -> Answer:
    """The smallest part of the device on which one copy surely does so many steps in time."""
    return _fast_enough(all_options, seconds * 1e3 / steps, f"{steps:,} steps in {seconds:g} s", belief)


def least_speed(all_options: Sequence[Option], steps_per_s: float, belief: Belief | None = None) -> Answer:
    """The smallest part of the device on which one copy surely is so fast."""
    return _fast_enough(all_options, 1e3 / steps_per_s, f"at least {steps_per_s:g} steps a second", belief)


def _fast_enough(all_options: Sequence[Option], limit_ms: float, goal: str, belief: Belief | None) -> Answer:
    every = [option for option in all_options if option.copies == 1]
    single = sound(every)
    if not single:
        return _nothing(goal, "ms a step")
    asked = None if belief is None else belief.asked(limit_ms)
    chances = (step_draws(single, asked) <= log(limit_ms)).mean(axis=0)
    good = [at for at, chance in enumerate(chances) if chance >= SURELY]
    if not good:
        at = max(range(len(single)), key=lambda at: (round(float(chances[at]), 2), -single[at].step.mean))
        took = f"{_number(exp(single[at].step.mean))} ms a step{_how(single[at])}, {_number(limit_ms)} ms are allowed"
        likely = f"none surely is; the likeliest is {single[at].name}: {took} ({chances[at]:.0%})"
        hopeless = f"none is fast enough; the fastest is {single[at].name}: {took}"
        says = f"{goal}: {likely if chances[at] >= HOPE else hopeless}"
        says += _failed(single[at], every)
        return replace(_nothing(goal, "ms a step"), sure=float(chances[at]), says=says)
    chosen = min(good, key=lambda at: (single[at].part, single[at].step.mean))
    unclear = [at for at in range(len(single)) if at not in good and chances[at] > 1 - SURELY]
    ties = tuple(single[at].name for at in unclear if single[at].part <= single[chosen].part)
    reason = f"{_number(exp(single[chosen].step.mean))} ms a step, {_number(limit_ms)} ms are allowed"
    sure = float(chances[chosen])
    return _answer(goal, single[chosen], every, "ms a step", lambda o: o.step, sure, ties, reason, small_is_good=True)


def mig_mps_or_neither(all_options: Sequence[Option], belief: Belief | None = None) -> Answer:
    """By the most work an hour that each way of keeping copies apart does, chosen as that is: the answers agree."""
    goal, unit, able = "MIG, MPS or neither", "steps/s", sound(all_options)
    if not able:
        return _nothing(goal, unit)
    draws = rate_draws(able, belief)
    worth = _worth(able, draws, belief)
    first = _fewest(able, worth)
    best = {_way_word(able[first]): first}
    for word in WAYS:
        own = [at for at, one in enumerate(able) if _way_word(one) == word and (one.fits >= 0.5 or one.failures)]
        if own:
            best.setdefault(word, own[_fewest([able[at] for at in own], [worth[at] for at in own])])
    at_best = list(best.values())
    ways, chosen = [able[at] for at in at_best], able[first]
    ties, chance = _beside(ways, 0, [worth[at] for at in at_best], draws[:, at_best])
    others = [
        f"{word}: {able[best[word]].name}, {_number(exp(able[best[word]].rate.mean))} steps/s{_how(able[best[word]])}"
        if word in best
        else f"{word}: not measured"
        for word in WAYS
        if best.get(word) != first
    ]
    sure = chance if any(option.copies > 1 for option in ways) else None
    answer = _answer(goal, chosen, ways, unit, lambda o: o.rate, sure, ties, "", small_is_good=False)
    claim = f"{goal}: {_way_word(chosen)}: {chosen.name}, {_number(exp(chosen.rate.mean))} steps/s"
    says = f"{claim}{_how(chosen)}; {'; '.join(others)}{_failed(chosen, all_options)}{_tied(ties)}"
    if len(best) == len(WAYS):
        return replace(answer, says=f"{says} {_how_sure(answer)}")
    of_these = f" (which of all three cannot be told; of these, {_how_sure(answer)[1:]}" if len(best) > 1 else ""
    return replace(answer, sure=None, says=f"{says}{of_these}")


def _way_word(option: Option) -> str:
    """One copy on an instance that is all of the device shares it with nobody."""
    if option.way is Way.CUT and (option.copies > 1 or option.part < 1):
        return "MIG"
    return "MPS" if option.way is Way.SHARED else "neither"


def _worth(able: Sequence[Option], draws: Floats, belief: Belief | None) -> list[float]:
    """Logs by which options are chosen for most work. What nobody ran has to be much better."""
    return [option.rate.mean for option in able] if belief is None else _expected(able, draws)


def _close(worth: Sequence[float]) -> list[int]:
    return [at for at, value in enumerate(worth) if value >= max(worth) + log(1 - TIE)]


def _fewest(able: Sequence[Option], worth: Sequence[float]) -> int:
    """The one of the fewest copies among those as good as the best."""
    return min(_close(worth), key=lambda at: (able[at].copies, able[at].part))


def _beside(
    able: Sequence[Option], chosen: int, worth: Sequence[float], draws: Floats
) -> tuple[tuple[str, ...], float]:
    """The names of those as good as the best, without the chosen one; the chance that it is as good."""
    best = max(range(len(worth)), key=worth.__getitem__)
    as_good = (draws >= draws[:, [best]] + log(1 - TIE)).mean(axis=0)
    unclear = [at for at in range(len(worth)) if as_good[at] > (1 - LEVEL) / 2]
    ties = tuple(able[at].name for at in sorted({*_close(worth), *unclear}) if at != chosen)
    runs = np.isfinite(draws[:, chosen])
    return ties, float((runs & (draws[:, chosen] >= draws.max(axis=1) + log(1 - TIE))).mean())


def _expected(all_options: Sequence[Option], draws: Floats) -> list[float]:
    """Log of the part of the best one's work that each is expected to do, as the explorer counts."""
    best = np.maximum(draws.max(axis=1, keepdims=True), -1e300)
    doubts = np.array([0.0 if option.tried else DOUBT_PCT / 100 for option in all_options])
    parts = np.maximum(np.exp(draws - best).mean(axis=0) - doubts, 1e-9)
    return list(np.log(parts))


def _lead(all_options: Sequence[Option], chosen: int, what: str) -> str:
    """How far it is ahead of one copy on the largest part."""
    single = [at for at, option in enumerate(all_options) if option.copies == 1]
    if all(option.copies == 1 for option in all_options):
        return "of one copy: no division of the device is known"
    if not single or all_options[chosen].copies == 1:
        return f"no division that is known does more by {TIE:.0%}"
    largest = max((all_options[at] for at in single), key=lambda option: option.part)
    gain = exp(all_options[chosen].rate.mean - largest.rate.mean)
    return f"{gain:.2f}x {what} of one copy on {largest.name}"


def _answer(
    goal: str,
    option: Option,
    all_options: Sequence[Option],
    unit: str,
    of: Callable[[Option], LogMean],
    sure: float | None,
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
    says = f"{goal}: {option.name}, {_number(value.value)} {unit}{span}{_how(option)}: {reason}"
    says += f"{_failed(option, all_options)}{_tied(ties)}"
    return replace(found, says=f"{says} {_how_sure(found, once)}")


def _how(option: Option) -> str:
    if option.measured:
        return ""
    doubt = f", as if copies did not slow each other down, give or take {option.doubt:.0%}" if option.doubt else ""
    return f", predicted, not measured{doubt}"


def _how_sure(answer: Answer, once: str = "") -> str:
    chance = "too little is known to compare" if answer.sure is None else f"{answer.confidence}: {answer.sure:.0%}"
    return f"({chance}{once})"


def _number(value: float) -> str:
    """Three figures that count, and all of those before the point."""
    return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.3g}"


def _tied(ties: Sequence[str]) -> str:
    return f"; {', '.join(ties)} cannot be told from it or {'is' if len(ties) == 1 else 'are'} as good" if ties else ""


def _failed(chosen: Option, all_options: Sequence[Option]) -> str:
    """What is to be known of runs that were not fine: of what was chosen, else of what was not for that reason."""
    if chosen.failures:
        return f"; but it {chosen.failures}, as did whatever else was measured"
    left_out = [f"{option.name}, which {option.failures}" for option in all_options if option.failures]
    return f"; left out: {'; '.join(left_out)}" if left_out else ""


def _nothing(goal: str, unit: str) -> Answer:
    return Answer(goal, None, None, unit, None, (), (), f"{goal}: nothing was measured that could be chosen")


def _value(row: tuple[str, Interval, bool]) -> float:
    return row[1].value


def recommend(all_options: Sequence[Option], belief: Belief | None = None) -> tuple[Answer, ...]:
    """The answers that need no more to be asked."""
    return (
        one_copy(all_options, belief),
        most_work(all_options, belief=belief),
        least_energy(all_options),
        mig_mps_or_neither(all_options, belief),
    )
