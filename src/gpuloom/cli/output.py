"""How every command prints: a table for people, JSON and CSV for programs. Knows nothing of what is printed."""

import csv
import json
import os
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from io import StringIO
from math import isfinite
from typing import Literal

LEAST_TEXT = 12
"""Letters in a line of a column of texts."""
BESIDE = 3
"""Blanks and rules of a column; the table has one more."""


class Output(StrEnum):
    table = "table"
    json = "json"
    csv = "csv"


def emit(rows: list[dict[str, object]], output: Output, title: str = "", spare: Sequence[str] = ()) -> None:
    """Print rows that share their columns. Unknown values are None: – in a table, null in JSON, empty in CSV.

    `spare`: columns that a terminal may lack if it is too narrow, the first of them first.
    """
    if output is Output.json:
        print_json(rows)
    elif output is Output.csv:
        _write(_csv(rows))
    elif sys.stdout.isatty():
        _rich_table(rows, title, spare)
    else:
        _write(_plain_table(rows, title))


def print_json(value: object) -> None:
    """One JSON document on standard output. JSON has no NaN or infinity: they are unknown, so null."""
    ascii_only = (sys.stdout.encoding or "").lower().replace("-", "") != "utf8"
    text = json.dumps(_finite(value), indent=2, ensure_ascii=ascii_only, allow_nan=False, default=str)
    sys.stdout.write(text + "\n")


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def _write(text: str) -> None:
    """Text for people: what the terminal cannot show becomes a question mark, not an error."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "replace").decode(encoding))


def harmless(text: str) -> str:
    """What others have written, for a terminal: control characters are shown, not obeyed."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or letter in "\n\t" else "\N{REPLACEMENT CHARACTER}" for letter in text
    )


def _columns(rows: list[dict[str, object]]) -> list[str]:
    return list(dict.fromkeys(column for row in rows for column in row))


def _csv(rows: list[dict[str, object]]) -> str:
    text = StringIO()
    writer = csv.DictWriter(text, _columns(rows), lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows({column: _joined(value) for column, value in row.items()} for row in rows)
    return text.getvalue() if rows else ""


def _joined(value: object) -> object:
    """Lists and mappings have no place in one cell: write them as people would."""
    if isinstance(value, Mapping):
        return harmless(" ".join(f"{key}={item}" for key, item in value.items()))
    if isinstance(value, Sequence) and not isinstance(value, str):
        return harmless(" ".join(map(str, value)))
    return harmless(value) if isinstance(value, str) else value


def _cell(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        shown = f"{value:,.3f}"
        return shown.rstrip("0").rstrip(".") if "." in shown else shown
    return f"{value:,}" if isinstance(value, int) else str(_joined(value)) or "none"


def _numeric(rows: list[dict[str, object]], column: str) -> bool:
    values = [row.get(column) for row in rows]
    return all(value is None or (isinstance(value, int | float) and not isinstance(value, bool)) for value in values)


def _rich_table(rows: list[dict[str, object]], title: str, spare: Sequence[str]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    # rich takes any NO_COLOR as set; the convention is: set and not empty.
    console = Console(no_color=bool(os.environ.get("NO_COLOR")))
    columns = _that_fit(rows, spare, console.width)
    if not columns and rows:
        _write(_plain_table(rows, title))
        return
    table = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD, header_style="bold")
    for column in columns:
        number = _numeric(rows, column)
        justify: Literal["right", "left"] = "right" if number else "left"
        table.add_column(Text(column), justify=justify, overflow="fold", no_wrap=number)
    for row in rows:
        table.add_row(*(Text(_cell(row.get(column))) for column in columns))
    console.print(table if rows else title or "nothing to show")


def _that_fit(rows: list[dict[str, object]], spare: Sequence[str], width: int) -> list[str]:
    """With numbers in one piece, and texts not in splinters; none if that cannot be."""
    columns = _columns(rows)
    least = {column: _least_width(rows, column) for column in columns}
    out = [column for column in spare if column in columns]
    while columns and sum(least[column] + BESIDE for column in columns) >= width:
        if not out:
            return []
        columns.remove(out.pop(0))
    return columns


def _least_width(rows: list[dict[str, object]], column: str) -> int:
    """A column of numbers is not folded, its heading included; of texts so much should be left."""
    widest = max(len(text) for text in (column, *(_cell(row.get(column)) for row in rows)))
    return widest if _numeric(rows, column) else min(widest, LEAST_TEXT)


def _plain_table(rows: list[dict[str, object]], title: str) -> str:
    """In a pipe: whole lines, never wrapped or cut, columns two blanks apart."""
    columns = _columns(rows)
    body = [[_cell(row.get(column)) for column in columns] for row in rows]
    widths = [max(len(line[index]) for line in [columns, *body]) for index in range(len(columns))]
    right = [_numeric(rows, column) for column in columns]

    def line(cells: list[str]) -> str:
        padded = (
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(cells, widths, right, strict=True)
        )
        return "  ".join(padded).rstrip()

    lines = [line(columns), *map(line, body)] if rows else [] if title else ["nothing to show"]
    return "\n".join(([title] if title else []) + lines) + "\n"
