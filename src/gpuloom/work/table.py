"""Strict CSV: a header with the needed columns, every row as long as the header, every value of its type and range.

Rows are yielded as plain lists in the order of the asked columns, so that a trace of 100,000 rows is read in a fraction
of a second; the `Table` names file, line and column when a value turns out to be wrong.
"""

import csv
import io
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import itemgetter
from pathlib import Path
from typing import NoReturn

from gpuloom.errors import InputError
from gpuloom.work.source import MAX_COUNT, MAX_SECONDS, read_text, shown

_EPOCH = datetime(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class Table:
    """An opened CSV file: `columns` are those asked for, in that order."""

    path: Path
    columns: tuple[str, ...]
    text: str

    def rows(self) -> Iterator[tuple[int, Sequence[str]]]:
        """(line number, the asked columns) of every row; blank lines are passed over."""
        reader = csv.reader(io.StringIO(self.text, newline=""), strict=True)
        line = 1
        try:
            header = next(reader, [])
            pick = self._picker([name.strip() for name in header])
            width = len(header)
            for row in reader:
                # `line_num` is the last line of the row, which differs only for quoted line breaks.
                line = reader.line_num
                if len(row) != width:
                    if not row:
                        continue
                    self._wrong_width(line, len(row), width)
                yield line, pick(row)
        except csv.Error as error:
            raise InputError(f"{self.path}: line {max(line, reader.line_num)} is not CSV ({error})") from None

    def _picker(self, header: list[str]) -> Callable[[Sequence[str]], Sequence[str]]:
        for name in self.columns:
            if name not in header:
                raise InputError(
                    f"{self.path}: line 1 has no column {name!r}: expected the columns {', '.join(self.columns)},"
                    f" found {shown(', '.join(header[:20]))}"
                )
            if header.count(name) > 1:
                raise InputError(f"{self.path}: line 1 has the column {name!r} twice: each may appear once")
        # itemgetter with one index would return a bare string; every reader asks for at least two columns.
        return itemgetter(*(header.index(name) for name in self.columns))

    def _wrong_width(self, line: int, found: int, width: int) -> NoReturn:
        raise InputError(
            f"{self.path}: line {line} has {found} field{'s' * (found != 1)} where the header has {width}:"
            " expected one value per column (is the file cut short?)"
        )

    def wrong(self, line: int, column: str, value: str, accepted: str) -> InputError:
        return InputError(f"{self.path}: line {line}, column {column!r} is {shown(value)}, but must be {accepted}")

    def number(
        self,
        line: int,
        column: str,
        value: str,
        accepted: str,
        low: float = 0.0,
        high: float = MAX_SECONDS,
    ) -> float:
        try:
            parsed = float(value)
        except ValueError:
            parsed = math.nan
        if not low <= parsed <= high:  # also refuses nan
            raise self.wrong(line, column, value, accepted)
        return parsed

    def seconds(self, line: int, column: str, value: str) -> float:
        return self.number(line, column, value, "a number of seconds, 0 or more")

    def count(self, line: int, column: str, value: str, low: int = 0, high: int = MAX_COUNT) -> int:
        parsed = self.number(line, column, value, f"a whole number from {low} to {high}", low, high)
        if parsed != int(parsed):
            raise self.wrong(line, column, value, f"a whole number from {low} to {high}")
        return int(parsed)

    def moment(self, line: int, column: str, value: str) -> float:
        """A date and time without zone, as seconds since 1970."""
        try:
            return epoch_s(value)
        except (ValueError, TypeError, OverflowError):
            raise self.wrong(line, column, value, "a date and time such as 2017-10-09 07:01:55") from None


def epoch_s(moment: str) -> float:
    """Seconds since 1970 of a date and time without zone; ValueError or TypeError if it is none."""
    return (datetime.fromisoformat(moment) - _EPOCH).total_seconds()


def open_table(path: Path, columns: tuple[str, ...], what: str) -> Table:
    return Table(path, columns, read_text(path, f"{what} (CSV with the columns {', '.join(columns)})"))
