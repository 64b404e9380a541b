"""Where to begin: what served the known workloads best, each met as a stranger."""

from math import inf, isfinite, log
from statistics import fmean

import pytest

from gpuloom.measure.explore.belief import Belief
from gpuloom.measure.explore.goals import Goal, MostWork, OneCopy
from gpuloom.measure.explore.next_run import choice
from gpuloom.measure.explore.opening import opening, strangers
from gpuloom.measure.explore.places import slices_of
from gpuloom.work.measured.figures import load_figures
from gpuloom.work.measured.share_figures import load_share_figures
from tests.measure.rows import MODEL

WORKLOADS = list(load_figures().workloads.values())
PLACES = slices_of(MODEL)
NAMES = [place.name for place in PLACES]
KNOWN = strangers(WORKLOADS, load_share_figures(), PLACES)


def regret(goal: Goal, ran: tuple[int, ...]) -> float:
    """By hand: what is chosen after these runs, against the best."""
    costs = []
    for stranger in KNOWN:
        belief: Belief = stranger.belief
        for at in ran:
            ms = float(stranger.step_ms[at])
            belief = belief.saw([at], [log(ms)]) if isfinite(ms) else belief.ran_out(at)
        costs.append(float(goal.costs(PLACES, stranger.step_ms[None])[0, choice(belief, goal)]))
    return fmean(costs)


def test_for_most_work() -> None:
    assert {NAMES[at] for at in opening(KNOWN, MostWork())} == {"1g.5gb", "3g.20gb"}


@pytest.mark.parametrize("goal", [MostWork(), OneCopy()], ids=lambda goal: str(goal.name))
def test_no_other_pair_would_have_served_them_better(goal: Goal) -> None:
    first = opening(KNOWN, goal)
    others = [(a, b) for a in range(5) for b in range(a + 1, 5)]
    assert regret(goal, first) == pytest.approx(min(regret(goal, pair) for pair in others))
    assert regret(goal, first[:1]) <= regret(goal, first[1:])


def test_nobody_is_known_by_his_own_family() -> None:
    beliefs = {figures.model: stranger.belief for figures, stranger in zip(WORKLOADS, KNOWN, strict=True)}
    assert len({belief.prior.mean.tobytes() for belief in beliefs.values()}) == len(beliefs)
    assert all(inf > belief.prior.cov[0, 0] > 0 for belief in beliefs.values())
