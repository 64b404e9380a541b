"""Steps: when a copy has warmed up, in which time all copies of a run are steady, and how long a step took then. Pure.

A report says that so many steps were done at some time. Between two reports lie one or more steps, a block.

**Warm-up** is found, not assumed. It ends at the report from which on the mean of the rest is known best: where the
standard error of the mean of the remaining blocks is smallest (the MSER rule of simulation studies). Blocks are looked
at as time per step, and one that is far from the median of the later half counts as no further than CAP deviations, so
that a slow step now and then (a checkpoint, a garbage collection) is a part of the work and does not move the end of
the warm-up. At most half of the reports are given up.

**The window** of a run is the time in which all copies are past their own warm-up and still running. A copy's warm-up
is looked for from when all copies have reported: before, it had the device to itself. Steps outside are not counted.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpuloom.perf.arrays import Floats

LEAST_STEPS = 5
"""With fewer nothing is said about a step's time."""
LEAST_REPORTS = 3
CAP = 5.0
"""Robust standard deviations."""
LEAST_SPREAD = 0.01
"""Of the median: a spread below that is the clock's."""
SINGLY = 0.9
"""So much of the steps must have been seen one by one for percentiles."""
COARSE = 10.0
"""And a step must be so much longer than the time stamps are wrong."""


@dataclass(frozen=True, slots=True)
class Heard:
    """So many steps were done then."""

    at_s: float
    """By the kernel's monotonic clock."""
    step: int


@dataclass(frozen=True, slots=True)
class Window:
    begin_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Stretch:
    """What one copy did in the window."""

    before: int
    """Steps that it did until then, the warm-up."""
    steps: int
    seconds: float
    p50_ms: float | None = None
    """Percentiles: None if the steps were not seen one by one."""
    p95_ms: float | None = None
    p99_ms: float | None = None

    @property
    def step_ms(self) -> float:
        return self.seconds * 1e3 / self.steps


def warm_up(heard: Sequence[Heard]) -> int:
    """The index of the report from which on steps are steady."""
    took = _per_step_s(heard)
    if len(took) < 2:
        return 0
    later = took[len(took) // 2 :]
    middle = float(np.median(later))
    spread = max(1.4826 * float(np.median(np.abs(later - middle))), LEAST_SPREAD * middle)
    capped = np.clip(took, middle - CAP * spread, middle + CAP * spread)
    counts = np.arange(len(capped), 0, -1)
    means = np.cumsum(capped[::-1])[::-1] / counts
    squares = np.cumsum((capped**2)[::-1])[::-1] / counts
    errors = np.maximum(squares - means**2, (LEAST_SPREAD * middle) ** 2) / counts
    return int(np.argmin(errors[: len(took) // 2 + 1]))


def _per_step_s(heard: Sequence[Heard]) -> Floats:
    at, steps = np.array([one.at_s for one in heard]), np.array([float(one.step) for one in heard])
    took: Floats = np.diff(at) / np.maximum(np.diff(steps), 1.0)
    return took


def window(copies: Sequence[Sequence[Heard]], end_s: float) -> Window | None:
    """In which all are steady, up to `end_s`, when the first of them ended or was asked to; None if there is none."""
    if not all(copies):
        return None
    all_there_s = max(heard[0].at_s for heard in copies)
    begin_s = all_there_s
    for heard in copies:
        beside = [one for one in heard if all_there_s <= one.at_s <= end_s]
        if not beside:
            return None
        begin_s = max(begin_s, beside[warm_up(beside)].at_s)
    return Window(begin_s, end_s) if begin_s < end_s else None


def stretch(heard: Sequence[Heard], within: Window | None, late_s: float = 0.0) -> Stretch | None:
    """From its first report in the window to its last; None if that is too little. `late_s`: how late times may be."""
    if within is None:
        return None
    inside = [one for one in heard if within.begin_s <= one.at_s <= within.end_s]
    if len(inside) < LEAST_REPORTS:
        return None
    first, last = inside[0], inside[-1]
    steps, seconds = last.step - first.step, last.at_s - first.at_s
    if steps < LEAST_STEPS or seconds <= 0:
        return None
    return Stretch(first.step - heard[0].step, steps, seconds, *_percentiles_ms(inside, late_s))


def _percentiles_ms(inside: Sequence[Heard], late_s: float) -> tuple[float, ...]:
    lone = np.diff([one.step for one in inside]) == 1
    took_ms = np.diff([one.at_s for one in inside])[lone] * 1e3
    if lone.sum() < SINGLY * (inside[-1].step - inside[0].step):
        return ()
    found = np.percentile(took_ms, (50, 95, 99))
    return () if found[0] < COARSE * late_s * 1e3 else tuple(map(float, found))


def is_enough(copies: Sequence[Sequence[Heard]], now_s: float, steps: int) -> bool:
    """Whether every copy has done so many in the window up to now."""
    within = window(copies, now_s)
    found = [stretch(heard, within) for heard in copies]
    return all(one is not None and one.steps >= steps for one in found)


def goes_back(heard: Sequence[Heard], news: Sequence[Heard]) -> tuple[int, int] | None:
    """The first report with fewer steps than the one before: both; None if there is none."""
    last = heard[-1].step if heard else None
    for one in news:
        if last is not None and one.step < last:
            return last, one.step
        last = one.step
    return None
