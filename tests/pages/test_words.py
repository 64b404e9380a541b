"""Figures as people read them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuloom.pages.words import against, column_words, duration, number, shown


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0, "0 s"),
        (8.54, "8.54 s"),
        (59.99, "60 s"),
        (90, "1 m 30 s"),
        (3600, "1 h"),
        (6059, "1 h 41 m"),
        (3599.9, "1 h"),
        (172_799, "2 d"),
        (2e5, "2 d 8 h"),
    ],
)
def test_durations(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_comparisons_in_words() -> None:
    assert against(41.0, 100.0) == "59 % less than"
    assert against(110.0, 100.0) == "10 % more than"
    assert against(1.1, 100.0) == "98.9 % less than"
    assert against(320.0, 100.0) == "3.2 times"
    assert against(5.0, 5.0) == "the same as"
    assert against(5.0, 0.0) == ""


def test_three_figures_count() -> None:
    values = (3, 0.0, 1234.5, 12.34, 1.0, 0.1234)
    assert [number(value) for value in values] == ["3", "0", "1,234", "12.3", "1.00", "0.123"]


def test_columns_in_words() -> None:
    assert column_words("mem_mib") == ("mem", "MiB")
    assert column_words("gpus_over_memory") == ("GPUs over memory", "")
    assert column_words("ratio_to_whole-fifo") == ("ratio to whole-fifo", "")


@given(st.integers() | st.floats(allow_nan=False, allow_infinity=False))
def test_a_value_keeps_all_its_figures(value: float) -> None:
    assert type(value)(shown(value).replace(",", "")) == value


def test_what_is_no_figure_is_said() -> None:
    assert [shown(value) for value in (None, True, False, "3,2,2")] == ["–", "yes", "no", "3,2,2"]
