"""What the figures of one workload say about it, each with a test and one sentence that has its numbers.

A verdict holds, does not, or cannot be told yet: the interval is 90 %, so of what is not so, one in twenty is taken for
so. Verdicts rest on step times; activity counters, where there are some, are told beside them and decide nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gpuloom.gpus.model import GpuModel
from gpuloom.measure.arrangement import Way
from gpuloom.measure.figures import Figure, Interval, LogMean, alone, in_parallel

FULL = 1.1
"""Who gains no more than this from any division of the device fills it by himself."""
SAME_PCT = 2.0
"""Margin of the equivalence test: so much slower than alone is called no interference."""
HARDLY = 1.05
"""Who gains no more than this from the whole device over his smallest slice is limited by something else."""
BUSY_CPUS, IDLE_CPUS = 0.8, 0.5
WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


@dataclass(frozen=True, slots=True)
class Verdict:
    about: str
    """`scaling`, `saturation`, `interference`, `host`, `memory`."""
    workload: str
    holds: bool | None
    """Of the word in `about`; None: cannot be told yet, or not at all."""
    says: str
    ratio: Interval | None = None


def verdicts(found: Sequence[Figure], model: GpuModel, workload: str) -> tuple[Verdict, ...]:
    """All that can be said of one workload."""
    by_place = alone(found, workload)
    parts = in_parallel(found, workload)
    said = [
        scaling(by_place, parts, workload, model),
        saturation(by_place, parts, workload, model),
        *(interference(figure, by_place) for figure in parts if figure.seat.place in by_place),
        host_bound(by_place, workload, model),
        memory(by_place, workload, model),
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
    base = whole(by_place, model)
    best = max((f for f in parts if f.rate is not None), key=lambda f: f.rate.mean if f.rate else 0.0, default=None)
    if base is None or base.rate is None or best is None or best.rate is None:
        return None
    gain = best.rate.minus(base.rate)
    where = f"{count_words(best.copies)} copies on {best.seat.place}"
    claim = f"{where} do {times(gain)} the work of one on the whole device"
    holds = above(gain, 1.0)
    if holds is None:
        claim += "; whether that is more cannot be told yet: more repetitions are needed"
    return Verdict("scaling", workload, holds, claim, gain.interval)


def saturation(by_place: dict[str, Figure], parts: Sequence[Figure], workload: str, model: GpuModel) -> Verdict | None:
    """Does one copy fill the device?"""
    base = whole(by_place, model)
    gains = [f.rate.minus(base.rate) for f in parts if f.rate and base and base.rate]
    if base is None or not gains:
        return None
    best = max(gains, key=lambda gain: gain.mean)
    more = above(best, FULL)
    if more is None:
        says = f"whether it fills the device by itself cannot be told yet: dividing it does {times(best)} the work"
    elif more:
        says = f"does not fill the device by itself: dividing it does {times(best)} the work"
    else:
        says = f"fills the device by itself: no division of it does more than {times(best)} the work"
    says += _activity(base)
    return Verdict("saturation", workload, None if more is None else not more, says, best.interval)


def interference(figure: Figure, by_place: dict[str, Figure], same_pct: float = SAME_PCT) -> Verdict | None:
    """Do copies in their own seats slow each other down? An equivalence test with a stated margin."""
    solo = by_place.get(figure.seat.place)
    if solo is None or solo.step is None or figure.step is None:
        return None
    slower = figure.step.minus(solo.step)
    ends, name = slower.interval, f"{figure.arrangement}"
    if ends.low is None or ends.high is None:
        says = f"{name}: cannot be told yet: more repetitions are needed ({percent(ends.value)} against alone)"
        return Verdict("interference", figure.seat.workload, None, says, ends)
    span = f"90 % interval {percent(ends.low)} to {percent(ends.high)}"
    inside = 1 - same_pct / 100 <= ends.low and ends.high <= 1 + same_pct / 100
    if inside:
        says, holds = f"{name}: none: within {same_pct:g} % of alone ({span})", False
    elif ends.low > 1:
        says, holds = f"{name}: {(ends.value - 1) * 100:.1f} % slower than alone ({span})", True
    elif ends.high < 1:
        says, holds = f"{name}: none: {(1 - ends.value) * 100:.1f} % faster than alone ({span})", False
    else:
        says, holds = f"{name}: cannot be told yet: more repetitions are needed ({span})", None
    return Verdict("interference", figure.seat.workload, holds, says, ends)


def host_bound(by_place: dict[str, Figure], workload: str, model: GpuModel) -> Verdict | None:
    """Would a larger slice help, and if not, is the CPU what it waits for?"""
    base = whole(by_place, model)
    cut = [f for f in by_place.values() if f.way is Way.CUT and f.step is not None and part_of(f, model) < 1]
    least = min(cut, key=lambda figure: part_of(figure, model), default=None)
    if base is None or base.step is None or least is None or least.step is None:
        return None
    slower = least.step.minus(base.step)
    more = above(slower, HARDLY)
    span = f"a step on {least.seat.place} takes {times(slower)} as long as on the whole device{_activity(base)}"
    if more is None:
        return Verdict("host", workload, None, f"cannot be told yet: {span}", slower.interval)
    if more:
        return Verdict("host", workload, False, f"a larger slice helps: {span}", slower.interval)
    holds, why = _what_limits(base)
    return Verdict("host", workload, holds, f"{why}, a larger slice will not help: {span}", slower.interval)


def _what_limits(base: Figure) -> tuple[bool | None, str]:
    """By the CPU time of a step; CPUs, seconds a second, times the step's time is that."""
    if base.host_cpus is None or base.step_ms is None:
        return None, "the device is not the limit (the CPU's time was not measured, so what is cannot be told)"
    spent = f"{base.host_cpus * base.step_ms.value:.3g} ms of CPU time in a step of {base.step_ms.value:.3g} ms"
    if base.host_cpus >= BUSY_CPUS:
        return True, f"the CPU is the limit ({spent})"
    if base.host_cpus < IDLE_CPUS:
        return False, f"neither the device nor the CPU is the limit ({spent}: it waits for something else)"
    return None, f"the device is not the limit, and the CPU may be ({spent})"


