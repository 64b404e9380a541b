"""iGniter's 12 workloads on V100s: plans of every strategy, checked by event simulation with measured tables. JSON.

    OPENBLAS_NUM_THREADS=1 python benchmarks/provision_slo.py --data ../shared/data

- `golden`: the published plans of `igniter` for 12 and for 3 workloads, and FFD+'s and gpu-lets+' GPUs.
- `regular`, `poisson`: for each plan its GPUs, its lower bound, and how many of the 12 keep their p99 in the simulation
  (`held`: the whole 95 % interval of the p99 is within the SLO; for regular arrivals `never_late`: not one request is).
  `solo_tables` is planned with the measured solo table as the profile, `profile_11_runs` with the 11-run profile.
  `margin` is the part of the model's error bar (upper end of the 90 % interval) that the planner kept free: for regular
  arrivals the largest, in steps of 0.05, with which it still needs only as many GPUs as without any.
The simulated world is in `perf.sharing.measured`: measured solo tables, slowdown from measured pairs, neighbours always
busy.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import json
import time
from pathlib import Path

import numpy as np

from gpuloom.perf.sharing.measured import MeasuredModel, measured_model, measured_tables
from gpuloom.provision.check import verify
from gpuloom.provision.demand import Pattern, Problem
from gpuloom.provision.offer import Offer
from gpuloom.provision.peers.igniter import provision as igniter
from gpuloom.provision.plan import ServicePlan
from gpuloom.provision.shares.confirm import times_on
from gpuloom.provision.shipped import shipped_offer
from gpuloom.provision.strategies import STRATEGIES, strategy
from gpuloom.work.measured.service_figures import load_service_figures
from gpuloom.work.measured.service_pairs import read_solo_and_pairs
from gpuloom.work.measured.service_profiles import RUNS
from gpuloom.work.model import Service

MODELS = ("alexnet", "resnet50", "vgg19", "ssd")
SLO_MS = (10, 15, 20, 20, 30, 40, 20, 30, 40, 25, 40, 55)
RATE_RPS = (1200, 400, 800, 400, 600, 200, 300, 400, 200, 150, 50, 300)
TWELVE = tuple(
    Service(f"W{at + 1}", MODELS[at // 3], rate, slo)
    for at, (slo, rate) in enumerate(zip(SLO_MS, RATE_RPS, strict=True))
)
THREE = (
    Service("A", "alexnet", 500, 15),
    Service("R", "resnet50", 400, 40),
    Service("V", "vgg19", 200, 60),
)


def layout(plan: ServicePlan) -> list[dict[str, list[float]]]:
    """Share and batch of each service on each GPU."""
    gpus: list[dict[str, list[float]]] = [{} for _ in range(plan.gpus)]
    for one in plan.replicas:
        gpus[one.grant.gpu][f"{one.service}.{one.number}"] = [one.grant.share_pct, one.grant.batch or 1]
    return gpus


def checked(plan: ServicePlan, problem: Problem, world: MeasuredModel, seconds: float) -> dict[str, object]:
    times = times_on(plan.replicas, problem.demand.workloads, world)
    verdicts = verify(plan, problem.demand, times, np.random.default_rng(1))
    return {
        "gpus": plan.gpus,
        "cost_per_hour": plan.cost_per_hour,
        "lower_bound_gpus": plan.lower_bound_gpus,
        "held": sum(one.held for one in verdicts),
        "never_late": sum(one.violations == 0.0 for one in verdicts),
        "largest_p99_over_slo": round(max(one.p99_ms / one.slo_ms for one in verdicts), 3),
        "largest_violations": round(max(one.violations for one in verdicts), 5),
        "planned_in_s": round(seconds, 3),
    }


def planned(name: str, problem: Problem, world: MeasuredModel) -> dict[str, object]:
    begin = time.perf_counter()
    plan = strategy(name)(problem)
    found = checked(plan, problem, world, time.perf_counter() - begin)
    if name == "gpuloom":
        found |= {"margin": problem.margin, "plan": layout(plan)}
    return found


def widest_margin(offer: Offer, pattern: Pattern) -> float:
    """The largest margin that costs no GPU."""
    fewest = strategy("gpuloom")(Problem(TWELVE, offer, pattern, margin=0.0)).gpus
    for step in range(20, 0, -1):
        if strategy("gpuloom")(Problem(TWELVE, offer, pattern, margin=step / 20)).gpus == fewest:
            return step / 20
    return 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="the tables' folder, or one above")
    arguments = parser.parse_args()
    places = [folder / "solo_and_pairs_v100.jsonl" for folder in (arguments.data / "igniter", arguments.data)]
    file = next((place for place in places if place.exists()), None)
    if file is None:
        raise SystemExit(f"{places[0]} is not there: expected the measured tables, --data DIR")
    measured = read_solo_and_pairs(file)
    tables = measured_tables(measured)
    world = measured_model(measured, load_service_figures("V100"))
    fitted, table = shipped_offer("V100"), shipped_offer("V100", tables)
    twelve, three = igniter(Problem(TWELVE, fitted)), igniter(Problem(THREE, fitted))
    result: dict[str, object] = {
        "golden": {
            "igniter_12": layout(twelve),
            "igniter_12_gpus": twelve.gpus,
            "igniter_12_cost_per_hour": twelve.cost_per_hour,
            "igniter_3": layout(three),
            "ffd_gpus": strategy("ffd")(Problem(TWELVE, fitted)).gpus,
            "gpulets_gpus": strategy("gpulets")(Problem(TWELVE, fitted)).gpus,
        },
        "profiling_runs_per_model": {
            "profile_11_runs": RUNS,
            "solo_tables": max(one.points for one in tables.values()),
        },
    }
    for pattern in (Pattern.REGULAR, Pattern.POISSON):
        found: dict[str, object] = {}
        for name, offer in (("solo_tables", table), ("profile_11_runs", fitted)):
            margin = widest_margin(offer, pattern) if pattern is Pattern.REGULAR else 1.0
            found[f"gpuloom_{name}"] = planned("gpuloom", Problem(TWELVE, offer, pattern, margin=margin), world)
        for name in STRATEGIES:
            if name != "gpuloom":
                found[name] = planned(name, Problem(TWELVE, fitted, pattern), world)
        result[str(pattern)] = found
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
