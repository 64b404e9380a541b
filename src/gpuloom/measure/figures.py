"""From measured rows to figures: what a workload did in an arrangement, with 90 % intervals over repetitions.

What varies is the run, not the step: thousands of steps of one run share its luck, so a repetition counts once, however
many steps and copies it had. All is done on logs: step times differ by per cents, not by milliseconds. A repetition's
copies are taken together before repetitions are compared, so that what they share (power, the host) is paired.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, log, sqrt
from statistics import fmean

from scipy.special import stdtrit

from gpuloom.measure.arrangement import Seat, Way
from gpuloom.measure.results import Copy, Outcome
from gpuloom.measure.spread import Pools, Spread, differs, pools, spread

LEVEL = 0.9
KNOWN = 1e6
"""Degrees of freedom of an error that is as good as known."""
FARTHEST = 1000.0
"""An interval that reaches further than this factor to either side tells nothing."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure with the ends of its 90 % interval; None: unknown, as from a single repetition, or telling nothing."""

    value: float
    low: float | None = None
    high: float | None = None

    def times(self, factor: float) -> "Interval":
        ends = sorted(end * factor for end in (self.low, self.high) if end is not None)
        return Interval(self.value * factor, *ends)


@dataclass(frozen=True, slots=True)
class LogMean:
    """The mean of a log, how far off it may be, and how well that is known."""

    mean: float
    error: float | None = None
    """Standard error; None: unknown."""
    freedom: float = 0.0
    pooled: bool = False
    """The error is from a variance that other figures share."""

    @property
    def interval(self) -> Interval:
        return self.within(LEVEL)

    def within(self, level: float) -> Interval:
        """With the ends of another interval: of several comparisons each needs a wider one."""
        if self.error is None:
            return Interval(exp(self.mean))
        reach = float(stdtrit(self.freedom, (1 + level) / 2)) * self.error
        if reach > log(FARTHEST):
            return Interval(exp(self.mean))
        return Interval(exp(self.mean), exp(self.mean - reach), exp(self.mean + reach))

    def minus(self, other: "LogMean") -> "LogMean":
        """Of a ratio (Welch). Two errors from the same variance have the freedom of one."""
        mean = self.mean - other.mean
        if self.error is None or other.error is None:
            return LogMean(mean)
        squares = self.error**2, other.error**2
        both = self.pooled and other.pooled
        if both or not sum(squares):
            return LogMean(mean, sqrt(sum(squares)), min(self.freedom, other.freedom), both)
        parts = squares[0] ** 2 / self.freedom + squares[1] ** 2 / other.freedom
        return LogMean(mean, sqrt(sum(squares)), sum(squares) ** 2 / parts)

    def plus(self, shift: float) -> "LogMean":
        return replace(self, mean=self.mean + shift)

    def doubted(self, doubt: float) -> "LogMean":
        """With so large a further standard error, which is taken for known."""
        if self.error is None:
            return self
        both = self.error**2 + doubt**2
        own_part = self.error**2 / both if both else 1.0  # of repetitions that did not differ none
        return LogMean(self.mean, sqrt(both), self.freedom / max(own_part**2, self.freedom / KNOWN))


@dataclass(frozen=True, slots=True)
class Figure:
    """One workload in one kind of seat of one arrangement."""

    arrangement: str
    way: Way
    seat: Seat
    copies: int
    """In the run, of whatever workload."""
    seats: int
    """Of these copies, how many had such a seat and this workload."""
    repetitions: int
    """That were fine in all of these seats."""
    runs: int
    """All, with those that were not."""
    failed: int
    """Runs in which a copy did what it may do again: ran out of memory, crashed, told no steps."""
    outcomes: Mapping[Outcome, int]
    """Of all copies."""
    step: LogMean | None
    """Log of a copy's step time in ms; None if no repetition was fine."""
    rate: LogMean | None
    """Log of steps a second, summed over these copies."""
    energy_j: float | None = None
    """A step of anybody, of the whole device."""
    power_w: float | None = None
    mem_peak_mib: float | None = None
    host_cpus: float | None = None
    """Of a copy."""
    activity: Mapping[str, float] | None = None
    """Counters by name, those that were had; None if none was."""
    said: tuple[str, ...] = ()

    @property
    def pooled(self) -> bool:
        """Its errors are from a variance that other figures share."""
        return self.step is not None and self.step.pooled

    @property
    def alone(self) -> bool:
        return self.copies == 1

    @property
    def uniform(self) -> bool:
        """Every copy of the run has such a seat and this workload."""
        return self.copies == self.seats

    @property
    def step_ms(self) -> Interval | None:
        return None if self.step is None else self.step.interval

    @property
    def steps_per_s(self) -> Interval | None:
        return None if self.rate is None else self.rate.interval

    @property
    def out_of_memory(self) -> bool:
        """In every run; `failures` tells of some."""
        return self.step is None and Outcome.OUT_OF_MEMORY in self.outcomes

    @property
    def failures(self) -> str:
        """As `failed in 2 of 4 runs (crashed)`; empty if all were fine."""
        if self.repetitions == self.runs:
            return ""
        kinds = ", ".join(sorted(outcome for outcome in self.outcomes if outcome is not Outcome.OK))
        return f"failed in {self.runs - self.repetitions} of {self.runs} run{'s' * (self.runs > 1)} ({kinds})"


