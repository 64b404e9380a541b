"""Planning time and GPUs for 100, 1,000 and 10,000 random services with Poisson arrivals, as JSON.

    OPENBLAS_NUM_THREADS=1 python benchmarks/provision_scale.py

Each service is one of the four models, its rate and SLO log-uniform between the lowest and highest of that model in
iGniter's 12 workloads; seeds are fixed. Seconds are of planning alone, lower bound and p99 of every replica included,
imports and figures loaded before: wall clock, and CPU time, which other programs on the machine disturb less; of each
the least of `--rounds`. `igniter` plans for half the SLO, not for the p99 of random arrivals, so its seconds can be
compared, its GPUs cannot; it is left out beyond 1,000. `confirmed`: replicas whose p99, computed exactly
(`perf.queueing.latency`) after planning, is within the SLO. `growth_exponent`: between the last two sizes.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import json
import time
from collections.abc import Sequence
from math import log

import numpy as np

from gpuloom.perf.queueing.batching import Batching
from gpuloom.provision.demand import Pattern, Problem
from gpuloom.provision.plan import ServicePlan
from gpuloom.provision.shares.confirm import p99_ms, times_on
from gpuloom.provision.shipped import shipped_offer
from gpuloom.provision.strategies import strategy
from gpuloom.work.model import Service

SIZES = (100, 1_000, 10_000)
MOST_IGNITER, MOST_CONFIRMED = 1_000, 1_000
DRAWN = {
    "alexnet": ((400, 1200), (10, 20)),
    "resnet50": ((200, 600), (20, 40)),
    "vgg19": ((200, 400), (20, 40)),
    "ssd": ((50, 300), (25, 55)),
}
"""Rates per second and SLOs in ms."""


def services(count: int, seed: int) -> tuple[Service, ...]:
    generator = np.random.default_rng(seed)
    names = list(DRAWN)
    drawn = []
    for at in range(count):
        name = names[generator.integers(len(names))]
        rate, slo = (float(np.exp(generator.uniform(log(low), log(high)))) for low, high in DRAWN[name])
        drawn.append(Service(f"s{at:05d}", name, round(rate, 2), round(slo, 2)))
    return tuple(drawn)


def timed(name: str, problem: Problem, rounds: int) -> tuple[dict[str, object], ServicePlan]:
    wall, cpu = [], []
    for _ in range(rounds):
        begin, begin_cpu = time.perf_counter(), time.process_time()
        plan = strategy(name)(problem)
        wall.append(time.perf_counter() - begin)
        cpu.append(time.process_time() - begin_cpu)
    return {f"{name}_s": round(min(wall), 3), f"{name}_cpu_s": round(min(cpu), 3)}, plan


def confirmed(plan: ServicePlan, problem: Problem) -> int:
    """Replicas whose exact p99 is within the SLO."""
    slo_ms = problem.slo_ms
    times = times_on(plan.replicas, problem.demand.workloads, problem.offer.model, problem.margin)
    within = 0
    for one in plan.replicas:
        batching = Batching(one.grant.batch or 1, one.queue_delay_ms)
        within += p99_ms(problem, one.service, times[one], batching, one.rate_rps) <= slo_ms[one.service]
    return within


def row(count: int, seed: int, rounds: int) -> dict[str, object]:
    problem = Problem(services(count, seed), shipped_offer("V100"), Pattern.POISSON)
    seconds, plan = timed("gpuloom", problem, rounds if count <= MOST_CONFIRMED else 1)
    found: dict[str, object] = {
        "services": count,
        **seconds,
        "gpus": plan.gpus,
        "lower_bound_gpus": plan.lower_bound_gpus,
        "cost_per_hour": plan.cost_per_hour,
        "replicas": len(plan.replicas),
        "unplaced": len(plan.unplaced),
        "share_given_pct": round(sum(one.grant.share_pct for one in plan.replicas) / plan.gpus, 1),
    }
    if count <= MOST_CONFIRMED:
        found["confirmed"] = confirmed(plan, problem)
    if count <= MOST_IGNITER:
        seconds, peer = timed("igniter", problem, 1)
        found |= seconds | {"igniter_gpus": peer.gpus}
    return found


def exponent(rows: Sequence[dict[str, object]], name: str) -> float:
    last, before = rows[-1], rows[-2]
    grown = float(str(last[name])) / float(str(before[name]))
    return round(log(grown) / log(float(str(last["services"])) / float(str(before["services"]))), 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    rows = [row(count, arguments.seed, arguments.rounds) for count in arguments.sizes]
    result: dict[str, object] = {"seed": arguments.seed, "rows": rows}
    if len(rows) > 1:
        result["growth_exponent"] = {name: exponent(rows, name) for name in ("gpuloom_cpu_s", "gpus", "cost_per_hour")}
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
