"""The comparison as an HTML table with small bars, readable without a script. Takes whatever columns it is given."""

from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise

from gpuloom.sim.report.words import FIGURES, figure_of, label, number

NOT_OF_THE_RUN = frozenset({"wall_s", "cpu_s"})
"""Columns about the machine that simulated: left out, so that the same run gives the same page anywhere."""

Rows = Sequence[Mapping[str, object]]


def comparison(table: Rows, colours: Mapping[str, int]) -> str:
    """`colours` are those of the policies: a row that names one gets its mark."""
    columns = [column for column in dict.fromkeys(c for row in table for c in row) if column not in NOT_OF_THE_RUN]
    if not columns:
        return ""
    content = _figures(table[0], columns) if len(table) == 1 else _table(table, columns, colours)
    title = "All figures" if len(table) == 1 else "Comparison"
    return f'<section aria-labelledby="comparison"><h2 id="comparison">{title}</h2>{content}</section>'


def _figures(row: Mapping[str, object], columns: Sequence[str]) -> str:
    """A single row has nothing to be compared with: a list is easier to read than one wide line."""
    items = []
    for column in columns:
        words, unit = label(column)
        small = f" {escape(unit)}" if unit and row.get(column) is not None else ""
        items.append(f"<div><dt>{escape(words)}</dt><dd>{_shown(row.get(column))}{small}</dd></div>")
    return f'<dl class="figures">{"".join(items)}</dl>'


def _table(table: Rows, columns: Sequence[str], colours: Mapping[str, int]) -> str:
    errors = {before: after for before, after in pairwise(columns) if _is_error(after)}
    columns = [column for column in columns if column not in errors.values()]
    heads = "".join(_head(column, _is_numeric(table, column)) for column in columns)
    lines = "".join(_line(row, table, columns, errors, colours) for row in table)
    return (
        '<div class="wide" role="region" aria-labelledby="comparison" tabindex="0">'
        f"<table><thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table></div>"
    )


def _is_error(column: str) -> bool:
    """A standard error: printed with the column before it, as ±."""
    return "stderr" in column or column.endswith("_se")


def _head(column: str, numeric: bool) -> str:
    words, unit = label(column)
    small = f' <span class="unit">{escape(unit)}</span>' if unit else ""
    style = "number" if numeric else "text"
    return f'<th scope="col" class="{style}">{escape(words)}{small}</th>'


def _line(
    row: Mapping[str, object],
    table: Rows,
    columns: Sequence[str],
    errors: Mapping[str, str],
    colours: Mapping[str, int],
) -> str:
    colour = next((colours[value] for value in row.values() if isinstance(value, str) and value in colours), None)
    dot = "" if colour is None else swatch(colour)
    cells = [f'<th scope="row">{dot}{_shown(row.get(columns[0]))}</th>']
    for column in columns[1:]:
        value, error = row.get(column), row.get(errors.get(column, ""))
        if not _is_numeric(table, column) or not isinstance(value, int | float):
            cells.append(f'<td class="{"number" if value is None else "text"}">{_shown(value)}</td>')
            continue
        margin = ""
        if isinstance(error, int | float) and error != 0:  # the baseline's ratio to itself has no error
            margin = f' <span class="error">± {number(error, value)}</span>'
        style = "number best" if value == _best(table, column) else "number"
        cells.append(f'<td class="{style}">{_shown(value)}{margin}{_bar(value, table, column, colour)}</td>')
    return f"<tr>{''.join(cells)}</tr>"


def _bar(value: float, table: Rows, column: str, colour: int | None) -> str:
    """As long as the value is large, against the largest of its column; none where lengths would mislead."""
    values = _values(table, column)
    if value == 0 or min(values) < 0 or max(values) == min(values):
        return ""
    paint = "" if colour is None else f"background:var(--policy-{colour});"
    return f'<i class="bar" style="{paint}width:{100 * value / max(values):.1f}%"></i>'


def _best(table: Rows, column: str) -> float | None:
    """The best value of a column, if it is known which way is better and the rows differ."""
    known, rest = figure_of(column)
    less = None if known is None or rest else FIGURES[known].less_is_better
    values = _values(table, column)
    if less is None or len(set(values)) < 2:
        return None
    return min(values) if less else max(values)


def _values(table: Rows, column: str) -> list[float]:
    return [value for row in table if isinstance(value := row.get(column), int | float)]


def _is_numeric(table: Rows, column: str) -> bool:
    values = [row.get(column) for row in table]
    return any(value is not None for value in values) and all(
        value is None or (isinstance(value, int | float) and not isinstance(value, bool)) for value in values
    )


def _shown(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return number(value) if isinstance(value, int | float) else escape(str(value))


def swatch(colour: int) -> str:
    return f'<i class="swatch" style="background:var(--policy-{colour})"></i>'
