"""Which run to make next for a set of workloads that are to share a device: of whom, and in which place.

The same rule as for one workload, on the sum of relative speeds of the best seating. What a run is worth depends on the
others only through who would sit where, so a workload's outcomes are gone through once, and again when it has run.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import log
from statistics import fmean

import numpy as np

from gpuloom.gpus.model import GpuModel
from gpuloom.measure.explore.belief import Belief
from gpuloom.measure.sets import scores
from gpuloom.perf.arrays import Floats

DRAWS, OUTCOMES = 128, 16
MISFIT = 0.6
"""What running out of memory in its seat costs beyond the work that is not done, in workloads on a whole device: who
does not fit has to be seated anew, and how much a stranger needs is known least of all."""
WHILE_RUNNING = 0.3
"""The same while there are runs to come, which may still tell. Both chosen on draws of sets that are not reported."""


def relative_speeds(belief: Belief) -> Floats:
    """Expected on each place, relative to the last, which is the whole device; 0 where it does not fit."""
    step_ms = belief.draws(DRAWS)
    whole = step_ms[:, -1:]
    speeds: Floats = np.where(np.isfinite(whole), np.minimum(whole, 1e300) / step_ms, 0.0).mean(axis=0)
    return speeds


def cautious_speeds(belief: Belief, misfit: float = MISFIT) -> Floats:
    """The same, less where it may not fit: what to seat by."""
    lacks = np.array([1 - belief.chance_to_fit(at) for at in range(len(belief.places))])
    speeds: Floats = relative_speeds(belief) - misfit * lacks
    return speeds


@dataclass(frozen=True, slots=True)
class Thought:
    """One workload: what is expected of it, and after each run or two that could be made what would be."""

    speeds: Floats
    after: dict[tuple[int, ...], Floats] = field(default_factory=dict)
    """By places: a row of speeds for each outcome, a column for each place."""


def think(belief: Belief, among: Sequence[int]) -> Thought:
    """Two runs together are thought through of those who have had one: the first is made anyway."""
    runs = 2 if belief.ran else 1
    thought = Thought(cautious_speeds(belief, WHILE_RUNNING))
    drawn = belief.draws(OUTCOMES)
    for count in range(1, runs + 1):
        for places in combinations(among, count):
            then = [_after(belief, places, outcome[list(places)]) for outcome in drawn]
            rows = [cautious_speeds(belief, WHILE_RUNNING) for belief in then]
            thought.after[places] = np.array(rows)
    return thought


def _after(belief: Belief, places: Sequence[int], outcome: Floats) -> Belief:
    ran = [(at, log(step_ms)) for at, step_ms in zip(places, outcome, strict=True) if np.isfinite(step_ms)]
    then = belief.saw(*zip(*ran, strict=True)) if ran else belief
    for at, step_ms in zip(places, outcome, strict=True):
        then = then if np.isfinite(step_ms) else then.ran_out(at)
    return then


@dataclass(frozen=True, slots=True)
class SetRun:
    who: int
    """Of the workloads."""
    place: int
    gain: float
    """A run, in workloads on a whole device: by how much more the set is then expected to do."""


def next_of_set(
    model: GpuModel,
    profiles: Sequence[str],
    thoughts: Sequence[Thought],
    fresh: Sequence[int] = (),
    seats: Sequence[int] | None = None,
) -> SetRun:
    """The run with the largest gain. `fresh` have not run: they come first, as of them not even the order of magnitude
    is known. `seats`: which workload each copy of the set is; without it each is one copy."""
    copies = np.array(range(len(thoughts)) if seats is None else seats, dtype=np.intp)
    speeds = np.array([thought.speeds for thought in thoughts])
    now = float(scores(model, speeds[copies], profiles).max())

    def gain(who: int, rows: Floats) -> float:
        """Of what is expected once it is known that this workload is so fast: a row for each outcome."""
        most = [float(scores(model, changed[copies], profiles).max()) for changed in _with(speeds, who, rows)]
        return fmean(most) - now

    best: SetRun | None = None
    for who in fresh or range(len(thoughts)):
        for places, rows in thoughts[who].after.items():
            each = gain(who, rows) / len(places)
            if best is None or each > best.gain + 1e-9:
                first = max(places, key=lambda at: gain(who, thoughts[who].after[at,]) if len(places) > 1 else 0.0)
                best = SetRun(who, first, each)
    assert best is not None, "somebody has a place left to run in"
    return best


def _with(speeds: Floats, who: int, rows: Floats) -> Iterator[Floats]:
    for row in rows:
        changed = speeds.copy()
        changed[who] = row
        yield changed
