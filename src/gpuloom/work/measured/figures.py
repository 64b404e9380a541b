"""Measured figures of training workloads on A100-40GB slices: seconds per batch, speed per slice, memory, restart.

`load_figures` gives those shipped with the package (written by benchmarks/make_figures.py), `figures_from_csv` computes
them from a measurement file. A slice that is absent from `speeds` lacks the memory for the workload.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from gpuloom.errors import InputError
from gpuloom.work.table import Table, open_table

WHOLE = "7g.40gb"
"""The slice that is the whole A100-40GB; speeds are relative to it."""

SLICE_MEM_MIB: Mapping[str, int] = {
    "1g.5gb": 4864,
    "2g.10gb": 9856,
    "3g.20gb": 19968,
    "4g.20gb": 19968,
    "7g.40gb": 40192,
}
"""Device memory of the measured slices, smallest first."""

RESTART_S: Mapping[str, float] = {
    "bert": 18.0,
    "cyclegan": 44.0,
    "deepspeech2": 14.0,
    "embedding": 4.0,
    "gnn": 5.0,
    "mobilenet": 7.0,
    "resnet": 9.0,
    "transformer": 5.0,
}
"""Seconds from a checkpoint back to training, by model, as the MISO authors measured them (SoCC'22)."""

DEFAULT_RESTART_S = 10.0
"""For a model nobody has measured: as long as starting its process."""

SHIPPED = Path(__file__).parent / "shipped" / "a100_40gb_training.json"
_COLUMNS = ("model", "batch", "slice", "mean_s")


@dataclass(frozen=True, slots=True)
class WorkloadFigures:
    """One workload: a model trained with one batch size."""

    name: str
    """Model and batch, "resnet 128"."""
    model: str
    batch: int
    batch_s: float
    """Mean seconds per batch on the whole GPU."""
    speeds: Mapping[str, float]
    """Speed on each slice it runs on, relative to the whole GPU (which is 1.0)."""
    mem_mib: int
    """Memory of the smallest slice it ran on: an upper bound of what it needs."""
    restart_s: float


@dataclass(frozen=True, slots=True)
class Durations:
    """A fitted distribution of job lengths: log-normal, cut at `low_s` and `high_s`."""

    source: str
    mu: float
    sigma: float
    low_s: float
    high_s: float
    ks: float
    """The fit's error: largest distance between its and the data's cumulative distribution."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Everything known of the workloads on one kind of GPU."""

    gpu: str
    source: str
    workloads: Mapping[str, WorkloadFigures]
    mix: Mapping[str, int] = field(default_factory=dict)
    """How often each workload occurs among the measured job templates."""
    durations: Mapping[str, Durations] = field(default_factory=dict)
    """Fitted job lengths, by the trace they were fitted to."""


@lru_cache(maxsize=1)
def load_figures() -> Figures:
    """The figures shipped with the package."""
    data = json.loads(SHIPPED.read_text(encoding="utf-8"))
    return Figures(
        gpu=data["gpu"],
        source=data["source"],
        workloads={name: WorkloadFigures(name=name, **figures) for name, figures in data["workloads"].items()},
        mix=data["mix"],
        durations={name: Durations(**fit) for name, fit in data["durations"].items()},
    )


def figures_from_csv(path: Path) -> Figures:
    """Figures from measured batch latencies: columns model, batch, slice, mean_s; no row where memory ran out."""
    table = open_table(path, _COLUMNS, "measured batch latencies")
    seconds: dict[tuple[str, int], dict[str, float]] = {}
    for line, (model, batch_text, profile, mean_text) in table.rows():
        batch = table.count(line, "batch", batch_text, 1)
        if not model or not model.isprintable():
            raise table.wrong(line, "model", model, "a printable name")
        if profile not in SLICE_MEM_MIB:
            raise table.wrong(line, "slice", profile, f"one of {', '.join(SLICE_MEM_MIB)}")
        slices = seconds.setdefault((model, batch), {})
        if profile in slices:
            raise InputError(
                f"{path}: line {line} measures {model} {batch} on {profile} again: expected one row for each"
            )
        slices[profile] = table.number(line, "mean_s", mean_text, "a number of seconds above 0", 1e-9)
    if not seconds:
        raise InputError(f"{path} has no rows: expected at least one workload measured on {WHOLE}")
    workloads = [_workload(table, model, batch, slices) for (model, batch), slices in seconds.items()]
    return Figures("A100-40GB", str(path), {figures.name: figures for figures in workloads})


def _workload(table: Table, model: str, batch: int, slices: Mapping[str, float]) -> WorkloadFigures:
    name = f"{model} {batch}"
    if WHOLE not in slices:
        raise InputError(f"{table.path} has no row of {name} on {WHOLE}: the relative speeds need it")
    whole_s = slices[WHOLE]
    return WorkloadFigures(
        name=name,
        model=model,
        batch=batch,
        batch_s=whole_s,
        speeds={profile: whole_s / slices[profile] for profile in SLICE_MEM_MIB if profile in slices},
        mem_mib=next(mem_mib for profile, mem_mib in SLICE_MEM_MIB.items() if profile in slices),
        restart_s=RESTART_S.get(model, DEFAULT_RESTART_S),
    )
