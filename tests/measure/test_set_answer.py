"""A set's answer: a legal layout with everybody seated, limits kept, and what was measured without a cut beside it."""

import numpy as np
import pytest

from gpuloom.gpus.layouts import check
from gpuloom.measure.arrangement import Arrangement, Seat, Way
from gpuloom.measure.figures import figures
from gpuloom.measure.results import Copy
from gpuloom.measure.set_answer import best_for_set
from gpuloom.measure.sets import Objective
from tests.measure.rows import MODEL, campaign, run

SMALL = {"1g.5gb": 23.4, "2g.10gb": 20.9, "3g.20gb": 19.5, "4g.20gb": 19.3, "7g.40gb": 19.0}
LARGE = {"3g.20gb": 257.0, "4g.20gb": 230.0, "7g.40gb": 131.0}


def rows() -> list[Copy]:
    dice = np.random.default_rng(0)
    return [*campaign("small", SMALL, 3, dice, noise=0.001), *campaign("large", LARGE, 3, dice, noise=0.001)]


def test_the_large_one_has_the_large_slice() -> None:
    answer = best_for_set(figures(rows()), MODEL, ["small", "large"])
    assert answer.seating is not None
    assert check(MODEL, answer.seating.layouts[0]) is None
    assert [instance.profile for _, instance in answer.seating.seats] == ["3g.20gb", "4g.20gb"]
    assert answer.seating.score == pytest.approx(19.0 / 19.5 + 131 / 230, rel=0.01)
    assert "sharing without a cut: not measured" in answer.says
    assert answer.says.startswith("4g.20gb@0,3g.20gb@4: sum of relative speeds 1.5")
    assert "(small on 3g.20gb@4, large on 4g.20gb@0)" in answer.says


def test_a_limit_takes_away_what_is_too_slow() -> None:
    limited = best_for_set(figures(rows()), MODEL, ["small", "large"], limits_ms={"large": 200.0})
    assert limited.seating is None
    assert "no layout has an instance for each of small, large" in limited.says
    two = best_for_set(figures(rows()), MODEL, ["small", "large"], devices=2, limits_ms={"large": 200.0})
    assert two.seating is not None
    assert {device for device, _ in two.seating.seats} == {0, 1}
    assert "of device" in two.says


def test_measured_without_a_cut_stands_beside_it() -> None:
    measured = rows()
    pair = Arrangement(Way.SHARED, (Seat("small", None, 30.0), Seat("large", None, 70.0)))
    other = Arrangement(Way.TOGETHER, (Seat("small"), Seat("small")))
    measured += run(900, pair, 0, [21.0, 170.0]) + run(901, other, 0, [40.0, 40.0])
    answer = best_for_set(figures(measured), MODEL, ["large", "small"])
    assert [name for name, _ in answer.uncut] == [pair.name]
    assert answer.uncut[0][1] == pytest.approx(19 / 21 + 131 / 170, rel=0.01)
    worst = best_for_set(figures(measured), MODEL, ["large", "small"], objective=Objective.WORST)
    assert worst.uncut[0][1] == pytest.approx(131 / 170, rel=0.01)


def test_a_stranger_has_no_seat() -> None:
    assert best_for_set(figures(rows()), MODEL, ["small", "nobody"]).seating is None


def test_runs_of_one_name_are_not_one_run() -> None:
    """Each by itself on half of the device, and in two halves: nobody was beside the other."""
    measured = rows()
    for workload in ("small", "large"):
        half, halves = (Arrangement(Way.SHARED, (Seat(workload, None, 50.0),) * count) for count in (1, 2))
        number = len(measured)
        measured += run(number, half, 0, [200.0]) + run(number + 1, halves, 0, [210.0, 210.0])
    found = figures(measured)
    assert best_for_set(found, MODEL, ["small", "large"]).uncut == ()
    assert best_for_set(found, MODEL, ["small", "small", "large", "large"]).uncut == ()
    ((name, score),) = best_for_set(found, MODEL, ["small", "small"]).uncut
    assert name == "2 x whole 50%"
    assert score == pytest.approx(2 * 19 / 210, rel=0.01)
    sizes = Arrangement(Way.SHARED, (Seat("small", None, 30.0), Seat("small", None, 70.0)))
    ((_, first), (other, _)) = best_for_set(
        figures([*measured, *run(len(measured), sizes, 0, [30.0, 25.0])]), MODEL, ["small", "small"]
    ).uncut
    assert first == pytest.approx(19 / 30 + 19 / 25, rel=0.01)
    assert other == "2 x whole 50%"


def test_without_the_whole_device_it_is_relative_to_the_fastest_place() -> None:
    measured = [row for row in rows() if row.seat.profile in ("2g.10gb", "3g.20gb") and row.copies == 1]
    measured += [row for row in rows() if row.seat == Seat("large", "4g.20gb")]
    answer = best_for_set(figures(measured), MODEL, ["small", "large"])
    assert answer.seating is not None
    assert [instance.profile for _, instance in answer.seating.seats] == ["3g.20gb", "4g.20gb"]
    assert "small's speed is relative to 3g.20gb, as the whole device was not measured" in answer.says
    assert "not considered, as it was not measured alone: small on 1g.5gb, 4g.20gb, 7g.40gb; large on " in answer.says


def test_it_says_where_sharing_does_more() -> None:
    pair = Arrangement(Way.TOGETHER, (Seat("small"), Seat("large")))
    answer = best_for_set(figures([*rows(), *run(900, pair, 0, [19.1, 132.0])]), MODEL, ["small", "large"])
    assert "together: 1.99, which is more" in answer.says
