"""How every command prints: a table for people, JSON and CSV for programs. Knows nothing of what is printed."""

import csv
import json
import os
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from io import StringIO
from math import isfinite


class Output(StrEnum):
    table = "table"
    json = "json"
    csv = "csv"


def emit(rows: list[dict[str, object]], output: Output, title: str = "") -> None:
    """Print rows that share their columns. Unknown values are None: – in a table, null in JSON, empty in CSV."""
    if output is Output.json:
        print_json(rows)
    elif output is Output.csv:
        _write(_csv(rows))
    elif sys.stdout.isatty():
        _rich_table(rows, title)
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
        return " ".join(f"{key}={item}" for key, item in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return " ".join(map(str, value))
    return value


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


def _rich_table(rows: list[dict[str, object]], title: str) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD, header_style="bold")
    for column in _columns(rows):
        table.add_column(Text(column), justify="right" if _numeric(rows, column) else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_cell(row.get(column))) for column in _columns(rows)))
    # rich takes any NO_COLOR as set; the convention is: set and not empty.
    Console(no_color=bool(os.environ.get("NO_COLOR"))).print(table if rows else title or "nothing to show")


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
