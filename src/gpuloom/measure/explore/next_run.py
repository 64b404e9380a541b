"""Which run to make next: the one after which the choice is expected to cost least.

For each run that could be made, and each two of them, outcomes are gone through (step times evenly spread over what is
believed, and running out of memory); after each one the belief is what it would be then, and so is the choice.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import inf, log
from statistics import fmean

from gpuloom.measure.explore.belief import Belief
from gpuloom.measure.explore.goals import Goal

DRAWS = 128
OUTCOMES = 16
AHEAD = 2
"""Runs that are thought through together: one alone often changes no choice, where two do."""


@dataclass(frozen=True, slots=True)
class NextRun:
    place: int
    cost_now_pct: float
    """Expected of the choice as things are."""
    cost_then_pct: float
    """Expected after this run, and the best one beside it if there may be more than one."""

    @property
    def worth_pct(self) -> float:
        return self.cost_now_pct - self.cost_then_pct


def choice(belief: Belief, goal: Goal, draws: int = DRAWS) -> int:
    """The place to choose as things are."""
    return goal.choose(belief.places, belief.draws(draws), belief.ran)


def expected_cost(belief: Belief, goal: Goal) -> float:
    """In per cent, of the choice as things are."""
    step_ms = belief.draws(DRAWS)
    chosen = goal.choose(belief.places, step_ms, belief.ran)
    doubt_pct = 0.0 if chosen in belief.ran else goal.doubt_pct
    return float(goal.costs(belief.places, step_ms)[:, chosen].mean()) + doubt_pct


def next_run(belief: Belief, goal: Goal, among: Sequence[int], runs_left: int = AHEAD) -> NextRun:
    """Of these places. Of two that belong together, the one that is worth more by itself comes first."""
    now = expected_cost(belief, goal)
    together = min(runs_left, len(among), AHEAD)
    sets = list(combinations(among, together))
    costs = [cost_after(belief, goal, places) for places in sets]
    best = min(range(len(sets)), key=costs.__getitem__)
    first = min(sets[best], key=lambda at: cost_after(belief, goal, [at])) if together > 1 else sets[best][0]
    return NextRun(first, now, costs[best])


def cost_after(belief: Belief, goal: Goal, places: Sequence[int]) -> float:
    """Expected of the choice once there was a run in each of these places."""
    costs = []
    for outcome in belief.draws(OUTCOMES)[:, list(places)]:
        then, ran = belief, [(at, log(step_ms)) for at, step_ms in zip(places, outcome, strict=True) if step_ms < inf]
        if ran:
            then = then.saw(*zip(*ran, strict=True))
        for at, step_ms in zip(places, outcome, strict=True):
            then = then if step_ms < inf else then.ran_out(at)
        costs.append(expected_cost(then, goal))
    return fmean(costs)
