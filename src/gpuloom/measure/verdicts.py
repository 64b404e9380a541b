"""What the figures of one workload say about it, each with a test and one sentence that has its numbers.

A verdict holds, does not, or cannot be told yet: the interval is 90 %, so of what is not so, one in twenty is taken for
so. Where one of several comparisons is enough (some division does more work, some copies are slower) each has a wider
interval, so that this stays one in twenty for all of them (Bonferroni); where all have to hold, none needs that.
Verdicts rest on step times; activity counters, where there are some, are told beside them and decide nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from gpuloom.gpus.model import GpuModel
from gpuloom.measure.arrangement import Way
from gpuloom.measure.figures import LEVEL, Figure, Interval, LogMean, alone, in_parallel
from gpuloom.measure.results import Outcome

FULL = 1.1
"""Who gains no more than this from any division of the device fills it by himself."""
SAME_PCT = 2.0
"""Margin of the equivalence test: so much slower than alone is called no interference."""
HARDLY = 1.05
"""Who gains no more than this from the whole device over his smallest slice is limited by something else."""
BUSY_CPUS, IDLE_CPUS, ONE_CPU = 0.8, 0.5, 1.1
CROWDED = 0.9
"""Copies that use so much of the host's CPUs together leave it nothing to spare."""
WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


@dataclass(frozen=True, slots=True)
class Verdict:
    about: str
    """`scaling`, `saturation`, `interference`, `host`, `memory`, `failures`."""
    workload: str
    holds: bool | None
    """Of the word in `about`; None: cannot be told yet, or not at all."""
    says: str
    ratio: Interval | None = None


def verdicts(
    found: Sequence[Figure], model: GpuModel, workload: str, host_cpus: int | None = None
) -> tuple[Verdict, ...]:
    """All that can be said of one workload. `host_cpus`: how many the host has beside the device; None: not known."""
    by_place = alone(found, workload)
    parts = in_parallel(found, workload)
    beside = [figure for figure in parts if figure.seat.place in by_place]
    slowed = [interference(figure, by_place, of=len(beside)) for figure in beside]
    said = [
        scaling(by_place, parts, workload, model),
        saturation(by_place, parts, workload, model),
        *slowed,
        host_bound(by_place, workload, model, host_cpus),
        *(crowded(figure, one, host_cpus) for figure, one in zip(beside, slowed, strict=True)),
        memory(by_place, workload, model),
        failures([*by_place.values(), *parts], by_place, workload),
    ]
    return tuple(verdict for verdict in said if verdict is not None)


def part_of(figure: Figure, model: GpuModel) -> float:
    """Of the device's compute, that one copy has."""
    seat = figure.seat
    cut = model.by_name[seat.profile].slices / max(p.slices for p in model.profiles) if seat.profile else 1.0
    return cut * seat.share_pct / 100


def whole(by_place: dict[str, Figure], model: GpuModel) -> Figure | None:
    """One copy with all of the device; uncut if that was measured."""
    full = [f for f in by_place.values() if f.step is not None and f.way is not Way.TOGETHER and part_of(f, model) >= 1]
    return min(full, key=lambda figure: figure.seat.profile is not None, default=None)


def scaling(by_place: dict[str, Figure], parts: Sequence[Figure], workload: str, model: GpuModel) -> Verdict | None:
    """Does dividing the device do more work?"""
    gains = _gains(by_place, parts, model)
    if not gains:
        return None
    holds, level = any_above([gain for _, gain in gains], 1.0), one_of(len(gains))
    surely = [one for one in gains if above(one[1].within(level), 1.0)]
    best, gain = max(surely or gains, key=lambda one: one[1].mean)
    ends = gain.within(level)
    claim = (
        f"{count_words(best.copies)} copies on {best.seat.place} do {times(ends)} the work of one on the whole device"
    )
    if holds is None:
        claim += "; whether that is more cannot be told yet: more repetitions are needed"
    return Verdict("scaling", workload, holds, claim, ends)


def saturation(by_place: dict[str, Figure], parts: Sequence[Figure], workload: str, model: GpuModel) -> Verdict | None:
    """Does one copy fill the device?"""
    gains = [gain for _, gain in _gains(by_place, parts, model)]
    base = whole(by_place, model)
    if base is None or not gains:
        return None
    unknown = [f.arrangement for f in parts if f.step is None and not f.out_of_memory]
    counted = _activity(base)
    more, level = any_above(gains, FULL), one_of(len(gains))
    if more:
        surely = [gain for gain in gains if above(gain.within(level), FULL)]
        ends = max(surely, key=lambda gain: gain.mean).within(level)
        says = f"does not fill the device by itself: dividing it does {times(ends)} the work{counted}"
        return Verdict("saturation", workload, False, says, ends)
    ends = max((gain.within(LEVEL if more is False else level) for gain in gains), key=_at_most)
    if more is False and unknown:
        failed = f"{', '.join(unknown)} failed, and what else was tried does {times(ends)} the work at most"
        says = f"whether it fills the device by itself cannot be told: {failed}{counted}"
        return Verdict("saturation", workload, None, says, ends)
    if more is False:
        says = f"fills the device by itself: no division that was tried does more than {times(ends)} the work{counted}"
        return Verdict("saturation", workload, True, says, ends)
    says = f"whether it fills the device by itself cannot be told yet: dividing it does {times(ends)} the work{counted}"
    return Verdict("saturation", workload, None, says, ends)


