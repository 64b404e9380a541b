"""A campaign that asks what to run next: it begins as it should, ends, and finds on the way."""

from math import inf

import pytest

from gpuloom.gpus.catalogue import find
from gpuloom.measure.explore.advise import advise, believed
from gpuloom.measure.explore.goals import Deadline, Goal, MostWork, OneCopy
from gpuloom.measure.figures import figures
from gpuloom.measure.options import options
from gpuloom.measure.recommend import most_work
from gpuloom.measure.results import Copy
from tests.measure.rows import MODEL, copies_on, run

TIMES = {"1g.5gb": 70.0, "2g.10gb": 30.0, "3g.20gb": 20.0, "4g.20gb": 18.0, "7g.40gb": 10.0}


def explore(goal: Goal, times: dict[str, float], most: int) -> tuple[list[Copy], list[str]]:
    rows: list[Copy] = []
    asked: list[str] = []
    while len(asked) < most:
        advice = advise(figures(rows), MODEL, "a", goal, runs_left=most - len(asked))
        if advice is None:
            break
        asked.append(advice.place.name)
        rows += run(len(rows), copies_on("a", advice.place.name, 1), 0, [times.get(advice.place.name, inf)])
    return rows, asked


@pytest.mark.parametrize("goal", [OneCopy(), MostWork(), Deadline(25.0)], ids=lambda goal: str(goal.name))
def test_every_place_is_asked_for_once_and_then_nothing(goal: Goal) -> None:
    _, asked = explore(goal, TIMES, 9)
    assert sorted(asked) == sorted(TIMES)


def test_two_runs_for_most_work() -> None:
    rows, asked = explore(MostWork(), TIMES, 2)
    assert set(asked) == {"1g.5gb", "3g.20gb"}
    found = figures(rows)
    answer = most_work(options(found, MODEL, "a", believed(found, MODEL, "a")))
    assert answer.choice is not None
    assert answer.choice.copies > 1


def test_out_of_memory_is_believed() -> None:
    belief = believed(figures(run(0, copies_on("a", "1g.5gb", 1), 0, [inf])), MODEL, "a")
    assert belief.ran == {0}
    assert belief.chance_to_fit(0) == 0


def test_another_device_is_asked_about_too() -> None:
    advice = advise([], find("a30"), "a", OneCopy())
    assert advice is not None
    assert advice.place.profile in find("a30").by_name


def test_repetitions_are_believed_more() -> None:
    once = believed(figures(run(0, copies_on("a", "1g.5gb", 1), 0, [10.0])), MODEL, "a")
    rows = [row for at in range(4) for row in run(at, copies_on("a", "1g.5gb", 1), at, [10.0 + at / 100])]
    often = believed(figures(rows), MODEL, "a")
    assert often.prior.cov[0, 0] < once.prior.cov[0, 0]
    assert often.spread == once.spread