def _activity(figure: Figure) -> str:
    """What was counted on the whole device, beside a verdict that rests on step times; or that nobody counted."""
    if figure.activity is None:
        return "; no activity counters, this rests on step times"
    counted = ", ".join(f"{name} {value:.0%}" for name, value in figure.activity.items())
    return f"; this rests on step times, the whole device's counters are {counted}"


def memory(by_place: dict[str, Figure], workload: str, model: GpuModel) -> Verdict | None:
    """The smallest place on which it ran."""
    ran = [f for f in by_place.values() if f.step is not None and f.seat.share_pct >= 100]
    out = [f for f in by_place.values() if f.out_of_memory]
    if not ran:
        return Verdict("memory", workload, False, "it ran nowhere") if by_place else None
    least = min(ran, key=lambda figure: (part_of(figure, model), figure.seat.place))
    lacks = ", ".join(f.seat.place for f in sorted(out, key=lambda figure: part_of(figure, model)))
    peak = "" if least.mem_peak_mib is None else f" with {least.mem_peak_mib:,.0f} MiB at most"
    says = f"the smallest place on which it ran is {least.seat.place}{peak}"
    return Verdict("memory", workload, not out, says + (f"; out of memory on {lacks}" if lacks else ""))


def above(ratio: LogMean, limit: float) -> bool | None:
    """Whether a ratio is above a limit; None if its interval holds it, or is not known."""
    ends = ratio.interval
    if ends.low is None or ends.high is None:
        return None
    return True if ends.low > limit else False if ends.high <= limit else None


def times(ratio: LogMean) -> str:
    ends = ratio.interval
    if ends.low is None or ends.high is None:
        return f"{ends.value:.2f}x (measured once: how sure that is, is not known)"
    return f"{ends.value:.2f}x ({ends.low:.2f} to {ends.high:.2f})"


def percent(ratio: float) -> str:
    return f"{(ratio - 1) * 100:+.1f} %".replace("-", "−")


def count_words(count: int) -> str:
    return WORDS[count] if count < len(WORDS) else f"{count:,}"
