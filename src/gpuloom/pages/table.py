"""Tables that scroll in their own box where the screen is narrow; the first column stays in sight and names the row."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpuloom.pages.html import Html, tag
from gpuloom.pages.page import wide
from gpuloom.pages.words import column_words, shown


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    unit: str = ""
    style: str = ""
    """Of its cells: `number`, to the right; `grows`, a picture, in all the room there is; `prose`; or a few words."""


def number_column(name: str, unit: str = "") -> Column:
    return Column(name, unit, "number")


def table(about: str, columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> Html:
    """`about` says to those who cannot see it what the table holds; a cell is text or markup."""
    head = tag("thead", tag("tr", *map(_head, columns)))
    body = tag("tbody", *(_row(columns, row) for row in rows))
    return wide(about, tag("table", head, body))


def records(about: str, rows: Sequence[Mapping[str, object]]) -> Html:
    """Rows by the names of their columns, as they are."""
    columns = [
        Column(*column_words(name), "number" if is_numeric([row.get(name) for row in rows]) else "") for name in rows[0]
    ]
    return table(about, columns, [[shown(row.get(name)) for name in rows[0]] for row in rows])


def is_numeric(values: Sequence[object]) -> bool:
    known = [value for value in values if value is not None]
    return bool(known) and all(isinstance(value, int | float) and not isinstance(value, bool) for value in known)


def _head(column: Column) -> Html:
    unit = (" ", tag("span", column.unit, class_="unit")) if column.unit else ()
    return tag("th", column.name, *unit, scope="col", class_=column.style or None)


def _row(columns: Sequence[Column], row: Sequence[str]) -> Html:
    first, *others = zip(columns, row, strict=True)
    cells = (
        tag("td", cell, class_=column.style) if column.style else tag("td", _words(cell)) for column, cell in others
    )
    return tag("tr", tag("th", _words(first[1]), scope="row"), *cells)


def _words(cell: str) -> Html:
    """In one line, or in several where they are too long."""
    return tag("span", cell, class_="words")
