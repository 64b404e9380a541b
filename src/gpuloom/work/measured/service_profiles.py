"""Profiles of inference models as iGniter's authors keep them: 11 runs of each model, and five of the GPU itself.

JSON lines, each `{"<model>": {"<field>": value}}`, or `{"hardware": {...}}` for the GPU; fields of one model may be
spread over lines, others than those named here are passed over. Runs of a model: alone at batch 1, 16 and 32 with 10,
50 and 100 % of the SMs; then one copy and two copies at batch 16 and 50 %. Runs of the GPU: one to five copies of one
model. Knows the file only: what follows from the figures is in `perf.sharing.igniter_fit` and `perf.sharing.fit`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuloom.errors import InputError
from gpuloom.work.source import parse_json, read_text, shown

BATCHES = (1, 16, 32)
SHARES_PCT = (10, 50, 100)
GPU = "hardware"
RUNS = len(BATCHES) * len(SHARES_PCT) + 2
"""Profiling runs that one model costs."""
_EXPECTED = 'a profile: JSON lines such as {"resnet50": {"kernel": 80}}'
_LARGEST = 1e12
Table = tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class ServiceProfile:
    model: str
    kernels: float
    """Launched for each batch."""
    load_bytes: float
    """Of one item, to the GPU and back."""
    feedback_bytes: float
    gpu_ms: Table
    """Alone: time on the GPU, power and clock, a row for each of BATCHES, a column for each of SHARES_PCT."""
    power_w: Table
    clock_mhz: Table
    l2_pct: tuple[float, ...]
    """L2 use at the three points of the diagonal: (1, 10 %), (16, 50 %), (32, 100 %)."""
    idle_ms: float
    """One copy at batch 16 and 50 %: time between kernels, and in them."""
    active_ms: float
    neighbour_l2_pct: float
    """What one copy uses of the L2 while there are two of them."""
    pair_active_ms: float
    """Two copies: time in kernels of either, and the clock."""
    pair_clock_mhz: float


@dataclass(frozen=True, slots=True)
class GpuProfile:
    clock_mhz: float
    cap_w: float
    idle_w: float
    share_unit_pct: float
    pcie_bytes_per_ms: float
    copies_power_w: tuple[float, ...]
    """With 1, 2, 3, 4 and 5 copies of one model: power, clock, and the gap between two kernels."""
    copies_clock_mhz: tuple[float, ...]
    copies_gap_ms: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Profiles:
    gpu: GpuProfile
    services: Mapping[str, ServiceProfile]


def read_service_profiles(path: Path) -> Profiles:
    """All profiles of a file, or InputError with the model, the field and what would be accepted."""
    found = _lines(path)
    if GPU not in found:
        raise InputError(f'{path} has no line of the GPU: expected {{"{GPU}": {{"maxGPUfrequency": 1530}}}} and others')
    gpu = _gpu(_Fields(path, GPU, found.pop(GPU)))
    if not found:
        raise InputError(f"{path} has no model in it, only the GPU: expected {_EXPECTED}")
    return Profiles(gpu, {name: _service(_Fields(path, name, fields)) for name, fields in found.items()})


def _lines(path: Path) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for line, text in enumerate(read_text(path, _EXPECTED).splitlines(), 1):
        if not text.strip():
            continue
        entry = parse_json(text, path, _EXPECTED, line=line)
        if not isinstance(entry, dict) or not all(isinstance(fields, dict) for fields in entry.values()):
            raise InputError(f"{path}: line {line} is {shown(entry)}: expected {_EXPECTED}")
        for name, fields in entry.items():
            if not name or not name.isprintable():
                raise InputError(f"{path}: line {line} names a model {shown(name)}: expected a printable name")
            known = found.setdefault(name, {})
            for twice in known.keys() & fields.keys():
                raise InputError(f"{path}: line {line} gives {twice!r} of {name} again: expected one value for each")
            known.update(fields)
    return found


@dataclass(frozen=True, slots=True)
class _Fields:
    """What the file says of one name."""

    path: Path
    name: str
    fields: Mapping[str, Any]

    def _wrong(self, field: str, value: object, accepted: str) -> InputError:
        if field not in self.fields:
            return InputError(
                f"{self.path}: {self.name} has no {field!r}: expected {accepted} (is the file cut short?)"
            )
        return InputError(f"{self.path}: {field!r} of {self.name} is {shown(value)}, but must be {accepted}")

    def number(self, field: str, low: float = math.ulp(0.0)) -> float:
        return self._number(
            field, self.fields.get(field), "a number above 0" if low > 0 else "a number, 0 or more", low
        )

    def numbers(self, field: str, count: int) -> tuple[float, ...]:
        accepted = f"a list of {count} numbers above 0"
        return self._row(field, self.fields.get(field), count, accepted)

    def table(self, field: str) -> Table:
        accepted = f"3 lists of 3 numbers above 0, for batch {', '.join(map(str, BATCHES))}"
        rows = self.fields.get(field)
        if not isinstance(rows, list) or len(rows) != len(BATCHES):
            raise self._wrong(field, rows, accepted)
        return tuple(self._row(field, row, len(SHARES_PCT), accepted) for row in rows)

    def _row(self, field: str, row: object, count: int, accepted: str) -> tuple[float, ...]:
        if not isinstance(row, list) or len(row) != count:
            raise self._wrong(field, row, accepted)
        return tuple(self._number(field, value, accepted) for value in row)

    def _number(self, field: str, value: object, accepted: str, low: float = math.ulp(0.0)) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= _LARGEST:
            raise self._wrong(field, value, accepted)
        return float(value)


def _gpu(fields: _Fields) -> GpuProfile:
    return GpuProfile(
        clock_mhz=fields.number("maxGPUfrequency"),
        cap_w=fields.number("maxGPUpower"),
        idle_w=fields.number("idlepower"),
        share_unit_pct=fields.number("unit"),
        pcie_bytes_per_ms=fields.number("bandwidth"),
        copies_power_w=fields.numbers("power", 5),
        copies_clock_mhz=fields.numbers("frequency", 5),
        copies_gap_ms=fields.numbers("idletime", 5),
    )


def _service(fields: _Fields) -> ServiceProfile:
    return ServiceProfile(
        model=fields.name,
        kernels=fields.number("kernel"),
        load_bytes=fields.number("inputdata", 0.0),
        feedback_bytes=fields.number("outputdata", 0.0),
        gpu_ms=fields.table("gpulatency"),
        power_w=fields.table("power"),
        clock_mhz=fields.table("frequency"),
        l2_pct=fields.numbers("l2caches", 3),
        idle_ms=fields.number("idletime_1", 0.0),
        active_ms=fields.number("activetime_1"),
        neighbour_l2_pct=fields.number("l2cache"),
        pair_active_ms=fields.number("activetime_2"),
        pair_clock_mhz=fields.number("frequency_2"),
    )
