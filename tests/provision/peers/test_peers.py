"""Published planners: whatever the services, nothing is given away twice and nobody is forgotten."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given

from gpuloom.provision.demand import Problem
from gpuloom.provision.offer import Offer
from gpuloom.provision.plan import ServicePlan, on_gpus
from gpuloom.provision.strategies import PEERS, strategy
from gpuloom.work.model import Service
from tests.provision.drawn import plans, services

FULL_PCT = 100.0 + 1e-6


def check(plan: ServicePlan, problem: Problem) -> None:
    """Shares of a GPU sum to at most all of it; rates of replicas to the service's, or it is told that they do not."""
    rates: Counter[str] = Counter()
    for replica in plan.replicas:
        rates[replica.service] += replica.rate_rps  # type: ignore[assignment]
        assert replica.rate_rps > 0.0
        assert replica.predicted_p99_ms > 0.0
        assert replica.grant.instance is None
        assert 0.0 < replica.grant.share_pct <= 100.0
    residents = on_gpus(plan.replicas)
    assert set(residents) == set(range(plan.gpus))
    for together in residents.values():
        assert sum(replica.grant.share_pct for replica in together) <= FULL_PCT
    lost = {unplaced.service: unplaced.why for unplaced in plan.unplaced}
    for service in problem.services:
        assert (rates[service.id] == pytest.approx(service.rate_rps)) != (service.id in lost)
        numbers = [replica.number for replica in plan.of(service.id)]
        assert sorted(numbers) == list(range(len(numbers)))
        for replica in plan.of(service.id):
            assert 1 <= (replica.grant.batch or 0) <= (service.max_batch or 1024)
            assert replica.grant.mem_mib == service.mem_mib
    assert (plan.lower_bound_gpus, plan.gpu_type) == (None, "V100")
    assert plan.cost_per_hour == pytest.approx(plan.gpus * problem.offer.cost_per_hour, abs=0.01)


@pytest.mark.parametrize("name", PEERS)
@given(wanted=services(8, rate_rps=(1.0, 4000.0)))
@plans(8)
def test_no_gpu_is_given_away_twice(name: str, wanted: tuple[Service, ...], offer: Offer) -> None:
    problem = Problem(wanted, offer)
    plan = strategy(name)(problem)
    assert plan.strategy == name
    check(plan, problem)


@pytest.mark.parametrize("name", PEERS)
def test_who_cannot_be_served_is_told_and_the_others_are_served(name: str, offer: Offer) -> None:
    wanted = (
        Service("tight", "vgg19", 10.0, 1.0),
        Service("flood", "resnet50", 9e8, 40.0),
        Service("fine", "ssd", 5.0, 80.0),
    )
    plan = strategy(name)(Problem(wanted, offer))
    why = {unplaced.service: unplaced.why for unplaced in plan.unplaced}
    assert set(why) == {"tight", "flood"}
    assert "1 ms" in why["tight"]
    assert "need more than 10,000 replicas" in why["flood"]
    assert {replica.service for replica in plan.replicas} == {"fine"}


@pytest.mark.parametrize("name", PEERS)
def test_what_no_gpu_can_serve_alone_is_split(name: str, offer: Offer) -> None:
    problem = Problem((Service("big", "vgg19", 3000.0, 60.0),), offer)
    plan = strategy(name)(problem)
    check(plan, problem)
    assert plan.gpus > 1
    assert plan.unplaced == ()


@pytest.mark.parametrize("name", PEERS)
def test_peers_know_neither_memory_nor_arrivals(name: str, twelve: tuple[Service, ...], offer: Offer) -> None:
    """The same plan for any memory: that GPUs are over-committed is counted by the contest, not seen by them."""
    heavy = tuple(replace(service, mem_mib=12_000) for service in twelve)
    light, full = (strategy(name)(Problem(wanted, offer)) for wanted in (twelve, heavy))
    assert [replica.grant._replace(mem_mib=None) for replica in full.replicas] == [
        replica.grant for replica in light.replicas
    ]
    assert light.gpus_over_memory == 0
    assert full.gpus_over_memory > 0
