"""Ours: what must hold of every plan, whatever the services; and the 12 workloads."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from gpuloom.errors import InputError
from gpuloom.provision.demand import Offer, Pattern, Problem
from gpuloom.provision.plan import ServicePlan, as_json
from gpuloom.provision.plan_file import read_printed
from gpuloom.provision.replan import replan
from gpuloom.provision.shares.planner import CONFIRMED, provision
from gpuloom.provision.strategies import STRATEGIES, strategy
from gpuloom.provision.supply import SharedGpus
from gpuloom.work.model import Service

FEW = settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)
"""Without shrinking: a plan takes a fraction of a second."""
MODELS = ("alexnet", "resnet50", "vgg19", "ssd")


@st.composite
def some_services(draw: st.DrawFn, most: int = 24) -> tuple[Service, ...]:
    count = draw(st.integers(1, most))
    return tuple(
        Service(
            f"s{at}",
            draw(st.sampled_from(MODELS)),
            draw(st.floats(1.0, 800.0)),
            draw(st.floats(8.0, 200.0)),
            draw(st.none() | st.integers(1, 20_000)),
            max_batch=draw(st.none() | st.integers(1, 40)),
        )
        for at in range(count)
    )


def check(plan: ServicePlan, problem: Problem) -> None:
    """Nothing over-committed, every promise predicted to be kept, every service placed or explained."""
    by_id = {service.id: service for service in problem.services}
    share, mem, rate = Counter[int](), Counter[int](), Counter[str]()
    for one in plan.replicas:
        service = by_id[one.service]
        share[one.grant.gpu] += one.grant.share_pct  # type: ignore[assignment]
        mem[one.grant.gpu] += service.mem_mib or 0
        rate[one.service] += one.rate_rps  # type: ignore[assignment]
        assert one.predicted_p99_ms <= service.slo_p99_ms
        assert 1 <= (one.grant.batch or 0) <= (service.max_batch or 32)
    assert set(share) == set(range(plan.gpus))
    assert all(total <= 100.0 for total in share.values())
    assert all(total <= problem.offer.mem_mib for total in mem.values())
    gone = {one.service for one in plan.unplaced}
    assert set(rate) | gone == set(by_id)
    assert not set(rate) & gone
    assert all(rate[name] == pytest.approx(by_id[name].rate_rps) for name in rate)
    assert plan.lower_bound_gpus <= plan.gpus
    assert plan.cost_per_hour == pytest.approx(plan.gpus * problem.offer.cost_per_hour, abs=0.01)


@FEW
@given(services=some_services(), pattern=st.sampled_from([Pattern.POISSON, Pattern.REGULAR]))
def test_every_plan_keeps_what_it_promises(services: tuple[Service, ...], pattern: Pattern, offer: Offer) -> None:
    problem = Problem(services, offer, pattern)
    check(provision(problem), problem)


@FEW
@given(services=some_services(), random=st.randoms(use_true_random=False))
def test_the_order_of_the_input_does_not_matter(services: tuple[Service, ...], random: object, offer: Offer) -> None:
    shuffled = list(services)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert provision(Problem(services, offer)) == provision(Problem(tuple(shuffled), offer))


def test_many_services_are_not_confirmed_one_by_one_but_still_kept(offer: Offer) -> None:
    generator = np.random.default_rng(3)
    services = tuple(
        Service(f"s{at}", MODELS[at % 4], float(generator.uniform(50, 600)), float(generator.uniform(20, 60)))
        for at in range(CONFIRMED + 44)
    )
    problem = Problem(services, offer)
    check(provision(problem), problem)


@pytest.mark.parametrize(("pattern", "margin", "gpus"), [(Pattern.REGULAR, 0.25, 5), (Pattern.POISSON, 1.0, 9)])
def test_twelve_workloads_with_the_profile_of_11_runs(
    pattern: Pattern, margin: float, gpus: int, twelve: tuple[Service, ...], offer: Offer
) -> None:
    problem = Problem(twelve, offer, pattern, margin=margin)
    plan = provision(problem)
    check(plan, problem)
    assert (plan.gpus, plan.unplaced) == (gpus, ())
    assert plan.lower_bound_gpus >= gpus - 2


def test_bursts_need_more_than_poisson_arrivals(twelve: tuple[Service, ...], offer: Offer) -> None:
    gaps = np.tile(np.concatenate([np.full(40, 0.1), np.full(10, 4.6)]), 60)
    problem = Problem(twelve[3:6], offer, Pattern.TRACE, {"": gaps})
    plan = provision(problem)
    assert all(one.predicted_p99_ms <= problem.slo_ms[one.service] for one in plan.replicas)
    given_away = sum(one.grant.share_pct for one in plan.replicas)
    smooth = provision(Problem(twelve[3:6], offer, Pattern.REGULAR))
    assert given_away > sum(one.grant.share_pct for one in smooth.replicas)


def test_what_cannot_be_placed_is_said(offer: Offer) -> None:
    services = (
        Service("tight", "vgg19", 10.0, 1.0),
        Service("flood", "vgg19", 9e8, 100.0),
        Service("huge", "alexnet", 10.0, 50.0, mem_mib=40_000),
        Service("fine", "alexnet", 10.0, 50.0),
    )
    plan = provision(Problem(services, offer))
    assert [one.service for one in plan.replicas] == ["fine"]
    why = {one.service: one.why for one in plan.unplaced}
    assert "1 ms cannot be met" in why["tight"]
    assert "more than 10,000 replicas" in why["flood"]
    assert "40,000 MiB" in why["huge"]


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_says_what_it_could_not_place(name: str, offer: Offer) -> None:
    plan = strategy(name)(Problem((Service("tight", "vgg19", 10.0, 1.0), Service("ok", "ssd", 5.0, 80.0)), offer))
    assert [one.service for one in plan.unplaced] == ["tight"]
    assert {one.service for one in plan.replicas} == {"ok"}


@pytest.mark.parametrize(
    ("service", "sentence"),
    [
        (Service("a", "bert", 1.0, 10.0), "no profile of the model 'bert'"),
        (Service("a", "ssd", 0.0, 10.0), "the rate is 0 requests per second"),
        (Service("a", "ssd", float("nan"), 10.0), "the rate is nan"),
        (Service("a", "ssd", 1e12, 10.0), "at most 1e\\+09"),
        (Service("a", "ssd", 1.0, 0.0), "the p99 is 0 ms"),
    ],
)
def test_questions_that_make_no_sense_are_refused(service: Service, sentence: str, offer: Offer) -> None:
    with pytest.raises(InputError, match=sentence):
        Problem((service,), offer)


def test_a_changed_rate_moves_few(twelve: tuple[Service, ...], offer: Offer) -> None:
    problem = Problem(twelve, offer)
    plan = provision(problem)
    same = replan(problem.demand, [SharedGpus(offer)], plan)
    assert same.moves == ()
    assert [(one.service, one.grant.gpu) for one in same.plan.replicas] == [
        (one.service, one.grant.gpu) for one in plan.replicas
    ]
    busier = tuple(
        Service(one.id, one.workload, one.rate_rps * (1.3 if one.id == "W1" else 1.0), one.slo_p99_ms) for one in twelve
    )
    changed = Problem(busier, offer)
    again = replan(changed.demand, [SharedGpus(offer)], plan)
    check(again.plan, changed)
    assert len(again.moves) <= 2


@FEW
@given(before=some_services(10), after=some_services(10))
def test_replanning_gives_a_plan_that_holds(
    before: tuple[Service, ...], after: tuple[Service, ...], offer: Offer
) -> None:
    problem = Problem(after, offer)
    again = replan(problem.demand, [SharedGpus(offer)], provision(Problem(before, offer)))
    check(again.plan, problem)
    keys = [(one.service, one.number) for one in again.plan.replicas]
    assert len(set(keys)) == len(keys)


def test_a_printed_plan_is_read_again(twelve: tuple[Service, ...], offer: Offer) -> None:
    problem = Problem(twelve, offer)
    plan = provision(problem)
    assert read_printed(as_json(plan, problem.slo_ms), "plan.json").plan == plan
    with pytest.raises(InputError, match=r"plan\.json has no list of services"):
        read_printed({"strategy": "gpuloom"}, "plan.json")
