"""The comparison as a table with small bars, readable without a script. Takes whatever columns it is given."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from gpuloom.pages.cards import figure_list
from gpuloom.pages.chart import bar, swatch
from gpuloom.pages.html import Html, join, tag
from gpuloom.pages.page import section
from gpuloom.pages.table import Column, is_numeric, table
from gpuloom.pages.words import number, shown
from gpuloom.sim.report.words import FIGURES, figure_of, label

NOT_OF_THE_RUN = frozenset({"wall_s", "cpu_s"})
"""Columns about the machine that simulated: left out, so that the same run gives the same page anywhere."""

Rows = Sequence[Mapping[str, object]]


def comparison(rows: Rows, colours: Mapping[str, str]) -> Html:
    """`colours` are the classes of the policies: a row that names one gets its mark."""
    columns = [column for column in dict.fromkeys(c for row in rows for c in row) if column not in NOT_OF_THE_RUN]
    if not columns:
        return Html("")
    if len(rows) == 1:
        return section("comparison", "All figures", _figures(rows[0], columns))
    return section("comparison", "Comparison", _table(rows, columns, colours))


def _figures(row: Mapping[str, object], columns: Sequence[str]) -> Html:
    """A single row has nothing to be compared with: a list is easier to read than one wide line."""
    figures = []
    for column in columns:
        words, unit = label(column)
        known = unit and row.get(column) is not None
        figures.append((words, f"{_shown(row.get(column))} {unit}" if known else _shown(row.get(column))))
    return figure_list(figures)


def _table(rows: Rows, columns: Sequence[str], colours: Mapping[str, str]) -> Html:
    errors = {before: after for before, after in pairwise(columns) if _is_error(after)}
    columns = [column for column in columns if column not in errors.values()]
    heads = [Column(*label(column), "number" if _is_numeric(rows, column) else "") for column in columns]
    return table("Comparison", heads, [_line(row, rows, columns, errors, colours) for row in rows])


def _is_error(column: str) -> bool:
    """A standard error: printed with the column before it, as ±."""
    return "stderr" in column or column.endswith("_se")


def _line(
    row: Mapping[str, object],
    rows: Rows,
    columns: Sequence[str],
    errors: Mapping[str, str],
    colours: Mapping[str, str],
) -> list[Html]:
    style = next((colours[value] for value in row.values() if isinstance(value, str) and value in colours), "")
    first = join(swatch(style), _shown(row.get(columns[0]))) if style else join(_shown(row.get(columns[0])))
    return [first, *(_cell(row, rows, column, errors.get(column, ""), style) for column in columns[1:])]


def _cell(row: Mapping[str, object], rows: Rows, column: str, error_column: str, style: str) -> Html:
    value, error = row.get(column), row.get(error_column)
    if not _is_numeric(rows, column) or not isinstance(value, int | float):
        return join(_shown(value))
    figure = tag("strong", _shown(value)) if value == _best(rows, column) else _shown(value)
    margin = Html("")
    if isinstance(error, int | float) and error != 0:  # the baseline's ratio to itself has no error
        margin = join(" ", tag("span", f"± {number(error, value)}", class_="error"))
    return join(figure, margin, _bar(value, rows, column, style))


def _bar(value: float, rows: Rows, column: str, style: str) -> Html:
    """As long as the value is large, against the largest of its column; none where lengths would mislead."""
    values = _values(rows, column)
    if value == 0 or min(values) < 0 or max(values) == min(values):
        return Html("")
    return bar(100 * value / max(values), style)


def _best(rows: Rows, column: str) -> float | None:
    """The best value of a column, if it is known which way is better and the rows differ."""
    known, rest = figure_of(column)
    less = None if known is None or rest else FIGURES[known].less_is_better
    values = _values(rows, column)
    if less is None or len(set(values)) < 2:
        return None
    return min(values) if less else max(values)


def _values(rows: Rows, column: str) -> list[float]:
    return [value for row in rows if isinstance(value := row.get(column), int | float)]


def _is_numeric(rows: Rows, column: str) -> bool:
    return is_numeric([row.get(column) for row in rows])


def _shown(value: object) -> str:
    return number(value) if isinstance(value, int | float) and not isinstance(value, bool) else shown(value)
