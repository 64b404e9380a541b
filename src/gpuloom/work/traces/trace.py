"""What a reader returns: the jobs, and what it left out. Shared by every format."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from gpuloom.errors import InputError
from gpuloom.work.model import TraceJob

MAX_SEED = 2**32 - 2
"""numpy's seeds have 32 bits, and one is needed above the given one."""


@dataclass(frozen=True, slots=True)
class Trace:
    """The jobs of a trace in order of submission, and how many entries were left out, by reason."""

    jobs: list[TraceJob]
    skipped: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Options:
    """What the caller asked for; a format ignores what means nothing to it."""

    seed: int = 0
    jobs: int | None = None
    gap_s: float | None = None


def in_order(path: Path, jobs: list[TraceJob], skipped: Counter[str] | None = None) -> Trace:
    """Sort by submission, keeping the file's order among equals. No job at all is an error."""
    left_out = dict(skipped or {})
    if not jobs:
        reasons = ", ".join(f"{count} {reason}" for reason, count in left_out.items())
        why = f" ({reasons})" if reasons else ""
        raise InputError(f"{path} has no job to run{why}: expected at least one")
    jobs.sort(key=lambda entry: entry.job.submit_s)
    return Trace(jobs, left_out)


def from_zero(entries: list[TraceJob]) -> list[TraceJob]:
    """The same jobs with the earliest submitted at 0."""
    start_s = min((entry.job.submit_s for entry in entries), default=0.0)
    return [replace(entry, job=replace(entry.job, submit_s=entry.job.submit_s - start_s)) for entry in entries]
