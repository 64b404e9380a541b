"""The printed form of a plan, and its reader: `provision` prints it, `provision --replan` and `serve` read it.

One row for each replica. What a plan that was written by hand may leave out: the replica's number, the queue delay, the
predicted p99, the workload, the type of its GPU, and `batch_ms`, the times of a batch of 1, 2, … at this share among
these neighbours. Whatever is wrong becomes one sentence that names the row and the field. What was printed is read as
it was, but for who is unplaced and the memory that services state: both follow from the question, not from the plan.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, isfinite
from typing import Any

from gpuloom.errors import InputError
from gpuloom.gpus.grant import Device, Grant
from gpuloom.gpus.model import Instance
from gpuloom.perf.queueing.batching import BatchTimes
from gpuloom.provision.plan import Replica, ServicePlan
from gpuloom.work.source import check_id, shown

EXPECTED = "a plan as `gpuloom provision --output json` prints it"
MOST_BATCH = 4096
MOST_REPLICAS, MOST_GPUS = 1_000_000, 1_000_000
DEFAULT_TYPE = "V100"


@dataclass(frozen=True, slots=True)
class PrintedPlan:
    plan: ServicePlan
    slo_ms: dict[str, float]
    workloads: dict[str, str]
    """Of the services whose rows name it."""
    batch_ms: dict[tuple[str, int], tuple[float, ...]]
    """By service and number of the replica, where the plan has them."""


def as_json(
    plan: ServicePlan,
    slo_ms: Mapping[str, float],
    workloads: Mapping[str, str] | None = None,
    times: Mapping[Replica, BatchTimes] | None = None,
) -> dict[str, Any]:
    """The printed form: a row for each replica; its names are a contract with scripts.

    Workloads are for `serve`, and so are the times of batches that it has no model of (`needs_times`).
    """
    count = Counter(replica.service for replica in plan.replicas)
    rows = []
    for replica in plan.replicas:
        row = _row(replica, count[replica.service], slo_ms[replica.service])
        if plan.types:
            row["gpu_type"] = plan.type_of(replica.grant.gpu)
        if workloads:
            row["workload"] = workloads[replica.service]
        if times and replica in times:
            row["batch_ms"] = [round(float(ms), 4) for ms in times[replica].latency_ms[: replica.grant.batch]]
        rows.append(row)
    several = plan.lower_bound_cost is not None or bool(plan.types)
    return {
        "strategy": plan.strategy,
        "gpu_type": plan.gpu_type,
        "gpus": plan.gpus,
        **({"gpus_by_type": plan.counts} if several else {}),
        "cost_per_hour": plan.cost_per_hour,
        "lower_bound_gpus": plan.lower_bound_gpus,
        **({"lower_bound_cost": plan.lower_bound_cost} if several else {}),
        "services": rows,
        "unplaced": [{"name": lost.service, "why": lost.why} for lost in plan.unplaced],
    }


def needs_times(plan: ServicePlan) -> bool:
    """Whether `serve` has no model of its batches: on MIG, and where types mix."""
    return bool(plan.types) or any(replica.grant.instance is not None for replica in plan.replicas)


def _row(replica: Replica, replicas: int, slo_ms: float) -> dict[str, object]:
    grant = replica.grant
    return {
        "name": replica.service,
        "gpu": grant.gpu,
        "device": "whole" if grant.instance is None else str(grant.instance),
        "share_pct": grant.share_pct,
        "batch": grant.batch,
        "queue_delay_ms": replica.queue_delay_ms,
        "replica": replica.number,
        "replicas": replicas,
        "rate_rps": replica.rate_rps,
        "predicted_p99_ms": replica.predicted_p99_ms,
        "slo_ms": slo_ms,
    }


def read_printed(content: object, where: str) -> PrintedPlan:
    """InputError with `where` it came from if it is no plan."""
    rows = content.get("services") if isinstance(content, dict) else None
    if not isinstance(content, dict) or not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InputError(f"{where} has no list of services: expected {EXPECTED}")
    stated_type = content.get("gpu_type")
    gpu_type = stated_type if isinstance(stated_type, str) and stated_type else DEFAULT_TYPE
    replicas: list[Replica] = []
    slo_ms: dict[str, float] = {}
    workloads: dict[str, str] = {}
    tables: dict[tuple[str, int], tuple[float, ...]] = {}
    types: dict[int, str] = {}
    numbers: defaultdict[str, set[int]] = defaultdict(set)
    for index, data in enumerate(rows):
        row = _Row(f"{where}: services[{index}]", data)
        replica = _replica(row, numbers)
        replicas.append(replica)
        _agrees(row, "slo_ms", slo_ms, replica.service, row.number("slo_ms", 1e-6, 1e9, "milliseconds above 0"))
        if data.get("workload") is not None:
            _agrees(row, "workload", workloads, replica.service, row.text("workload"))
        own_type = gpu_type if data.get("gpu_type") is None else row.text("gpu_type")
        _agrees(row, "gpu_type", types, replica.grant.gpu, own_type)
        if data.get("batch_ms") is not None:
            tables[replica.service, replica.number] = row.times("batch_ms", replica.grant.batch or 1)
    _check_shares(where, replicas)
    gpus = 1 + max(types, default=-1)
    each = tuple(types.get(gpu, gpu_type) for gpu in range(gpus)) if len(set(types.values())) > 1 else ()
    plan = ServicePlan(
        strategy=str(content.get("strategy", "by hand")),
        gpu_type=gpu_type if each or not types else next(iter(types.values())),
        gpus=gpus,
        cost_per_hour=_optional(content, "cost_per_hour") or 0.0,
        lower_bound_gpus=None if (bound := _optional(content, "lower_bound_gpus")) is None else int(bound),
        replicas=tuple(replicas),
        types=each,
        lower_bound_cost=_optional(content, "lower_bound_cost"),
    )
    return PrintedPlan(plan, slo_ms, workloads, tables)


def _optional(content: dict[str, Any], name: str) -> float | None:
    value = content.get(name)
    return value if _is_number(value) else None


def _replica(row: "_Row", numbers: defaultdict[str, set[int]]) -> Replica:
    name = row.text("name")
    check_id(name, row.where("name"), set())
    grant = Grant(
        gpu=row.count("gpu", 0, MOST_GPUS),
        instance=row.device("device"),
        share_pct=row.number("share_pct", 1e-3, 100.0, "a percentage above 0 up to 100"),
        batch=row.count("batch", 1, MOST_BATCH),
    )
    number = row.count("replica", 0, MOST_REPLICAS, len(numbers[name]))
    if number in numbers[name]:
        raise row.wrong("replica", "a number that no other replica of the service has")
    numbers[name].add(number)
    return Replica(
        service=name,
        number=number,
        grant=grant,
        queue_delay_ms=row.number("queue_delay_ms", 0.0, 1e6, "milliseconds from 0", 0.0),
        rate_rps=row.number("rate_rps", 1e-6, 1e9, "requests per second above 0"),
        predicted_p99_ms=row.number("predicted_p99_ms", 0.0, inf, "milliseconds", inf),
    )


def _agrees(row: "_Row", field: str, known: dict[Any, Any], key: object, value: object) -> None:
    """What rows of one service, or of one GPU, must say alike."""
    if known.setdefault(key, value) != value:
        whose = "GPU" if field == "gpu_type" else "service"
        raise row.wrong(field, f"{known[key]} as in the {whose}'s other rows")


def _check_shares(where: str, replicas: Sequence[Replica]) -> None:
    given: defaultdict[Device, float] = defaultdict(float)
    for replica in replicas:
        given[replica.grant.device] += replica.grant.share_pct
    for (gpu, instance), share in given.items():
        if share > 100.0 + 1e-6:
            device = f"GPU {gpu}" if instance is None else f"{instance} of GPU {gpu}"
            raise InputError(f"{where}: the shares on {device} sum to {share:g} %, but must be at most 100")


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
