"""The page: all that was measured is on it, nothing that was not, and names stay text."""

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.measure.figures import Interval
from gpuloom.measure.page import measured_page
from gpuloom.measure.page.bars import Bar, bars, differences
from tests.measure.rows import MODEL, campaign

RECT = r'<rect class="(\w+)" x="([\d.]+)%"[^>]* width="([\d.]+)%"'
SMALL = {"2g.10gb": 20.9, "3g.20gb": 19.5, "4g.20gb": 19.3, "7g.40gb": 19.0}


def text_of(name: str = "small", energy_j: float | None = None) -> str:
    return measured_page(campaign(name, SMALL, 4, np.random.default_rng(0), energy_j=energy_j), MODEL, ["driver 1"])


def test_it_has_answers_verdicts_pictures_and_the_table() -> None:
    text = text_of(energy_j=100.0)
    for words in (
        "What to choose", "What it is like", "Throughput against slice", "Speed-up of parallel copies", "Interference",
        "Memory fit", "Energy", "All figures", "driver 1", "one copy: ", "out of memory on 1g.5gb",
    ):  # fmt: skip
        assert words in text, words
    assert text.count("<svg") >= 5
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", text)


def test_what_is_not_known_is_not_drawn() -> None:
    assert "Energy a step" not in text_of()
    assert "energy was not measured" in text_of()


def test_the_same_rows_give_the_same_bytes() -> None:
    assert text_of() == text_of()


def test_a_name_is_text() -> None:
    assert "<script>alert" not in text_of("<script>alert(1)</script>")


def test_nothing_measured_is_a_page_too() -> None:
    assert "Nothing was measured on A100-40GB" in measured_page([], MODEL)


def test_several_workloads_have_a_chapter_each() -> None:
    dice = np.random.default_rng(1)
    rows = campaign("a", SMALL, 2, dice)
    other = campaign("b", SMALL, 2, dice)
    text = measured_page([*rows, *other], MODEL)
    assert "2 workloads on A100-40GB" in text
    assert 'id="answers-0"' in text
    assert 'id="answers-1"' in text


def test_memory_is_shown_beside_what_there_is_and_lack_of_it_is_named() -> None:
    text = text_of()
    assert "1g.5gb (out of memory)" in text
    assert "2g.10gb (ran, how much it used is not known)" in text
    rows = [replace(row, mem_peak_mib=8000.0) for row in campaign("a", SMALL, 2, np.random.default_rng(1))]
    assert "2g.10gb: 8,000 MiB of 9,856 MiB" in measured_page(rows, MODEL)


def test_what_is_predicted_says_so_in_its_picture() -> None:
    rows = [row for row in campaign("a", SMALL, 2, np.random.default_rng(1)) if row.copies == 1]
    assert "3 x 2g.10gb (predicted, not measured)" in measured_page(rows, MODEL)


def test_interference_is_drawn_to_either_side_of_none() -> None:
    rows = [
        Bar("slow", Interval(8.0, 6.0, 10.0), "c0"),
        Bar("fast", Interval(-4.0), "c1"),
        Bar("same", Interval(-0.01), "c2"),
    ]
    text = differences("about", rows, margin_pct=2.0)
    found = {style: [float(x), float(width)] for style, x, width in re.findall(RECT, text)}
    assert found["c0"] == pytest.approx([50.0, 38.0])
    assert found["c1"] == pytest.approx([31.0, 19.0])
    assert found["c2"] == pytest.approx([49.95, 0.05], abs=0.01)
    assert re.findall(r'<line[^>]* x1="([\d.]+)%"', text) == ["40.5", "50", "59.5"], "the margin and none"
    assert "+8.0 % (+6.0 % to +10.0 %)" in text
    assert "same: +0.0 %" in text


def test_an_interval_that_tells_nothing_does_not_make_all_figures_small() -> None:
    rows = [Bar("known", Interval(10.0, 9.0, 11.0), "c0"), Bar("not", Interval(8.0, 0.1, 900.0), "c1")]
    for text in (bars("about", "s", rows), differences("about", rows, 2.0)):
        found = {style: float(width) for style, _, width in re.findall(RECT, text)}
        assert found["c0"] > 30


@settings(max_examples=50)
@given(st.lists(st.floats(-90, 1e4), min_size=1, max_size=8))
def test_no_difference_leaves_its_room(values: list[float]) -> None:
    rows = [Bar(str(at), Interval(value, value - 5, value + 5), "c0") for at, value in enumerate(values)]
    for _, x, width in re.findall(RECT, differences("about", rows, 2.0)):
        assert 0 <= float(x) <= float(x) + float(width) <= 100


@settings(max_examples=50)
@given(st.lists(st.floats(1e-6, 1e9), min_size=1, max_size=8))
def test_no_bar_leaves_its_room(values: list[float]) -> None:
    rows = [Bar(str(at), Interval(value, value * 0.9, value * 1.1), "c0") for at, value in enumerate(values)]
    for _, x, width in re.findall(RECT, bars("about", "s", rows)):
        assert float(x) + float(width) <= 100
