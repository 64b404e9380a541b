"""The plan that is to be carried out, as `gpuloom provision --output json` prints it.

    {"strategy": "gpuloom", "gpu_type": "V100", "gpus": 1, "services": [
      {"name": "W6", "gpu": 0, "device": "whole", "share_pct": 30, "batch": 2, "queue_delay_ms": 0, "replica": 0,
       "rate_rps": 200, "predicted_p99_ms": 31.5, "slo_ms": 40, "workload": "resnet50", "batch_ms": [4.2, 6.9]}]}

What a row may leave out is in `provision.plan_file`; what only a server must know is here.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from gpuloom.errors import InputError
from gpuloom.provision.plan import Replica, ServicePlan
from gpuloom.provision.plan_file import EXPECTED, read_printed
from gpuloom.work.files import read_work
from gpuloom.work.source import read_json, shown

MOST_REPLICAS = 1000
Slot = tuple[str, int]
"""A service's name and the number of its replica."""


class Level(StrEnum):
    """The two shares that a replica may have, and the two servers."""

    PLANNED = "planned"
    SHADOW = "shadow"
    """The larger share."""


@dataclass(frozen=True, slots=True)
class Promise:
    """A service as its clients know it."""

    name: str
    slo_ms: float
    rate_rps: float
    workload: str | None


@dataclass(frozen=True, slots=True)
class Deployment:
    plan: ServicePlan
    promises: dict[str, Promise]
    batch_ms: dict[Slot, tuple[float, ...]]
    """Of the replicas whose times the plan holds."""


def workloads_of(path: Path) -> dict[str, str]:
    """What each service of a work file runs."""
    return {service.id: service.workload for service in read_work(path)[1]}


def read_plan(path: Path, workloads: dict[str, str] | None = None) -> Deployment:
    """`workloads` says what each service runs, where the plan does not."""
    printed = read_printed(read_json(path, EXPECTED), str(path))
    plan = printed.plan
    if not plan.replicas:
        raise InputError(f"{path} has no service in its list: there is nothing to serve")
    if len(plan.replicas) > MOST_REPLICAS:
        raise InputError(f"{path} has {len(plan.replicas)} replicas: one host serves at most {MOST_REPLICAS}")
    runs = (workloads or {}) | printed.workloads
    promises = {
        name: Promise(name, printed.slo_ms[name], sum(replica.rate_rps for replica in replicas), runs.get(name))
        for name, replicas in plan.by_service().items()
    }
    _check_names(path, promises)
    return Deployment(plan, promises, printed.batch_ms)


def slot_of(replica: Replica) -> Slot:
    return (replica.service, replica.number)


def model_name(service: str) -> str:
    """The service's name where it can be a folder and part of an address; else something like it."""
    return re.sub(r"[^A-Za-z0-9._-]|^\.{1,2}$", "_", service)


def _check_names(path: Path, promises: dict[str, Promise]) -> None:
    models: dict[str, str] = {}
    for name in promises:
        other = models.setdefault(model_name(name), name)
        if other != name:
            raise InputError(
                f"{path}: services {shown(other)} and {shown(name)} would have the same address: rename one"
            )
