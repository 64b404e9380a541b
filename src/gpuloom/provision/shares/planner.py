"""Ours: share, max batch, replicas and placement of all services together, for the p99 under the stated arrivals.

Each step is a file: `replicas` (how many), `candidates` (which batch, how much share), `settle` (the least shares on a
GPU), `packing` (who shares one), `patterns` (the same exactly, for few services), `bound` (how few GPUs can be enough),
`confirm` (the exact p99). Services are taken in the order of their names, whatever the order of the input, so the plan
is the same. Where a confirmed p99 is too long, that service is planned again as if it were asked a little more often.
"""

from collections import Counter
from dataclasses import replace

import numpy as np

from gpuloom.gpus.grant import Grant
from gpuloom.perf.sharing.interference import Floats, Placed
from gpuloom.provision.demand import Pattern, Problem
from gpuloom.provision.plan import Replica, ServicePlan
from gpuloom.provision.shares.bound import lower_bound
from gpuloom.provision.shares.confirm import Exactly
from gpuloom.provision.shares.items import Grid, items_of
from gpuloom.provision.shares.laws import Law, PoissonLaw, RegularLaw
from gpuloom.provision.shares.packing import group_of, pack
from gpuloom.provision.shares.patterns import Options, fewest
from gpuloom.provision.shares.replicas import Split, split, units_for
from gpuloom.provision.shares.settle import EMPTY, Settled, World, lateness, settle, times_of
from gpuloom.provision.shares.trace_rates import rates_of

FEW = 16
"""Services for which groups are enumerated."""
CONFIRMED = 256
"""Replicas up to which each p99 is confirmed exactly; beyond, the table is asked with its own error added."""
ROUNDS, MORE_OFTEN = 24, 1.02
"""The first third of the rounds adds so much; then it is squared twice each time, for what is far off (a trace)."""
PATIENCE = 12


