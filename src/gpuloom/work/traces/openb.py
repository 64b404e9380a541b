"""Alibaba's GPU trace of 2023 (ATC'23, fragmentation gradient descent): `openb_pod_list_*.csv`, one row per pod.

Columns name, cpu_milli, memory_mib (main memory), num_gpu (0 to 8), gpu_milli (thousandths of a GPU, for pods that
share, num_gpu 1), gpu_spec (GPU types it may run on, "V100M16|V100M32"; empty for any), qos (LS latency sensitive, BE
best effort, Burstable, Guaranteed), pod_phase, creation_time, deletion_time, scheduled_time (seconds).

- num_gpu 1 with gpu_milli below 1000: sliceable. The share that it asked for becomes `min_speed` (460 -> 0.46): it must
  never run slower than on that part of a GPU. Its device memory is unknown: the trace has none.
- any other pod with GPUs: rigid, num_gpu whole GPUs (gpu_milli means nothing there).
- length: deletion - scheduled, the time it took on what it asked for; submission: creation, from the earliest kept pod.
- priority: LS high, BE low, others normal. `gpu_spec`, `pod_phase`, `qos` and `gpu_milli` are kept for grouping.
- left out and counted: CPU pods (num_gpu 0), pods never scheduled or with no end, pods that ran for no time.
"""

from collections import Counter
from pathlib import Path

from gpuloom.work.model import Job, Kind, TraceJob
from gpuloom.work.source import check_id
from gpuloom.work.table import open_table
from gpuloom.work.traces.trace import Options, Trace, from_zero, in_order
from gpuloom.work.units import PRIORITIES

_COLUMNS = (
    "name",
    "num_gpu",
    "gpu_milli",
    "gpu_spec",
    "qos",
    "pod_phase",
    "creation_time",
    "deletion_time",
    "scheduled_time",
)
_PRIORITY_OF = {"LS": PRIORITIES["high"], "BE": PRIORITIES["low"]}


def read(path: Path, options: Options) -> Trace:  # noqa: ARG001 - every reader has the same signature
    table = open_table(path, _COLUMNS, "an Alibaba openb_pod_list")
    jobs: list[TraceJob] = []
    skipped: Counter[str] = Counter()
    names: set[str] = set()
    for line, (name, num_gpu, milli, spec, qos, phase, created, deleted, scheduled) in table.rows():
        gpus = table.count(line, "num_gpu", num_gpu)
        if gpus == 0:
            skipped["are CPU pods"] += 1
            continue
        if not scheduled.strip() or not deleted.strip():
            skipped["never ran" if not scheduled.strip() else "have no end"] += 1
            continue
        start_s = table.seconds(line, "scheduled_time", scheduled)
        length_s = table.seconds(line, "deletion_time", deleted) - start_s
        if length_s < 0:
            raise table.wrong(line, "deletion_time", deleted, f"no earlier than its scheduled_time {scheduled}")
        if length_s == 0:
            skipped["ran for no time"] += 1
            continue
        share = table.count(line, "gpu_milli", milli, 1, 1000) / 1000 if gpus == 1 else 1.0
        job = Job(
            id=check_id(name, f"{path}: line {line}, column 'name'", names),
            submit_s=table.seconds(line, "creation_time", created),
            kind=Kind.SLICEABLE if share < 1 else Kind.RIGID,
            gpus=gpus,
            min_gpus=gpus,
            max_gpus=gpus,
            priority=_PRIORITY_OF.get(qos, PRIORITIES["normal"]),
            min_speed=share if share < 1 else None,
        )
        extra = {"gpu_milli": milli, "gpu_spec": spec, "pod_phase": phase, "qos": qos}
        jobs.append(TraceJob(job, length_s, extra))
    return in_order(path, from_zero(jobs), skipped)
