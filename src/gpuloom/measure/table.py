"""The rows as a CSV file, one line a copy of a run, and JSON beside it: what they were measured on, and with.

The columns are stable: new ones are added at the end. A figure that could not be had is empty, never 0.
"""

import csv
from collections.abc import Iterable, Mapping
from dataclasses import fields
from io import StringIO
from typing import Any

from gpuloom.errors import InputError
from gpuloom.measure.arrangement import Seat, Way
from gpuloom.measure.results import Copy, Outcome

VERSION = 1
COLUMNS = (
    *(
        "run",
        "arrangement",
        "way",
        "copies",
        "copy",
        "repetition",
        "workload",
        "profile",
        "share_pct",
        "outcome",
        "said",
    ),
    *("warm_up_steps", "steps", "seconds", "steps_per_s", "step_ms", "step_p50_ms", "step_p95_ms", "step_p99_ms"),
    *("mem_peak_mib", "host_cpus", "host_mem_peak_mib", "power_w", "energy_j", "gract", "smact", "smocc", "drama"),
    "batches",
)
EXPECTED = "a table that gpuloom measure wrote"
LATER = ("batches",)
"""Columns that tables of earlier releases do not have."""
LEAST_MS, MOST = 1e-15, 1e15
"""Of a step, and of anything in its unit."""
_SEAT = ("workload", "profile", "share_pct")
_WHOLE_NUMBERS = ("run", "copies", "copy", "repetition", "warm_up_steps", "steps")
_TEXTS = ("arrangement", "said", "batches")


def row_of(copy: Copy) -> dict[str, object]:
    found: dict[str, object] = {}
    for name in COLUMNS:
        found[name] = getattr(copy.seat if name in _SEAT else copy, name)
    return found | {"way": copy.way.value, "outcome": copy.outcome.value}


def to_csv(copies: Iterable[Copy]) -> str:
    text = StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(map(_written, copies))
    return text.getvalue()


def _written(copy: Copy) -> dict[str, str]:
    return {name: "" if value is None else str(_number(value)) for name, value in row_of(copy).items()}


def _number(value: object) -> object:
    """Shortly, and back to the same number: whole ones without their .0."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 1e15 else value


def from_csv(text: str, source: str) -> list[Copy]:
    """The rows of such a file; InputError, with the line and the column, if it is not one."""
    lines = csv.DictReader(StringIO(text))
    try:
        missing = [name for name in COLUMNS if name not in (*LATER, *(lines.fieldnames or ()))]
        if missing:
            raise InputError(f"{source}: has no column {missing[0]}; expected {EXPECTED}")
        return [_copy(line, f"{source}: line {lines.line_num}") for line in lines]
    except csv.Error as error:
        raise InputError(
            f"{source}: after line {lines.line_num} it is not CSV ({error}); expected {EXPECTED}"
        ) from None


def check(copy: Copy, where: str) -> None:
    """InputError, with `where` and the column, if the table could not be read again with this row in it."""
    _copy(_written(copy), where)


def _copy(line: Mapping[str, str | None], where: str) -> Copy:
    told = {name: _value(name, line.get(name) or "", where) for name in COLUMNS if name not in (*_SEAT, "steps_per_s")}
    for name in ("run", "arrangement", "copies", "copy", "repetition"):
        if told[name] is None:
            raise InputError(f"{where}: {name} is empty, but must have a value")
    share_pct = _value("share_pct", line["share_pct"] or "", where)
    seat = Seat(line["workload"] or "", line["profile"] or None, 100.0 if share_pct is None else share_pct)
    known = {field.name for field in fields(Copy)}
    return Copy(seat=seat, **{name: value for name, value in told.items() if name in known})


def _value(name: str, text: str, where: str) -> Any:
    if name in ("way", "outcome"):
        kind: type[Way] | type[Outcome] = Way if name == "way" else Outcome
        try:
            return kind(text)
        except ValueError:
            raise InputError(f"{where}: {name} is {text!r}; accepted are {', '.join(kind)}") from None
    if not text:
        return None
    if name in _TEXTS:
        return text
    try:
        number = int(text) if name in _WHOLE_NUMBERS else float(text)
    except ValueError:
        raise InputError(f"{where}: {name} is {text[:40]!r}, but must be a number") from None
    if name == "share_pct" and not 0 < number <= 100:
        raise InputError(f"{where}: {name} is {text[:40]!r}, but must be above 0, and 100 at most")
    least = LEAST_MS if name == "step_ms" and number != 0 else 1 if name == "copies" else 0
    if not least <= number <= MOST:  # so it is with what is not a number
        raise InputError(f"{where}: {name} is {text[:40]!r}, which nobody can have measured")
    return number
