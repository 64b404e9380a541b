"""GSLICE+: each workload tunes its own batch and share from what it sees of itself; nobody thinks of the neighbours.

It starts at 30 % and batch 1, and moves the batch by the throughput that is missing and the share by the latency that
is too much, until both residuals lie within 0 to 10 %. GSLICE places nothing: first fit, in the order of the input.
"""

from dataclasses import replace
from math import ceil

from gpuloom.perf.sharing.igniter import IgniterModel
from gpuloom.perf.sharing.interference import predict
from gpuloom.provision.demand import Problem
from gpuloom.provision.peers.igniter_rules import Placement, Workload, as_plan, first_fit, workloads
from gpuloom.provision.plan import ServicePlan

START_PCT, START_BATCH = 30.0, 1
THRESHOLD = 0.1
ROUNDS = 50


def provision(problem: Problem) -> ServicePlan:
    offer = problem.offer
    placeable, unplaced = workloads(problem.services, offer.igniter)
    gpus: Placement = []
    for workload in placeable:
        first_fit(gpus, *tune(workload, offer.igniter))
    return as_plan("gslice", offer, gpus, unplaced)


def tune(workload: Workload, model: IgniterModel) -> tuple[Workload, float]:
    """Batch and share when the residuals are small, or after many rounds."""
    unit = model.hardware.share_unit_pct
    batch, share = START_BATCH, START_PCT
    for _ in range(ROUNDS):
        seen = predict(model, [replace(workload, batch=batch).placed(share)])[0]
        fast = seen.throughput_per_s / workload.rate_rps - 1.0
        early = 1.0 - seen.total_ms / workload.target_ms
        if 0.0 <= fast <= THRESHOLD and 0.0 <= early <= THRESHOLD:
            break
        most = workload.service.max_batch or 32
        batch = min(most, max(1, ceil(batch / (1.0 + fast)))) if not 0.0 <= fast <= THRESHOLD else batch
        share = min(100.0, max(1, ceil(share * seen.total_ms / workload.target_ms / unit)) * unit)
    return replace(workload, batch=batch), share
