"""Services on MIG instances: the fewest GPUs, by an integer program that is small because equal GPUs are counted.

How many GPUs have each of the maximal cuts, and how many instances of each size serve each service: with n services and
five sizes that is 14 + 5 n whole numbers, whatever the number of GPUs. What is proved is the solver's own bound; up to
some hundred services it meets the plan, beyond that the plan is within the gap that is asked for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from gpuloom.errors import InputError
from gpuloom.gpus.grant import Grant
from gpuloom.gpus.layouts import multisets, slices_of, with_slices
from gpuloom.gpus.model import GpuModel, Instance
from gpuloom.perf.arrays import Floats, Ints
from gpuloom.provision.mig.options import Option, Options
from gpuloom.provision.plan import MOST_REPLICAS, Replica, ServicePlan, Unplaced
from gpuloom.work.model import Service

if TYPE_CHECKING:
    from scipy.optimize import LinearConstraint


MANY, GAP = 100, 1e-3
"""Services beyond which a plan may have this part of its GPUs too many: to prove that none is takes too long."""
InstanceOnGpu = tuple[int, Instance]
Seats = dict[str, list[tuple[Option, InstanceOnGpu]]]
"""By service: its instances, with what each is used for."""


@dataclass(frozen=True, slots=True)
class Counts:
    """The solution of the integer program."""

    cuts: Mapping[tuple[int, ...], int]
    """GPUs by their cut."""
    instances: Sequence[Mapping[int, int]]
    """Of each service, instances by size."""
    bound: float
    """No solution needs fewer GPUs."""


def plan_mig(
    services: Sequence[Service],
    options: Mapping[str, Options],
    model: GpuModel,
    usd_per_hour: float,
    *,
    strategy: str = "gpuloom",
    gap: float | None = None,
    time_limit_s: float = 60.0,
) -> ServicePlan:
    """`options` by service id. The same plan for any order of the services. `gap`: the part of GPUs too many."""
    placed, unplaced = placeable(services, options, model)
    if not placed:
        return ServicePlan(strategy, model.name, 0, 0.0, 0, (), unplaced)
    if gap is None:
        gap = GAP if len(placed) > MANY else 0.0
    counts = count_instances([(service.rate_rps, options[service.id]) for service in placed], model, gap, time_limit_s)
    replicas = replicas_on(placed, seats_of(placed, options, counts, model))
    gpus = sum(counts.cuts.values())
    cost = round(gpus * usd_per_hour, 2)
    return ServicePlan(strategy, model.name, gpus, cost, ceil(counts.bound - 1e-6), replicas, unplaced)


def placeable(
    services: Sequence[Service], options: Mapping[str, Options], model: GpuModel
) -> tuple[list[Service], tuple[Unplaced, ...]]:
    """In the order of their names, those that instances can serve, and the others with the reason."""
    placed, unplaced = [], []
    for service in sorted(services, key=lambda service: service.id):
        each_rps = max((option.rps / option.processes for option in options[service.id].values()), default=0.0)
        if not each_rps:
            why = f"no instance of an {model.name} keeps its p99 of {service.slo_p99_ms:g} ms{_limits(service)}"
            unplaced.append(Unplaced(service.id, why))
        elif service.rate_rps > each_rps * MOST_REPLICAS:
            why = f"{service.rate_rps:g} requests per second need more than {MOST_REPLICAS:,} replicas on {model.name}"
            unplaced.append(Unplaced(service.id, why))
        else:
            placed.append(service)
    return placed, tuple(unplaced)


def _limits(service: Service) -> str:
    memory = "" if service.mem_mib is None else f" with {service.mem_mib} MiB a process"
    return memory + ("" if service.max_batch is None else f" and batches of at most {service.max_batch}")


def count_instances(
    needs: Sequence[tuple[float, Options]], model: GpuModel, gap: float = 0.0, time_limit_s: float = 60.0
) -> Counts:
    """The fewest GPUs for services with these rates and options; of such plans, one with the fewest slices in use."""
    from scipy.optimize import LinearConstraint
    from scipy.sparse import lil_matrix

    cuts = multisets(model)
    sizes = sorted({size for cut in cuts for size in cut})
    columns = [(service, size) for service, (_, options) in enumerate(needs) for size in sizes if size in options]
    matrix = lil_matrix((len(sizes) + len(needs), len(cuts) + len(columns)))
    for row, size in enumerate(sizes):  # as many instances in use as there are
        for column, cut in enumerate(cuts):
            matrix[row, column] = cut.count(size)
        for column, (_, of_size) in enumerate(columns, len(cuts)):
            if of_size == size:
                matrix[row, column] = -1.0
    for column, (service, size) in enumerate(columns, len(cuts)):  # every rate is served
        rate_rps, options = needs[service]
        matrix[len(sizes) + service, column] = options[size].rps / rate_rps
    least = np.concatenate([np.zeros(len(sizes)), np.ones(len(needs))])
    enough = LinearConstraint(matrix.tocsr(), least, np.inf)
    gpus = np.concatenate([np.ones(len(cuts)), np.zeros(len(columns))])
    fewest, bound = _solve(gpus, [enough], gap, time_limit_s)
    slices = np.concatenate([np.zeros(len(cuts)), [size for _, size in columns]])
    counts, _ = _solve(slices, [enough, LinearConstraint(gpus, 0, gpus @ fewest)], 0.01, time_limit_s)
    instances: list[dict[int, int]] = [{} for _ in needs]
    for (service, size), many in zip(columns, counts[len(cuts) :], strict=True):
        if many:
            instances[service][size] = int(many)
    used = {cut: int(many) for cut, many in zip(cuts, counts, strict=False) if many}
    return Counts(used, instances, bound)


def _solve(cost: Floats, constraints: "list[LinearConstraint]", gap: float, time_limit_s: float) -> tuple[Ints, float]:
    """Whole numbers with the least cost, and a bound that no solution is below."""
    from scipy.optimize import Bounds, milp

    solved = milp(
        cost,
        constraints=constraints,
        integrality=np.ones(len(cost)),
        bounds=Bounds(0, np.inf),
        options={"mip_rel_gap": gap, "time_limit": time_limit_s},
    )
    if solved.x is None:
        raise InputError(
            f"the solver found no plan on MIG instances within {time_limit_s:g} s ({solved.message}):"
            " expected fewer services, or rates closer to each other"
        )
    return np.rint(solved.x).astype(np.intp), float(solved.mip_dual_bound)


def seats_of(
    services: Sequence[Service], options: Mapping[str, Options], counts: Counts, model: GpuModel, first_gpu: int = 0
) -> Seats:
    """Turn counts into exact instances: sizes are dealt out GPU by GPU, services in order of their names."""
    free: dict[int, list[InstanceOnGpu]] = {}
    cuts = [cut for cut, many in sorted(counts.cuts.items(), reverse=True) for _ in range(many)]
    for gpu, cut in enumerate(cuts, first_gpu):
        layout = with_slices(model, cut)
        assert layout is not None, "cuts are legal"
        for instance, size in zip(layout, slices_of(model, layout), strict=True):
            free.setdefault(size, []).append((gpu, instance))
    dealt = {size: iter(devices) for size, devices in free.items()}
    return {
        service.id: [
            (options[service.id][size], next(dealt[size]))
            for size, many in sorted(wanted.items(), reverse=True)
            for _ in range(many)
        ]
        for service, wanted in zip(services, counts.instances, strict=True)
    }


def replicas_on(services: Sequence[Service], seats: Seats) -> tuple[Replica, ...]:
    """A process each, with a part of the rate that is as large as its part of what all could serve."""
    replicas: list[Replica] = []
    for service in services:
        number = count()
        total_rps = sum(option.rps for option, _ in seats[service.id])
        p99_ms: dict[int, float] = {}
        for option, (gpu, instance) in seats[service.id]:
            rate_rps = service.rate_rps * option.rps / total_rps / option.processes
            if option.slices not in p99_ms:
                p99_ms[option.slices] = option.p99_ms(rate_rps)
            grant = Grant(gpu, instance, 100.0 / option.processes, service.mem_mib, option.batch)
            replicas += [
                Replica(service.id, next(number), grant, 0.0, rate_rps, p99_ms[option.slices])
                for _ in range(option.processes)
            ]
    return tuple(replicas)