def provision(problem: Problem) -> ServicePlan:
    ordered = tuple(sorted(problem.services, key=lambda service: service.id))
    problem = replace(problem, services=ordered)
    sure = len(ordered) > CONFIRMED
    law = law_of(problem)
    grid = Grid.of(problem.offer, law, problem.margin)
    rates = rates_of(problem, grid)
    asked = split(ordered, rates, problem.offer, grid, law)
    least = bound_of(asked, problem)
    world, settled = _placed(asked, problem, grid, law)
    exact = problem.pattern is Pattern.TRACE or not sure
    for turn in range(ROUNDS):
        often = late_more_often(problem, asked, replicas_of(problem, asked, world, settled, exact))
        if often is None:
            break
        often = often ** (1 if turn < ROUNDS // 3 else 4)
        asked = replace(asked, rate_per_ms=asked.rate_per_ms * often)
        world = _asked_more_often(world, often)
        settled = settle(world, settled.seats, settled.batch, settled.units)
        if not settled.fits.all():
            asked = again(asked, split(asked.services, asked.rate_per_ms, problem.offer, grid, law))
            least = bound_of(asked, problem)
            world, settled = _placed(asked, problem, grid, law)
    return as_plan(problem, asked, replicas_of(problem, asked, world, settled, exact), least)


def again(before: Split, now: Split) -> Split:
    """Of those that could be served before; whom no GPU serves after all is added to the unplaced."""
    return replace(now, unplaced=(*before.unplaced, *now.unplaced))


def late_more_often(problem: Problem, asked: Split, replicas: list[Replica]) -> Floats | None:
    """By how much more often services count as asked because their p99 is too long; None if none is."""
    slo_ms = problem.slo_ms
    late = {one.service for one in replicas if one.predicted_p99_ms > slo_ms[one.service]}
    return np.array([MORE_OFTEN if one.id in late else 1.0 for one in asked.services]) if late else None


def _asked_more_often(world: World, often: Floats) -> World:
    rates = world.items.rate_per_ms * often[list(world.items.service)]
    return replace(world, items=replace(world.items, rate_per_ms=rates))


def law_of(problem: Problem) -> Law:
    return RegularLaw() if problem.pattern is Pattern.REGULAR else PoissonLaw(len(problem.services) > CONFIRMED)


def bound_of(asked: Split, problem: Problem) -> int | None:
    """For a trace nothing is known to bound it."""
    if problem.pattern is Pattern.TRACE:
        return None
    if not asked.services:
        return 0
    rates, law = np.array([service.rate_rps / 1000.0 for service in asked.services]), law_of(problem)
    return lower_bound(asked.services, rates, problem.offer, Grid.shared(problem.offer, law, problem.margin), law)


def _placed(asked: Split, problem: Problem, grid: Grid, law: Law) -> tuple[World, Settled]:
    """Seats hold items of the world that comes with them."""
    offer, margin = problem.offer, problem.margin
    if 0 < len(asked.services) <= FEW:
        options = _options(asked, problem, grid, law)
        rates = asked.rate_per_ms[list(options.service)] / np.array(options.replicas)
        services = [asked.services[at] for at in options.service]
        world = World(offer, law, items_of(services, [1] * len(services), rates, offer.model), grid, margin)
        found = fewest(world, options)
        if found is not None:
            return replace(world, items=replace(world.items, service=options.service)), found
    world = World(offer, law, items_of(asked.services, asked.replicas, asked.rate_per_ms, offer.model), grid, margin)
    return world, pack(world, PATIENCE)[0]


def _options(asked: Split, problem: Problem, grid: Grid, law: Law) -> Options:
    """For each service its number of replicas, and one more or one fewer where that is possible and worth a look."""
    service, replicas = [], []
    for at, one in enumerate(asked.services):
        for count in (asked.replicas[at] - 1, asked.replicas[at], asked.replicas[at] + 1):
            units = (
                units_for((one,), asked.rate_per_ms[at : at + 1], count, problem.offer.model, grid, law)
                if count
                else None
            )
            if (
                units is None
                or units[0] > grid.units
                or (count > asked.replicas[at] and units[0] * count <= grid.units / 2)
            ):
                continue
            service.append(at)
            replicas.append(count)
    return Options(tuple(service), tuple(replicas))


def replicas_of(problem: Problem, asked: Split, world: World, settled: Settled, exact: bool) -> list[Replica]:
    """With their p99: exact, or from the law."""
    count = Counter(world.items.service[at] for at in settled.seats.ravel() if at != EMPTY)
    given: Counter[int] = Counter()
    times = times_of(world, settled.seats, settled.batch, settled.units)
    late = lateness(world, settled.seats, settled.batch, times)
    exactly = Exactly(problem)
    found = []
    for gpu, row in enumerate(settled.seats):
        which = [world.items.service[at] for at in group_of(row)]
        placed = tuple(
            Placed(asked.services[at].workload, int(world.grid.batches[column]), float(units) * problem.offer.unit_pct)
            for at, column, units in zip(which, settled.batch[gpu], settled.units[gpu], strict=False)
        )
        for seat, (at, one) in enumerate(zip(which, placed, strict=True)):
            service, of = asked.services[at], count[at]
            rate, batch = service.rate_rps / of, int(one.batch)
            p99, delay_ms = (1.0 + float(late[gpu, seat])) * service.slo_p99_ms, 0.0
            if exact:
                p99, delay_ms = exactly.of(placed, seat, service, given[at], of)
            grant = Grant(gpu, share_pct=one.share_pct, mem_mib=service.mem_mib, batch=batch)
            found.append(Replica(service.id, given[at], grant, delay_ms, rate, p99))
            given[at] += 1
    return found


def as_plan(problem: Problem, asked: Split, replicas: list[Replica], least: int | None) -> ServicePlan:
    gpus = len({replica.grant.gpu for replica in replicas})
    return ServicePlan(
        "gpuloom",
        problem.offer.name,
        gpus,
        round(gpus * problem.offer.cost_per_hour, 2),
        least,
        tuple(replicas),
        asked.unplaced,
    )
