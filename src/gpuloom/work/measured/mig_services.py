"""Measured inference on MIG instances: throughput and latency by model, instance size, batch and processes inside.

A CSV with a row for each point: `model, mig_gpcs, batch, processes, throughput_per_s, latency_s`, the throughput being
that of one process. A row with zeros is a point that did not fit into the instance's memory.
"""

from dataclasses import dataclass
from pathlib import Path

from gpuloom.errors import InputError
from gpuloom.work.table import open_table

_COLUMNS = ("model", "mig_gpcs", "batch", "processes", "throughput_per_s", "latency_s")


@dataclass(frozen=True, slots=True)
class MigPoint:
    slices: int
    """Compute slices of the instance."""
    batch: int
    processes: int
    """That share the instance, each with this batch."""
    each_rps: float
    """Throughput of one process."""
    latency_ms: float
    """Of one batch."""

    @property
    def rps(self) -> float:
        return self.each_rps * self.processes


def read_mig_services(path: Path) -> dict[str, tuple[MigPoint, ...]]:
    """By model, the points that fit; InputError with the line and what would be accepted."""
    table = open_table(path, _COLUMNS, "measured inference on MIG instances")
    points: dict[str, list[MigPoint]] = {}
    seen: set[tuple[str, int, int, int]] = set()
    for line, (model, slices_text, batch_text, processes_text, throughput_text, latency_text) in table.rows():
        slices = table.count(line, "mig_gpcs", slices_text, 1, 8)
        batch = table.count(line, "batch", batch_text, 1)
        processes = table.count(line, "processes", processes_text, 1, 48)
        throughput = table.number(
            line, "throughput_per_s", throughput_text, "requests a second, 0 if it did not fit", 0
        )
        latency_s = table.number(line, "latency_s", latency_text, "seconds, 0 if it did not fit", 0)
        key = (model, slices, batch, processes)
        if key in seen:
            raise table.wrong(line, "processes", processes_text, "a point that the file has not had yet")
        seen.add(key)
        if (throughput == 0) != (latency_s == 0):
            raise table.wrong(line, "latency_s", latency_text, "both throughput and latency 0, or neither")
        found = points.setdefault(model, [])
        if throughput > 0:
            found.append(MigPoint(slices, batch, processes, throughput, latency_s * 1000))
    if not points:
        raise InputError(f"{path} has no rows: expected the columns {', '.join(_COLUMNS)}")
    return {model: tuple(found) for model, found in points.items()}