def _gains(by_place: dict[str, Figure], parts: Sequence[Figure], model: GpuModel) -> list[tuple[Figure, LogMean]]:
    """Of every division of the device: the work that it does, against one copy with all of it."""
    base = whole(by_place, model)
    return [(f, f.rate.minus(base.rate)) for f in parts if f.rate and base and base.rate]


def _at_most(ends: Interval) -> float:
    return inf if ends.high is None else ends.high


def interference(
    figure: Figure, by_place: dict[str, Figure], same_pct: float = SAME_PCT, of: int = 1
) -> Verdict | None:
    """Do copies in their own seats slow each other down? An equivalence test with a stated margin.

    `of`: so many arrangements are asked, and any of them may look slower by chance.
    """
    solo = by_place.get(figure.seat.place)
    if solo is None or solo.step is None or figure.step is None:
        return None
    slower = figure.step.minus(solo.step)
    ends, sure, name = slower.interval, slower.within(one_of(of)), figure.arrangement
    if ends.low is None or ends.high is None:
        says = f"{name}: cannot be told yet: more repetitions are needed ({percent(ends.value)} against alone)"
        return Verdict("interference", figure.seat.workload, None, says, ends)
    span = f"90 % interval {percent(ends.low)} to {percent(ends.high)}"
    inside = 1 - same_pct / 100 <= ends.low and ends.high <= 1 + same_pct / 100
    if inside:
        says, holds = f"{name}: none: within {same_pct:g} % of alone ({span})", False
    elif above(sure, 1.0):
        says, holds = f"{name}: {(ends.value - 1) * 100:.1f} % slower than alone ({span})", True
    elif above(sure, 1.0) is False:
        says, holds = f"{name}: none: {(1 - ends.value) * 100:.1f} % faster than alone ({span})", False
    else:
        says, holds = f"{name}: cannot be told yet: more repetitions are needed ({span})", None
    return Verdict("interference", figure.seat.workload, holds, says, ends)


def host_bound(
    by_place: dict[str, Figure], workload: str, model: GpuModel, host_cpus: int | None = None
) -> Verdict | None:
    """Would a larger slice help, and if not, is the CPU what it waits for?"""
    base = whole(by_place, model)
    cut = [f for f in by_place.values() if f.way is Way.CUT and f.step is not None and part_of(f, model) < 1]
    least = min(cut, key=lambda figure: part_of(figure, model), default=None)
    if base is None or base.step is None or least is None or least.step is None:
        return None
    slower = least.step.minus(base.step).interval
    more = above(slower, HARDLY)
    span = f"a step on {least.seat.place} takes {times(slower)} as long as on the whole device{_activity(base)}"
    if more is None:
        return Verdict("host", workload, None, f"cannot be told yet: {span}", slower)
    if more:
        return Verdict("host", workload, False, f"a larger slice helps: {span}", slower)
    holds, why = _what_limits(base, host_cpus)
    return Verdict("host", workload, holds, f"{why}, a larger slice will not help: {span}", slower)


def _what_limits(base: Figure, host_cpus: int | None) -> tuple[bool | None, str]:
    """By the CPU time of a step; CPUs, seconds a second, times the step's time is that. It is of all threads: of
    several that are busy nobody knows whether one is waited for, unless they have all CPUs there are."""
    if base.host_cpus is None or base.step_ms is None:
        return None, "the device is not the limit (the CPU's time was not measured, so what is cannot be told)"
    spent = f"{base.host_cpus * base.step_ms.value:.3g} ms of CPU time in a step of {base.step_ms.value:.3g} ms"
    if host_cpus is not None and base.host_cpus >= CROWDED * host_cpus:
        return True, f"the CPU is the limit: it uses {base.host_cpus:.3g} of the host's {host_cpus} CPUs ({spent})"
    if BUSY_CPUS <= base.host_cpus <= ONE_CPU:
        return True, f"a step spends {min(base.host_cpus, 1.0):.0%} of its time on the CPU ({spent})"
    if base.host_cpus > ONE_CPU:
        busy = f"it keeps {base.host_cpus:.3g} CPUs busy"
        return None, f"the device is not the limit, and whether the CPU is cannot be told: {busy} ({spent})"
    if base.host_cpus < IDLE_CPUS:
        return False, f"neither the device nor the CPU is the limit ({spent}: it waits for something else)"
    return None, f"the device is not the limit, and the CPU may be ({spent})"


