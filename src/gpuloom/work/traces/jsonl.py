"""gpuloom's own trace: one JSON object a line for each job, read and written without loss.

Fields are those of `Job` (id, submit_s, kind, workload, gpus, min_gpus, max_gpus, mem_mib, priority, batch, min_batch,
max_batch, min_speed, estimate_s, command), and of `TraceJob`: length_s (may be absent only for elastic jobs, whose
measured tables decide) and extra (texts to group by). min_gpus and max_gpus are gpus unless given. What a job needs of
a host is not of a trace: nobody simulates it.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

from gpuloom.errors import InputError
from gpuloom.work.checks import contradiction
from gpuloom.work.model import Job, Kind, TraceJob
from gpuloom.work.source import MAX_COUNT, MAX_SECONDS, check_id, did_you_mean, parse_json, read_text, shown
from gpuloom.work.traces.trace import Options, Trace, in_order
from gpuloom.work.units import MAX_MEM_MIB, MAX_PRIORITY

_EXPECTED = "a gpuloom trace (a JSON object a line for each job)"

_EXAMPLE = '{"id": "a", "length_s": 60}'


def _text(value: object) -> bool:
    return isinstance(value, str) and bool(value) and value.isprintable()


def _whole(low: int, high: int) -> Callable[[object], bool]:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _number(low: float, high: float) -> Callable[[object], bool]:
    return lambda value: isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(_unicode(item) for item in value)


def _labels(value: object) -> bool:
    return isinstance(value, dict) and all(_unicode(key) and _unicode(item) for key, item in value.items())


def _unicode(value: object) -> bool:
    """A text that can be written: JSON's escapes can spell halves of characters."""
    return isinstance(value, str) and not any("\ud800" <= letter <= "\udfff" for letter in value)


_COUNT = (_whole(1, MAX_COUNT), f"a whole number from 1 to {MAX_COUNT}")
_LENGTH = (_number(1e-9, MAX_SECONDS), "a number of seconds above 0")
_FIELDS: dict[str, tuple[Callable[[object], bool], str]] = {
    "id": (_text, "a printable text"),
    "submit_s": (_number(0, MAX_SECONDS), "a number of seconds, 0 or more"),
    "kind": (lambda value: value in list(Kind), "rigid, sliceable or elastic"),
    "workload": (_text, "a printable text"),
    "gpus": _COUNT,
    "min_gpus": _COUNT,
    "max_gpus": _COUNT,
    "mem_mib": (_whole(1, MAX_MEM_MIB), "a whole number of MiB, 1 or more"),
    "priority": (_whole(-MAX_PRIORITY, MAX_PRIORITY), f"a whole number from -{MAX_PRIORITY} to {MAX_PRIORITY}"),
    "batch": _COUNT,
    "min_batch": _COUNT,
    "max_batch": _COUNT,
    "min_speed": (_number(0, 1), "a number from 0 to 1"),
    "estimate_s": _LENGTH,
    "command": (_texts, "a list of texts"),
    "length_s": _LENGTH,
    "extra": (_labels, "an object of texts"),
}
_SECONDS_AND_SHARES = {"submit_s", "estimate_s", "min_speed"}


def read(path: Path, options: Options) -> Trace:  # noqa: ARG001 - every reader has the same signature
    jobs: list[TraceJob] = []
    names: set[str] = set()
    # Not splitlines: it also breaks at characters that JSON allows inside a text.
    for line, text in enumerate(read_text(path, _EXPECTED).split("\n"), start=1):
        if text.strip():
            jobs.append(_entry(parse_json(text, path, _EXPECTED, line=line), f"{path}: line {line}", names))
    return in_order(path, jobs)


def _entry(data: Any, where: str, names: set[str]) -> TraceJob:
    if not isinstance(data, dict):
        raise InputError(f"{where} is {shown(data)}, but must be an object such as {_EXAMPLE}")
    given = {field: value for field, value in data.items() if value is not None}
    for field, value in given.items():
        if field not in _FIELDS:
            raise InputError(
                f"{where} has an unknown field {shown(field)}{did_you_mean(field, _FIELDS)}:"
                f" accepted are {', '.join(_FIELDS)}"
            )
        fits, accepted = _FIELDS[field]
        if not fits(value):
            raise InputError(f"{where}, field {field!r} is {shown(value)}, but must be {accepted}")
    if "id" not in given:
        raise InputError(f"{where} has no field 'id': expected the job's name")
    check_id(given["id"], f"{where}, field 'id'", names)
    length_s, extra = given.pop("length_s", None), given.pop("extra", {})
    job = _job(given)
    if wrong := contradiction(job):
        raise InputError(f"{where}, field {wrong[0]!r} {wrong[1]}")
    if length_s is None and job.kind is not Kind.ELASTIC:
        raise InputError(f"{where} has no field 'length_s': a {job.kind} job needs its seconds on what it asks for")
    return TraceJob(job, None if length_s is None else float(length_s), extra)


def _job(given: dict[str, Any]) -> Job:
    gpus = given.get("gpus", 1)
    given = {"min_gpus": gpus, "max_gpus": gpus} | given
    for field in _SECONDS_AND_SHARES & given.keys():
        given[field] = float(given[field])
    if "kind" in given:
        given["kind"] = Kind(given["kind"])
    if "command" in given:
        given["command"] = tuple(given["command"])
    return Job(**given)


def write_trace(path: Path, jobs: Iterable[TraceJob]) -> None:
    """Write jobs so that `read_trace(path, "jsonl")` gives them back."""
    text = "".join(json.dumps(_row(entry), allow_nan=False) + "\n" for entry in jobs)
    try:
        path.write_text(text, encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(f"{path} cannot be written ({reason}): expected a file name in a folder that exists") from None


def _row(entry: TraceJob) -> dict[str, Any]:
    job = entry.job
    usual = Job(id="", kind=job.kind, gpus=job.gpus, min_gpus=job.gpus, max_gpus=job.gpus)
    row: dict[str, Any] = {"id": job.id, "submit_s": job.submit_s, "kind": str(job.kind), "gpus": job.gpus}
    for field in fields(Job):
        value = getattr(job, field.name)
        if field.name not in row and field.name in _FIELDS and value != getattr(usual, field.name):
            row[field.name] = value
    if entry.length_s is not None:
        row["length_s"] = entry.length_s
    if entry.extra:
        row["extra"] = dict(entry.extra)
    return row
