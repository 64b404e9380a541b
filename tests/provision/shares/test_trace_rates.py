"""Which Poisson rate stands for a trace: smoother arrivals count less, bursts more, and none beyond the steps."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.perf.arrays import Floats
from gpuloom.provision.demand import Pattern, Problem
from gpuloom.provision.offer import Offer
from gpuloom.provision.shares.items import Grid
from gpuloom.provision.shares.planner import law_of
from gpuloom.provision.shares.trace_rates import STEPS, rates_of
from gpuloom.work.model import Service
from tests.provision.shares.worlds import FEW, some_services

BURSTS = np.tile(np.concatenate([np.full(40, 0.1), np.full(10, 4.6)]), 20)


def rates(problem: Problem) -> Floats:
    return rates_of(problem, Grid.of(problem.offer, law_of(problem), problem.margin))


def part_of_rate(service: Service, gaps: Floats, offer: Offer) -> float:
    (rate,) = rates(Problem((service,), offer, Pattern.TRACE, {"": gaps / gaps.mean()}))
    return float(rate) * 1000.0 / service.rate_rps


@pytest.mark.parametrize("pattern", [Pattern.POISSON, Pattern.REGULAR])
@FEW
@given(services=some_services(6))
def test_other_arrivals_count_as_they_are(pattern: Pattern, services: tuple[Service, ...], offer: Offer) -> None:
    own = rates(Problem(services, offer, pattern))
    assert own.tolist() == [service.rate_rps / 1000.0 for service in services]


@settings(max_examples=12, deadline=None)
@given(services=some_services(2), seed=st.integers(0, 2**31), spread=st.floats(0.0, 2.0))
def test_a_trace_counts_as_one_of_the_steps(
    services: tuple[Service, ...], seed: int, spread: float, offer: Offer
) -> None:
    gaps = np.random.default_rng(seed).lognormal(0.0, spread, 400)
    problem = Problem(services, offer, Pattern.TRACE, {"": gaps / gaps.mean()})
    for service, rate in zip(services, rates(problem), strict=True):
        part = rate * 1000.0 / service.rate_rps
        assert np.isclose(part, [*STEPS, 1.0]).any()


def test_smooth_arrivals_count_less_than_random_ones_and_bursts_more(offer: Offer) -> None:
    service = Service("a", "resnet50", 300.0, 40.0)
    random = np.random.default_rng(5).exponential(1.0, 4_000)
    smooth, poisson, bursty = (part_of_rate(service, gaps, offer) for gaps in (np.ones(4_000), random, BURSTS))
    assert smooth < poisson < bursty
    assert poisson == pytest.approx(1.0, abs=0.2)


def test_each_service_has_its_own_trace_if_there_is_one(offer: Offer) -> None:
    services = (Service("calm", "resnet50", 300.0, 40.0), Service("wild", "resnet50", 300.0, 40.0))
    gaps = {"": np.ones(1_000), "wild": BURSTS / BURSTS.mean()}
    calm, wild = rates(Problem(services, offer, Pattern.TRACE, gaps))
    assert wild > calm


@pytest.mark.parametrize(("slo_ms", "rate_rps"), [(1.0, 10.0), (60.0, 90_000.0)])
def test_whom_no_share_of_a_gpu_serves_counts_with_its_own_rate_or_more(
    slo_ms: float, rate_rps: float, offer: Offer
) -> None:
    """Then replicas are to do it, or nobody can."""
    assert part_of_rate(Service("a", "vgg19", rate_rps, slo_ms), np.ones(500), offer) >= 1.0


def test_the_worst_of_traces_counts_as_the_last_step(offer: Offer) -> None:
    """All at once, then nothing for long: no rate of Poisson arrivals on one GPU is like that."""
    gaps = np.where(np.arange(2_000) % 500 == 0, 1e6, 1e-6)
    assert part_of_rate(Service("a", "alexnet", 2.0, 30.0), gaps, offer) == pytest.approx(STEPS[-1])
