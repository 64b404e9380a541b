"""Services over several types of GPU: never dearer than on one, never below the bound, whatever the order."""

from dataclasses import replace
from math import inf
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.errors import InputError
from gpuloom.provision.demand import Demand, Pattern
from gpuloom.provision.offer import Offer
from gpuloom.provision.spread import check_models, spread
from gpuloom.provision.spread_bound import bounded, costs_of, least, values_on
from gpuloom.provision.supply import SharedGpus, Supply, times_of
from gpuloom.work.model import Service
from tests.provision.drawn import EXACT, common_demands, plans

MODELS = ("alexnet", "resnet50")


@given(demand=common_demands(4, MODELS), random=st.randoms(use_true_random=False))
@plans(4)
def test_no_type_alone_is_cheaper(demand: Demand, random: Random, types: list[Supply]) -> None:
    plan = spread(demand, types)
    for supply in types:
        alone = supply.plan(demand)
        assert (len(plan.unplaced), plan.cost_per_hour) <= (len(alone.unplaced), alone.cost_per_hour + 0.01)
    assert plan.lower_bound_cost is not None
    assert plan.lower_bound_gpus is not None
    assert plan.lower_bound_cost <= plan.cost_per_hour + 0.01
    assert plan.lower_bound_gpus <= plan.gpus
    price = {supply.name: supply.cost_per_hour for supply in types}
    assert plan.cost_per_hour == pytest.approx(sum(price[name] * count for name, count in plan.counts.items() if count))
    assert set(times_of(plan, demand, types)) == set(plan.replicas)
    for service in demand.services:
        replicas = plan.of(service.id)
        assert len({plan.type_of(replica.grant.gpu) for replica in replicas}) <= 1
        assert all(replica.predicted_p99_ms <= service.slo_p99_ms * EXACT for replica in replicas)
        assert not replicas or sum(replica.rate_rps for replica in replicas) == pytest.approx(service.rate_rps)
    assert {lost.service for lost in plan.unplaced} == {service.id for service in demand.services} - set(
        plan.by_service()
    )
    shuffled = list(demand.services)
    random.shuffle(shuffled)
    assert spread(demand.only(shuffled), types) == plan


@given(demand=common_demands(4, MODELS))
@plans(3)
def test_what_services_cost_at_least_is_what_they_pay_at_least(demand: Demand, types: list[Supply]) -> None:
    """Alone on a type, each service costs no less than its value there; where it has none, it is not placed."""
    costs = costs_of(demand, types)
    for row, supply in zip(costs, types, strict=True):
        for cost, service in zip(row, demand.services, strict=True):
            alone = supply.plan(demand.only([service]))
            if np.isinf(cost):
                assert alone.unplaced
            else:
                assert alone.unplaced or cost <= alone.cost_per_hour + 0.01


def test_models_that_a_type_does_not_know_have_no_value_there(types: list[Supply]) -> None:
    demand = Demand((Service("a", "vgg19", 50.0, 60.0), Service("b", "bert", 50.0, 60.0)))
    shares, instances = (values_on(demand, supply) for supply in types)
    assert shares is not None
    assert instances is not None
    assert all(np.isfinite(values[0]) and np.isinf(values[1]) for values in shares)
    assert all(np.isinf(values[0]) and np.isfinite(values[1]) for values in instances)
    only = values_on(demand.only(demand.services[1:]), types[0])
    assert only is not None
    assert np.isinf(only).all()


def test_a_plan_of_nobody_is_bounded_by_nothing(types: list[Supply]) -> None:
    demand = Demand((Service("tight", "resnet50", 10.0, 0.5),))
    plan = bounded(spread(demand, types), demand, types)
    assert (plan.gpus, plan.lower_bound_gpus, plan.lower_bound_cost) == (0, 0, 0.0)
    check_models(demand, types)


