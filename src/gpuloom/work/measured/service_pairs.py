"""Measured inference: solo tables (batch by share), use of L2 and memory, and pairs that shared a GPU under MPS.

Two formats. iGniter's (V100): JSON lines `{"<model>": {"latency": {batch: {share: ms}}}}`, the same for "l2cache" and
"dram", and `{"interference": {"latency": [[model, model, batch, batch, share, ms, ms], ...]}}`, where the second has
what the first leaves of 100 %. gpu-lets' (A100): a folder with solo.csv, cache_dram_util.csv and pairs.csv. Either
becomes the same: tables by (batch, share), and for each pair one row for each side.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from gpuloom.errors import InputError
from gpuloom.work.source import MAX_COUNT, parse_json, read_text, shown
from gpuloom.work.table import Table, open_table

PAIRS = "interference"
_EXPECTED = 'JSON lines such as {"interference": {"latency": [["a", "b", 2, 2, 20, 2.7, 3.5]]}}'
_ROW = "[model, model, batch, batch, share of the first in per cent, latency, latency], all numbers above 0"
_TABLES = ("latency", "l2cache", "dram")
Grid = Mapping[tuple[int, float], float]
"""By batch and share in per cent."""


class PairRow(NamedTuple):
    """One side of a measured pair."""

    model: str
    batch: int
    share_pct: float
    neighbour: str
    neighbour_batch: int
    neighbour_share_pct: float
    latency_ms: float


@dataclass(frozen=True, slots=True)
class MeasuredServices:
    pairs: tuple[PairRow, ...]
    solo_ms: Mapping[str, Grid] = field(default_factory=dict)
    """By model; empty if the file has pairs only."""
    l2_pct: Mapping[str, Grid] = field(default_factory=dict)
    dram_pct: Mapping[str, Grid] = field(default_factory=dict)


def read_solo_and_pairs(path: Path) -> MeasuredServices:
    """iGniter's file. Its pairs must be there, its tables need not."""
    tables: dict[str, dict[str, Grid]] = {kind: {} for kind in _TABLES}
    pairs: list[PairRow] = []
    for line, text in enumerate(read_text(path, _EXPECTED).splitlines(), 1):
        if not text.strip():
            continue
        entry = parse_json(text, path, _EXPECTED, line=line)
        if not isinstance(entry, dict) or not all(isinstance(fields, dict) for fields in entry.values()):
            raise InputError(f"{path}: line {line} is {shown(entry)}: expected {_EXPECTED}")
        for name, fields in entry.items():
            where = f"{path}: line {line}"
            if name == PAIRS:
                pairs += _pairs(fields.get("latency", []), where)
                continue
            for kind in fields.keys() & set(_TABLES):
                tables[kind][name] = _grid(fields[kind], f"{where}: {kind!r} of {name}")
    if not pairs:
        raise InputError(f"{path} has no measured pairs: expected {_EXPECTED}")
    return MeasuredServices(tuple(pairs), tables["latency"], tables["l2cache"], tables["dram"])


def _pairs(rows: object, where: str) -> list[PairRow]:
    if not isinstance(rows, list):
        raise InputError(f"{where}: 'latency' of {PAIRS} is {shown(rows)}, but must be a list of {_ROW}")
    found = []
    for at, row in enumerate(rows, 1):
        if not _is_pair(row):
            raise InputError(f"{where}: pair {at} is {shown(str(row))}, but must be {_ROW}")
        first, second, batch, other_batch, share, ms, other_ms = row
        found.append(PairRow(first, batch, float(share), second, other_batch, 100.0 - share, float(ms)))
        found.append(PairRow(second, other_batch, 100.0 - share, first, batch, float(share), float(other_ms)))
    return found


def _is_pair(row: object) -> bool:
    if not isinstance(row, list) or len(row) != 7 or not all(isinstance(name, str) and name for name in row[:2]):
        return False
    if not all(isinstance(batch, int) and _positive(batch) and batch <= MAX_COUNT for batch in row[2:4]):
        return False
    return all(map(_positive, row[4:])) and row[4] < 100


def _positive(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def _grid(table: Any, where: str) -> Grid:
    accepted = "an object of batches, each an object of shares with a number above 0"
    if not isinstance(table, dict) or not table or not all(isinstance(row, dict) for row in table.values()):
        raise InputError(f"{where} is {shown(table)}, but must be {accepted}")
    found: dict[tuple[int, float], float] = {}
    for batch, row in table.items():
        for share, value in row.items():
            try:
                point = int(batch), float(share)
            except ValueError:
                point = 0, 0.0
            if point[0] < 1 or not 0 < point[1] <= 100 or not _positive(value):
                raise InputError(f"{where}, batch {shown(batch)}, share {shown(share)} must be {accepted}")
            found[point] = float(value)
    return found


def read_gpulets_folder(folder: Path) -> MeasuredServices:
    """gpu-lets' folder."""
    solo: dict[str, dict[tuple[int, float], float]] = {}
    table = open_table(folder / "solo.csv", ("model", "batch", "share_pct", "latency_s"), "solo latencies")
    for line, (model, batch, share, latency) in table.rows():
        solo.setdefault(model, {})[_point(table, line, batch, share)] = 1e3 * _seconds(table, line, latency)
    l2: dict[str, dict[tuple[int, float], float]] = {}
    dram: dict[str, dict[tuple[int, float], float]] = {}
    columns = ("model", "batch", "share_pct", "dram_util_pct", "l2_util_pct")
    table = open_table(folder / "cache_dram_util.csv", columns, "use of L2 and memory")
    for line, (model, batch, share, dram_pct, l2_pct) in table.rows():
        point = _point(table, line, batch, share)
        for found, column, text in ((dram, columns[3], dram_pct), (l2, columns[4], l2_pct)):
            found.setdefault(model, {})[point] = table.number(line, column, text, "a percentage", 0.0, 100.0)
    return MeasuredServices(_gpulets_pairs(folder / "pairs.csv"), solo, l2, dram)


def _gpulets_pairs(path: Path) -> tuple[PairRow, ...]:
    columns = ("model", "batch", "share_pct", "neighbour", "neighbour_batch", "latency_s")
    table = open_table(path, columns, "measured pairs")
    rows = []
    for line, (model, batch, share, neighbour, other, latency) in table.rows():
        point = _point(table, line, batch, share, below=100.0)
        other_batch = table.count(line, "neighbour_batch", other, 1)
        ms = 1e3 * _seconds(table, line, latency)
        rows.append(PairRow(model, *point, neighbour, other_batch, 100.0 - point[1], ms))
    if not rows:
        raise InputError(f"{path} has no rows: expected the columns {', '.join(columns)}")
    return tuple(rows)


def _point(table: Table, line: int, batch: str, share: str, below: float = math.inf) -> tuple[int, float]:
    share_pct = table.number(line, "share_pct", share, "a percentage above 0", math.ulp(0.0), 100.0)
    if share_pct >= below:
        raise table.wrong(line, "share_pct", share, f"below {below:g}")
    return table.count(line, "batch", batch, 1), share_pct


def _seconds(table: Table, line: int, latency: str) -> float:
    return table.number(line, "latency_s", latency, "a number of seconds above 0", math.ulp(0.0))
