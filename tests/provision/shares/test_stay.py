"""A plan near an old one: nobody moves who need not, and what is promised holds as in a new one."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gpuloom.provision.demand import Pattern, Problem
from gpuloom.provision.offer import Offer
from gpuloom.provision.plan import Old, ServicePlan, on_gpus
from gpuloom.provision.replan import replan
from gpuloom.provision.shares.planner import provision
from gpuloom.provision.shares.stay import stay
from gpuloom.provision.supply import SharedGpus
from gpuloom.work.model import Service
from tests.provision.shares.worlds import FEW, check_plan, small_services, some_services

A_PATTERN = st.sampled_from([Pattern.POISSON, Pattern.REGULAR])


def seats(plan: ServicePlan) -> list[tuple[str, int]]:
    return sorted((replica.service, replica.grant.gpu) for replica in plan.replicas)


def old_seats(plan: ServicePlan, old: Old) -> list[tuple[str, int | None]]:
    """Where each replica's GPU was; None: it is new."""
    return [(replica.service, old[replica.grant.gpu]) for replica in plan.replicas]


def movers(plan: ServicePlan, old: Old, previous: ServicePlan) -> list[str]:
    """Services of replicas that are not where one of them was."""
    left = seats(previous)
    moved = []
    for service, gpu in old_seats(plan, old):
        if (service, gpu) in left:
            left.remove((service, gpu))  # type: ignore[arg-type]
        else:
            moved.append(service)
    return moved


@FEW
@given(services=some_services(6), pattern=A_PATTERN)
def test_nobody_moves_when_nothing_changed(services: tuple[Service, ...], pattern: Pattern, offer: Offer) -> None:
    problem = Problem(services, offer, pattern)
    plan = provision(problem)
    again, old = stay(problem, plan)
    assert seats(again) == seats(plan)
    assert old == list(range(plan.gpus))
    assert again.unplaced == plan.unplaced
    check_plan(again, problem)


@FEW
@given(services=small_services(6, least=2), gone=st.integers(0, 5))
def test_who_goes_moves_nobody(services: tuple[Service, ...], gone: int, offer: Offer) -> None:
    plan = provision(Problem(services, offer))
    rest = tuple(service for number, service in enumerate(services) if number != gone % len(services))
    again, old = stay(Problem(rest, offer), plan)
    assert movers(again, old, plan) == []
    assert again.gpus <= plan.gpus
    assert None not in old


@FEW
@given(services=small_services(6), newcomer=small_services(1))
def test_who_comes_moves_nobody(services: tuple[Service, ...], newcomer: tuple[Service, ...], offer: Offer) -> None:
    """It goes where there is room, or to a new GPU."""
    plan = provision(Problem(services, offer))
    problem = Problem((*services, replace(newcomer[0], id="new")), offer)
    again, old = stay(problem, plan)
    check_plan(again, problem)
    assert set(movers(again, old, plan)) == {"new"}
    assert again.gpus <= plan.gpus + 1


@FEW
@given(before=some_services(6), after=some_services(6), pattern=A_PATTERN)
def test_whatever_changed_the_plan_holds(
    before: tuple[Service, ...], after: tuple[Service, ...], pattern: Pattern, offer: Offer
) -> None:
    problem = Problem(after, offer, pattern)
    plan, old = stay(problem, provision(Problem(before, offer, pattern)))
    check_plan(plan, problem)
    assert len(old) == plan.gpus
    kept = [gpu for gpu in old if gpu is not None]
    assert kept == sorted(set(kept)), "an old GPU is named twice, or out of order"


def test_of_a_gpu_that_is_no_longer_enough_the_smallest_goes_that_makes_it_so(offer: Offer) -> None:
    """Three share a GPU until one is asked more often: either of the others could go, and the smaller one does."""
    services = (
        Service("big", "vgg19", 60.0, 60.0),
        Service("mid", "resnet50", 60.0, 60.0),
        Service("small", "alexnet", 60.0, 60.0),
    )
    plan = provision(Problem(services, offer))
    assert plan.gpus == 1
    share = {replica.service: replica.grant.share_pct for replica in plan.replicas}
    assert share["big"] > share["mid"] > share["small"]
    problem = Problem((replace(services[0], rate_rps=390.0), *services[1:]), offer)
    again, old = stay(problem, plan)
    check_plan(again, problem)
    assert again.gpus == 2
    assert movers(again, old, plan) == ["small"]


