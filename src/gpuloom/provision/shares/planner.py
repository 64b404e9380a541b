"""Ours: share, max batch, replicas and placement of all services together, for the p99 under the stated arrivals.

Each step is a file: `trace_rates` (what a recorded trace counts as), `replicas` (how many), `candidates` (which batch,
how much share), `settle` (the least shares on a GPU), `packing` (who shares one), `patterns` (the same exactly, for few
services), `confirm` (the exact p99), `bound` (how few GPUs can be enough). Services are taken in the order of their
names, whatever the order of the input, so the plan is the same. Where a confirmed p99 is too long, that service is
planned again as if it were asked a little more often. `stay` plans near an old plan instead.
"""

from collections import Counter
from dataclasses import replace

import numpy as np

from gpuloom.gpus.grant import Grant
from gpuloom.perf.arrays import Floats
from gpuloom.perf.sharing.interference import Placed
from gpuloom.provision.demand import Pattern, Problem
from gpuloom.provision.plan import Replica, ServicePlan
from gpuloom.provision.shares.bound import lower_bound
from gpuloom.provision.shares.confirm import Exactly
from gpuloom.provision.shares.items import Grid, items_of
from gpuloom.provision.shares.laws import Law, PoissonLaw, RegularLaw
from gpuloom.provision.shares.packing import group_of, pack
from gpuloom.provision.shares.patterns import Options, fewest
from gpuloom.provision.shares.replicas import Split, split, split_again, units_for
from gpuloom.provision.shares.settle import EMPTY, Setting, Settled, lateness, settle, times_of
from gpuloom.provision.shares.trace_rates import rates_of

FEW = 16
"""Services for which groups are enumerated."""
CONFIRMED = 256
"""Services up to which each p99 is confirmed exactly; beyond, it is the table's with the table's own error added."""
ROUNDS, MORE_OFTEN = 24, 1.02
"""The first third of the rounds adds so much; then it is squared twice each time, for what is far off (a trace)."""
PATIENCE = 12
"""GPUs that may resist being dissolved, see `packing`."""


def provision(problem: Problem) -> ServicePlan:
    """Replicas are counted, placed, and their p99 confirmed; whoever is late counts as asked more often, until none is.

    What has changed is settled where it is, as long as its GPUs are enough; else everybody is placed anew.
    """
    problem = by_name(problem)
    law = law_of(problem)
    grid = Grid.of(problem.offer, law, problem.margin)
    demand_split = split(problem.services, rates_of(problem, grid), problem.offer, grid, law)
    setting, settled = _placed(demand_split, problem, grid, law)
    replicas = replicas_of(problem, demand_split, setting, settled)
    for turn in range(ROUNDS):
        factors = rate_factors(problem, demand_split, replicas, turn)
        if factors is None:
            break
        demand_split = replace(demand_split, rate_per_ms=demand_split.rate_per_ms * factors)
        setting = _asked_more_often(setting, factors)
        settled = settle(setting, settled.seats, settled.batch, settled.units)
        if not settled.fits.all():
            demand_split = split_again(demand_split, demand_split.rate_per_ms, problem.offer, grid, law)
            setting, settled = _placed(demand_split, problem, grid, law)
        replicas = replicas_of(problem, demand_split, setting, settled)
    return as_plan(problem, demand_split, replicas)


def by_name(problem: Problem) -> Problem:
    """The same with its services in the order of their names."""
    return replace(problem, services=tuple(sorted(problem.services, key=lambda service: service.id)))


def is_confirmed(problem: Problem) -> bool:
    """Whether each p99 is computed exactly; for a trace there is no other way."""
    return problem.pattern is Pattern.TRACE or len(problem.services) <= CONFIRMED


def law_of(problem: Problem) -> Law:
    """What shares are chosen by; careful where nothing is confirmed afterwards."""
    if problem.pattern is Pattern.REGULAR:
        return RegularLaw()
    return PoissonLaw(sure=len(problem.services) > CONFIRMED)


