"""Small worlds of items on V100s, and services drawn at random: what tests of the planner's steps have in common."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from gpuloom.perf.arrays import Bools, Floats, Ints
from gpuloom.provision.demand import Problem
from gpuloom.provision.offer import Offer
from gpuloom.provision.plan import ServicePlan
from gpuloom.provision.shares.items import Grid, items_of
from gpuloom.provision.shares.laws import Law, PoissonLaw, RegularLaw
from gpuloom.provision.shares.settle import LATE, Setting, Settled, lateness, times_of
from gpuloom.work.model import Service

MODELS = ("alexnet", "resnet50", "vgg19", "ssd")
LAWS: tuple[Law, ...] = (PoissonLaw(sure=False), PoissonLaw(sure=True), RegularLaw())
NO_SHRINKING = (Phase.explicit, Phase.reuse, Phase.generate)
FEW = settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow], phases=NO_SHRINKING)
"""Without shrinking: a plan takes a fraction of a second."""
SOME = settings(max_examples=20, deadline=None)
"""For a step of it, which takes milliseconds."""


@st.composite
def some_services(
    draw: st.DrawFn, most: int, least: int = 1, rate_rps: tuple[float, float] = (1.0, 800.0)
) -> tuple[Service, ...]:
    return tuple(
        Service(
            f"s{number}",
            draw(st.sampled_from(MODELS)),
            draw(st.floats(*rate_rps)),
            draw(st.floats(8.0, 200.0)),
            draw(st.none() | st.integers(1, 20_000)),
            max_batch=draw(st.none() | st.integers(1, 40)),
        )
        for number in range(draw(st.integers(least, most)))
    )


@st.composite
def small_services(draw: st.DrawFn, most: int, least: int = 1) -> tuple[Service, ...]:
    """A GPU is enough for each, with room for others."""
    return tuple(
        Service(
            f"s{number}",
            draw(st.sampled_from(MODELS)),
            draw(st.floats(1.0, 120.0)),
            draw(st.floats(40.0, 200.0)),
            draw(st.none() | st.integers(1, 12_000)),
        )
        for number in range(draw(st.integers(least, most)))
    )


def rates_per_ms(services: Sequence[Service]) -> Floats:
    return np.array([service.rate_rps / 1000.0 for service in services])


def world_of(offer: Offer, services: Sequence[Service], law: Law = LAWS[0], margin: float = 0.3) -> Setting:
    """An item for each service. With that margin more share is always faster (`test_items`)."""
    items = items_of(services, [1] * len(services), rates_per_ms(services), offer.model)
    return Setting(offer, law, items, Grid.of(offer, law, margin), margin)


def late_seats(setting: Setting, seats: Ints, batch: Ints, units: Ints) -> Bools:
    return np.asarray(lateness(setting, seats, batch, times_of(setting, seats, batch, units)) > LATE)


def check_settled(setting: Setting, settled: Settled) -> None:
    """Nothing over-committed, nobody late."""
    here = settled.seats >= 0
    mem_mib = np.where(here, setting.items.mem_mib[np.maximum(settled.seats, 0)], 0).sum(axis=1)
    assert settled.fits.all()
    assert (settled.units[here] >= 1).all()
    assert not settled.units[~here].any()
    assert (settled.total <= setting.offer.units).all()
    assert (mem_mib <= setting.offer.mem_mib).all()
    assert not late_seats(setting, settled.seats, settled.batch, settled.units).any()


def check_plan(plan: ServicePlan, problem: Problem) -> None:
    """Nothing over-committed, every promise predicted to be kept, every service placed or explained."""
    by_id = {service.id: service for service in problem.services}
    share_pct, mem_mib, rate_rps = Counter[int](), Counter[int](), Counter[str]()
    for replica in plan.replicas:
        service = by_id[replica.service]
        share_pct[replica.grant.gpu] += replica.grant.share_pct  # type: ignore[assignment]
        mem_mib[replica.grant.gpu] += service.mem_mib or 0
        rate_rps[replica.service] += replica.rate_rps  # type: ignore[assignment]
        assert replica.predicted_p99_ms <= service.slo_p99_ms
        assert 1 <= (replica.grant.batch or 0) <= (service.max_batch or 32)
    assert set(share_pct) == set(range(plan.gpus))
    assert all(total <= 100.0 for total in share_pct.values())
    assert all(total <= problem.offer.mem_mib for total in mem_mib.values())
    refused = {unplaced.service for unplaced in plan.unplaced}
    assert set(rate_rps) | refused == set(by_id)
    assert not set(rate_rps) & refused
    assert all(rate_rps[name] == pytest.approx(by_id[name].rate_rps) for name in rate_rps)
    assert plan.lower_bound_gpus is None or plan.lower_bound_gpus <= plan.gpus
    assert plan.cost_per_hour == pytest.approx(plan.gpus * problem.offer.cost_per_hour, abs=0.01)
