"""Replanning on MIG instances: who has one keeps it, and the plan holds."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.errors import InputError
from gpuloom.gpus.catalogue import find
from gpuloom.gpus.grant import Grant
from gpuloom.gpus.model import Instance
from gpuloom.provision.demand import Demand, Pattern
from gpuloom.provision.mig.options import by_latency
from gpuloom.provision.plan import Replica, ServicePlan
from gpuloom.provision.replan import replan
from gpuloom.provision.supply import MigGpus
from gpuloom.work.model import Service
from tests.provision.mig.test_planner import check_plan, points

GPUS = MigGpus(find("A100-80GB"), {"net": points(), "fast": points(3.0)}, 5.0)
services = st.dictionaries(
    st.sampled_from("abcdef"),
    st.tuples(st.sampled_from(["net", "fast"]), st.floats(5.0, 2500.0), st.sampled_from([14.0, 40.0, 120.0])),
    min_size=1,
    max_size=5,
)


def asked(drawn: dict[str, tuple[str, float, float]]) -> Demand:
    return Demand(tuple(Service(name, *one) for name, one in drawn.items()), Pattern.REGULAR)


@given(before=services, after=services)
@settings(max_examples=25, deadline=None)
def test_replanning_gives_a_plan_that_holds(
    before: dict[str, tuple[str, float, float]], after: dict[str, tuple[str, float, float]]
) -> None:
    plan, demand = GPUS.plan(asked(before)), asked(after)
    again = replan(demand, [GPUS], plan)
    placed = [one for one in demand.services if one.id not in {gone.service for gone in again.plan.unplaced}]
    options = {one.id: by_latency(points(3.0 if one.workload == "fast" else 1.0), one.slo_p99_ms) for one in placed}
    keys = [(one.service, one.number) for one in again.plan.replicas]
    assert len(set(keys)) == len(keys)
    check_plan(replace(again.plan, replicas=_from_zero(again.plan)), placed, options)
    now = {(one.service, one.number) for one in again.plan.replicas}
    was = {(one.service, one.number) for one in plan.replicas}
    told = {(move.service, move.number) for move in again.moves}
    assert now ^ was <= told


def _from_zero(plan: ServicePlan) -> tuple[Replica, ...]:
    """Numbers may have holes after replicas are gone."""
    number: dict[str, int] = {}
    found = []
    for one in plan.replicas:
        number[one.service] = number.get(one.service, -1) + 1
        found.append(replace(one, number=number[one.service]))
    return tuple(found)


def test_the_same_question_moves_nobody() -> None:
    demand = asked({"a": ("net", 900.0, 40.0), "b": ("fast", 2000.0, 40.0), "c": ("net", 90.0, 120.0)})
    plan = GPUS.plan(demand)
    again = replan(demand, [GPUS], plan)
    assert (again.moves, again.renumbered) == ((), ())
    assert sorted(again.plan.replicas, key=lambda one: (one.service, one.number)) == sorted(
        plan.replicas, key=lambda one: (one.service, one.number)
    )


def test_more_requests_add_and_move_nobody() -> None:
    few = asked({"a": ("net", 300.0, 40.0), "b": ("fast", 500.0, 40.0)})
    plan = GPUS.plan(few)
    more = few.only(replace(one, rate_rps=one.rate_rps * (6.0 if one.id == "a" else 1.0)) for one in few.services)
    again = replan(more, [GPUS], plan)
    assert again.moves
    assert {(move.service, move.was) for move in again.moves} == {("a", None)}


def test_gpus_that_nobody_needs_are_given_back() -> None:
    many = asked({"a": ("net", 6000.0, 40.0), "b": ("fast", 50.0, 40.0)})
    plan = GPUS.plan(many)
    fewer = many.only(replace(one, rate_rps=50.0) for one in many.services)
    again = replan(fewer, [GPUS], plan)
    assert again.plan.gpus < plan.gpus
    assert all(move.now is None for move in again.moves)


def by_hand(*places: tuple[str, str, int]) -> ServicePlan:
    replicas = tuple(
        Replica(service, at, Grant(0, Instance(start, profile), 100.0, None, 1), 0.0, 1.0, 1.0)
        for at, (service, profile, start) in enumerate(places)
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
        replan(asked({"a": ("net", 5.0, 40.0), "b": ("net", 5.0, 40.0)}), [GPUS], plan)


def test_a_plan_on_whole_gpus_is_no_plan_on_instances() -> None:
    whole = ServicePlan("x", "A100-80GB", 1, 0.0, None, (Replica("a", 0, Grant(0, batch=1), 0.0, 1.0, 1.0),))
    with pytest.raises(InputError, match="the whole GPU 0"):
        replan(asked({"a": ("net", 5.0, 40.0)}), [GPUS], whole)
