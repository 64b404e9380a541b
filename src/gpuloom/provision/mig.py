"""Services on MIG instances: the fewest GPUs, by an integer program that is small because equal GPUs are counted.

How many GPUs have each of the maximal cuts, and how many instances of each size serve each service: with n services and
five sizes that is 14 + 5 n whole numbers, whatever the number of GPUs. What is proved is the solver's own bound; up to
some hundred services it meets the plan, beyond that the plan is within the gap that is asked for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gpuloom.gpus.grant import Grant
from gpuloom.gpus.layouts import multisets, slices_of, with_slices
from gpuloom.gpus.model import GpuModel, Instance
from gpuloom.provision.mig_options import Option, Options
from gpuloom.provision.plan import Replica, ServicePlan, Unplaced
from gpuloom.work.model import Service

if TYPE_CHECKING:
    from scipy.optimize import LinearConstraint

Floats = NDArray[np.float64]


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
    gap: float = 0.0,
    time_limit_s: float = 60.0,
) -> ServicePlan:
    """`options` by service id. The same plan for any order of the services."""
    in_order = sorted(services, key=lambda one: one.id)
    unplaced = tuple(
        Unplaced(one.id, f"no instance of an {model.name} keeps its p99 of {one.slo_p99_ms:g} ms{_limits(one)}")
        for one in in_order
        if not options[one.id]
    )
    placed = [one for one in in_order if options[one.id]]
    if not placed:
        return ServicePlan("gpuloom", model.name, 0, 0.0, 0, (), unplaced)
    counts = count_instances([(one.rate_rps, options[one.id]) for one in placed], model, gap, time_limit_s)
    replicas = _seat(placed, options, counts, model)
    gpus = sum(counts.cuts.values())
    return ServicePlan("gpuloom", model.name, gpus, gpus * usd_per_hour, ceil(counts.bound - 1e-6), replicas, unplaced)


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
    columns = [(at, size) for at, (_, options) in enumerate(needs) for size in sizes if size in options]
    matrix = lil_matrix((len(sizes) + len(needs), len(cuts) + len(columns)))
    for row, size in enumerate(sizes):  # as many instances in use as there are
        for column, cut in enumerate(cuts):
            matrix[row, column] = cut.count(size)
        for column, (_, of_size) in enumerate(columns, len(cuts)):
            if of_size == size:
                matrix[row, column] = -1.0
    for column, (at, size) in enumerate(columns, len(cuts)):  # every rate is served
        matrix[len(sizes) + at, column] = needs[at][1][size].rps / needs[at][0]
    least = np.concatenate([np.zeros(len(sizes)), np.ones(len(needs))])
    enough = LinearConstraint(matrix.tocsr(), least, np.inf)
    gpus = np.concatenate([np.ones(len(cuts)), np.zeros(len(columns))])
    found, bound = _solve(gpus, [enough], gap, time_limit_s)
    slices = np.concatenate([np.zeros(len(cuts)), [size for _, size in columns]])
    found, _ = _solve(slices, [enough, LinearConstraint(gpus, 0, gpus @ found)], 0.01, time_limit_s)
    instances: list[dict[int, int]] = [{} for _ in needs]
    for (at, size), count in zip(columns, found[len(cuts) :], strict=True):
        if count:
            instances[at][size] = int(count)
    used = {cut: int(count) for cut, count in zip(cuts, found, strict=False) if count}
    return Counts(used, instances, bound)


def _solve(
    cost: Floats, constraints: "list[LinearConstraint]", gap: float, time_limit_s: float
) -> tuple[NDArray[np.intp], float]:
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
        raise RuntimeError(f"the solver found no plan: {solved.message}")
    return np.rint(solved.x).astype(np.intp), float(solved.mip_dual_bound)


def _seat(
    services: Sequence[Service], options: Mapping[str, Options], counts: Counts, model: GpuModel
) -> tuple[Replica, ...]:
    """Turn counts into exact instances: sizes are dealt out GPU by GPU, services in order of their names."""
    free: dict[int, list[tuple[int, Instance]]] = {}
    cuts = [cut for cut, count in sorted(counts.cuts.items(), reverse=True) for _ in range(count)]
    for gpu, cut in enumerate(cuts):
        layout = with_slices(model, cut)
        assert layout is not None, "cuts are legal"
        for instance, size in zip(layout, slices_of(model, layout), strict=True):
            free.setdefault(size, []).append((gpu, instance))
    replicas: list[Replica] = []
    for service, wanted in zip(services, counts.instances, strict=True):
        mine = [options[service.id][size] for size, count in sorted(wanted.items(), reverse=True) for _ in range(count)]
        replicas += _replicas(service, mine, [free[option.slices].pop(0) for option in mine])
    return tuple(replicas)


def _replicas(service: Service, mine: Sequence[Option], seats: Sequence[tuple[int, Instance]]) -> list[Replica]:
    """A process each, with a part of the rate that is as large as its part of what all could serve."""
    total_rps = sum(option.rps for option in mine)
    found: list[Replica] = []
    for option, (gpu, instance) in zip(mine, seats, strict=True):
        rate_rps = service.rate_rps * option.rps / total_rps / option.processes
        grant = Grant(gpu, instance, 100.0 / option.processes, service.mem_mib, option.batch)
        for _ in range(option.processes):
            found.append(Replica(service.id, len(found), grant, 0.0, rate_rps, option.p99_ms(rate_rps)))
    return found
