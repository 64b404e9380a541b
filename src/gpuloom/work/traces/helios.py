"""SenseTime's Helios trace (SC'21): `cluster_log.csv` of one cluster.

Columns job_id, user, vc, gpu_num, cpu_num, node_num, state, submit_time, start_time, end_time, duration (s, from start
to end), queue (s). A row is a rigid job of gpu_num whole GPUs that takes `duration`, whatever its final state;
submission counts from the earliest job that is kept. Left out and counted: CPU jobs (gpu_num 0), jobs that ran for no
time. `state`, `user` and `vc` are kept for grouping.
"""

from collections import Counter
from pathlib import Path

from gpuloom.work.model import Job, Kind, TraceJob
from gpuloom.work.source import check_id
from gpuloom.work.table import open_table
from gpuloom.work.traces.trace import Options, Trace, from_zero, in_order

_COLUMNS = ("job_id", "user", "vc", "gpu_num", "state", "submit_time", "duration")


def read(path: Path, options: Options) -> Trace:  # noqa: ARG001 - every reader has the same signature
    table = open_table(path, _COLUMNS, "a Helios cluster_log.csv")
    jobs: list[TraceJob] = []
    skipped: Counter[str] = Counter()
    names: set[str] = set()
    for line, (job_id, user, vc, gpu_num, state, submit_time, duration) in table.rows():
        gpus = table.count(line, "gpu_num", gpu_num)
        if gpus == 0:
            skipped["are CPU jobs"] += 1
            continue
        length_s = table.seconds(line, "duration", duration)
        if length_s == 0:
            skipped["never ran"] += 1
            continue
        job = Job(
            id=check_id(job_id, f"{path}: line {line}, column 'job_id'", names),
            submit_s=table.moment(line, "submit_time", submit_time),
            kind=Kind.RIGID,
            gpus=gpus,
            min_gpus=gpus,
            max_gpus=gpus,
        )
        jobs.append(TraceJob(job, length_s, {"state": state, "user": user, "vc": vc}))
    return in_order(path, from_zero(jobs), skipped)
