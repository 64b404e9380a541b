"""A provisioning plan as data: what a planner returns, what is checked, and carried out by `serve`.

How it is printed and read again is in `plan_file`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gpuloom.gpus.catalogue import known
from gpuloom.gpus.grant import Grant

MOST_REPLICAS = 10_000
"""Of one service."""
Old = list[int | None]
"""For each GPU of a new plan the number it had in the old one; None: it is new."""


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
        replicas: dict[str, list[Replica]] = {}
        for replica in self.replicas:
            replicas.setdefault(replica.service, []).append(replica)
        return replicas

    def late(self, slo_ms: Mapping[str, float]) -> tuple[Replica, ...]:
        """Whose predicted p99 is above what was promised."""
        return tuple(replica for replica in self.replicas if replica.predicted_p99_ms > slo_ms[replica.service])

    @property
    def gpus_over_memory(self) -> int:
        """GPUs on which the services state more memory than there is: the peers do not look at it.

        They plan for GPUs of the catalogue only; on other devices nobody does who does not look.
        """
        stated_mib = dict.fromkeys(range(self.gpus), 0)
        for replica in self.replicas:
            stated_mib[replica.grant.gpu] += replica.grant.mem_mib or 0
        models = {name: known(name) for name in self.counts}
        there = {gpu: model.mem_mib for gpu in stated_mib if (model := models[self.type_of(gpu)]) is not None}
        return sum(stated_mib[gpu] > mib for gpu, mib in there.items())


def on_gpus(replicas: Sequence[Replica]) -> dict[int, list[Replica]]:
    residents: dict[int, list[Replica]] = {}
    for replica in replicas:
        residents.setdefault(replica.grant.gpu, []).append(replica)
    return residents


def joined(parts: Sequence[ServicePlan]) -> ServicePlan:
    """One plan of several, each for its own services: GPUs are numbered through."""
    used = [part for part in parts if part.gpus] or list(parts[:1])
    replicas: list[Replica] = []
    types: list[str] = []
    for part in used:
        replicas += [moved(replica, replica.grant.gpu + len(types)) for replica in part.replicas]
        types += [part.type_of(gpu) for gpu in range(part.gpus)]
    names = dict.fromkeys(types) or {used[0].gpu_type: None}
    return ServicePlan(
        used[0].strategy,
        "+".join(names),
        len(types),
        round(sum(part.cost_per_hour for part in parts), 2),
        used[0].lower_bound_gpus if len(parts) == 1 else None,
        tuple(replicas),
        tuple(sorted((lost for part in parts for lost in part.unplaced), key=lambda lost: lost.service)),
        tuple(types) if len(names) > 1 else (),
    )


def part_of(plan: ServicePlan, gpu_type: str, services: frozenset[str]) -> tuple[ServicePlan, list[int]]:
    """What these services have on GPUs of one type, as a plan of its own, and which of the plan's GPUs those are."""
    theirs = [
        replica
        for replica in plan.replicas
        if replica.service in services and plan.type_of(replica.grant.gpu) == gpu_type
    ]
    gpus = sorted({replica.grant.gpu for replica in theirs})
    number = {gpu: index for index, gpu in enumerate(gpus)}
    replicas = tuple(moved(replica, number[replica.grant.gpu]) for replica in theirs)
    return ServicePlan(plan.strategy, gpu_type, len(gpus), 0.0, None, replicas), gpus


def moved(replica: Replica, gpu: int) -> Replica:
    return replace(replica, grant=replica.grant._replace(gpu=gpu))
