"""Replanning on MIG instances: who has one keeps it, and the plan holds."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuloom.errors import InputError
from gpuloom.gpus.grant import Grant
from gpuloom.gpus.model import Instance
from gpuloom.provision.demand import Demand, Pattern
from gpuloom.provision.plan import Replica, ServicePlan
from gpuloom.provision.replan import replan
from gpuloom.provision.supply import MigGpus
from gpuloom.work.model import Service
from tests.provision.drawn import demands, plans
from tests.provision.mig.made_up import A100, check_plan, points

GPUS = MigGpus(A100, {"net": points(), "fast": points(3.0)}, 5.0)
MODELS = ("net", "fast")


def regular(*services: tuple[str, str, float, float]) -> Demand:
    return Demand(tuple(Service(*service) for service in services), Pattern.REGULAR)


@given(before=demands(5, MODELS), after=demands(5, MODELS))
@plans(5)
def test_replanning_gives_a_plan_that_holds(before: Demand, after: Demand) -> None:
    plan = GPUS.plan(before)
    again = replan(after, [GPUS], plan)
    lost = {unplaced.service for unplaced in again.plan.unplaced}
    placed = [service for service in after.services if service.id not in lost]
    check_plan(from_zero(again.plan), placed, GPUS.options(after))
    now = {(replica.service, replica.number) for replica in again.plan.replicas}
    was = {(replica.service, replica.number) for replica in plan.replicas}
    assert len(now) == len(again.plan.replicas)
    assert now ^ was <= {(move.service, move.number) for move in again.moves}


def from_zero(plan: ServicePlan) -> ServicePlan:
    """Numbers may have holes after replicas are gone."""
    number: dict[str, int] = {}
    renumbered = []
    for replica in plan.replicas:
        number[replica.service] = number.get(replica.service, -1) + 1
        renumbered.append(replace(replica, number=number[replica.service]))
    return replace(plan, replicas=tuple(renumbered))


@given(demand=demands(5, MODELS))
@plans(4)
def test_the_same_question_moves_nobody(demand: Demand) -> None:
    plan = GPUS.plan(demand)
    again = replan(demand, [GPUS], plan)
    assert (again.moves, again.renumbered) == ((), ())
    assert set(again.plan.replicas) == set(plan.replicas)
    assert (again.plan.gpus, again.plan.unplaced) == (plan.gpus, plan.unplaced)


@given(demand=demands(4, MODELS), factor=st.floats(1.0, 6.0))
@plans(3)
def test_more_requests_add_and_move_nobody(demand: Demand, factor: float) -> None:
    """Instances stay; who needs more gets more of them. Only processes inside may come and go in place."""
    plan = GPUS.plan(demand)
    more = demand.only(replace(service, rate_rps=service.rate_rps * factor) for service in demand.services)
    again = replan(more, [GPUS], plan)
    held = {(replica.service, replica.grant.device) for replica in plan.replicas}
    assert held <= {(replica.service, replica.grant.device) for replica in again.plan.replicas}
    assert all(move.was is None for move in again.moves)


def test_who_is_asked_as_before_is_not_touched() -> None:
    few = regular(("a", "net", 300.0, 40.0), ("b", "fast", 500.0, 40.0))
    plan = GPUS.plan(few)
    more = few.only(
        replace(service, rate_rps=service.rate_rps * (6.0 if service.id == "a" else 1.0)) for service in few.services
    )
    again = replan(more, [GPUS], plan)
    assert again.moves
    assert {(move.service, move.was) for move in again.moves} == {("a", None)}


def test_gpus_that_nobody_needs_are_given_back() -> None:
    many = regular(("a", "net", 6000.0, 40.0), ("b", "fast", 50.0, 40.0))
    plan = GPUS.plan(many)
    fewer = many.only(replace(service, rate_rps=50.0) for service in many.services)
    again = replan(fewer, [GPUS], plan)
    assert again.plan.gpus < plan.gpus
    assert all(move.now is None for move in again.moves)


def by_hand(*places: tuple[str, str, int]) -> ServicePlan:
    replicas = tuple(
        Replica(service, number, Grant(0, Instance(start, profile), 100.0, None, 1), 0.0, 1.0, 1.0)
        for number, (service, profile, start) in enumerate(places)
    )
    return ServicePlan("by hand", "A100-80GB", 1, 0.0, None, replicas)


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        (by_hand(("a", "4g.40gb", 0), ("b", "3g.40gb", 0)), "GPU 0 in a way that no A100-80GB can be cut: .* overlap"),
        (by_hand(("a", "3g.20gb", 0)), "has no profile 3g.20gb"),
        (by_hand(("a", "3g.40gb", 0), ("b", "3g.40gb", 0)), "two services on 3g.40gb@0 of GPU 0"),
    ],
)
def test_old_plans_that_cannot_be(plan: ServicePlan, why: str) -> None:
    with pytest.raises(InputError, match=why):
        replan(regular(("a", "net", 5.0, 40.0), ("b", "net", 5.0, 40.0)), [GPUS], plan)


def test_a_plan_on_whole_gpus_is_no_plan_on_instances() -> None:
    whole = ServicePlan("x", "A100-80GB", 1, 0.0, None, (Replica("a", 0, Grant(0, batch=1), 0.0, 1.0, 1.0),))
    with pytest.raises(InputError, match="the whole GPU 0"):
        replan(regular(("a", "net", 5.0, 40.0)), [GPUS], whole)


def test_what_is_free_on_a_gpu_is_used_before_a_new_one() -> None:
    """The smallest instance that is enough, beside what is there."""
    old = by_hand(("a", "4g.40gb", 0))
    options = GPUS.options(regular(("a", "net", 5.0, 40.0)))["a"]
    rate_rps = options[4].rps + 0.9 * options[2].rps
    again = replan(regular(("a", "net", rate_rps, 40.0)), [GPUS], old)
    assert again.plan.gpus == 1
    assert {str(replica.grant.instance) for replica in again.plan.replicas} == {"4g.40gb@0", "2g.20gb@4"}


def test_an_instance_that_no_longer_keeps_the_promise_is_given_up() -> None:
    loose, tight = regular(("a", "net", 20.0, 200.0)), regular(("a", "net", 20.0, 9.0))
    plan = GPUS.plan(loose)
    again = replan(tight, [GPUS], plan)
    sizes = {
        A100.by_name[replica.grant.instance.profile].slices for replica in again.plan.replicas if replica.grant.instance
    }
    assert sizes <= set(GPUS.options(tight)["a"])
    assert all(replica.predicted_p99_ms <= 9.0 for replica in again.plan.replicas)
