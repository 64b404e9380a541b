"""A provisioning plan as data: what a planner returns, what is printed, verified, and carried out by `serve`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpuloom.errors import InputError
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
    gpus: int
    """GPUs in use; replicas are on GPUs 0 to gpus - 1."""
    cost_per_hour: float
    lower_bound_gpus: int | None
    """No plan that keeps the promises, as the planner predicts them, needs fewer; None where nothing is proved."""
    replicas: tuple[Replica, ...]
    unplaced: tuple[Unplaced, ...] = ()

    def of(self, service: str) -> tuple[Replica, ...]:
        return tuple(replica for replica in self.replicas if replica.service == service)


def as_json(
    plan: ServicePlan, slo_ms: Mapping[str, float], workloads: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The printed form: a row for each replica; its names are a contract with scripts. Workloads are for `serve`."""
    counts = {replica.service: len(plan.of(replica.service)) for replica in plan.replicas}
    return {
        "strategy": plan.strategy,
        "gpu_type": plan.gpu_type,
        "gpus": plan.gpus,
        "cost_per_hour": plan.cost_per_hour,
        "lower_bound_gpus": plan.lower_bound_gpus,
        "services": [
            _row(replica, counts[replica.service], slo_ms[replica.service])
            | ({"workload": workloads[replica.service]} if workloads else {})
            for replica in plan.replicas
        ],
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


def from_json(printed: object, where: str) -> ServicePlan:
    """A plan as it was printed, on whole GPUs; InputError with `where` it came from if it is not one."""
    accepted = "a plan as `gpuloom provision --output json` prints it"
    try:
        rows = printed["services"]  # type: ignore[index]
        replicas = tuple(_replica(row) for row in rows)
        return ServicePlan(
            str(printed["strategy"]),  # type: ignore[index]
            str(printed["gpu_type"]),  # type: ignore[index]
            len({replica.grant.gpu for replica in replicas}),
            float(printed["cost_per_hour"]),  # type: ignore[index]
            None if printed["lower_bound_gpus"] is None else int(printed["lower_bound_gpus"]),  # type: ignore[index]
            replicas,
        )
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise InputError(f"{where} is no plan ({type(error).__name__}: {error}): expected {accepted}") from None


def _replica(row: Mapping[str, Any]) -> Replica:
    if row["device"] != "whole":
        raise ValueError(f"device {row['device']!r} is not a whole GPU")
    gpu, share, batch = int(row["gpu"]), float(row["share_pct"]), int(row["batch"])
    if gpu < 0 or not 0.0 < share <= 100.0 or batch < 1:
        raise ValueError(f"GPU {gpu}, share {share} or batch {batch} cannot be")
    grant = Grant(gpu, share_pct=share, batch=batch)
    numbers = (float(row[name]) for name in ("queue_delay_ms", "rate_rps", "predicted_p99_ms"))
    return Replica(str(row["name"]), int(row["replica"]), grant, *numbers)
