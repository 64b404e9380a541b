"""A provisioning plan as data: what a planner returns, what is printed, verified, and carried out by `serve`."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpuloom.gpus.grant import Grant


@dataclass(frozen=True, slots=True)
class Replica:
    """One server process of a service, on one device or a share of it."""

    service: str
    """The service's id."""
    number: int
    """From 0 among the replicas of its service."""
    grant: Grant
    """Where, with its share; `grant.batch` is the max batch."""
    queue_delay_ms: float
    rate_rps: float
    """Its part of the service's requests."""
    predicted_p99_ms: float


@dataclass(frozen=True, slots=True)
class Unplaced:
    service: str
    why: str
    """One sentence."""


@dataclass(frozen=True, slots=True)
class ServicePlan:
    strategy: str
    gpu_type: str
    """Of all GPUs; of several types their names, joined by +."""
    gpus: int
    """GPUs in use; replicas are on GPUs 0 to gpus - 1."""
    cost_per_hour: float
    lower_bound_gpus: int | None
    """No plan that keeps the promises, as the planner predicts them, needs fewer; None where nothing is proved."""
    replicas: tuple[Replica, ...]
    unplaced: tuple[Unplaced, ...] = ()
    types: tuple[str, ...] = ()
    """The type of each GPU, where there are several."""
    lower_bound_cost: float | None = None
    """Where several types are on offer: no plan with each service on one type costs less; None: nothing is proved."""

    def of(self, service: str) -> tuple[Replica, ...]:
        return tuple(replica for replica in self.replicas if replica.service == service)

    def type_of(self, gpu: int) -> str:
        return self.types[gpu] if self.types else self.gpu_type

    @property
    def counts(self) -> dict[str, int]:
        """GPUs by type."""
        return dict(Counter(self.types)) if self.types else {self.gpu_type: self.gpus}

    def by_service(self) -> dict[str, list[Replica]]:
        found: dict[str, list[Replica]] = {}
        for replica in self.replicas:
            found.setdefault(replica.service, []).append(replica)
        return found


def on_gpus(replicas: Sequence[Replica]) -> dict[int, list[Replica]]:
    found: dict[int, list[Replica]] = {}
    for replica in replicas:
        found.setdefault(replica.grant.gpu, []).append(replica)
    return found


def joined(parts: Sequence[ServicePlan]) -> ServicePlan:
    """One plan of several, each for its own services: GPUs are numbered through."""
    used = [part for part in parts if part.gpus] or list(parts[:1])
    replicas: list[Replica] = []
    types: list[str] = []
    for part in used:
        replicas += [moved(one, one.grant.gpu + len(types)) for one in part.replicas]
        types += [part.type_of(gpu) for gpu in range(part.gpus)]
    names = dict.fromkeys(types) or {used[0].gpu_type: None}
    return ServicePlan(
        used[0].strategy,
        "+".join(names),
        len(types),
        round(sum(part.cost_per_hour for part in parts), 2),
        used[0].lower_bound_gpus if len(parts) == 1 else None,
        tuple(replicas),
        tuple(sorted((one for part in parts for one in part.unplaced), key=lambda one: one.service)),
        tuple(types) if len(names) > 1 else (),
    )


def part_of(plan: ServicePlan, gpu_type: str, services: frozenset[str]) -> tuple[ServicePlan, list[int]]:
    """What these services have on GPUs of one type, as a plan of its own, and which of the plan's GPUs those are."""
    mine = [one for one in plan.replicas if one.service in services and plan.type_of(one.grant.gpu) == gpu_type]
    gpus = sorted({one.grant.gpu for one in mine})
    number = {gpu: at for at, gpu in enumerate(gpus)}
    replicas = tuple(moved(one, number[one.grant.gpu]) for one in mine)
    return ServicePlan(plan.strategy, gpu_type, len(gpus), 0.0, None, replicas), gpus


def moved(replica: Replica, gpu: int) -> Replica:
    return replace(replica, grant=replica.grant._replace(gpu=gpu))


def as_json(
    plan: ServicePlan,
    slo_ms: Mapping[str, float],
    workloads: Mapping[str, str] | None = None,
    batch_ms: Mapping[Replica, Sequence[float]] | None = None,
) -> dict[str, Any]:
    """The printed form: a row for each replica; its names are a contract with scripts.

    Workloads are for `serve`, and so are the times of batches that it has no model of: on MIG, and where types mix.
    """
    count = Counter(replica.service for replica in plan.replicas)
    rows = []
    for replica in plan.replicas:
        row = _row(replica, count[replica.service], slo_ms[replica.service])
        if plan.types:
            row["gpu_type"] = plan.type_of(replica.grant.gpu)
        if workloads:
            row["workload"] = workloads[replica.service]
        if batch_ms and replica in batch_ms:
            row["batch_ms"] = [round(float(ms), 4) for ms in batch_ms[replica]]
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
        "unplaced": [{"name": one.service, "why": one.why} for one in plan.unplaced],
    }


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