def crowded(figure: Figure, slowed: Verdict | None, host_cpus: int | None) -> Verdict | None:
    """Are copies slower beside each other while the host's CPUs are all in use? Their device is not all they share."""
    if slowed is None or not slowed.holds or host_cpus is None or figure.host_cpus is None:
        return None
    used = figure.host_cpus * figure.copies
    if used < CROWDED * host_cpus:
        return None
    says = (
        f"{figure.arrangement}: the CPU is the limit: the copies use {used:.3g} of the host's {host_cpus} CPUs together"
    )
    return Verdict("host", figure.seat.workload, True, f"{says}, and slow each other down")


def _activity(figure: Figure) -> str:
    """What was counted on the whole device, beside a verdict that rests on step times; or that nobody counted."""
    if figure.activity is None:
        return "; no activity counters, this rests on step times"
    counted = ", ".join(f"{name} {value:.0%}" for name, value in figure.activity.items())
    return f"; this rests on step times, the whole device's counters are {counted}"


def memory(by_place: dict[str, Figure], workload: str, model: GpuModel) -> Verdict | None:
    """The smallest place on which it ran. A share of the device has all of its memory, so one is named only where
    nothing else ran."""
    anywhere = [f for f in by_place.values() if f.step is not None]
    out = [f for f in by_place.values() if f.out_of_memory]
    if not anywhere:
        return Verdict("memory", workload, False, "it ran nowhere") if by_place else None
    ran = [f for f in anywhere if f.seat.share_pct >= 100] or anywhere
    always = [f for f in ran if Outcome.OUT_OF_MEMORY not in f.outcomes] or ran
    least = min(always, key=lambda figure: (part_of(figure, model), figure.seat.place))
    lacks = ", ".join(f.seat.place for f in sorted(out, key=lambda figure: part_of(figure, model)))
    peak = "" if least.mem_peak_mib is None else f" with {least.mem_peak_mib:,.0f} MiB at most"
    says = f"the smallest place on which it ran is {least.seat.place}{peak}"
    says += _more_elsewhere(least, [f for f in ran if f is not least], model)
    some = [f for f in ran if Outcome.OUT_OF_MEMORY in f.outcomes]
    says += f"; out of memory on {lacks}" if lacks else ""
    says += "".join(f"; on {f.seat.place} it {f.failures}" for f in some)
    return Verdict("memory", workload, not out and not some, says)


def _more_elsewhere(least: Figure, others: Sequence[Figure], model: GpuModel) -> str:
    """What it was seen to use where there is more, if that is more than the smallest place has."""
    room_mib = model.by_name[least.seat.profile].mem_mib if least.seat.profile else inf
    most = max(others, key=lambda figure: figure.mem_peak_mib or 0.0, default=least)
    if most.mem_peak_mib is None or most.mem_peak_mib <= room_mib:
        return ""
    used = f"up to {most.mem_peak_mib:,.0f} MiB were used on {most.seat.place}"
    return f"; but {used}, more than the {room_mib:,.0f} MiB that it has: longer runs may need them"


def failures(tried: Sequence[Figure], by_place: dict[str, Figure], workload: str) -> Verdict | None:
    """Where runs were not fine. Not where memory ran out for one alone in every run: that is `memory`'s."""
    told = []
    for figure in tried:
        solo = by_place.get(figure.seat.place)
        if figure.failures and not (figure.out_of_memory and solo is not None and solo.out_of_memory):
            told.append(f"{figure.arrangement} {figure.failures}")
    return Verdict("failures", workload, True, "; ".join(told)) if told else None


def one_of(comparisons: int) -> float:
    """The level of each interval, if any of so many may be the one that counts."""
    return 1 - (1 - LEVEL) / max(comparisons, 1)


def above(ends: Interval, limit: float) -> bool | None:
    """Whether a ratio is above a limit; None if its interval holds it, or is not known."""
    if ends.low is None or ends.high is None:
        return None
    return True if ends.low > limit else False if ends.high <= limit else None


def any_above(ratios: Sequence[LogMean], limit: float) -> bool | None:
    """Whether one of them is, which of several looks so by chance; that none is has to hold for each."""
    if any(above(ratio.within(one_of(len(ratios))), limit) for ratio in ratios):
        return True
    return False if all(above(ratio.interval, limit) is False for ratio in ratios) else None


def times(ends: Interval) -> str:
    if ends.low is None or ends.high is None:
        return f"{ends.value:.2f}x (how sure that is, is not known)"
    return f"{ends.value:.2f}x ({ends.low:.2f} to {ends.high:.2f})"


def percent(ratio: float) -> str:
    return f"{round((ratio - 1) * 100, 1) + 0.0:+.1f} %".replace("-", "−")


def count_words(count: int) -> str:
    return WORDS[count] if count < len(WORDS) else f"{count:,}"
