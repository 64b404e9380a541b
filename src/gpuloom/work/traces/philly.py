"""Microsoft's Philly trace (ATC'19), in two forms told apart by their first character: a CSV, or the original JSON log.

CSV: timestamp, duration (s), num_gpus, gpu_time, cluster. `cluster_job_log`: a JSON list of jobs with status, vc,
jobid, attempts (start_time, end_time, detail: one entry per machine with its gpus), submitted_time, user. In the log a
job's length is the sum over its attempts and its GPUs are those of the first attempt. What never ran is left out and
counted. All jobs are rigid, on whole GPUs; submission counts from the earliest job.
"""

from collections import Counter
from pathlib import Path
from typing import Any

from gpuloom.errors import InputError
from gpuloom.work.model import Job, Kind, TraceJob
from gpuloom.work.source import MAX_COUNT, MAX_SECONDS, check_id, parse_json, shown
from gpuloom.work.table import Table, epoch_s, open_table
from gpuloom.work.traces.trace import Options, Trace, from_zero, in_order

_COLUMNS = ("timestamp", "duration", "num_gpus", "cluster")
_NEVER_RAN = "never ran"
_STILL_RUNNING = "were still running when the log ends"


def read(path: Path, options: Options) -> Trace:  # noqa: ARG001 - every reader has the same signature
    table = open_table(path, _COLUMNS, "a Philly trace")
    if table.text.lstrip()[0] in "[{":
        return _read_log(path, table.text)
    return _read_csv(table)


def _read_csv(table: Table) -> Trace:
    rows: list[tuple[float, float, int, str]] = []
    skipped: Counter[str] = Counter()
    extras: dict[str, dict[str, str]] = {}  # one for all jobs of a cluster
    for line, (timestamp, duration, gpus_text, cluster) in table.rows():
        try:
            at_s, length_s, gpus = epoch_s(timestamp), float(duration), int(gpus_text)
            fine = 0 <= length_s <= MAX_SECONDS and 1 <= gpus <= MAX_COUNT
        except (ValueError, TypeError):
            fine = False
        if not fine:
            # The slow way names the column that is wrong.
            at_s = table.moment(line, "timestamp", timestamp)
            length_s = table.seconds(line, "duration", duration)
            gpus = table.count(line, "num_gpus", gpus_text, 1)
        if length_s == 0:
            skipped[_NEVER_RAN] += 1
            continue
        if cluster not in extras:
            extras[cluster] = {"cluster": cluster}
        rows.append((at_s, length_s, gpus, cluster))
    start_s = min((row[0] for row in rows), default=0.0)
    jobs = [
        _job(f"philly-{number}", at_s - start_s, gpus, length_s, extras[cluster])
        for number, (at_s, length_s, gpus, cluster) in enumerate(rows)
    ]
    return in_order(table.path, jobs, skipped)


def _job(name: str, submit_s: float, gpus: int, length_s: float, extra: dict[str, str]) -> TraceJob:
    job = Job(id=name, submit_s=submit_s, kind=Kind.RIGID, gpus=gpus, min_gpus=gpus, max_gpus=gpus)
    return TraceJob(job, length_s, extra)


def _read_log(path: Path, text: str) -> Trace:
    data = parse_json(text, path, "Philly's cluster_job_log, a JSON list of jobs")
    if not isinstance(data, list):
        raise InputError(f"{path} is a JSON object: expected Philly's cluster_job_log, a JSON list of jobs")
    jobs: list[TraceJob] = []
    skipped: Counter[str] = Counter()
    names: set[str] = set()
    for index, entry in enumerate(data):
        found = _Log(f"{path}: entry {index}", entry).job(names)
        if isinstance(found, str):
            skipped[found] += 1
        else:
            jobs.append(found)
    return in_order(path, from_zero(jobs), skipped)


class _Log:
    """One entry of the log, with the words to say where it is wrong."""

    def __init__(self, where: str, entry: object) -> None:
        self.where = where
        self.entry = self.typed(entry, "", dict, "an object with jobid, attempts and submitted_time")

    def job(self, names: set[str]) -> TraceJob | str:
        """The job, or the reason why it is left out."""
        name = self.typed(self.entry.get("jobid"), "jobid", str, "a text")
        check_id(name, f"{self.where}, field 'jobid'", names)
        submit_s = self.moment(self.entry.get("submitted_time"), "submitted_time")
        attempts = self.typed(self.entry.get("attempts"), "attempts", list, "a list")
        if submit_s is None or not attempts:
            return _NEVER_RAN
        length_s, gpus = 0.0, 0
        for number, attempt in enumerate(attempts):
            field = f"attempts[{number}]"
            self.typed(attempt, field, dict, "an object with start_time, end_time and detail")
            start_s = self.moment(attempt.get("start_time"), f"{field}.start_time")
            end_s = self.moment(attempt.get("end_time"), f"{field}.end_time")
            if start_s is not None and end_s is None and number == len(attempts) - 1:
                return _STILL_RUNNING
            if start_s is not None and end_s is not None:
                if end_s < start_s:
                    raise self.wrong(f"{field}.end_time", attempt["end_time"], "no earlier than its start_time")
                length_s += end_s - start_s
            if number == 0:
                gpus = self.gpus(attempt.get("detail"))
        if gpus == 0 or length_s == 0:
            return _NEVER_RAN
        extra = {key: value for key in ("status", "user", "vc") if isinstance(value := self.entry.get(key), str)}
        return _job(name, submit_s, gpus, length_s, extra)

    def gpus(self, detail: object) -> int:
        machines = self.typed(detail, "attempts[0].detail", list, "a list of machines")
        total = 0
        for machine in machines:
            self.typed(machine, "attempts[0].detail[]", dict, "an object with ip and gpus")
            total += len(self.typed(machine.get("gpus"), "attempts[0].detail[].gpus", list, "a list"))
        return total

    def moment(self, value: object, field: str) -> float | None:
        """Seconds since 1970; None where the log has no time (null, or the text None)."""
        if value is None or value in ("", "None"):
            return None
        try:
            # Times carry a zone's name in some versions of the log ("2017-10-07 01:12:09 PDT"); all share one zone.
            return epoch_s(self.typed(value, field, str, "a date and time")[:19])
        except (ValueError, TypeError):
            raise self.wrong(field, value, "a date and time such as 2017-10-07 01:12:09") from None

    def typed(self, value: Any, field: str, kind: type, accepted: str) -> Any:
        if not isinstance(value, kind):
            raise self.wrong(field, value, accepted)
        return value

    def wrong(self, field: str, value: object, accepted: str) -> InputError:
        named = f", field {field!r}" if field else ""
        return InputError(f"{self.where}{named} is {shown(value)}, but must be {accepted}")
