"""A new plan near an old one: nobody moves who need not, promises hold, and every move is told."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuloom.errors import InputError
from gpuloom.provision.demand import Demand
from gpuloom.provision.offer import Offer
from gpuloom.provision.plan import Replica, ServicePlan
from gpuloom.provision.replan import Move, Replanned, replan
from gpuloom.provision.spread import spread
from gpuloom.provision.supply import SharedGpus, Supply
from gpuloom.work.model import Service
from tests.provision.drawn import EXACT, common_demands, plans

MODELS = ("alexnet", "resnet50")


def check(again: Replanned, previous: ServicePlan, demand: Demand) -> None:
    """Promises are kept, nobody is forgotten, and old and new places follow from each other by the moves."""
    lost = {unplaced.service for unplaced in again.plan.unplaced}
    rates: Counter[str] = Counter()
    for replica in again.plan.replicas:
        rates[replica.service] += replica.rate_rps  # type: ignore[assignment]
    for service in demand.services:
        assert (service.id in lost) != (service.id in rates)
        assert service.id in lost or rates[service.id] == pytest.approx(service.rate_rps)
    assert again.plan.late({name: EXACT * slo_ms for name, slo_ms in demand.slo_ms.items()}) == ()
    assert numbered(previous, again) == {
        (replica.service, replica.number): replica.grant.device for replica in again.plan.replicas
    }


def numbered(previous: ServicePlan, again: Replanned) -> dict[tuple[str, int], object]:
    """The old plan carried over: GPUs renumbered, then everybody moved who is said to."""
    renumbered = dict(again.renumbered)
    places: dict[tuple[str, int], object] = {}
    for replica in previous.replicas:
        gpu, instance = replica.grant.device
        places[replica.service, replica.number] = (renumbered.get(gpu, gpu), instance)
    for move in again.moves:
        places.pop((move.service, move.number), None)
        if move.now is not None:
            places[move.service, move.number] = move.now
    return places


@given(before=common_demands(4, MODELS), after=common_demands(4, MODELS))
@plans(3)
def test_promises_hold_and_every_move_is_told(before: Demand, after: Demand, types: list[Supply]) -> None:
    previous = spread(before, types)
    check(replan(after, types, previous), previous, after)


@given(demand=common_demands(4, MODELS), factors=st.lists(st.floats(0.3, 2.0), min_size=8, max_size=8))
@plans(3)
def test_changed_rates_keep_promises(demand: Demand, factors: list[float], types: list[Supply]) -> None:
    previous = spread(demand, types)
    changed = demand.only(
        replace(service, rate_rps=service.rate_rps * factor)
        for service, factor in zip(demand.services, factors, strict=False)
    )
    again = replan(changed, types, previous)
    check(again, previous, changed)
    for service in changed.services:
        homes = {previous.type_of(replica.grant.gpu) for replica in previous.of(service.id)}
        now = {again.plan.type_of(replica.grant.gpu) for replica in again.plan.of(service.id)}
        assert not homes or now <= homes


@given(demand=common_demands(4, MODELS))
@plans(3)
def test_nobody_moves_when_nothing_changed(demand: Demand, types: list[Supply]) -> None:
    previous = spread(demand, types)
    again = replan(demand, types, previous)
    assert (again.moves, again.renumbered) == ((), ())
    assert again.plan.gpus == previous.gpus
    assert places(again.plan.replicas) == places(previous.replicas)


def places(replicas: Sequence[Replica]) -> set[tuple[object, ...]]:
    return {(replica.service, replica.number, replica.grant.device) for replica in replicas}


def test_who_is_gone_is_told_and_leaves_the_others_where_they_are(offer: Offer) -> None:
    supplies = [SharedGpus(offer)]
    services = tuple(Service(name, "vgg19", 400.0, 40.0) for name in "abc")
    previous = supplies[0].plan(Demand(services))
    again = replan(Demand(services[1:]), supplies, previous)
    assert {(move.service, move.now) for move in again.moves} == {("a", None)}
    assert again.plan.gpus < previous.gpus
    check(again, previous, Demand(services[1:]))


def test_gpus_that_only_change_their_number_are_no_moves(offer: Offer) -> None:
    """The first of three GPUs is given back: the others are renumbered, and nobody on them moves."""
    services = tuple(Service(name, "vgg19", 500.0, 40.0) for name in "abc")
    supplies = [SharedGpus(offer)]
    previous = supplies[0].plan(Demand(services))
    first = previous.replicas[0].service
    rest = tuple(service for service in services if service.id != first)
    again = replan(Demand(rest), supplies, previous)
    gone = {move.was for move in again.moves}
    assert again.renumbered
    assert all(move.now is None for move in again.moves)
    assert all(new < old for old, new in again.renumbered)
    assert gone == {replica.grant.device for replica in previous.of(first)}


def test_new_replicas_get_the_lowest_free_numbers(offer: Offer) -> None:
    supplies = [SharedGpus(offer)]
    service = Service("a", "vgg19", 2000.0, 40.0)
    previous = supplies[0].plan(Demand((service,)))
    hole = replace(previous, replicas=tuple(replica for replica in previous.replicas if replica.number != 1))
    again = replan(Demand((service,)), supplies, hole)
    assert [replica.number for replica in again.plan.replicas if replica.number == 1] == [1]
    assert sorted(replica.number for replica in again.plan.replicas) == list(range(len(again.plan.replicas)))
    assert all(move.was is None for move in again.moves if move.number == 1)


def test_an_empty_old_plan_is_planning_anew(types: list[Supply]) -> None:
    demand = Demand((Service("a", "resnet50", 50.0, 60.0), Service("b", "vgg19", 50.0, 60.0)))
    nothing = ServicePlan("gpuloom", "H100-80GB", 0, 0.0, None, ())
    again = replan(demand, types, nothing)
    assert {move.service for move in again.moves} == {"a", "b"}
    assert all(move.was is None for move in again.moves)
    assert again.plan.lower_bound_cost is not None


def test_replanning_keeps_types_and_gives_new_services_the_cheapest(types: list[Supply]) -> None:
    services = (Service("a", "vgg19", 50.0, 60.0), Service("b", "resnet50", 50.0, 60.0))
    shares = types[0].plan(Demand(services))
    again = replan(Demand((*services, Service("c", "bert", 20.0, 60.0))), types, shares)
    assert {again.plan.type_of(replica.grant.gpu) for replica in again.plan.of("b")} == {"V100"}
    assert {again.plan.type_of(replica.grant.gpu) for replica in again.plan.of("c")} == {"A100-80GB"}
    assert {(move.service, move.was) for move in again.moves} == {("c", None)}
    with pytest.raises(InputError, match="the old plan is for V100, not A100-80GB"):
        replan(Demand(services[1:]), types[1:], shares)


def test_one_that_its_type_can_no_longer_serve_changes_it(types: list[Supply]) -> None:
    before = (Service("a", "resnet50", 50.0, 60.0), Service("b", "vgg19", 50.0, 60.0))
    plan = types[0].plan(Demand(before))
    large = (replace(before[0], mem_mib=30_000), before[1])
    again = replan(Demand(large), types, plan)
    assert again.plan.unplaced == ()
    assert {again.plan.type_of(replica.grant.gpu) for replica in again.plan.of("a")} == {"A100-80GB"}
    assert {again.plan.type_of(replica.grant.gpu) for replica in again.plan.of("b")} == {"V100"}
    assert [(type(move), move.service) for move in again.moves] == [(Move, "a")] * len(again.moves)


def test_a_model_that_no_type_knows(types: list[Supply]) -> None:
    nothing = ServicePlan("gpuloom", "V100", 0, 0.0, None, ())
    with pytest.raises(InputError, match=r"service a: there is no profile of the model 'gpt'.*, on V100 or A100-80GB"):
        replan(Demand((Service("a", "gpt", 50.0, 60.0),)), types, nothing)
