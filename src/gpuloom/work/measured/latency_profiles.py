"""Profiles of inference models from latency alone, as `gpuloom measure service` writes them: one JSON file a device.

    {"format": "gpuloom latency profile", "version": 1,
     "device": {"name": "A100-40GB", "mem_mib": 40960, "share_unit_pct": 2.5},
     "models": {"mixer": [{"batch": 1, "share_pct": 50, "latency_ms": 12.1, "p95_ms": 13.0}, …]},
     "pairs": [{"model": "mixer", "batch": 1, "share_pct": 50, "neighbour": "other", "neighbour_batch": 4,
                "neighbour_share_pct": 50, "latency_ms": 12.9, "p95_ms": 14.2}, …]}

A point is a batch that is asked again and again, one at a time, from the moment it is sent to its answer: alone in
`models`, beside somebody who is asked likewise in `pairs`, a row for each side. `p95_ms` and `p99_ms` may be missing;
what else a point says (its interval, how many requests it rests on) is for people. Knows the file only: what follows
from it is in `perf.sharing.latency_only`.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuloom.errors import InputError
from gpuloom.work.measured.service_pairs import PairRow
from gpuloom.work.source import MAX_COUNT, parse_json, read_text, shown

FORMAT, VERSION = "gpuloom latency profile", 1
SHARE_UNIT_PCT = 2.5
EXPECTED = "a latency profile as `gpuloom measure service` writes it"
LEAST_MS, MOST_MS = 1e-6, 1e7
"""Of a batch."""
_NAMED = re.compile(r'\s*\{\s*"format"\s*:\s*"')
"""How a file that is cut short says so of itself."""
Grid = Mapping[tuple[int, float], float]
"""By batch and share in per cent."""


@dataclass(frozen=True, slots=True)
class LatencyProfile:
    device: str
    """What it was measured on, as gpuloom calls that."""
    mem_mib: int
    alone_ms: Mapping[str, Grid]
    """Mean time of a batch, by model."""
    p95_ms: Mapping[str, Grid] = field(default_factory=dict)
    """What 95 of 100 batches are within, of the same points; a model of which nobody knows it is missing."""
    p99_ms: Mapping[str, Grid] = field(default_factory=dict)
    """Likewise."""
    pairs: tuple[PairRow, ...] = ()
    share_unit_pct: float = SHARE_UNIT_PCT
    """Shares are planned in multiples of it."""

    @property
    def most_batch(self) -> dict[str, int]:
        """The largest that was measured, by model."""
        return {model: max(batch for batch, _ in grid) for model, grid in self.alone_ms.items()}

    @property
    def doubts(self) -> tuple[str, ...]:
        """What of it may be a mistake, in sentences: it can be so, and then is read in the stated way."""
        below = [
            f"{name} of {model} at batch {batch} on {share_pct:g} %"
            for name, grids in (("p95_ms", self.p95_ms), ("p99_ms", self.p99_ms))
            for model, grid in grids.items()
            for (batch, share_pct), ms in grid.items()
            if ms < self.alone_ms[model][batch, share_pct]
        ]
        there = {(model, share_pct) for model, grid in self.alone_ms.items() for _, share_pct in grid}
        sides = {
            side
            for row in self.pairs
            for side in ((row.model, row.share_pct), (row.neighbour, row.neighbour_share_pct))
        }
        strange = [f"{model} on {share_pct:g} %" for model, share_pct in sorted(sides - there)]
        said = []
        if below:
            said.append(f"{below[0]} is below the mean{_more(below)}: no batch is taken to be faster than the mean")
        if strange:
            said.append(
                f"pairs have {strange[0]}, where it was not measured alone{_more(strange)}: that is interpolated"
            )
        return tuple(said)


def _more(found: Sequence[str]) -> str:
    return f" (and {len(found) - 1} more)" if len(found) > 1 else ""


def is_latency_profile(path: Path) -> bool:
    """Whether it says of itself what its format is, whichever, and even if it is damaged. What does not is somebody
    else's."""
    text = read_text(path, EXPECTED)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return _NAMED.match(text) is not None
    return isinstance(content, dict) and isinstance(content.get("format"), str)