def rate_factors(problem: Problem, demand_split: Split, replicas: list[Replica], turn: int) -> Floats | None:
    """By how much more often services count as asked because their p99 is too long; None if none is."""
    slo_ms = problem.slo_ms
    late = {replica.service for replica in replicas if replica.predicted_p99_ms > slo_ms[replica.service]}
    if not late:
        return None
    factors = np.array([MORE_OFTEN if service.id in late else 1.0 for service in demand_split.services])
    return np.asarray(factors ** (1 if turn < ROUNDS // 3 else 4))


def _asked_more_often(setting: Setting, factors: Floats) -> Setting:
    """`factors` by service."""
    rates = setting.items.rate_per_ms * factors[list(setting.items.service)]
    return replace(setting, items=replace(setting.items, rate_per_ms=rates))


def _placed(demand_split: Split, problem: Problem, grid: Grid, law: Law) -> tuple[Setting, Settled]:
    """On as few GPUs as can be if services are few, else packed; seats hold items of the setting beside them."""
    offer, margin = problem.offer, problem.margin
    if 0 < len(demand_split.services) <= FEW:
        options = _options(demand_split, problem, grid, law)
        rates = demand_split.rate_per_ms[list(options.service)] / np.array(options.replicas)
        services = [demand_split.services[index] for index in options.service]
        setting = Setting(offer, law, items_of(services, [1] * len(services), rates, offer.model), grid, margin)
        chosen = fewest(setting, options)
        if chosen is not None:
            return replace(setting, items=replace(setting.items, service=options.service)), chosen
    items = items_of(demand_split.services, demand_split.replicas, demand_split.rate_per_ms, offer.model)
    setting = Setting(offer, law, items, grid, margin)
    return setting, pack(setting, PATIENCE)[0]


def _options(demand_split: Split, problem: Problem, grid: Grid, law: Law) -> Options:
    """For each service its number of replicas, and one more or one fewer where that is possible and worth a look."""
    owners, counts = [], []
    for index, service in enumerate(demand_split.services):
        usual, rate = demand_split.replicas[index], demand_split.rate_per_ms[index : index + 1]
        for count in range(max(usual - 1, 1), usual + 2):
            units = int(units_for((service,), rate, count, problem.offer.model, grid, law)[0])
            worth_a_look = count <= usual or units * count > grid.units / 2
            if units <= grid.units and worth_a_look:
                owners.append(index)
                counts.append(count)
    return Options(tuple(owners), tuple(counts))


def replicas_of(problem: Problem, demand_split: Split, setting: Setting, settled: Settled) -> list[Replica]:
    """With their p99: exact, or from the law."""
    owner_of, batches = setting.items.service, setting.grid.batches[settled.batch]
    counts = Counter(owner_of[item] for item in settled.seats.ravel() if item != EMPTY)
    numbers: Counter[int] = Counter()
    late = lateness(
        setting, settled.seats, settled.batch, times_of(setting, settled.seats, settled.batch, settled.units)
    )
    exactly = Exactly(problem) if is_confirmed(problem) else None
    replicas = []
    for gpu, seats in enumerate(settled.seats):
        owners = [owner_of[item] for item in group_of(seats)]
        residents = tuple(
            Placed(demand_split.services[owner].workload, int(batch), float(units) * problem.offer.unit_pct)
            for owner, batch, units in zip(owners, batches[gpu], settled.units[gpu], strict=False)
        )
        for seat, (owner, resident) in enumerate(zip(owners, residents, strict=True)):
            service, number = demand_split.services[owner], numbers[owner]
            p99, delay_ms = (1.0 + float(late[gpu, seat])) * service.slo_p99_ms, 0.0
            if exactly is not None:
                p99, delay_ms = exactly.of(residents, seat, service, number, counts[owner])
            grant = Grant(gpu, share_pct=resident.share_pct, mem_mib=service.mem_mib, batch=int(resident.batch))
            replicas.append(Replica(service.id, number, grant, delay_ms, service.rate_rps / counts[owner], p99))
            numbers[owner] += 1
    return replicas


def as_plan(problem: Problem, demand_split: Split, replicas: list[Replica]) -> ServicePlan:
    """With what it costs, whom it leaves out, and how few GPUs could be enough."""
    gpus = len({replica.grant.gpu for replica in replicas})
    return ServicePlan(
        strategy="gpuloom",
        gpu_type=problem.offer.name,
        gpus=gpus,
        cost_per_hour=round(gpus * problem.offer.cost_per_hour, 2),
        lower_bound_gpus=_bound(demand_split, problem),
        replicas=tuple(replicas),
        unplaced=demand_split.unplaced,
    )


def _bound(demand_split: Split, problem: Problem) -> int | None:
    """For a trace nothing is known to bound it."""
    if problem.pattern is Pattern.TRACE:
        return None
    if not demand_split.services:
        return 0
    rates, law = np.array([service.rate_rps / 1000.0 for service in demand_split.services]), law_of(problem)
    grid = Grid.shared(problem.offer, law, problem.margin)
    return lower_bound(demand_split.services, rates, problem.offer, grid, law)
