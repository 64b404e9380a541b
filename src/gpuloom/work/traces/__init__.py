"""Traces: recorded or generated lists of jobs, in any of the formats of `FORMATS`.

`read_trace` is the one way in. Whatever is wrong with a file is one sentence in an `InputError`; no other exception
escapes.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from gpuloom.errors import InputError
from gpuloom.work.model import TraceJob
from gpuloom.work.source import did_you_mean, shown
from gpuloom.work.traces import helios, jsonl, miso, openb, philly, pollux
from gpuloom.work.traces.jsonl import write_trace
from gpuloom.work.traces.trace import MAX_SEED, Options, Trace

__all__ = ["FORMATS", "Format", "Trace", "load_trace", "read_trace", "write_trace"]

MAX_JOBS = 10_000_000
MAX_GAP_S = 1e9


@dataclass(frozen=True, slots=True)
class Format:
    """A kind of trace: its reader, and what it expects, for `--help` and error messages."""

    read: Callable[[Path, Options], Trace]
    about: str
    generated: bool = False
    """`jobs` and `gap_s` shape the arrivals; otherwise `jobs` takes the first so many."""


def _yaml(path: Path, options: Options) -> Trace:
    from gpuloom.work.files import read_trace_file  # pydantic and yaml only when such a file is read

    return read_trace_file(path, options)


def _synthetic(path: Path, options: Options) -> Trace:  # noqa: ARG001 - every reader has the same signature
    from gpuloom.work.synthetic import GAP_S, JOBS, synthetic  # it uses the gaps of `miso`, which needs this package

    n = JOBS if options.jobs is None else options.jobs
    return Trace(synthetic(n, options.seed, GAP_S if options.gap_s is None else options.gap_s))


FORMATS: dict[str, Format] = {
    "miso": Format(miso.read, "MISO's folder: job_models.json, num_iters.json, mig_batch_latency.csv", generated=True),
    "pollux": Format(pollux.read, "workload CSV of Pollux's simulator"),
    "philly": Format(philly.read, "CSV or original cluster_job_log (JSON) of Microsoft's Philly trace"),
    "helios": Format(helios.read, "cluster_log.csv of SenseTime's Helios trace"),
    "openb": Format(openb.read, "openb_pod_list_*.csv of Alibaba's GPU trace of 2023"),
    "jsonl": Format(jsonl.read, "gpuloom's own: a JSON object a line for each job"),
    "yaml": Format(_yaml, "a work file, as for submitting"),
    "synthetic": Format(_synthetic, "no file: generated from measured workloads and fitted lengths", generated=True),
}


def load_trace(
    path: Path,
    format: str,
    *,
    seed: int = 0,
    jobs: int | None = None,
    gap_s: float | None = None,
    limit: int | None = None,
) -> Trace:
    """Read a trace, with the count of what was left out. `limit` keeps the first so many jobs by submission."""
    if format not in FORMATS:
        raise InputError(
            f"trace format {shown(format)} is not known{did_you_mean(format, FORMATS)}:"
            f" accepted are {', '.join(FORMATS)}"
        )
    _check_range("seed", seed, 0, MAX_SEED)
    _check_range("jobs", jobs, 1, MAX_JOBS)
    _check_range("limit", limit, 1, MAX_JOBS)
    if gap_s is not None and not (isfinite(gap_s) and 0 <= gap_s <= MAX_GAP_S):
        raise InputError(f"gap_s is {gap_s}, but must be a number of seconds from 0 to {MAX_GAP_S:g}")
    kind = FORMATS[format]
    with _no_garbage():
        trace = kind.read(Path(path), Options(seed, jobs, gap_s))
    kept = trace.jobs if kind.generated else trace.jobs[:jobs]
    return Trace(kept[:limit], trace.skipped)


def read_trace(
    path: Path,
    format: str,
    *,
    seed: int = 0,
    jobs: int | None = None,
    gap_s: float | None = None,
    limit: int | None = None,
) -> list[TraceJob]:
    """The jobs of a trace, sorted by time of submission (the file's order among equals)."""
    return load_trace(path, format, seed=seed, jobs=jobs, gap_s=gap_s, limit=limit).jobs


@contextmanager
def _no_garbage() -> Iterator[None]:
    """Reading makes hundreds of thousands of objects that all stay: looking for garbage among them doubles the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _check_range(name: str, value: int | None, low: int, high: int) -> None:
    if value is not None and not low <= value <= high:
        raise InputError(f"{name} is {value}, but must be a whole number from {low} to {high}")
