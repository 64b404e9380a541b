"""Steps: when a copy has warmed up, in which time all copies of a run are steady, and how long a step took then. Pure.

A report says that so many steps were done at some time. Between two reports lie one or more steps, a block.

**Warm-up** is found, not assumed. Reports are taken together to BLOCKS blocks or some more, so that a stall that comes
again and again (a data loader's) is in all of them. The warm-up ends at the block from which on the mean of the rest
is known best: where the standard error of the mean of the remaining blocks is smallest (the MSER rule of simulation
studies), of their ranks rather than their times. So a slow step now and then (a checkpoint, a garbage collection), as
slow as it may be, is a part of the work and does not move the end of the warm-up, and no bound is needed on how far a
warm-up step may be off. At most half of the reports are given up.

A run has not seen enough while some beginning of what would count is unlike the rest: then the warm-up was longer than
half of the reports, or hidden among stalls that are as slow.

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
SHORTEST_S = 1e-9
"""Of a block."""
BLOCKS = 20
ALIKE = 0.01
"""Blocks that differ by so small a part of the median differ by what the clock does."""
UNLIKE_ERRORS, UNLIKE_PCT = 2.5, 5.0
"""A beginning is not like the rest if it differs by so many standard errors, and by so many per cent."""
STILL, STILL_S, STILL_PART = 5.0, 2.0, 0.25
"""Who says nothing for so many times his longest silence, so long, and for such a part of his time does not step."""
SLOW, SLOW_S = 10.0, 0.1
"""A clock by which steps take so much less than they were seen to take, and this besides, is wrong."""
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
    seen_s: float | None = None
    """When that was seen, by the same clock, if `at_s` is what its teller says; None: they are the same."""


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


@dataclass(frozen=True, slots=True)
class Stillness:
    silent_s: float
    """Since its last report."""
    slowest_s: float
    """The longest between two before."""


def is_misclocked(heard: Sequence[Heard]) -> bool:
    """Whether its teller's clock hardly moves while steps are seen to be done: it may have another unit. What is told
    late, but with its own times, is not: those are the better ones."""
    if len(heard) < LEAST_REPORTS:
        return False
    first, last = as_seen((heard[0], heard[-1]))
    return last.at_s - first.at_s > SLOW * max(heard[-1].at_s - heard[0].at_s, 0.0) + SLOW_S


def as_seen(heard: Sequence[Heard]) -> list[Heard]:
    return [one if one.seen_s is None else Heard(one.seen_s, one.step) for one in heard]


def warm_up(heard: Sequence[Heard]) -> int:
    """The index of the report from which on steps are steady."""
    took, size = _blocks_s(heard)
    if len(took) < 2:
        return 0
    ranks = _ranks(np.round(np.log(took / np.median(took)) / ALIKE))
    counts = np.arange(len(ranks), 0, -1)
    means = np.cumsum(ranks[::-1])[::-1] / counts
    squares = np.cumsum((ranks**2)[::-1])[::-1] / counts
    errors = (squares - means**2) / counts
    most = (len(heard) - 1) // 2 // size
    # Of equal ones the first, whatever the last digits say.
    return int(np.argmin(np.round(errors[: most + 1], 9))) * size


def _blocks_s(heard: Sequence[Heard]) -> tuple[Floats, int]:
    """Times per step of blocks, and how many reports make one."""
    size = max((len(heard) - 1) // BLOCKS, 1)
    ends = [*heard[:-1:size], heard[-1]] if len(heard) > 1 else []
    at, steps = np.array([one.at_s for one in ends]), np.array([float(one.step) for one in ends])
    took: Floats = np.maximum(np.diff(at), SHORTEST_S) / np.maximum(np.diff(steps), 1.0)
    return took, size


def _ranks(values: Floats) -> Floats:
    """Equals share the mean of theirs."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: Floats = (np.cumsum(counts) - (counts - 1) / 2)[which]
    return ranks


def _is_even(heard: Sequence[Heard]) -> bool:
    """Whether no beginning of it is unlike the rest: by ranks (Mann and Whitney), and by its mean."""
    took, _ = _blocks_s(heard)
    if len(took) < LEAST_STEPS:
        return True
    ranks, total = _ranks(took), len(took)
    counts = np.arange(1, total)
    above = np.cumsum(ranks)[:-1] - counts * (total + 1) / 2
    errors = np.sqrt(counts * (total - counts) / (total - 1) * max(float(ranks.var()), 1e-9))
    split = int(np.argmax(np.abs(above) / errors)) + 1
    differ = float(took[:split].mean() / took[split:].mean() - 1)
    return abs(above[split - 1]) <= UNLIKE_ERRORS * errors[split - 1] or abs(differ) <= UNLIKE_PCT / 100


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
    inside = _inside(heard, within)
    if len(inside) < LEAST_REPORTS:
        return None
    first, last = inside[0], inside[-1]
    steps, seconds = last.step - first.step, last.at_s - first.at_s
    if steps < LEAST_STEPS or seconds <= 0:
        return None
    return Stretch(first.step - heard[0].step, steps, seconds, *_percentiles_ms(inside, late_s))


def _inside(heard: Sequence[Heard], within: Window) -> list[Heard]:
    return [one for one in heard if within.begin_s <= one.at_s <= within.end_s]


def _percentiles_ms(inside: Sequence[Heard], late_s: float) -> tuple[float, ...]:
    lone = np.diff([one.step for one in inside]) == 1
    took_ms = np.diff([one.at_s for one in inside])[lone] * 1e3
    if lone.sum() < SINGLY * (inside[-1].step - inside[0].step):
        return ()
    found = np.percentile(took_ms, (50, 95, 99))
    return () if found[0] < COARSE * late_s * 1e3 else tuple(map(float, found))


def still(heard: Sequence[Heard], end_s: float) -> Stillness | None:
    """Whether it does no more steps, by what its own steps took since its warm-up; None if it goes on, or too little
    is known."""
    if len(heard) <= LEAST_REPORTS:
        return None
    slowest_s = float(np.diff([one.at_s for one in heard[warm_up(heard) :]]).max())
    silent_s = end_s - heard[-1].at_s
    usual_s = max(STILL * slowest_s, STILL_S, STILL_PART * (end_s - heard[0].at_s))
    return Stillness(silent_s, slowest_s) if silent_s > usual_s else None


def is_enough(copies: Sequence[Sequence[Heard]], now_s: float, steps: int) -> bool:
    """Whether every copy has done so many in the window up to now, and no warm-up can be seen among them."""
    within = window(copies, now_s)
    found = [stretch(heard, within) for heard in copies]
    if within is None or not all(one is not None and one.steps >= steps for one in found):
        return False
    return all(map(_is_even, (_inside(heard, within) for heard in copies)))


def goes_back(heard: Sequence[Heard], news: Sequence[Heard]) -> tuple[int, int] | None:
    """The first report with fewer steps than the one before: both; None if there is none."""
    last = heard[-1].step if heard else None
    for one in news:
        if last is not None and one.step < last:
            return last, one.step
        last = one.step
    return None