Group = Sequence[Copy]


def figures(rows: Iterable[Copy]) -> tuple[Figure, ...]:
    """In the order in which they were first run."""
    rows = list(rows)
    groups: dict[tuple[str, Seat], list[Copy]] = {}
    for row in sorted(rows, key=lambda row: (row.run, row.copy)):
        groups.setdefault((row.arrangement, row.seat), []).append(row)
    steps = [_by_repetition(group, _mean_log_step) for group in groups.values()]
    rates = [_by_repetition(group, _log_rate) for group in groups.values()]
    step_pools, rate_pools = pools(steps), pools(rates)
    energies = _energy_by_run(rows)
    return tuple(
        _figure(group, _log_mean(step, step_pools), _log_mean(rate, rate_pools), len(step), energies)
        for group, step, rate in zip(groups.values(), steps, rates, strict=True)
    )


def _by_repetition(group: Group, of: Callable[[Group], float]) -> list[float]:
    """Of the repetitions in which all of these copies were fine."""
    runs: dict[int, list[Copy]] = {}
    for row in group:
        runs.setdefault(row.run, []).append(row)
    return [of(copies) for copies in runs.values() if all(_fine(row) for row in copies)]


def _fine(row: Copy) -> bool:
    return row.outcome is Outcome.OK and row.step_ms is not None and row.step_ms > 0


def _step_ms(row: Copy) -> float:
    assert row.step_ms is not None, "only of rows that are fine"
    return row.step_ms


def _mean_log_step(copies: Group) -> float:
    return fmean(log(_step_ms(row)) for row in copies)


def _log_rate(copies: Group) -> float:
    return log(sum(1e3 / _step_ms(row) for row in copies))


def _log_mean(sample: Sequence[float], known: Pools | None) -> LogMean | None:
    if not sample:
        return None
    own = spread([sample])
    if known is None:
        return LogMean(fmean(sample))
    if own is None:
        return _with(sample, known.every, pooled=True)
    if differs(own, known.usual):
        return _with(sample, own, pooled=False)
    return _with(sample, known.usual, pooled=True)


def _with(sample: Sequence[float], taken: Spread, pooled: bool) -> LogMean:
    return LogMean(fmean(sample), sqrt(taken.variance / len(sample)), float(taken.freedom), pooled)


def _energy_by_run(rows: Iterable[Copy]) -> dict[int, float]:
    """Joules a step of anybody; of runs in which that is known of all copies. By power and throughput: the energy is of
    a time that is longer than what copies' steps in it took, by up to two steps each."""
    runs: dict[int, list[Copy]] = {}
    for row in rows:
        runs.setdefault(row.run, []).append(row)
    found = {}
    for run, copies in runs.items():
        watts = [row.power_w for row in copies if row.power_w is not None and row.power_w > 0]
        if len(watts) == len(copies) and all(map(_fine, copies)):
            found[run] = fmean(watts) / sum(1e3 / _step_ms(row) for row in copies)
    return found


def _figure(
    group: Group,
    step: LogMean | None,
    rate: LogMean | None,
    repetitions: int,
    energies: Mapping[int, float],
) -> Figure:
    first, fine = group[0], [row for row in group if _fine(row)]
    counters = {name: _mean(getattr(row, name) for row in fine) for name in ("gract", "smact", "smocc", "drama")}
    activity = {name: value for name, value in counters.items() if value is not None}
    return Figure(
        first.arrangement,
        first.way,
        first.seat,
        first.copies,
        max(Counter(row.run for row in group).values()),
        repetitions,
        len({row.run for row in group}),
        len({row.run for row in group if row.outcome.is_failure}),
        Counter(row.outcome for row in group),
        step,
        rate,
        _mean(energies[run] for run in {row.run for row in group} if run in energies),
        _mean(row.power_w for row in fine),
        max((row.mem_peak_mib for row in fine if row.mem_peak_mib is not None), default=None),
        _mean(row.host_cpus for row in fine),
        activity or None,
        tuple(dict.fromkeys(row.said for row in group if row.said)),
    )


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def alone(found: Iterable[Figure], workload: str) -> dict[str, Figure]:
    """By place: what it does there by itself."""
    return {figure.seat.place: figure for figure in found if figure.alone and figure.seat.workload == workload}


def in_parallel(found: Iterable[Figure], workload: str) -> list[Figure]:
    """Several equal copies that had the device to themselves."""
    mine = [figure for figure in found if figure.seat.workload == workload]
    return [figure for figure in mine if figure.uniform and not figure.alone]
