"""ParvaGPU's scenarios (SC'24): services on MIG instances with several processes inside, on the fewest A100s.

    python benchmarks/provision_mig.py --profiles ../shared/data/parvagpu/a100_mig_mps_profile.csv \\
        --scenarios ../shared/data/parvagpu/scenarios.csv

`latency_rule` plans by ParvaGPU's own rule (a batch takes less than 0.45 of the SLO, an instance serves its measured
throughput) and states how close any instance comes to the limit. `poisson` plans for the p99 of batching queues with
Poisson arrivals. Of both an event simulation of every process says what the p99 is (within: its whole 95 % interval
is), the first with requests at equal gaps. `larger` repeats the last scenario with
its rates times 2, 4, 8 and 16, by the latency rule. GPUs are beside a bound that the solver proves.
"""

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gpuloom.errors import InputError
from gpuloom.gpus.catalogue import find
from gpuloom.provision.check import verify
from gpuloom.provision.demand import Demand, Pattern
from gpuloom.provision.plan import Replica, ServicePlan
from gpuloom.provision.supply import MigGpus
from gpuloom.work.measured.mig_services import MigPoint, read_mig_services
from gpuloom.work.model import Service
from gpuloom.work.table import open_table

MODEL = find("A100-80GB")
PUBLISHED_GPUS = {"S1": 2, "S2": 3, "S3": 5, "S4": 7}
USD_PER_HOUR = 5.12
"""Of one of the eight GPUs of a p4de.24xlarge on demand: 40.97 / 8. Only scales the cost."""
SIMULATED = 20_000
Points = Mapping[str, tuple[MigPoint, ...]]


def read_scenarios(path: Path, known: Points) -> dict[str, list[Service]]:
    table = open_table(path, ("scenario", "model", "slo_ms", "rate_per_s"), "scenarios of services")
    found: dict[str, list[Service]] = {}
    for line, (scenario, model, slo_text, rate_text) in table.rows():
        if model not in known:
            raise table.wrong(line, "model", model, f"a model of the profiles: {', '.join(known)}")
        slo_ms = table.number(line, "slo_ms", slo_text, "milliseconds above 0", 1e-6)
        rate = table.number(line, "rate_per_s", rate_text, "requests a second above 0", 1e-6)
        found.setdefault(scenario, []).append(Service(model, model, rate, slo_ms))
    return found


def by_rule(services: Sequence[Service], points: Points) -> dict[str, Any]:
    supply, demand = MigGpus(MODEL, points, USD_PER_HOUR), Demand(tuple(services), Pattern.REGULAR)
    plan, seconds = planned(supply, demand)
    closest, served = 0.0, {one.id: 0.0 for one in services}
    workloads, slo_ms = demand.workloads, demand.slo_ms
    for replica in plan.replicas:
        point = measured(points[workloads[replica.service]], replica)
        closest = max(closest, point.latency_ms / slo_ms[replica.service])
        served[replica.service] += point.each_rps
    return {
        **described(plan, seconds),
        "largest_latency_over_slo": closest,
        "smallest_served_over_rate": min(served[one.id] / one.rate_rps for one in services),
    }


def measured(points: Sequence[MigPoint], replica: Replica) -> MigPoint:
    """The measured point that a replica runs at."""
    assert replica.grant.instance is not None
    slices = MODEL.by_name[replica.grant.instance.profile].slices
    processes = round(100 / replica.grant.share_pct)
    (found,) = (p for p in points if (p.slices, p.batch, p.processes) == (slices, replica.grant.batch, processes))
    return found


def checked(services: Sequence[Service], points: Points, pattern: Pattern, seed: int) -> dict[str, Any]:
    """The plan for these arrivals, and what an event simulation of every process says of it."""
    supply, demand = MigGpus(MODEL, points, USD_PER_HOUR), Demand(tuple(services), pattern)
    plan, seconds = planned(supply, demand)
    times = supply.times(plan.replicas, demand.workloads)
    verdicts = verify(plan, demand, times, np.random.default_rng(seed), SIMULATED)
    return {
        **described(plan, seconds),
        "services_within_slo": sum(one.held for one in verdicts),
        "services": len(services),
        "largest_simulated_p99_over_slo": max(one.p99_ms / one.slo_ms for one in verdicts),
    }


def planned(supply: MigGpus, demand: Demand) -> tuple[ServicePlan, float]:
    began = time.perf_counter()
    plan = supply.plan(demand)
    return plan, time.perf_counter() - began


def described(plan: ServicePlan, seconds: float) -> dict[str, Any]:
    return {
        "gpus": plan.gpus,
        "lower_bound_gpus": plan.lower_bound_gpus,
        "cost_per_hour": plan.cost_per_hour,
        "processes": len(plan.replicas),
        "unplaced": len(plan.unplaced),
        "seconds": seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profiles", type=Path, required=True)
    parser.add_argument("--scenarios", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", choices=["json"], default="json")
    args = parser.parse_args()
    points = read_mig_services(args.profiles)
    scenarios = read_scenarios(args.scenarios, points)
    found: dict[str, Any] = {"gpu_type": MODEL.name, "scenarios": {}, "larger": {}}
    for name, services in scenarios.items():
        print(name, file=sys.stderr, flush=True)
        found["scenarios"][name] = {
            "published_gpus": PUBLISHED_GPUS.get(name),
            "latency_rule": by_rule(services, points) | checked(services, points, Pattern.REGULAR, args.seed),
            "poisson": checked(services, points, Pattern.POISSON, args.seed),
        }
    name, services = list(scenarios.items())[-1]
    for times in (2, 4, 8, 16):
        larger = [replace(one, rate_rps=one.rate_rps * times) for one in services]
        found["larger"][f"{name} x{times}"] = by_rule(larger, points)
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"{Path(__file__).name}: {error}")
