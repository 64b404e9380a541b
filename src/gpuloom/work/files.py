"""The flat YAML work file: jobs and services as a person describes them (reference: docs/work-files.md).

The kind, unless given: elastic if min_gpus or max_gpus is given; sliceable if it asks for one GPU and its memory or
min_speed is known (memory given, or measured for its workload); rigid otherwise.
Whatever is wrong is one sentence with the file, the line, the field and what would be accepted.
"""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuloom.errors import InputError
from gpuloom.work.checks import contradiction
from gpuloom.work.measured.figures import load_figures
from gpuloom.work.model import HostNeeds, Job, Kind, Service, TraceJob
from gpuloom.work.source import FileOwner, check_id, read_owned_text, shown
from gpuloom.work.traces.trace import Options, Trace, in_order

if TYPE_CHECKING:
    from gpuloom.work.document import Document
    from gpuloom.work.schema import JobEntry, ServiceEntry

_EXPECTED = "a work file (YAML with 'jobs:' or 'services:')"


def read_work(path: Path) -> tuple[list[TraceJob], list[Service]]:
    """The jobs (copies written out, in the file's order) and services of a work file."""
    jobs, services, _ = read_owned_work(path)
    return jobs, services


def read_owned_work(path: Path) -> tuple[list[TraceJob], list[Service], FileOwner]:
    """The same, and whose file it is: as root, jobs are run in its owner's name."""
    from gpuloom.work.document import Document
    from gpuloom.work.schema import WorkFile
    from gpuloom.work.validated import validated

    path = Path(path)
    text, owner = read_owned_text(path, _EXPECTED)
    document = Document(path, text, _EXPECTED)
    work = validated(document, WorkFile)
    names: set[str] = set()
    jobs: list[TraceJob] = []
    for index, entry in enumerate(work.jobs):
        job = _job(document, index, entry)
        for number in range(1, entry.count + 1):
            name = entry.name if entry.count == 1 else f"{entry.name}-{number}"
            check_id(name, document.where("jobs", index, "name"), names)
            jobs.append(TraceJob(replace(job, id=name), entry.length))
    services = []
    for index, service in enumerate(work.services):
        check_id(service.name, document.where("services", index, "name"), names, "job or service")
        services.append(_service(service))
    if not jobs and not services:
        raise InputError(f"{path} has no job and no service: expected {_EXPECTED}")
    return jobs, services, owner


def read_trace_file(path: Path, options: Options) -> Trace:  # noqa: ARG001 - every reader has the same signature
    """The jobs of a work file as a trace: all but the elastic ones, whose measured tables decide, need a length."""
    jobs, services = read_work(path)
    for entry in jobs:
        if entry.length_s is None and entry.job.kind is not Kind.ELASTIC:
            raise InputError(
                f"{path}: job {shown(entry.job.id)} has no length: to be simulated it needs one, such as 2h"
            )
    trace = in_order(path, jobs)
    return Trace(trace.jobs, {"are services": len(services)} if services else {})


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a work file, for editors and other programs."""
    from gpuloom.work.schema import json_schema as schema

    return schema()


def _job(document: "Document", index: int, entry: "JobEntry") -> Job:
    measured = load_figures().workloads.get(entry.workload) if entry.workload else None
    mem_mib = entry.memory if entry.memory is not None or measured is None else measured.mem_mib
    spread = entry.min_gpus is not None or entry.max_gpus is not None
    if entry.kind is not None:
        kind = Kind(entry.kind)
    elif spread:
        kind = Kind.ELASTIC
    elif entry.gpus in (None, 1) and (mem_mib is not None or entry.min_speed is not None):
        kind = Kind.SLICEABLE
    else:
        kind = Kind.RIGID
    if spread and kind is not Kind.ELASTIC:
        field = "min_gpus" if entry.min_gpus is not None else "max_gpus"
        raise InputError(
            f"{document.where('jobs', index, field)} is given, but only an elastic job has one, not a {kind}"
        )
    for field in ("resize", "max_local_batch"):
        if getattr(entry, field) is not None and kind is not Kind.ELASTIC:
            raise InputError(
                f"{document.where('jobs', index, field)} is given, but only an elastic job has one, not a {kind}"
                " (min_gpus and max_gpus make it elastic)"
            )
    gpus = entry.gpus or entry.min_gpus or 1
    job = Job(
        id=entry.name,
        submit_s=entry.submit,
        kind=kind,
        workload=entry.workload,
        gpus=gpus,
        min_gpus=entry.min_gpus or (1 if kind is Kind.ELASTIC else gpus),
        max_gpus=entry.max_gpus or gpus,
        mem_mib=mem_mib,
        priority=entry.priority,
        batch=entry.batch,
        min_batch=entry.min_batch,
        max_batch=entry.max_batch,
        min_speed=entry.min_speed,
        estimate_s=entry.length,
        command=entry.command or (),
        host=_host_needs(document, index, entry),
        in_place=entry.resize == "in-place",
        max_local_batch=entry.max_local_batch,
    )
    if wrong := contradiction(job):
        raise InputError(f"{document.where('jobs', index, wrong[0])} {wrong[1]}")
    return job


def _host_needs(document: "Document", index: int, entry: "JobEntry") -> HostNeeds:
    if entry.on_stall is not None and entry.stall_s is None:
        raise InputError(
            f"{document.where('jobs', index, 'on_stall')} is given, but only a job with stall_s, such as 10m, can stall"
        )
    return HostNeeds(
        user=entry.user,
        cpus=entry.cpus,
        host_mem_mib=entry.host_memory,
        pids=entry.pids,
        log_max_mib=entry.log_max,
        stall_s=entry.stall_s,
        restart_stalled=entry.on_stall == "restart",
    )


def _service(entry: "ServiceEntry") -> Service:
    return Service(
        id=entry.name,
        workload=entry.workload,
        rate_rps=entry.rate,
        slo_p99_ms=entry.p99,
        mem_mib=entry.memory,
        priority=entry.priority,
        max_batch=entry.max_batch,
    )
