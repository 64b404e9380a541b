"""The file of what was seen (`memory.json`), version 1: a row a line, and how two such files become one.

    {"format": "gpuloom memory", "version": 1, "seen": [
    {"workload": "resnet", "model": "A100-40GB", "source": "run …", "at_unix_s": 1750000000.0,
     "rates": {"3g.20gb": [12.5, 40]}, …}
    ]}

A rate is steps a second and how many observations it is the mean of. What has its default value is left out. Putting
files together does not depend on the order, and doing it twice changes nothing: whoever writes again what it has
written before counts once. Knows the format, not where the file is.
"""

import json
from collections.abc import Iterable
from dataclasses import fields
from functools import cache
from math import isfinite
from typing import Any

from gpuloom.errors import InputError
from gpuloom.perf.slices.earlier import Rate, Row

FORMAT, VERSION = "gpuloom memory", 1
EXPECTED = "a memory that gpuloom wrote (JSON)"
MOST_ROWS = 10_000
"""In a file; the newest stay."""
MOST_SOURCES = 8
"""Runs and campaigns that are kept of each workload on each model; the newest."""
MOST_TEXT, MOST_PROFILES, MOST_OBSERVATIONS = 4096, 64, 10**12
LEAST_RATE, MOST_RATE = 1e-12, 1e12
MOST_UNIX_S = 1e11


def merged(*files: Iterable[Row]) -> tuple[Row, ...]:
    """All their rows: of each source the newest, of each workload and model the newest sources."""
    newest: dict[tuple[Any, ...], Row] = {}
    for row in (row for file in files for row in file):
        key = (row.task, row.model, row.source)
        newest[key] = max(newest.get(key, row), row, key=_rank)
    kept, sources = list[Row](), dict[tuple[Any, ...], int]()
    for row in sorted(newest.values(), key=_rank, reverse=True):
        number = sources[row.task, row.model] = sources.get((row.task, row.model), 0) + 1
        if number <= MOST_SOURCES:
            kept.append(row)
    return tuple(sorted(kept[:MOST_ROWS], key=lambda row: (row.workload, row.folder or "", row.model, _rank(row))))


def _rank(row: Row) -> tuple[float, int, str, str]:
    """Total: two that differ are never equally new."""
    return *row.newness, _written(row)


def to_text(rows: Iterable[Row]) -> str:
    lines = ",\n".join(map(_written, rows))
    return f'{{"format": "{FORMAT}", "version": {VERSION}, "seen": [\n{lines}\n]}}\n'


def _written(row: Row) -> str:
    told = {one.name: getattr(row, one.name) for one in fields(Row)}
    usual = Row("", "", "", 0.0)
    needed = ("workload", "model", "source", "at_unix_s")
    kept = {name: value for name, value in told.items() if name in needed or value != getattr(usual, name)}
    return json.dumps(kept, sort_keys=True)


def from_text(text: str, name: str) -> tuple[Row, ...]:
    """The rows of a file; InputError, in a sentence, if it is not one of ours."""
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        raise InputError(f"{name}: is damaged, or no JSON: expected {EXPECTED}") from None
    if not isinstance(told, dict) or told.get("format") != FORMAT or not isinstance(told.get("seen"), list):
        raise InputError(f"{name}: is something else: expected {EXPECTED}")
    if told.get("version") != VERSION:
        version = str(told.get("version"))[:20]
        raise InputError(f"{name}: is a memory of version {version}, this gpuloom knows version {VERSION}")
    return tuple(_row(one, f"{name}: row {number}") for number, one in enumerate(told["seen"], 1))


def _row(told: Any, where: str) -> Row:
    from pydantic import ValidationError

    try:
        row: Row = _adapter().validate_python(told)
    except (ValidationError, RecursionError) as error:
        at = error.errors()[0]["loc"] if isinstance(error, ValidationError) else ()
        field = ".".join(map(str, at))[:60]
        raise InputError(f"{where}: {field or 'it'} is wrong: expected {EXPECTED}") from None
    if not is_sound(row):
        raise InputError(f"{where}: has figures that cannot be: expected {EXPECTED}")
    return row


@cache
def _adapter() -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(Row)


def is_sound(row: Row) -> bool:
    """Whether it may be in a file: texts that are not endless, figures that can be."""
    texts = (row.workload, row.folder or "", row.model, row.source, row.driver or "", row.unit, *row.too_small)
    return (
        all(len(text) <= MOST_TEXT and _is_unicode(text) for text in (*texts, *row.rates))
        and max(len(row.rates), len(row.too_small)) <= MOST_PROFILES
        and bool(row.workload)
        and 0 <= row.at_unix_s <= MOST_UNIX_S
        and LEAST_RATE <= row.pace <= MOST_RATE
        and all(_is_rate(rate) for rate in row.rates.values())
    )


def _is_rate(rate: Rate) -> bool:
    return (
        isfinite(rate.steps_per_s)
        and LEAST_RATE <= rate.steps_per_s <= MOST_RATE
        and 1 <= rate.observations <= MOST_OBSERVATIONS
    )


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
