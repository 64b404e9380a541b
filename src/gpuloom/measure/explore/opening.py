"""Where to begin: the places that would have served the workloads that are known, with the belief that is used here.

A normal distribution is vague about how often which place is best; what was seen is not. So each known workload is
gone through as if its family had never been seen: the runs are made, believed, chosen by, and the choice is weighed
against what it really did. Knows no file.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import isfinite, log
from statistics import fmean

from gpuloom.measure.explore.belief import Belief
from gpuloom.measure.explore.goals import Goal
from gpuloom.measure.explore.next_run import AHEAD, choice
from gpuloom.measure.explore.places import Place
from gpuloom.measure.explore.prior import Shares, learn_without, scenarios
from gpuloom.perf.arrays import Floats
from gpuloom.work.measured.figures import WorkloadFigures


@dataclass(frozen=True, slots=True)
class Stranger:
    """A known workload, met as if it were none."""

    belief: Belief
    """Learned from all other families."""
    step_ms: Floats
    """What it did in each place; infinite where it did not fit."""


def strangers(
    workloads: Sequence[WorkloadFigures], shares: Shares, places: Sequence[Place], elsewhere: bool = False
) -> list[Stranger]:
    families = dict.fromkeys(figures.model for figures in workloads)
    beliefs = {
        family: Belief(tuple(places), learn_without(workloads, shares, family).at(places, elsewhere))
        for family in families
    }
    done = scenarios(workloads, shares, places)
    return [Stranger(beliefs[figures.model], row) for figures, row in zip(workloads, done, strict=True)]


def opening(known: Sequence[Stranger], goal: Goal, runs: int = AHEAD) -> tuple[int, ...]:
    """So many places, in the order in which to run there."""

    def cost(chosen: Sequence[int]) -> float:
        return fmean(_cost(stranger, goal, chosen) for stranger in known)

    best = min(combinations(range(len(known[0].step_ms)), runs), key=cost)
    return tuple(sorted(best, key=lambda at: cost([at])))


def _cost(stranger: Stranger, goal: Goal, ran: Sequence[int]) -> float:
    belief = stranger.belief
    for at in ran:
        step_ms = float(stranger.step_ms[at])
        belief = belief.saw([at], [log(step_ms)]) if isfinite(step_ms) else belief.ran_out(at)
    return float(goal.costs(belief.places, stranger.step_ms[None])[0, choice(belief, goal)])
