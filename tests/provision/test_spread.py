"""Services over several types of GPU: never dearer than on one, never below the bound, whatever the order."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from gpuloom.errors import InputError
from gpuloom.gpus.catalogue import find
from gpuloom.provision.demand import Demand, Offer, Pattern
from gpuloom.provision.plan import as_json
from gpuloom.provision.plan_file import read_printed
from gpuloom.provision.replan import replan
from gpuloom.provision.spread import spread
from gpuloom.provision.spread_bound import least
from gpuloom.provision.supply import MigGpus, SharedGpus, Supply, times_of
from gpuloom.work.model import Service
from tests.provision.mig.test_planner import points

FEW = settings(
    max_examples=6,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)
"""Without shrinking: a plan takes a fraction of a second."""
MODELS = ("alexnet", "resnet50")


@pytest.fixture(scope="module")
def types(offer: Offer) -> list[Supply]:
    measured = {"resnet50": points(1.0), "bert": points(0.5), "alexnet": points(3.0)}
    return [SharedGpus(offer), MigGpus(find("A100-80GB"), measured, 4.5)]


some = st.lists(
    st.tuples(st.sampled_from(MODELS), st.floats(20.0, 600.0), st.floats(15.0, 120.0)), min_size=1, max_size=6
)


@FEW
@given(drawn=some, random=st.randoms(use_true_random=False), pattern=st.sampled_from(["poisson", "regular"]))
def test_no_type_alone_is_cheaper(
    drawn: list[tuple[str, float, float]], random: object, pattern: str, types: list[Supply]
) -> None:
    services = [Service(f"s{at}", *one) for at, one in enumerate(drawn)]
    demand = Demand(tuple(services), Pattern(pattern))
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
    for service in services:
        mine = plan.of(service.id)
        assert len({plan.type_of(one.grant.gpu) for one in mine}) <= 1
        assert all(one.predicted_p99_ms <= service.slo_p99_ms for one in mine)
        assert not mine or sum(one.rate_rps for one in mine) == pytest.approx(service.rate_rps)
    random.shuffle(services)  # type: ignore[attr-defined]
    assert spread(demand.only(services), types) == plan


def test_what_only_one_type_can_do_goes_there(types: list[Supply]) -> None:
    services = (Service("a", "vgg19", 50.0, 60.0), Service("b", "bert", 50.0, 60.0))
    plan = spread(Demand(services), types)
    assert plan.counts == {"V100": 1, "A100-80GB": 1}
    assert {(one.service, plan.type_of(one.grant.gpu)) for one in plan.replicas} == {("a", "V100"), ("b", "A100-80GB")}
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
    assert [one.service for one in plan.unplaced] == ["tight"]
    assert {one.service for one in plan.replicas} == {"fine"}


def test_a_trace_has_no_bound(offer: Offer) -> None:
    other = SharedGpus(replace(offer, name="T4", cost_per_hour=1.0))
    gaps = {"": np.tile([0.5, 1.5], 100)}
    plan = spread(Demand((Service("a", "alexnet", 50.0, 60.0),), Pattern.TRACE, gaps), [SharedGpus(offer), other])
    assert (plan.gpu_type, plan.lower_bound_gpus, plan.lower_bound_cost) == ("T4", None, None)


def test_a_plan_of_several_types_is_printed_and_read(types: list[Supply]) -> None:
    services = (Service("a", "vgg19", 50.0, 60.0), Service("b", "bert", 50.0, 60.0))
    demand = Demand(services)
    plan = spread(demand, types)
    read = read_printed(as_json(plan, demand.slo_ms, demand.workloads), "plan.json")
    assert read.plan == plan
    assert read.workloads == {"a": "vgg19", "b": "bert"}


def test_replanning_keeps_types_and_gives_new_services_the_cheapest(types: list[Supply]) -> None:
    services = (Service("a", "vgg19", 50.0, 60.0), Service("b", "resnet50", 50.0, 60.0))
    shares = types[0].plan(Demand(services))
    again = replan(Demand((*services, Service("c", "bert", 20.0, 60.0))), types, shares)
    assert {again.plan.type_of(one.grant.gpu) for one in again.plan.of("b")} == {"V100"}
    assert {again.plan.type_of(one.grant.gpu) for one in again.plan.of("c")} == {"A100-80GB"}
    assert {(move.service, move.was) for move in again.moves} == {("c", None)}
    with pytest.raises(InputError, match="the old plan is for V100, not A100-80GB"):
        replan(Demand(services[1:]), types[1:], shares)


def test_one_that_its_type_can_no_longer_serve_changes_it(types: list[Supply]) -> None:
    before = (Service("a", "resnet50", 50.0, 60.0), Service("b", "vgg19", 50.0, 60.0))
    plan = types[0].plan(Demand(before))
    large = (replace(before[0], mem_mib=30_000), before[1])
    again = replan(Demand(large), types, plan)
    assert again.plan.unplaced == ()
    assert {again.plan.type_of(one.grant.gpu) for one in again.plan.of("a")} == {"A100-80GB"}
    assert {again.plan.type_of(one.grant.gpu) for one in again.plan.of("b")} == {"V100"}


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
        on_first = np.array([bool(code >> at & 1) for at in range(len(values))])
        gpus = np.ceil(first[on_first].sum() - 1e-6), np.ceil(second[~on_first].sum() - 1e-6)
        best = min(best, float(np.dot(gpus, price)))
    assert least([[first], [second]], price) <= best + 1e-4
    assert least([[first], [second]], price) >= best * (1 - 1e-3) - 1e-4
