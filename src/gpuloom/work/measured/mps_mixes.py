"""Measured mixes: jobs that ran side by side under MPS at three levels, and each of them on three MIG slices.

The CSV format has a row for each seat of a mix. Latencies are per batch; a job's three under MPS, and its three on MIG,
are each divided by their largest: only ratios within a row mean anything, and absolute speeds cannot be recovered.
Seats that no job took hold the *gauge*, a tiny job that is always the same ("dummy" in the file): how much it slows
down tells how crowded the GPU is. Knows the file only; what follows from the ratios is in `perf.slices.predictor`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gpuloom.errors import InputError
from gpuloom.work.table import Table, open_table

GAUGE = "dummy"
SEATS = 7
_COLUMNS = (
    "mix", "n_active", "slot", "workload", "mps100", "mps50", "mps14", "mig7g", "mig4g", "mig3g",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class MeasuredJob:
    """One job of a mix."""

    workload: str
    """Model and batch, "resnet 128"."""
    mps: tuple[float, float, float]
    """Batch latency under MPS at 100, 50 and 14 %, relative to the largest of the three."""
    mig: tuple[float, float, float]
    """Batch latency on 7g, 4g and 3g, relative to the largest of the three."""

    @property
    def family(self) -> str:
        return family_of(self.workload)


@dataclass(frozen=True, slots=True)
class MeasuredMix:
    id: int
    jobs: tuple[MeasuredJob, ...]
    gauges: tuple[MeasuredJob, ...] = ()

    @property
    def families(self) -> frozenset[str]:
        return frozenset(job.family for job in self.jobs)


def family_of(workload: str) -> str:
    """The model without its batch: "resnet" of "resnet 128"."""
    return workload.split(" ", 1)[0]


def all_families(mixes: Iterable[MeasuredMix]) -> list[str]:
    return sorted({family for mix in mixes for family in mix.families})


def read_mixes(path: Path) -> tuple[MeasuredMix, ...]:
    """All mixes of a file, in order of first appearance, or InputError with the line and what would be accepted."""
    table = open_table(path, _COLUMNS, "measured mixes")
    rows: dict[int, dict[int, MeasuredJob]] = {}
    active: dict[int, int] = {}
    for line, (mix_text, active_text, slot_text, workload, *latencies) in table.rows():
        mix = table.count(line, "mix", mix_text)
        slot = table.count(line, "slot", slot_text, 0, SEATS - 1)
        n_active = table.count(line, "n_active", active_text, 1, SEATS)
        if active.setdefault(mix, n_active) != n_active:
            raise table.wrong(line, "n_active", active_text, f"{active[mix]}, as in the other rows of mix {mix}")
        seats = rows.setdefault(mix, {})
        if slot in seats:
            raise table.wrong(line, "slot", slot_text, f"a slot that mix {mix} has not had yet")
        seats[slot] = _job(table, line, workload, latencies)
    if not rows:
        raise InputError(f"{path} has no rows: expected the columns {', '.join(_COLUMNS)}")
    return tuple(_mix(path, mix, seats, active[mix]) for mix, seats in rows.items())


def _job(table: Table, line: int, workload: str, latencies: list[str]) -> MeasuredJob:
    if not workload or not workload.isprintable():
        raise table.wrong(line, "workload", workload, "a printable name such as resnet 128")
    values = [
        table.number(line, column, text, "a latency above 0", 1e-9)
        for column, text in zip(_COLUMNS[4:], latencies, strict=True)
    ]
    mps, mig = values[:3], values[3:]
    return MeasuredJob(workload, (mps[0], mps[1], mps[2]), (mig[0], mig[1], mig[2]))


def _mix(path: Path, mix: int, seats: dict[int, MeasuredJob], n_active: int) -> MeasuredMix:
    in_order = [seats[slot] for slot in sorted(seats)]
    jobs = tuple(job for job in in_order if job.workload != GAUGE)
    if len(jobs) != n_active:
        raise InputError(
            f"{path}: mix {mix} has n_active {n_active}, but {len(jobs)} rows that are not {GAUGE}:"
            " expected as many (is the file cut short?)"
        )
    return MeasuredMix(mix, jobs, tuple(job for job in in_order if job.workload == GAUGE))
