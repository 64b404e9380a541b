"""Sets: one device is enumerated and several are solved, and where both can be asked they agree."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.errors import InputError
from gpuloom.gpus.catalogue import find
from gpuloom.gpus.layouts import check, every
from gpuloom.measure.sets import Objective, _solve, orders, seat_on, seat_on_one
from tests.measure.rows import MODEL, PROFILES

SPEEDS = st.dictionaries(st.sampled_from(PROFILES), st.floats(0.05, 1.0), min_size=1)


@settings(max_examples=40)
@given(st.lists(SPEEDS, min_size=1, max_size=4), st.sampled_from(Objective))
def test_enumerated_and_solved_agree(speeds: list[dict[str, float]], objective: Objective) -> None:
    seated, solved = seat_on_one(MODEL, speeds, objective), _solve(MODEL, 1, speeds, objective)
    assert (seated is None) == (solved is None)
    if seated is not None and solved is not None:
        got = [of[name] for of, name in zip(speeds, solved[1], strict=True)]
        assert (sum(got) if objective is Objective.SUM else min(got)) == pytest.approx(seated.score, abs=1e-3)


@settings(max_examples=40)
@given(st.lists(SPEEDS, min_size=1, max_size=6), st.integers(1, 3))
def test_a_seating_is_legal_and_everybody_has_his_own(speeds: list[dict[str, float]], devices: int) -> None:
    seating = seat_on(MODEL, devices, speeds)
    if seating is None:
        return
    assert len(seating.layouts) <= devices
    assert all(check(MODEL, layout) is None for layout in seating.layouts)
    assert len(set(seating.seats)) == len(speeds)
    for (device, instance), of, speed in zip(seating.seats, speeds, seating.speeds, strict=True):
        assert instance in seating.layouts[device]
        assert of[instance.profile] == speed


def test_the_best_of_all_orders() -> None:
    """Against every permutation of every layout, written out."""
    dice = np.random.default_rng(0)
    speeds = [dict(zip(PROFILES, row, strict=True)) for row in dice.random((3, 5)).tolist()]
    best = max(
        sum(of[instance.profile] for of, instance in zip(speeds, order, strict=True))
        for layout in every(MODEL)
        if len(layout) == 3
        for order in permutations(layout)
    )
    seating = seat_on_one(MODEL, speeds)
    assert seating is not None
    assert seating.score == pytest.approx(best)


def test_who_fits_nowhere_has_no_seat() -> None:
    assert seat_on_one(MODEL, [{"7g.40gb": 1.0}, {"1g.5gb": 0.5}]) is None
    two = seat_on(MODEL, 2, [{"7g.40gb": 1.0}, {"1g.5gb": 0.5}])
    assert two is not None
    assert {device for device, _ in two.seats} == {0, 1}
    assert seat_on(MODEL, 2, [{"7g.40gb": 1.0}] * 3) is None
    assert seat_on_one(find("v100"), [{}]) is None


def test_nothing_to_seat_is_said() -> None:
    with pytest.raises(InputError, match="at least one of each"):
        seat_on(MODEL, 0, [{"7g.40gb": 1.0}])


def test_orders_are_different() -> None:
    for count in range(1, 8):
        found = orders(MODEL, count)
        assert len(found) == len(set(found))
    assert orders(MODEL, 7) == (("1g.5gb",) * 7,)


def test_of_equally_bad_ones_the_one_that_does_more() -> None:
    slow = {"1g.5gb": 0.2, "2g.10gb": 0.2, "3g.20gb": 0.2}
    fast = {"1g.5gb": 0.3, "2g.10gb": 0.4, "3g.20gb": 0.5, "4g.20gb": 0.9}
    for devices in (1, 2):
        seating = seat_on(MODEL, devices, [slow, fast], Objective.WORST)
        assert seating is not None
        assert seating.score == 0.2
        assert seating.speeds == (0.2, 0.9)
