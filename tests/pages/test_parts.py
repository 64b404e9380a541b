"""The parts of a page: markup that no text can break, tables, cards, pictures."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.pages.cards import Card, cards, figure_list
from gpuloom.pages.chart import COLOURS, bar, colour, frame, piece, row, stack
from gpuloom.pages.html import Html, join, json_data, tag
from gpuloom.pages.page import page, section
from gpuloom.pages.table import Column, is_numeric, number_column, records, table
from tests.pages.seen import Seen

names = st.text() | st.text("<>&\"'/!- script", min_size=1)
plain_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | names,
    lambda inner: st.lists(inner) | st.dictionaries(names, inner),
    max_leaves=10,
)


def place(found: dict[str, str | None]) -> tuple[float, float]:
    """Left edge and width, in percent."""
    left, width = (float((found[name] or "").removesuffix("%")) for name in ("x", "width"))
    return left, width


@settings(deadline=None, max_examples=100)
@given(names)
def test_text_comes_back_as_it_went_in(text: str) -> None:
    seen = Seen(tag("p", text, title=text))
    assert seen.elements == [("p", {"title": text})]
    assert seen.texts == [text]


def test_markup_is_kept_and_text_beside_it_is_not() -> None:
    assert join("<", tag("i"), Html("&amp;"), "&") == "&lt;<i></i>&amp;&amp;"
    assert isinstance(join("a"), Html)


def test_attributes_have_their_names() -> None:
    assert tag("meta", http_equiv="x", class_="y", hidden=None, tabindex=0) == (
        '<meta http-equiv="x" class="y" tabindex="0">'
    )


@settings(deadline=None, max_examples=100)
@given(plain_json)
def test_data_comes_back_as_it_went_in(value: object) -> None:
    (text,) = Seen(json_data("data", value)).said("script")
    assert json.loads(text) == value
    assert not set("<>&") & set(text)


def test_a_page_has_its_parts_in_order() -> None:
    text = page(
        "Title", "kind", ("one", "two"), section("key", "Part", tag("p", "x"), note="small"), closing=Html("end")
    )
    seen = Seen(text)
    assert [tag for tag, _ in seen.elements if tag in ("header", "main", "section", "footer")] == [
        "header", "main", "section", "footer",
    ]  # fmt: skip
    assert seen.said("title") == seen.said("h1") == ["Title"]
    assert "one · two" in text
    assert seen.of("section") == [{"aria-labelledby": "key"}]
    assert seen.of("h2") == [{"id": "key"}]


def test_a_card_says_whether_a_difference_is_good() -> None:
    made = Card("wait", "3 s"), Card("cost", "$1", "less than a", True), Card("speed", "1", "less than a", False)
    assert [found.get("class") for found in Seen(cards(made)).of("dd")] == [
        None, None, "against better", None, "against worse",
    ]  # fmt: skip


def test_a_list_has_all_figures() -> None:
    seen = Seen(figure_list([("a", "1"), ("b", "2")]))
    assert list(zip(seen.said("dt"), seen.said("dd"), strict=True)) == [("a", "1"), ("b", "2")]


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 5), st.integers(0, 5))
def test_every_cell_has_its_column_and_every_row_its_name(width: int, height: int) -> None:
    columns = [Column("name"), *(number_column(f"figure {at}", "ms") for at in range(1, width))]
    seen = Seen(table("About", columns, [[f"{at}.{place}" for place in range(width)] for at in range(height)]))
    scopes = [found["scope"] for found in seen.of("th")]
    assert scopes == ["col"] * width + ["row"] * height
    assert len(seen.of("td", "number")) == (width - 1) * height
    assert len(seen.of("tr")) == height + 1


def test_a_row_that_does_not_fit_its_columns_is_an_error() -> None:
    with pytest.raises(ValueError, match="zip"):
        table("About", [Column("a"), Column("b")], [["only one"]])


def test_records_are_shown_as_they_are() -> None:
    seen = Seen(records("About", [{"name": "a", "wait_ms": 1.25}, {"name": "b", "wait_ms": None}]))
    assert seen.said("th")[:2] == ["name", "wait "]
    assert [text for text in seen.said("td") if text] == ["1.25", "–"]
    assert len(seen.of("td", "number")) == 2


def test_what_is_numeric() -> None:
    assert is_numeric([1, 2.5, None])
    assert not is_numeric([None])
    assert not is_numeric([1, "2"])
    assert not is_numeric([True])


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(0, 100), max_size=6))
def test_parts_of_a_stack_lie_behind_each_other(widths: list[float]) -> None:
    drawn = [place(found) for found in Seen(stack("all", [("batch", width) for width in widths])).of("rect")]
    assert len(drawn) == len(widths)
    edge = 0.0
    for left, width in drawn:
        assert left == pytest.approx(edge, abs=0.01)
        edge += width
    assert edge == pytest.approx(sum(widths), abs=0.01)


@given(st.floats(0, 100))
def test_a_bar_ends_at_the_right(share_pct: float) -> None:
    (found,) = Seen(bar(share_pct, colour(1))).of("rect")
    assert sum(place(found)) == pytest.approx(100, abs=0.01)


def test_pieces_lie_where_they_are_told_and_say_what_they_are() -> None:
    inner = piece(colour(3), "a 40%", 20, 40, "a: 40 %")
    seen = Seen(row("GPU 0", [frame("3g.20gb@4", 50, 50, [inner])]))
    assert place(seen.of("svg", "frame")[0]) == (50, 50)
    assert [place(found) for found in seen.of("foreignobject") if "x" in found] == [(20, 40)]
    assert seen.of("div", "c3") == [{"class": "piece c3", "title": "a: 40 %"}]
    assert "3g.20gb@4" in seen.said("div")


def test_colours_begin_again_after_the_last() -> None:
    assert len({colour(number) for number in range(COLOURS)}) == COLOURS
    assert colour(COLOURS) == colour(0)
