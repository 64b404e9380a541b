"""gpu-lets+ and GSLICE+: at most two on a GPU, sizes from a short list, and tuning that looks at itself only."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.perf.sharing.gpulets import GpuletsModel, profiled_services
from gpuloom.perf.sharing.interference import predict, solo_ms
from gpuloom.provision.demand import Problem
from gpuloom.provision.offer import Offer
from gpuloom.provision.peers.gpulets import COEFFICIENTS, SIZES_PCT, Let, fit, holds, knee_pct, provision
from gpuloom.provision.peers.gslice import THRESHOLD, tune
from gpuloom.provision.peers.gslice import provision as gslice
from gpuloom.provision.peers.igniter_rules import workloads
from gpuloom.provision.plan import on_gpus
from gpuloom.provision.shipped import shipped_offer
from gpuloom.work.model import Service
from tests.provision.drawn import MODELS, plans, services

IGNITER = shipped_offer("V100").igniter
MODEL = GpuletsModel(profiled_services(IGNITER, IGNITER.names), COEFFICIENTS)


@given(wanted=services(8, rate_rps=(1.0, 2000.0)))
@plans(8)
def test_at_most_two_on_a_gpu_and_neither_predicted_late(wanted: tuple[Service, ...], offer: Offer) -> None:
    plan = provision(Problem(wanted, offer))
    slo_ms = {service.id: service.slo_p99_ms for service in wanted}
    for together in on_gpus(plan.replicas).values():
        assert len(together) <= 2
        for replica in together:
            assert replica.grant.share_pct in SIZES_PCT
            assert replica.predicted_p99_ms <= slo_ms[replica.service] * (1 + 1e-9) or len(together) == 1


@pytest.mark.parametrize("name", MODELS)
def test_beyond_the_knee_more_pays_less(name: str) -> None:
    """Up to the knee a per cent of the SMs brings more throughput than on the whole; beyond it less."""
    knee = knee_pct(MODEL, name)
    assert knee in SIZES_PCT[1:-1]
    smallest, at_knee, largest = (1.0 / float(solo_ms(MODEL, name, 1, size)) for size in (10.0, knee, 100.0))
    assert (at_knee - smallest) / (knee - 10.0) > (largest - at_knee) / (100.0 - knee)


@given(
    name=st.sampled_from(MODELS), rate_rps=st.floats(1.0, 3000.0), slo_ms=st.floats(5.0, 200.0),
    size_pct=st.sampled_from(SIZES_PCT), max_batch=st.none() | st.integers(1, 40),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_a_size_serves_what_it_can_in_half_of_the_slo(
    name: str, rate_rps: float, slo_ms: float, size_pct: float, max_batch: int | None
) -> None:
    service = Service("s", name, rate_rps, slo_ms, max_batch=max_batch)
    let = fit(service, rate_rps, size_pct, MODEL)
    if let is None:
        assert float(solo_ms(MODEL, name, 1, size_pct)) > slo_ms / 2.0
        return
    batch_ms = float(solo_ms(MODEL, name, let.batch, size_pct))
    assert 0.0 < let.rate_rps <= rate_rps
    assert 1 <= let.batch <= min(max_batch or 32, 32)
    assert batch_ms <= slo_ms / 2.0 * (1 + 1e-9)
    assert 1000.0 * let.batch / batch_ms >= let.rate_rps * (1 - 1e-9)
    larger = fit(service, rate_rps, 100.0, MODEL)
    assert larger is not None
    assert larger.rate_rps >= let.rate_rps * (1 - 1e-9)


def test_two_hold_only_if_both_do() -> None:
    fine = Let(Service("a", "alexnet", 20.0, 60.0), 20.0, 2, 50.0)
    late = Let(Service("b", "vgg19", 500.0, 20.0), 500.0, 8, 50.0)
    assert holds([fine], MODEL)
    assert holds([fine, fine], MODEL)
    assert not holds([late], MODEL)
    assert not holds([fine, late], MODEL)
    assert not holds([late, fine], MODEL)


@given(wanted=services(3, rate_rps=(1.0, 400.0), slo_ms=(15.0, 200.0)))
@settings(max_examples=30, deadline=None)
def test_tuning_stays_within_a_gpu_and_ends_where_both_residuals_are_small(wanted: tuple[Service, ...]) -> None:
    """Or, where the rules chase each other, after a number of rounds."""
    for workload in workloads(wanted, IGNITER)[0]:
        tuned, share = tune(workload, IGNITER)
        unit_pct = IGNITER.hardware.share_unit_pct
        assert unit_pct <= share <= 100.0
        assert share / unit_pct == pytest.approx(round(share / unit_pct))
        assert 1 <= tuned.batch <= (workload.service.max_batch or 32)
        assert (tuned.service, tuned.rate_rps) == (workload.service, workload.rate_rps)
        assert tune(workload, IGNITER) == (tuned, share)


@pytest.mark.parametrize("name", ["W2", "W7", "W9", "W11"])
def test_workloads_that_can_be_tuned_are(name: str, twelve: tuple[Service, ...]) -> None:
    """Neither faster nor earlier than a tenth, and on the right side of both."""
    (workload,), _ = workloads(tuple(service for service in twelve if service.id == name), IGNITER)
    tuned, share = tune(workload, IGNITER)
    (seen,) = predict(IGNITER, [tuned.placed(share)])
    assert 0.0 <= 1.0 - seen.total_ms / workload.target_ms <= THRESHOLD
    assert 0.0 <= seen.throughput_per_s / workload.rate_rps - 1.0 <= THRESHOLD


def test_gslice_depends_on_the_order_and_on_nobody_else(twelve: tuple[Service, ...], offer: Offer) -> None:
    """First fit in the order of the input: shares are the same in any order, GPUs are not."""
    plans_by_order = [
        gslice(Problem(order, offer)) for order in (twelve, tuple(sorted(twelve, key=lambda service: service.id)))
    ]
    shares = [
        {(replica.service, replica.number): replica.grant.share_pct for replica in plan.replicas}
        for plan in plans_by_order
    ]
    assert shares[0] == shares[1]
    assert [plan.gpus for plan in plans_by_order] == [6, 5]
    assert np.isclose(sum(shares[0].values()), sum(shares[1].values()))
