"""Which run is next, and when an arrangement is known well enough. Pure: all follows from the plan and what was run.

So whoever goes on after a kill runs what would have been run. Arrangements take turns: every one has its first run, in
an order that the seed shuffles, before any has its second, so that whatever drifts on a machine (heat, clocks, other
users) does not look like a difference between arrangements, and a budget that ends early leaves none out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from random import Random
from statistics import fmean, stdev

from gpuloom.measure.arrangement import Arrangement
from gpuloom.measure.plan import Repeats
from gpuloom.measure.results import Copy, Outcome

LEVEL = 0.95
"""Below which the quantile of a two-sided 90 % interval lies."""
MOST_FAILURES = 2
TELLING = 3
"""Runs of an arrangement whose interval may end it: two may agree by chance, and then look far too well known."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run that took place: a line of the journal."""

    number: int
    arrangement: Arrangement
    repetition: int
    seconds: float
    """That it took, with cutting, starting and stopping."""
    copies: tuple[Copy, ...]

    @property
    def fine(self) -> bool:
        return all(copy.outcome is Outcome.OK for copy in self.copies)


@dataclass(frozen=True, slots=True)
class Next:
    number: int
    arrangement: Arrangement
    repetition: int
    why: str = ""
    """Of all that could be next; empty where everybody just has his turn."""


def next_run(arrangements: Sequence[Arrangement], done: Sequence[Run], repeats: Repeats, seed: int) -> Next | None:
    """None: enough is known of all of them."""
    runs = _by_arrangement(arrangements, done)
    waiting = [arrangement for arrangement, own in runs.items() if not is_settled(own, repeats)]
    if not waiting:
        return None
    fewest = min(len(runs[arrangement]) for arrangement in waiting)
    order = list(arrangements)
    Random(f"{seed} {fewest}").shuffle(order)
    chosen = next(one for one in order if one in waiting and len(runs[one]) == fewest)
    return Next(max((run.number for run in done), default=-1) + 1, chosen, fewest)


def is_settled(runs: Sequence[Run], repeats: Repeats) -> bool:
    """Whether no further run is needed. What is out of memory once is so again; other failures are seen twice."""
    failures = [run for run in runs if not run.fine]
    if len(failures) >= MOST_FAILURES or any(
        copy.outcome is Outcome.OUT_OF_MEMORY for run in failures for copy in run.copies
    ):
        return True
    fine = [run for run in runs if run.fine]
    if len(fine) < max(repeats.least, TELLING):
        return len(runs) >= repeats.most
    return len(runs) >= repeats.most or all(
        width is not None and width <= repeats.within_pct for width in half_widths_pct(fine)
    )


def half_widths_pct(runs: Sequence[Run]) -> list[float | None]:
    """Of each workload's throughput in these runs, at each batch; they were fine. None if one run cannot tell."""
    kinds = dict.fromkeys((copy.seat.workload, copy.batches) for run in runs for copy in run.copies)
    return [half_width_pct([_throughput(run, *kind) for run in runs]) for kind in kinds]


def _throughput(run: Run, workload: str, batches: str | None) -> float:
    own = (copy for copy in run.copies if (copy.seat.workload, copy.batches) == (workload, batches))
    return sum(copy.steps_per_s or 0.0 for copy in own)


def half_width_pct(values: Sequence[float]) -> float | None:
    """Half of the 90 % interval of the mean (Student's t), in per cent of it; None of fewer than two."""
    if len(values) < 2 or fmean(values) <= 0:
        return None
    from scipy.special import stdtrit

    half = float(stdtrit(len(values) - 1, LEVEL)) * stdev(values) / sqrt(len(values))
    return 100 * half / fmean(values)


def spent_s(done: Sequence[Run]) -> float:
    return sum(run.seconds for run in done)


def expected_s(arrangement: Arrangement, done: Sequence[Run]) -> float | None:
    """How long a run of it takes, by those that were; None if nothing has been run."""
    own = [run.seconds for run in done if run.arrangement == arrangement] or [run.seconds for run in done]
    return fmean(own) if own else None


def is_affordable(chosen: Next, done: Sequence[Run], budget_s: float | None) -> bool:
    """Whether it can be expected to end within the budget. The first run is tried whatever that is."""
    expect_s = expected_s(chosen.arrangement, done)
    return budget_s is None or expect_s is None or spent_s(done) + expect_s <= budget_s


@dataclass(frozen=True, slots=True)
class Ahead:
    """What is still to come, at least (further repetitions may be needed), or at most."""

    runs: int
    seconds: float | None
    """None: nobody can tell yet."""
    at_most: bool = False


def ahead(arrangements: Sequence[Arrangement], done: Sequence[Run], repeats: Repeats, budget_s: float | None) -> Ahead:
    wanted = {
        arrangement: 0
        if is_settled(own, repeats)
        else max(min(max(repeats.least, TELLING), repeats.most) - len(own), 1)
        for arrangement, own in _by_arrangement(arrangements, done).items()
    }
    runs = sum(wanted.values())
    if not done:
        return Ahead(runs, budget_s)
    seconds = sum(count * (expected_s(arrangement, done) or 0.0) for arrangement, count in wanted.items())
    return Ahead(runs, seconds if budget_s is None else max(min(seconds, budget_s - spent_s(done)), 0.0))


def _by_arrangement(arrangements: Sequence[Arrangement], done: Sequence[Run]) -> dict[Arrangement, list[Run]]:
    runs: dict[Arrangement, list[Run]] = {arrangement: [] for arrangement in arrangements}
    for run in done:
        if run.arrangement in runs:
            runs[run.arrangement].append(run)
    return runs


@dataclass(frozen=True, slots=True)
class Turns:
    """All arrangements, one after the other."""

    arrangements: tuple[Arrangement, ...]
    repeats: Repeats
    seed: int

    def next(self, done: Sequence[Run]) -> Next | None:
        return next_run(self.arrangements, done, self.repeats, self.seed)

    def ahead(self, done: Sequence[Run], budget_s: float | None) -> Ahead:
        return ahead(self.arrangements, done, self.repeats, budget_s)

    def told(self, _done: Sequence[Run]) -> None:
        """Nothing was left to be guessed."""
