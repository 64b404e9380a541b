"""Pollux's simulated workloads (OSDI'21): which of six models arrives when, with the GPUs and batch it was tuned for.

Columns name, time (seconds), application, num_replicas, batch_size. All jobs are elastic; how long one takes follows
from the measured tables of its application, so `length_s` is None.
"""

from pathlib import Path

from gpuloom.work.model import Job, Kind, TraceJob
from gpuloom.work.source import check_id
from gpuloom.work.table import open_table
from gpuloom.work.traces.trace import Options, Trace, in_order

_COLUMNS = ("name", "time", "application", "num_replicas", "batch_size")
MAX_GPUS = 64
"""The whole simulated cluster: 16 nodes of 4."""
_MAX_GPUS_OF = {"ncf": 1}
"""NCF was never measured on more than one GPU."""


def read(path: Path, options: Options) -> Trace:  # noqa: ARG001 - every reader has the same signature
    table = open_table(path, _COLUMNS, "a Pollux workload")
    jobs: list[TraceJob] = []
    names: set[str] = set()
    for line, (name, time, application, replicas, batch) in table.rows():
        check_id(name, f"{path}: line {line}, column 'name'", names)
        if not application or not application.isprintable():
            raise table.wrong(line, "application", application, "a printable name such as cifar10")
        most = _MAX_GPUS_OF.get(application, MAX_GPUS)
        job = Job(
            id=name,
            submit_s=table.seconds(line, "time", time),
            kind=Kind.ELASTIC,
            workload=application,
            gpus=table.count(line, "num_replicas", replicas, 1, most),
            min_gpus=1,
            max_gpus=most,
            batch=table.count(line, "batch_size", batch, 1),
        )
        jobs.append(TraceJob(job))
    return in_order(path, jobs)
