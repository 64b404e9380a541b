"""Goals as they are typed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuloom.measure.explore.wanted import Aim, Exploring, Wanted, read_deadline, read_runs, read_wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("one-copy", Wanted(Aim.ONE_COPY, words="one-copy")),
        (" most-work ", Wanted(Aim.MOST_WORK, words="most-work")),
        ("deadline  20000 in 3h", Wanted(Aim.DEADLINE, 540.0, words="deadline 20000 in 3h")),
        ("least-speed 5", Wanted(Aim.LEAST_SPEED, 200.0, words="least-speed 5")),
        ("set", Wanted(Aim.SET, words="set")),
        ("set a, b,b", Wanted(Aim.SET, together=("a", "b", "b"), words="set a, b,b")),
    ],
)
def test_goals(text: str, wanted: Wanted) -> None:
    assert read_wanted(text) == wanted


@pytest.mark.parametrize(
    "text",
    ["", "fast", "one-copy please", "deadline", "deadline 0 in 3h", "deadline 5 in soon", "least-speed",
     "least-speed -1", "least-speed 1e-320", "least-speed nan", "least-speed inf", "set a,,b", 3, None],
)  # fmt: skip
def test_what_is_no_goal(text: object) -> None:
    with pytest.raises(ValueError, match="must be one-copy, most-work, 'deadline 20000 in 3h'"):
        read_wanted(text)


@given(st.text(max_size=40), st.sampled_from(["", *Aim]))
def test_anything_is_a_goal_or_refused_in_one_sentence(text: str, aim: str) -> None:
    try:
        assert read_wanted(f"{aim} {text}").words
    except ValueError as error:
        said = str(error)
        assert "\n" not in said, said


@pytest.mark.parametrize(
    ("text", "effort"), [("40%", (40.0, None)), ("2", (100.0, 2)), (3, (100.0, 3)), ("12.5 %", (12.5, None))]
)
def test_runs(text: object, effort: tuple[float, int | None]) -> None:
    assert read_runs(text) == effort


@pytest.mark.parametrize("text", ["0", "0%", "101%", "half", "-1", "1.5", True, None, "9" * 5])
def test_what_is_no_number_of_runs(text: object) -> None:
    with pytest.raises(ValueError, match="must be a part of all runs such as 40%"):
        read_runs(text)


@given(st.integers(1, 60), st.floats(0.1, 100))
def test_some_run_is_made_and_never_more_than_there_are(places: int, pct: float) -> None:
    wanted = read_wanted("most-work")
    assert 1 <= Exploring(wanted, pct).most(places) <= places
    assert Exploring(wanted, 40.0).most(5) == 2
    assert Exploring(wanted, 100.0, 9).most(places) == min(9, places)


def test_deadlines() -> None:
    assert read_deadline("1000 in 2m") == (1000, 120.0)
    assert read_deadline("1000 in 0s") is None
    assert read_deadline("1000") is None