def read_latency_profile(path: Path) -> LatencyProfile:
    """InputError, with the place in the file and what would be accepted, if it is none."""
    content = parse_json(read_text(path, EXPECTED), path, EXPECTED)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise InputError(f'{path} has no "format": "{FORMAT}": expected {EXPECTED}')
    if content.get("version") != VERSION:
        raise InputError(f"{path}: version is {shown(content.get('version'))}; this gpuloom reads version {VERSION}")
    device = _Entry(f"{path}: device", content.get("device"))
    models = content.get("models")
    if not isinstance(models, dict) or not models:
        raise InputError(f"{path}: models is {shown(models)}, but must be an object with a list of points for each")
    alone: dict[str, Grid] = {}
    p95: dict[str, Grid] = {}
    p99: dict[str, Grid] = {}
    for model, points in models.items():
        if not model or not model.isprintable():
            raise InputError(f"{path}: models names {shown(model)}: expected a printable name")
        alone[model], p95[model], p99[model] = _grids(points, f"{path}: models.{model}")
    pairs = content.get("pairs", [])
    if not isinstance(pairs, list):
        raise InputError(f"{path}: pairs is {shown(pairs)}, but must be a list")
    rows = tuple(_pair(_Entry(f"{path}: pairs[{at}]", row), alone) for at, row in enumerate(pairs))
    return LatencyProfile(
        device.text("name"),
        device.count("mem_mib"),
        alone,
        {model: grid for model, grid in p95.items() if grid},
        {model: grid for model, grid in p99.items() if grid},
        rows,
        device.number("share_unit_pct", 0.1, 100.0) if "share_unit_pct" in device.fields else SHARE_UNIT_PCT,
    )


@dataclass(frozen=True, slots=True)
class _Entry:
    """One object of the file, and where it is."""

    where: str
    found: object

    @property
    def fields(self) -> Mapping[str, Any]:
        if not isinstance(self.found, dict):
            raise InputError(f"{self.where} is {shown(self.found)}, but must be an object")
        return self.found

    def _wrong(self, name: str, accepted: str) -> InputError:
        return InputError(f"{self.where}.{name} is {shown(self.fields.get(name))}, but must be {accepted}")

    def text(self, name: str) -> str:
        value = self.fields.get(name)
        if not isinstance(value, str) or not value or not value.isprintable():
            raise self._wrong(name, "a name")
        return value

    def count(self, name: str) -> int:
        value = self.fields.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_COUNT:
            raise self._wrong(name, f"a whole number from 1 to {MAX_COUNT}")
        return value

    def number(self, name: str, low: float = math.ulp(0.0), high: float = MOST_MS) -> float:
        value = self.fields.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise self._wrong(name, f"a number {'above 0' if low < 1e-9 else f'from {low:g}'} up to {high:g}")
        return float(value)

    def share(self, name: str) -> float:
        return self.number(name, high=100.0)


def _grids(points: object, where: str) -> tuple[Grid, Grid, Grid]:
    """Means, and percentiles where every point has them."""
    if not isinstance(points, list) or not points:
        raise InputError(f"{where} is {shown(points)}, but must be a list of points, one or more")
    mean: dict[tuple[int, float], float] = {}
    p95: dict[tuple[int, float], float] = {}
    p99: dict[tuple[int, float], float] = {}
    for at, point in enumerate(points):
        entry = _Entry(f"{where}[{at}]", point)
        key = entry.count("batch"), entry.share("share_pct")
        if key in mean:
            raise InputError(f"{where}[{at}]: batch {key[0]} on {key[1]:g} % is there twice: expected each point once")
        mean[key] = entry.number("latency_ms", LEAST_MS)
        for name, grid in (("p95_ms", p95), ("p99_ms", p99)):
            if entry.fields.get(name) is not None:
                grid[key] = entry.number(name, LEAST_MS)
    return mean, p95 if p95.keys() == mean.keys() else {}, p99 if p99.keys() == mean.keys() else {}


def _pair(entry: _Entry, known: Mapping[str, Grid]) -> PairRow:
    row = PairRow(
        entry.text("model"),
        entry.count("batch"),
        entry.share("share_pct"),
        entry.text("neighbour"),
        entry.count("neighbour_batch"),
        entry.share("neighbour_share_pct"),
        entry.number("latency_ms", LEAST_MS),
    )
    for model in (row.model, row.neighbour):
        if model not in known:
            raise InputError(f"{entry.where} names {shown(model)}, which models does not: expected {', '.join(known)}")
    return row


def as_json(
    device: Mapping[str, object],
    models: Mapping[str, Sequence[Mapping[str, object]]],
    pairs: Sequence[Mapping[str, object]],
    **more: object,
) -> str:
    """The file. `more` is for people."""
    content = {"format": FORMAT, "version": VERSION, "device": device, **more, "models": models, "pairs": pairs}
    return json.dumps(content, indent=1) + "\n"
