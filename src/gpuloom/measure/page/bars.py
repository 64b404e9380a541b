"""Bars with their 90 % intervals on a common scale, each below its name. Knows numbers and words, not their sense.

The name stands to the left and the figure to the right, so that nothing collides in a picture as narrow as a phone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpuloom.measure.figures import Interval
from gpuloom.pages.chart import drawing, label, rect, upright
from gpuloom.pages.html import Html, join
from gpuloom.pages.words import number

LINE_REM, NAME_REM, BAR_TOP_REM, BAR_REM, WHISKER_REM = 2.4, 1.25, 1.55, 0.75, 0.16
EDGE_PCT = 2.5
"""Left free on both sides."""
LONGEST = 1.5
ROOM_PCT = 100 - 2 * EDGE_PCT


@dataclass(frozen=True, slots=True)
class Bar:
    name: str
    value: Interval | None
    """None: there is nothing to draw; `note` says why."""
    style: str
    note: str = ""
    room: float | None = None
    """What the value could be at most, drawn behind it."""


def bars(about: str, unit: str, rows: Sequence[Bar], mark: float | None = None) -> Html:
    """From 0. `mark` is a value to compare with, as an upright line."""
    shown = max([*(row.value.value for row in rows if row.value), *(row.room or 0.0 for row in rows), mark or 0.0, 0.0])
    if shown <= 0:
        return Html("")
    most = _reach(shown, [row.value.high for row in rows if row.value and row.value.high is not None])
    marks = [] if mark is None else [mark]
    words = [_words(row, unit) for row in rows]
    told = ["" if row.value is None else f"{number(row.value.value)} {unit}" for row in rows]
    return _drawn(about, rows, words, told, marks, 0.0, most)


def differences(about: str, rows: Sequence[Bar], margin_pct: float) -> Html:
    """Per cent to either side of none; within the margin, between two lines, it counts as none."""
    if not rows:
        return Html("")
    values = [row.value for row in rows if row.value]
    shown = max([*(abs(value.value) for value in values), 2 * margin_pct])
    reach = _reach(shown, [abs(end) for value in values for end in (value.low, value.high) if end is not None])
    told = ["" if row.value is None else signed(row.value.value) for row in rows]
    words = [f"{row.name}: {one}{_span(row.value, signed)}" for row, one in zip(rows, told, strict=True)]
    return _drawn(about, rows, words, told, [-margin_pct, 0.0, margin_pct], -reach, reach)


def _reach(shown: float, ends: Sequence[float]) -> float:
    """An interval that is much longer than all figures leaves the picture, instead of making them all small."""
    return max(shown, min(max(ends, default=0.0), LONGEST * shown))


def signed(per_cent: float) -> str:
    return f"{round(per_cent, 1) + 0.0:+.1f} %".replace("-", "−")


def _drawn(
    about: str,
    rows: Sequence[Bar],
    words: Sequence[str],
    told: Sequence[str],
    marks: Sequence[float],
    least: float,
    most: float,
) -> Html:
    def place_pct(value: float) -> float:
        return EDGE_PCT + ROOM_PCT * (min(max(value, least), most) - least) / (most - least)

    height_rem = len(rows) * LINE_REM + 0.5
    parts = [upright(place_pct(mark), 0.5, height_rem) for mark in marks]
    for at, row in enumerate(rows):
        top_rem = at * LINE_REM
        note = f" ({row.note})" if row.note else ""
        parts.append(label(f"{row.name}{note}", EDGE_PCT, top_rem + NAME_REM))
        parts.append(label(told[at], 100 - EDGE_PCT, top_rem + NAME_REM, end=True))
        if row.room is not None:
            parts.append(_between(("lane", words[at]), place_pct(0.0), place_pct(row.room), top_rem + BAR_TOP_REM))
        if row.value is not None:
            drawn = (row.style, words[at])
            parts.append(_between(drawn, place_pct(0.0), place_pct(row.value.value), top_rem + BAR_TOP_REM))
            parts.append(_whisker(row.value, place_pct, top_rem))
    return drawing(f"{about}: {'; '.join(words)}", height_rem, [join(*parts)])


def _between(drawn: tuple[str, str], one_pct: float, other_pct: float, top_rem: float) -> Html:
    style, words = drawn
    return rect(style, min(one_pct, other_pct), abs(other_pct - one_pct), top_rem, BAR_REM, about=words)


def _whisker(value: Interval, place_pct: Callable[[float], float], top_rem: float) -> Html:
    if value.low is None or value.high is None:
        return Html("")
    low_pct, high_pct = place_pct(value.low), place_pct(value.high)
    return rect("host", low_pct, high_pct - low_pct, top_rem + BAR_TOP_REM + (BAR_REM - WHISKER_REM) / 2, WHISKER_REM)


def _words(row: Bar, unit: str) -> str:
    if row.value is None:
        return f"{row.name}: {row.note or 'not known'}"
    of = "" if row.room is None else f" of {number(row.room)} {unit}"
    said = f"{row.name}: {number(row.value.value)} {unit}{of}{_span(row.value, number)}"
    return said + (f", {row.note}" if row.note else "")


def _span(value: Interval | None, word: Callable[[float], str]) -> str:
    if value is None or value.low is None or value.high is None:
        return ""
    return f" ({word(value.low)} to {word(value.high)})"
