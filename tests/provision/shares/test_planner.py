"""Ours: what must hold of every plan, whatever the services; and the 12 workloads."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.errors import InputError
from gpuloom.gpus.grant import Grant
from gpuloom.perf.queueing.batching import Batching
from gpuloom.provision.demand import Pattern, Problem
from gpuloom.provision.offer import Offer
from gpuloom.provision.plan import Replica, ServicePlan
from gpuloom.provision.plan_file import as_json, read_printed
from gpuloom.provision.shares.confirm import p99_ms, times_on
from gpuloom.provision.shares.laws import PoissonLaw, RegularLaw
from gpuloom.provision.shares.planner import CONFIRMED, MORE_OFTEN, is_confirmed, law_of, provision, rate_factors
from gpuloom.provision.shares.planner import FEW as FEW_ENOUGH
from gpuloom.provision.shares.replicas import Split
from gpuloom.provision.shares.settle import LATE
from gpuloom.provision.strategies import STRATEGIES, strategy
from gpuloom.work.model import Service
from tests.provision.shares.worlds import FEW, MODELS, NO_SHRINKING, check_plan, rates_per_ms, some_services

A_PATTERN = st.sampled_from([Pattern.POISSON, Pattern.REGULAR])
FEW_OR_MANY = some_services(7) | some_services(24, least=FEW_ENOUGH + 1)
"""Enumerated, or packed."""


def check_law(plan: ServicePlan, problem: Problem) -> None:
    """Every promise is kept by the law that the planner chose shares with, neighbours busy with full batches."""
    law = law_of(problem)
    times = times_on(plan.replicas, problem.demand.workloads, problem.offer.model, problem.margin)
    for replica in plan.replicas:
        busy_ms, latency_ms = times[replica].busy_ms, times[replica].latency_ms
        values = len(busy_ms), busy_ms[0], busy_ms[-1], latency_ms[-1] - busy_ms[-1], replica.rate_rps / 1000.0
        p99 = float(law.p99_ms(*(np.array([value], float) for value in values))[0])
        assert p99 <= problem.slo_ms[replica.service] * (1.0 + 10 * LATE)
        if not is_confirmed(problem):
            assert replica.predicted_p99_ms == pytest.approx(p99)


@FEW
@given(services=FEW_OR_MANY, pattern=A_PATTERN)
def test_every_plan_keeps_what_it_promises(services: tuple[Service, ...], pattern: Pattern, offer: Offer) -> None:
    problem = Problem(services, offer, pattern)
    plan = provision(problem)
    check_plan(plan, problem)
    check_law(plan, problem)


@FEW
@given(services=some_services(6), pattern=A_PATTERN, margin=st.floats(0.0, 1.0))
def test_predictions_are_those_of_the_queue(
    services: tuple[Service, ...], pattern: Pattern, margin: float, offer: Offer
) -> None:
    """Computed once more from what the plan says: who sits beside whom, with which share, batch and delay."""
    problem = Problem(services, offer, pattern, margin=margin)
    plan = provision(problem)
    times = times_on(plan.replicas, problem.demand.workloads, offer.model, margin)
    for replica in plan.replicas:
        batching = Batching(replica.grant.batch or 1, replica.queue_delay_ms)
        exact = p99_ms(problem, replica.service, times[replica], batching, replica.rate_rps)
        assert replica.predicted_p99_ms == pytest.approx(exact)


@FEW
@given(services=some_services(6, rate_rps=(1.0, 3_000.0)))
def test_replicas_are_equal_parts_and_shares_whole_units(services: tuple[Service, ...], offer: Offer) -> None:
    plan = provision(Problem(services, offer))
    for replicas in plan.by_service().values():
        assert [replica.number for replica in replicas] == list(range(len(replicas)))
        assert len({replica.rate_rps for replica in replicas}) == 1
    for replica in plan.replicas:
        assert replica.grant.share_pct % offer.unit_pct == 0.0
        assert replica.grant.instance is None


@FEW
@given(services=FEW_OR_MANY, random=st.randoms(use_true_random=False))
def test_the_order_of_the_input_does_not_matter(services: tuple[Service, ...], random: object, offer: Offer) -> None:
    shuffled = list(services)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert provision(Problem(services, offer)) == provision(Problem(tuple(shuffled), offer))


@FEW
@given(services=some_services(6))
def test_names_matter_by_their_order_only(services: tuple[Service, ...], offer: Offer) -> None:
    renamed = tuple(replace(service, id=f"the {service.id}") for service in services)
    plan, other = provision(Problem(services, offer)), provision(Problem(renamed, offer))
    assert [f"the {replica.service}" for replica in plan.replicas] == [replica.service for replica in other.replicas]
    assert [replica.grant for replica in plan.replicas] == [replica.grant for replica in other.replicas]


@settings(FEW, max_examples=6, phases=NO_SHRINKING)
@given(services=some_services(3), seed=st.integers(0, 2**31), spread=st.floats(0.0, 1.0))
def test_a_recorded_trace_is_kept_too(services: tuple[Service, ...], seed: int, spread: float, offer: Offer) -> None:
    gaps = np.random.default_rng(seed).lognormal(0.0, spread, 600)
    problem = Problem(services, offer, Pattern.TRACE, {"": gaps / gaps.mean()})
    plan = provision(problem)
    check_plan(plan, problem)
    assert plan.lower_bound_gpus is None


def test_many_services_are_not_confirmed_one_by_one_but_still_kept(offer: Offer) -> None:
    generator = np.random.default_rng(3)
    services = tuple(
        Service(f"s{number}", MODELS[number % 4], float(generator.uniform(50, 600)), float(generator.uniform(20, 60)))
        for number in range(CONFIRMED + 44)
    )
    problem = Problem(services, offer)
    plan = provision(problem)
    check_plan(plan, problem)
    check_law(plan, problem)


@pytest.mark.parametrize(("pattern", "margin", "gpus"), [(Pattern.REGULAR, 0.25, 5), (Pattern.POISSON, 1.0, 9)])
def test_twelve_workloads_with_the_profile_of_11_runs(
    pattern: Pattern, margin: float, gpus: int, twelve: tuple[Service, ...], offer: Offer
) -> None:
    problem = Problem(twelve, offer, pattern, margin=margin)
    plan = provision(problem)
    check_plan(plan, problem)
    check_law(plan, problem)
    assert (plan.gpus, plan.unplaced) == (gpus, ())
    assert plan.lower_bound_gpus is not None
    assert plan.lower_bound_gpus >= gpus - 2


def test_bursts_need_more_than_poisson_arrivals(twelve: tuple[Service, ...], offer: Offer) -> None:
    gaps = np.tile(np.concatenate([np.full(40, 0.1), np.full(10, 4.6)]), 60)
    problem = Problem(twelve[3:6], offer, Pattern.TRACE, {"": gaps})
    plan = provision(problem)
    assert all(replica.predicted_p99_ms <= problem.slo_ms[replica.service] for replica in plan.replicas)
    given_away = sum(replica.grant.share_pct for replica in plan.replicas)
    smooth = provision(Problem(twelve[3:6], offer, Pattern.REGULAR))
    assert given_away > sum(replica.grant.share_pct for replica in smooth.replicas)


def test_a_trace_far_off_from_poisson_is_reached(offer: Offer) -> None:
    """Beyond what 2 % a round could add in all of the rounds: the later ones add more."""
    gaps = np.tile(np.concatenate([np.full(40, 0.1), np.full(10, 4.6)]), 20)
    problem = Problem((Service("a", "vgg19", 300.0, 15.0),), offer, Pattern.TRACE, {"": gaps})
    plan = provision(problem)
    check_plan(plan, problem)
    assert plan.unplaced == ()


def test_what_cannot_be_placed_is_said(offer: Offer) -> None:
    services = (
        Service("tight", "vgg19", 10.0, 1.0),
        Service("flood", "vgg19", 9e8, 100.0),
        Service("huge", "alexnet", 10.0, 50.0, mem_mib=40_000),
        Service("fine", "alexnet", 10.0, 50.0),
    )
    plan = provision(Problem(services, offer))
    assert [replica.service for replica in plan.replicas] == ["fine"]
    why = {unplaced.service: unplaced.why for unplaced in plan.unplaced}
    assert "1 ms cannot be met" in why["tight"]
    assert "more than 10,000 replicas" in why["flood"]
    assert "40,000 MiB" in why["huge"]


@pytest.mark.parametrize("pattern", list(Pattern))
def test_where_nobody_can_be_served_there_is_no_gpu(pattern: Pattern, offer: Offer) -> None:
    gaps = {"": np.ones(50)} if pattern is Pattern.TRACE else {}
    problem = Problem((Service("tight", "vgg19", 10.0, 1.0),), offer, pattern, gaps)
    plan = provision(problem)
    assert (plan.gpus, plan.replicas, plan.cost_per_hour) == (0, (), 0.0)
    assert plan.lower_bound_gpus in (0, None)
    check_plan(plan, problem)


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_says_what_it_could_not_place(name: str, offer: Offer) -> None:
    plan = strategy(name)(Problem((Service("tight", "vgg19", 10.0, 1.0), Service("ok", "ssd", 5.0, 80.0)), offer))
    assert [unplaced.service for unplaced in plan.unplaced] == ["tight"]
    assert {replica.service for replica in plan.replicas} == {"ok"}


@pytest.mark.parametrize(
    ("service", "sentence"),
    [
        (Service("a", "bert", 1.0, 10.0), "no profile of the model 'bert'"),
        (Service("a", "ssd", 0.0, 10.0), "the rate is 0 requests per second"),
        (Service("a", "ssd", float("nan"), 10.0), "the rate is nan"),
        (Service("a", "ssd", 1e12, 10.0), "at most 1e\\+09"),
        (Service("a", "ssd", 1.0, 0.0), "the p99 is 0 ms"),
        (Service("a", "ssd", 1.0, float("nan")), "the p99 is nan ms"),
    ],
)
def test_questions_that_make_no_sense_are_refused(service: Service, sentence: str, offer: Offer) -> None:
    with pytest.raises(InputError, match=sentence):
        Problem((service,), offer)


@pytest.mark.parametrize("margin", [-0.1, 3.1, float("nan")])
def test_a_margin_beyond_the_error_bars_is_refused(margin: float, offer: Offer) -> None:
    with pytest.raises(InputError, match="expected 0 to 3 error bars"):
        Problem((Service("a", "ssd", 1.0, 80.0),), offer, margin=margin)


def test_the_law_is_that_of_the_arrivals_and_careful_where_nothing_is_confirmed(offer: Offer) -> None:
    few = tuple(Service(f"s{number}", "ssd", 1.0, 80.0) for number in range(CONFIRMED))
    many = (*few, Service("one more", "ssd", 1.0, 80.0))
    trace = {"": np.ones(10)}
    assert isinstance(law_of(Problem(many, offer, Pattern.REGULAR)), RegularLaw)
    for services, pattern, sure, confirmed in (
        (few, Pattern.POISSON, False, True),
        (many, Pattern.POISSON, True, False),
        (many, Pattern.TRACE, True, True),
    ):
        problem = Problem(services, offer, pattern, trace if pattern is Pattern.TRACE else {})
        law = law_of(problem)
        assert isinstance(law, PoissonLaw)
        assert (law.sure, is_confirmed(problem)) == (sure, confirmed)


def test_only_who_is_late_counts_as_asked_more_often(offer: Offer) -> None:
    services = (Service("a", "ssd", 1.0, 80.0), Service("b", "ssd", 1.0, 80.0))
    problem = Problem(services, offer)
    demand_split = Split(services, (1, 1), rates_per_ms(services), ())
    in_time, late = (Replica(name, 0, Grant(0), 0.0, 1.0, p99) for name, p99 in (("a", 80.0), ("b", 80.1)))
    assert rate_factors(problem, demand_split, [in_time], 0) is None
    factors = rate_factors(problem, demand_split, [in_time, late], 0)
    assert factors is not None
    assert factors.tolist() == [1.0, MORE_OFTEN]


def test_a_printed_plan_is_read_again(twelve: tuple[Service, ...], offer: Offer) -> None:
    problem = Problem(twelve, offer)
    plan = provision(problem)
    assert read_printed(as_json(plan, problem.slo_ms), "plan.json").plan == plan
    with pytest.raises(InputError, match=r"plan\.json has no list of services"):
        read_printed({"strategy": "gpuloom"}, "plan.json")
