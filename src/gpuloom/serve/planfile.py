"""The plan that is to be carried out, as `gpuloom provision --output json` prints it.

    {"strategy": "gpuloom", "gpu_type": "V100", "gpus": 1, "services": [
      {"name": "W6", "gpu": 0, "device": "whole", "share_pct": 30, "batch": 2, "queue_delay_ms": 0, "replica": 0,
       "rate_rps": 200, "predicted_p99_ms": 31.5, "slo_ms": 40, "workload": "resnet50", "batch_ms": [4.2, 6.9]}]}

One row for each replica. `workload` and `batch_ms` may be missing: the measured times of a batch of 1, 2, … at this
share among these neighbours. Whatever is wrong becomes one sentence that names the row and the field.
"""

import re
from dataclasses import dataclass
from itertools import pairwise
from math import inf, isfinite
from pathlib import Path
from typing import Any

from gpuloom.errors import InputError
from gpuloom.gpus.grant import Grant
from gpuloom.gpus.model import Instance
from gpuloom.provision.plan import Replica, ServicePlan
from gpuloom.serve.repository import model_name
from gpuloom.serve.shadows import Slot, left_pct, slot_of
from gpuloom.work.source import check_id, read_json, shown

EXPECTED = "a plan as `gpuloom provision --output json` prints it"
MOST_BATCH = 4096
MOST_REPLICAS = 1000


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


def read_plan(path: Path, workloads: dict[str, str] | None = None) -> Deployment:
    """`workloads` says what each service runs, where the plan does not."""
    found = read_json(path, EXPECTED)
    rows = found.get("services") if isinstance(found, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InputError(f"{path} has no list of services: expected {EXPECTED}")
    if not rows:
        raise InputError(f"{path} has no service in its list: there is nothing to serve")
    if len(rows) > MOST_REPLICAS:
        raise InputError(f"{path} has {len(rows)} replicas: one host serves at most {MOST_REPLICAS}")
    replicas: list[Replica] = []
    promises: dict[str, Promise] = {}
    tables: dict[Slot, tuple[float, ...]] = {}
    for number, data in enumerate(rows):
        row = _Row(f"{path}: services[{number}]", data)
        replica = _replica(row, replicas)
        if any(slot_of(other) == slot_of(replica) for other in replicas):
            raise row.wrong("replica", "a number that no other replica of the service has")
        replicas.append(replica)
        _promise(row, replica, promises, workloads or {})
        if data.get("batch_ms") is not None:
            tables[slot_of(replica)] = row.times("batch_ms", replica.grant.batch or 1)
    _check_names(path, promises)
    _check_shares(path, replicas)
    gpu_type = found.get("gpu_type")
    plan = ServicePlan(
        strategy=str(found.get("strategy", "by hand")),
        gpu_type=gpu_type if isinstance(gpu_type, str) else "V100",
        gpus=1 + max(replica.grant.gpu for replica in replicas),
        cost_per_hour=0.0,
        lower_bound_gpus=None,
        replicas=tuple(replicas),
    )
    return Deployment(plan, promises, tables)


def _replica(row: "_Row", before: list[Replica]) -> Replica:
    name = row.text("name")
    check_id(name, row.where("name"), set())
    earlier = sum(replica.service == name for replica in before)
    grant = Grant(
        gpu=row.count("gpu", 0, 100_000),
        instance=row.device("device"),
        share_pct=row.number("share_pct", 1e-3, 100.0, "a percentage above 0 up to 100"),
        batch=row.count("batch", 1, MOST_BATCH),
    )
    return Replica(
        service=name,
        number=row.count("replica", 0, MOST_REPLICAS, earlier),
        grant=grant,
        queue_delay_ms=row.number("queue_delay_ms", 0.0, 1e6, "milliseconds from 0", 0.0),
        rate_rps=row.number("rate_rps", 1e-6, 1e9, "requests per second above 0"),
        predicted_p99_ms=row.number("predicted_p99_ms", 0.0, inf, "milliseconds", inf),
    )


def _promise(row: "_Row", replica: Replica, promises: dict[str, Promise], workloads: dict[str, str]) -> None:
    name, slo_ms = replica.service, row.number("slo_ms", 1e-6, 1e9, "milliseconds above 0")
    workload = row.text("workload") if row.data.get("workload") is not None else workloads.get(name)
    before = promises.get(name, Promise(name, slo_ms, 0.0, workload))
    if before.slo_ms != slo_ms:
        raise row.wrong("slo_ms", f"{before.slo_ms:g} as in the service's other replicas")
    promises[name] = Promise(name, slo_ms, before.rate_rps + replica.rate_rps, before.workload or workload)


def _check_names(path: Path, promises: dict[str, Promise]) -> None:
    models: dict[str, str] = {}
    for name in promises:
        other = models.setdefault(model_name(name), name)
        if other != name:
            raise InputError(
                f"{path}: services {shown(other)} and {shown(name)} would have the same address: rename one"
            )


def _check_shares(path: Path, replicas: list[Replica]) -> None:
    for (gpu, instance), left in left_pct(replica.grant for replica in replicas).items():
        if left < -1e-6:
            device = f"GPU {gpu}" if instance is None else f"{instance} of GPU {gpu}"
            raise InputError(f"{path}: the shares on {device} sum to {100.0 - left:g} %, but must be at most 100")


class _Row:
    """One row's fields, each with what would be accepted."""

    def __init__(self, place: str, data: dict[str, Any]) -> None:
        self.place, self.data = place, data

    def where(self, field: str) -> str:
        return f"{self.place}.{field}"

    def wrong(self, field: str, accepted: str) -> InputError:
        return InputError(f"{self.where(field)} is {shown(self.data.get(field))}, but must be {accepted}")

    def text(self, field: str) -> str:
        value = self.data.get(field)
        if not isinstance(value, str) or not value:
            raise self.wrong(field, "a name")
        return value

    def number(self, field: str, least: float, most: float, accepted: str, default: float | None = None) -> float:
        value: Any = self.data.get(field)
        if value is None and default is not None:
            return default
        if not _is_number(value) or not least <= value <= most:
            raise self.wrong(field, accepted)
        return float(value)

    def count(self, field: str, least: int, most: int, default: int | None = None) -> int:
        value = self.data.get(field)
        if value is None and default is not None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise self.wrong(field, f"a whole number from {least} to {most}")
        return value

    def device(self, field: str) -> Instance | None:
        value = self.data.get(field, "whole")
        if value == "whole":
            return None
        match = re.fullmatch(r"([0-9]+[cg][0-9a-z.+]*)@([0-9]{1,2})", value) if isinstance(value, str) else None
        if match is None:
            raise self.wrong(field, "whole, or a MIG instance such as 3g.20gb@4")
        return Instance(int(match[2]), match[1])

    def times(self, field: str, batch: int) -> tuple[float, ...]:
        accepted = f"a list of at least {batch} times in milliseconds above 0 that do not fall, for a batch of 1, 2, …"
        value = self.data[field]
        if not isinstance(value, list) or len(value) < batch or not all(_is_number(ms) and ms > 0 for ms in value):
            raise self.wrong(field, accepted)
        if any(later < earlier for earlier, later in pairwise(value)):
            raise self.wrong(field, accepted)
        return tuple(map(float, value))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