def test_memory_that_is_no_longer_enough_makes_somebody_go(offer: Offer) -> None:
    services = tuple(Service(f"s{number}", "alexnet", 20.0, 80.0, 5_000) for number in range(3))
    plan = provision(Problem(services, offer))
    assert plan.gpus == 1
    problem = Problem((replace(services[0], mem_mib=9_000), *services[1:]), offer)
    again, old = stay(problem, plan)
    check_plan(again, problem)
    assert again.gpus == 2
    assert len(movers(again, old, plan)) == 1


def test_replicas_are_not_taken_away_while_they_are_enough(offer: Offer) -> None:
    busy = Problem((Service("a", "vgg19", 900.0, 60.0),), offer)
    plan = provision(busy)
    assert len(plan.replicas) > 1
    idle = replace(busy, services=(replace(busy.services[0], rate_rps=90.0),))
    again, old = stay(idle, plan)
    assert (len(again.replicas), old) == (len(plan.replicas), list(range(plan.gpus)))
    busier = replace(busy, services=(replace(busy.services[0], rate_rps=2_700.0),))
    grown, old = stay(busier, plan)
    check_plan(grown, busier)
    assert len(grown.replicas) > len(plan.replicas)
    assert old[: plan.gpus] == list(range(plan.gpus))


def test_a_gpu_whose_services_went_is_given_back(offer: Offer) -> None:
    services = tuple(Service(f"s{number}", "alexnet", 20.0, 80.0, 9_000) for number in range(3))
    plan = provision(Problem(services, offer))
    assert plan.gpus == 3
    gone = {replica.service for replica in plan.replicas if replica.grant.gpu == 1}
    again, old = stay(Problem(tuple(service for service in services if service.id not in gone), offer), plan)
    assert old == [0, 2]
    assert sorted(on_gpus(again.replicas)) == [0, 1]


def test_nobody_left_who_can_be_served(offer: Offer) -> None:
    plan = provision(Problem((Service("a", "vgg19", 10.0, 60.0),), offer))
    again, old = stay(Problem((Service("a", "vgg19", 10.0, 1.0),), offer), plan)
    assert (again.gpus, again.replicas, old) == (0, (), [])
    assert [unplaced.service for unplaced in again.unplaced] == ["a"]


def test_from_nothing_it_is_a_plan_like_any_other(twelve: tuple[Service, ...], offer: Offer) -> None:
    problem = Problem(twelve, offer)
    nothing = ServicePlan("gpuloom", "V100", 0, 0.0, None, ())
    plan, old = stay(problem, nothing)
    check_plan(plan, problem)
    assert old == [None] * plan.gpus


def test_a_bursty_trace_that_a_plan_serves_is_served_by_the_plan_near_it(offer: Offer) -> None:
    gaps = np.tile(np.concatenate([np.full(40, 0.1), np.full(10, 4.6)]), 20)
    problem = Problem((Service("a", "vgg19", 300.0, 15.0),), offer, Pattern.TRACE, {"": gaps})
    again, _ = stay(problem, provision(problem))
    check_plan(again, problem)


def test_a_changed_rate_moves_few(twelve: tuple[Service, ...], offer: Offer) -> None:
    problem = Problem(twelve, offer)
    plan = provision(problem)
    same = replan(problem.demand, [SharedGpus(offer)], plan)
    assert same.moves == ()
    assert seats(same.plan) == seats(plan)
    busier = tuple(
        replace(service, rate_rps=service.rate_rps * (1.3 if service.id == "W1" else 1.0)) for service in twelve
    )
    changed = Problem(busier, offer)
    again = replan(changed.demand, [SharedGpus(offer)], plan)
    check_plan(again.plan, changed)
    assert len(again.moves) <= 2


@FEW
@given(before=some_services(6), after=some_services(6))
def test_replanning_gives_a_plan_that_holds(
    before: tuple[Service, ...], after: tuple[Service, ...], offer: Offer
) -> None:
    problem = Problem(after, offer)
    again = replan(problem.demand, [SharedGpus(offer)], provision(Problem(before, offer)))
    check_plan(again.plan, problem)
    keys = [(replica.service, replica.number) for replica in again.plan.replicas]
    assert len(set(keys)) == len(keys)
