"""Bars with their 90 % intervals, one line each, on a common scale from 0. Knows numbers and words, not their sense."""

from collections.abc import Sequence
from dataclasses import dataclass

from gpuloom.measure.figures import Interval
from gpuloom.pages.chart import drawing, label, rect, upright
from gpuloom.pages.html import Html, join
from gpuloom.pages.words import number

NAMES_PCT, VALUES_PCT = 26.0, 18.0
LINE_REM, BAR_REM, WHISKER_REM = 1.7, 0.9, 0.16


@dataclass(frozen=True, slots=True)
class Bar:
    name: str
    value: Interval | None
    """None: there is nothing to draw; `note` says why."""
    style: str
    note: str = ""


def bars(about: str, unit: str, rows: Sequence[Bar], mark: float | None = None) -> Html:
    """`mark` is a value to compare with, as an upright line."""
    ends = [end for row in rows if row.value for end in (row.value.value, row.value.high) if end is not None]
    most = max([*ends, mark or 0.0], default=0.0)
    if not rows or most <= 0:
        return Html("")
    room_pct = 100 - NAMES_PCT - VALUES_PCT
    parts = [_bar(row, at * LINE_REM, most, room_pct, unit) for at, row in enumerate(rows)]
    height_rem = len(rows) * LINE_REM + 0.4
    if mark is not None:
        parts.insert(0, upright(NAMES_PCT + room_pct * mark / most, 0, height_rem))
    return drawing(f"{about}: {'; '.join(_words(row, unit) for row in rows)}", height_rem, [join(*parts)])


def _bar(row: Bar, top_rem: float, most: float, room_pct: float, unit: str) -> Html:
    base_rem = top_rem + 1.15
    drawn = [label(row.name, NAMES_PCT, base_rem, end=True)]
    value = row.value
    if value is None:
        return join(*drawn, label(row.note or "not known", NAMES_PCT, base_rem))
    right_pct = NAMES_PCT + room_pct * value.value / most
    drawn.append(rect(row.style, NAMES_PCT, right_pct - NAMES_PCT, top_rem + 0.35, BAR_REM, about=_words(row, unit)))
    if value.low is not None and value.high is not None:
        low_pct, high_pct = (NAMES_PCT + room_pct * end / most for end in (value.low, value.high))
        middle_rem = top_rem + 0.35 + (BAR_REM - WHISKER_REM) / 2
        drawn.append(rect("host", low_pct, high_pct - low_pct, middle_rem, WHISKER_REM))
        right_pct = max(right_pct, high_pct)
    return join(*drawn, label(f"{number(value.value)} {unit}", right_pct, base_rem))


def _words(row: Bar, unit: str) -> str:
    if row.value is None:
        return f"{row.name}: {row.note or 'not known'}"
    span = ""
    if row.value.low is not None and row.value.high is not None:
        span = f" ({number(row.value.low)} to {number(row.value.high)})"
    return f"{row.name}: {number(row.value.value)} {unit}{span}" + (f", {row.note}" if row.note else "")
