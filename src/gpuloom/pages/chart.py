"""Pictures as SVG, and the colours that all of them share.

Sideways everything is in percent of the room, upwards in the size of the letters: the same drawing fits a phone, a wall
and a sheet of paper. Which colour a number has is written in the stylesheet, once for each theme.
"""

from collections.abc import Iterable, Sequence

from gpuloom.pages.html import Html, tag

COLOURS = 12


def colour(number: int) -> str:
    """The class of one of the colours that tell things apart."""
    return f"c{number % COLOURS}"


def swatch(style: str) -> Html:
    return tag("i", class_=f"swatch {style}")


def legend(about: str, entries: Iterable[tuple[str, str]]) -> Html:
    """Classes and what they mean."""
    return tag("ul", *(tag("li", swatch(style), words) for style, words in entries), class_="legend", aria_label=about)


def drawing(about: str, height_rem: float, content: Sequence[Html], width_px: int | None = None) -> Html:
    """`about` is the picture in words. Without a width it takes the room that there is."""
    place = {"width": width_px, "height": _rem(height_rem)}
    return tag("svg", *content, class_="drawing", role="img", aria_label=about, **place)


def rect(style: str, left_pct: float, width_pct: float, top_rem: float, height_rem: float, about: str = "") -> Html:
    """`about` is what one reads beside the pointer."""
    title = (tag("title", about),) if about else ()
    place = {"x": _pct(left_pct), "y": _rem(top_rem), "width": _pct(width_pct), "height": _rem(height_rem)}
    return tag("rect", *title, class_=style, **place)


def label(words: str, left_pct: float, base_rem: float, style: str | None = None, end: bool = False) -> Html:
    """Letters that stand on a line; they begin at the place, or end there."""
    place = {"x": _pct(left_pct), "y": _rem(base_rem), "dx": "-.25rem" if end else ".25rem"}
    return tag("text", words, class_=style, text_anchor="end" if end else None, **place)


def upright(left_pct: float, top_rem: float, bottom_rem: float, style: str = "grid") -> Html:
    """A line of the grid."""
    x = _pct(left_pct)
    return tag("line", class_=style, x1=x, x2=x, y1=_rem(top_rem), y2=_rem(bottom_rem))


def row(about: str, content: Sequence[Html]) -> Html:
    """One lane with pieces in it."""
    return tag("svg", *content, class_="row", role="img", aria_label=about)


def piece(style: str, words: str, left_pct: float, width_pct: float, about: str) -> Html:
    """A part of a lane that says what it is, as far as there is room: SVG places it, and HTML shortens the words."""
    box = tag("div", tag("span", words), class_=f"piece {style}", title=about)
    return tag("foreignObject", box, x=_pct(left_pct), width=_pct(width_pct), height="100%")


def frame(words: str, left_pct: float, width_pct: float, pieces: Sequence[Html]) -> Html:
    """A part of a lane that has pieces of its own, below its name."""
    name = tag("foreignObject", tag("div", words, class_="name"), width="100%", height=".95rem")
    inner = tag("svg", *pieces, y=".95rem", height="1.45rem")
    edge = tag("line", x1="100%", x2="100%", y2="100%")
    return tag("svg", name, inner, edge, class_="frame", x=_pct(left_pct), width=_pct(width_pct))


def bar(share_pct: float, style: str) -> Html:
    """How large the figure above it is, to the right as the figure is."""
    drawn = tag("rect", x=_pct(100 - share_pct), width=_pct(share_pct), height="100%")
    return tag("svg", drawn, class_=f"bar {style}".strip(), aria_hidden="true")


def stack(about: str, parts: Sequence[tuple[str, float]]) -> Html:
    """Parts of a whole behind each other, as classes and percent."""
    drawn, left_pct = [tag("title", about)], 0.0
    for style, width_pct in parts:
        drawn.append(tag("rect", class_=style, x=_pct(left_pct), width=_pct(width_pct), height="100%"))
        left_pct += width_pct
    return tag("svg", *drawn, class_="stack", role="img")


def _pct(value: float) -> str:
    return f"{round(value, 3):g}%"


def _rem(value: float) -> str:
    return f"{round(value, 3):g}rem"
