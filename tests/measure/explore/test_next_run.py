"""Which run next: goals cost what they say, and a run is worth what it changes."""

from math import inf, log

import numpy as np
import pytest

from gpuloom.measure.explore.belief import Belief
from gpuloom.measure.explore.goals import Among, Deadline, Goal, MostWork, OneCopy
from gpuloom.measure.explore.next_run import choice, expected_cost, next_run
from gpuloom.measure.explore.places import slices_of
from gpuloom.measure.explore.prior import learn
from gpuloom.measure.explore.set_runs import cautious_speeds, next_of_set, relative_speeds, think
from gpuloom.work.measured.figures import load_figures
from gpuloom.work.measured.share_figures import load_share_figures
from tests.measure.rows import MODEL

WORKLOADS = list(load_figures().workloads.values())
PLACES = slices_of(MODEL)
NAMES = [place.name for place in PLACES]
FRESH = Belief(PLACES, learn(WORKLOADS, load_share_figures()).at(PLACES))
ROW = np.array([[inf, 30.0, 20.0, 18.0, 10.0]])
GOALS: list[Goal] = [OneCopy(), MostWork(), Deadline(19.0), Among(Deadline(19.0), (1, 2, 4))]


@pytest.mark.parametrize(
    ("goal", "chosen", "costs"),
    [
        (OneCopy(), 4, [100, 100 * (1 - 10 / 0.95 / 30), 100 * (1 - 10 / 0.95 / 20), None, 0]),
        (MostWork(), 1, [100, 0, 0, 100 * (1 - 1 / 18 / 0.1), 0]),
        (Deadline(19.0), 3, [100, 100, 100, 0, 100 * 3 / 7]),
        (Deadline(5.0), 4, [0, 0, 0, 0, 0]),
    ],
)
def test_costs_by_hand(goal: Goal, chosen: int, costs: list[float | None]) -> None:
    found = goal.costs(PLACES, ROW)[0]
    assert all(cost is None or cost == pytest.approx(have, abs=1e-6) for cost, have in zip(costs, found, strict=True))
    assert found[goal.choose(PLACES, ROW, frozenset(range(5)))] == found.min()
    if costs.count(0) == 1:
        assert goal.choose(PLACES, ROW, frozenset(range(5))) == chosen


def test_what_fits_nowhere_costs_the_same_everywhere() -> None:
    nowhere = np.full((1, 5), inf)
    for goal in GOALS:
        assert np.isfinite(goal.costs(PLACES, nowhere)).all()
        assert goal.choose(PLACES, nowhere, ()) in range(5)


@pytest.mark.parametrize("goal", GOALS, ids=lambda goal: f"{type(goal).__name__}")
def test_a_run_is_not_expected_to_make_things_much_worse(goal: Goal) -> None:
    belief = FRESH.asked(19.0)
    run = next_run(belief, goal, range(5))
    assert run.place in range(5)
    assert run.worth_pct > -2.0


def test_all_runs_made_leave_little_doubt() -> None:
    true = np.array([70.0, 30.0, 20.0, 18.0, 10.0])
    belief = FRESH.saw(range(5), [log(ms) for ms in true])
    assert choice(belief, MostWork()) in (0, 1, 2, 4)
    assert choice(belief, OneCopy()) == 4
    assert expected_cost(belief, OneCopy()) < 1.0
    assert choice(belief, Deadline(25.0)) == 2


def test_what_was_not_measured_has_to_be_much_better() -> None:
    close = np.array([[10.0, 30.0, 60.0, 60.0, 60.0]] * 8)
    assert MostWork().choose(PLACES, close, frozenset()) == 0
    nearly = np.array([[10.5, 4.2, 60.0, 60.0, 60.0]] * 8)
    assert MostWork().choose(PLACES, nearly, frozenset([0])) == 0
    assert MostWork().choose(PLACES, nearly, frozenset([0, 1])) == 1


def test_among_chooses_only_what_is_allowed() -> None:
    goal = Among(OneCopy(), (1, 3))
    assert goal.choose(PLACES, ROW, frozenset([1])) == 3
    assert goal.costs(PLACES, ROW)[0, 4] == 100


def test_a_set_asks_first_who_has_not_run() -> None:
    known = FRESH.saw([0, 4], [3.3, 3.0])
    thoughts = [think(known, [1, 2, 3]), think(FRESH, range(5))]
    run = next_of_set(MODEL, NAMES, thoughts, fresh=[1])
    assert run.who == 1
    assert run.place in range(5)
    assert next_of_set(MODEL, NAMES, thoughts).place in range(5)


def test_relative_speeds_are_of_the_whole_device() -> None:
    belief = FRESH.saw([4], [3.0]).ran_out(0)
    speeds, seated_by = relative_speeds(belief), cautious_speeds(belief)
    assert speeds[0] == 0
    assert speeds[4] == pytest.approx(1.0)
    assert seated_by[0] < 0
    assert seated_by[1] < speeds[1]
    assert seated_by[4] == speeds[4]
