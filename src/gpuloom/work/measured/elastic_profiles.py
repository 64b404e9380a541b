"""Measured profiles of elastic training jobs, as Pollux's authors (OSDI'21) keep them: a folder for each model.

DIR/<model>/placements.csv: step and sync seconds by placement (GPUs on each node as digits, "44" = two nodes of four)
and local batch; scalability.csv: the same by number of nodes and replicas; validation-<batch>.csv: a row for each
epoch. Knows the files only: what the rows mean for speed and progress is in `perf.goodput.tables`.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

from gpuloom.errors import InputError
from gpuloom.work.source import MAX_SECONDS
from gpuloom.work.table import Table, open_table

_PLACEMENT = ("placement", "local_bsz", "step_time", "sync_time")
_SCALABILITY = ("num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time")
_VALIDATION = ("progress", "iteration", "metric", "grad_sqr", "grad_var")
_VALIDATION_NAME = re.compile(r"validation-([1-9][0-9]{0,6})\.csv")
_LARGEST_NORM = 1e300
MAX_LOCAL_BATCH = {"yolov3": 8}
"""Models whose jobs use less than the largest local batch that was measured."""


Row = TypeVar("Row")


class PlacementRow(NamedTuple):
    placement: tuple[int, ...]
    """GPUs on each node."""
    local_batch: int
    step_s: float
    sync_s: float


class ScalabilityRow(NamedTuple):
    nodes: int
    replicas: int
    local_batch: int
    step_s: float
    sync_s: float


class EpochRow(NamedTuple):
    """One epoch of a run at one global batch. `progress` counts in steps of the initial batch, from the start."""

    progress: float
    iteration: float
    metric: float
    grad_sqr: float
    grad_var: float


@dataclass(frozen=True, slots=True)
class ElasticProfile:
    model: str
    placements: tuple[PlacementRow, ...]
    scalability: tuple[ScalabilityRow, ...]
    validation: Mapping[int, tuple[EpochRow, ...]]
    """Epochs by global batch, in order of batch."""
    max_local_batch: int | None = None
    """Where jobs use less than the largest measured local batch."""


def read_profiles(directory: Path) -> dict[str, ElasticProfile]:
    """The profiles of every model in the folder, by name. A folder with none of the files is passed over."""
    try:
        folders = sorted(path for path in directory.iterdir() if path.is_dir())
    except OSError:
        raise InputError(f"{directory} is not a readable folder: expected one with a folder for each model") from None
    profiles = {
        folder.name: read_profile(folder)
        for folder in folders
        if (folder / "placements.csv").exists() or any(folder.glob("validation-*.csv"))
    }
    if not profiles:
        raise InputError(
            f"{directory} has no model in it: expected <model>/placements.csv and <model>/validation-*.csv"
        )
    return profiles


def read_profile(folder: Path) -> ElasticProfile:
    """One model's profile, or InputError with the file, the line and what would be accepted."""
    batches = sorted(
        int(match[1]) for path in folder.glob("validation-*.csv") if (match := _VALIDATION_NAME.fullmatch(path.name))
    )
    if not batches:
        raise InputError(f"{folder} has no validation-<batch>.csv: expected one for each validated global batch")
    return ElasticProfile(
        folder.name,
        _placements(open_table(folder / "placements.csv", _PLACEMENT, "step times by placement")),
        _scalability(open_table(folder / "scalability.csv", _SCALABILITY, "step times by nodes and replicas")),
        {
            batch: _epochs(open_table(folder / f"validation-{batch}.csv", _VALIDATION, "a row for each epoch"))
            for batch in batches
        },
        MAX_LOCAL_BATCH.get(folder.name),
    )


def _placements(table: Table) -> tuple[PlacementRow, ...]:
    rows = []
    for line, (placement, local_batch, step, sync) in table.rows():
        if not re.fullmatch("[1-9]{1,99}", placement):
            raise table.wrong(line, "placement", placement, "the GPUs on each node as digits, such as 44")
        batch = table.count(line, "local_bsz", local_batch, 1)
        rows.append(PlacementRow(tuple(map(int, placement)), batch, *_times(table, line, step, sync)))
    return tuple(_some(table, rows))


def _scalability(table: Table) -> tuple[ScalabilityRow, ...]:
    rows = []
    for line, (nodes, replicas, local_batch, step, sync) in table.rows():
        counts = (
            table.count(line, "num_nodes", nodes, 1),
            table.count(line, "num_replicas", replicas, 1),
            table.count(line, "local_bsz", local_batch, 1),
        )
        rows.append(ScalabilityRow(*counts, *_times(table, line, step, sync)))
    return tuple(rows)


def _times(table: Table, line: int, step: str, sync: str) -> tuple[float, float]:
    step_s = table.number(line, "step_time", step, "a number of seconds above 0", math.ulp(0.0))
    sync_s = table.number(line, "sync_time", sync, "a number of seconds from 0 to its step_time", 0.0, step_s)
    return step_s, sync_s


def _epochs(table: Table) -> tuple[EpochRow, ...]:
    rows: list[EpochRow] = []
    for line, (progress, iteration, metric, grad_sqr, grad_var) in table.rows():
        before = rows[-1] if rows else EpochRow(0.0, 0.0, 0.0, 0.0, 0.0)
        rows.append(
            EpochRow(
                table.number(line, "progress", progress, "a number above the row before", _above(before.progress)),
                table.number(line, "iteration", iteration, "a number above the row before", _above(before.iteration)),
                table.number(line, "metric", metric, "a number", -MAX_SECONDS),
                table.number(line, "grad_sqr", grad_sqr, "a number, 0 or more", 0.0, _LARGEST_NORM),
                table.number(line, "grad_var", grad_var, "a number, 0 or more", 0.0, _LARGEST_NORM),
            )
        )
    return tuple(_some(table, rows))


def _above(value: float) -> float:
    return math.nextafter(value, math.inf)


def _some(table: Table, rows: list[Row]) -> list[Row]:
    if not rows:
        raise InputError(f"{table.path} has no rows: expected the columns {', '.join(table.columns)}")
    return rows