def test_what_only_one_type_can_do_goes_there(types: list[Supply]) -> None:
    services = (Service("a", "vgg19", 50.0, 60.0), Service("b", "bert", 50.0, 60.0))
    plan = spread(Demand(services), types)
    assert plan.counts == {"V100": 1, "A100-80GB": 1}
    assert {(replica.service, plan.type_of(replica.grant.gpu)) for replica in plan.replicas} == {
        ("a", "V100"),
        ("b", "A100-80GB"),
    }
    with pytest.raises(InputError, match=r"service c: there is no profile of the model 'gpt'.*, on V100 or A100-80GB"):
        spread(Demand((Service("c", "gpt", 1.0, 9.0),)), types)


def test_two_types_together_are_cheaper_than_either(offer: Offer) -> None:
    """A small GPU at a fifth of the price has the memory for one service only."""
    small = SharedGpus(replace(offer, name="T4", mem_mib=4000, cost_per_hour=0.6))
    services = (Service("a", "resnet50", 100.0, 60.0, 3000), Service("b", "resnet50", 300.0, 30.0, 9000))
    plan = spread(Demand(services), [SharedGpus(offer), small])
    assert plan.counts == {"V100": 1}  # what a needs is free beside b
    fuller = (services[0], replace(services[1], rate_rps=1000.0))
    plan = spread(Demand(fuller), [SharedGpus(offer), small])
    assert plan.counts == {"V100": 1, "T4": 1}
    assert SharedGpus(offer).plan(Demand(fuller)).gpus == 2


def test_unplaced_on_every_type_is_told_once(types: list[Supply]) -> None:
    services = (Service("tight", "resnet50", 10.0, 0.5), Service("fine", "resnet50", 10.0, 60.0))
    plan = spread(Demand(services), types)
    assert [lost.service for lost in plan.unplaced] == ["tight"]
    assert {replica.service for replica in plan.replicas} == {"fine"}


def test_a_trace_has_no_bound(offer: Offer) -> None:
    other = SharedGpus(replace(offer, name="T4", cost_per_hour=1.0))
    gaps = {"": np.tile([0.5, 1.5], 100)}
    plan = spread(Demand((Service("a", "alexnet", 50.0, 60.0),), Pattern.TRACE, gaps), [SharedGpus(offer), other])
    assert (plan.gpu_type, plan.lower_bound_gpus, plan.lower_bound_cost) == ("T4", None, None)


@given(
    values=st.lists(st.tuples(st.floats(0.05, 1.5), st.floats(0.05, 1.5)), min_size=1, max_size=6),
    price=st.tuples(st.floats(0.5, 5.0), st.floats(0.5, 5.0)),
)
@settings(max_examples=30, deadline=None)
def test_the_bound_is_that_of_the_best_assignment(
    values: list[tuple[float, float]], price: tuple[float, float]
) -> None:
    """Every way to give services to two types is looked at."""
    first, second = (np.array(column) for column in zip(*values, strict=True))
    best = inf
    for code in range(2 ** len(values)):
        on_first = np.array([bool(code >> service & 1) for service in range(len(values))])
        gpus = np.ceil(first[on_first].sum() - 1e-6), np.ceil(second[~on_first].sum() - 1e-6)
        best = min(best, float(np.dot(gpus, price)))
    assert least([[first], [second]], price) <= best + 1e-4
    assert least([[first], [second]], price) >= best * (1 - 1e-3) - 1e-4


@given(
    values=st.lists(st.floats(0.05, 1.5), min_size=1, max_size=8),
    more=st.lists(st.floats(0.0, 1.5), min_size=8, max_size=8),
)
@settings(max_examples=30, deadline=None)
def test_on_one_type_the_bound_is_the_largest_sum_rounded_up(values: list[float], more: list[float]) -> None:
    sets = [np.array(values), np.array(more[: len(values)])]
    gpus = max(np.ceil(each.sum() - 1e-6) for each in sets)
    assert least([sets], [2.5]) == pytest.approx(2.5 * gpus, abs=1e-3)


def test_more_services_than_the_search_takes_whole_still_have_a_bound() -> None:
    """Beyond FEW parts of a service may go to another type: the bound is lower, never above."""
    many = np.full(200, 0.3)
    assert least([[many], [many]], [1.0, 10.0]) == pytest.approx(60.0)
