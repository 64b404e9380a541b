"""The contest: every contender on its best type, ours never dearer than ours on one type, and who may not take part."""

from dataclasses import replace

import pytest
from hypothesis import given

from gpuloom.errors import InputError
from gpuloom.provision.contest import best_plan, cheapest, contenders, contest
from gpuloom.provision.demand import Demand, Pattern
from gpuloom.provision.offer import Offer
from gpuloom.provision.plan import ServicePlan
from gpuloom.provision.spread import spread
from gpuloom.provision.strategies import PEERS, STRATEGIES, strategy
from gpuloom.provision.supply import MIG_STRATEGIES, MigGpus, SharedGpus, Supply
from gpuloom.work.model import Service
from tests.provision.drawn import demands, plans
from tests.provision.mig.made_up import A100, points

MODELS = ("alexnet", "resnet50")
BOTH = Demand((Service("a", "resnet50", 200.0, 40.0), Service("b", "alexnet", 100.0, 30.0)), Pattern.REGULAR)


def price(plan: ServicePlan) -> tuple[int, float]:
    return len(plan.unplaced), plan.cost_per_hour


@given(demand=demands(4, MODELS, (Pattern.REGULAR,)))
@plans(2)
def test_the_winner_of_each_row_is_the_cheapest_of_its_ways(demand: Demand, types: list[Supply]) -> None:
    rows = contest(demand, types)
    ways = contenders(types)
    assert len(rows) == len(ways)
    for plan, row in zip(rows, ways, strict=True):
        alternatives = [spread(demand, way) for way in row]
        assert plan in alternatives
        assert price(plan) == min(map(price, alternatives))
    ours, *alone = rows[: 1 + len(types)]
    assert all(price(ours) <= price(plan) for plan in alone)
    assert best_plan(demand, types, "gpuloom") == ours


def test_who_takes_part(types: list[Supply]) -> None:
    rows = contest(BOTH, types)
    ours, peers = 1 + len(types), [*PEERS, *list(MIG_STRATEGIES)[1:]]
    assert [plan.strategy for plan in rows] == ["gpuloom"] * ours + peers
    assert [plan.gpu_type for plan in rows[1:ours]] == ["V100", "A100-80GB"]
    assert [plan.gpu_type for plan in rows[ours:]] == ["V100"] * 4 + ["A100-80GB"] * 2
    assert [plan.strategy for plan in contest(BOTH, types[:1])] == ["gpuloom", *PEERS]
    assert [plan.strategy for plan in contest(BOTH, types[1:])] == list(MIG_STRATEGIES)


def test_a_strategy_that_supplies_were_made_with_does_not_matter(offer: Offer, types: list[Supply]) -> None:
    of_peers: list[Supply] = [
        SharedGpus(offer, strategy="ffd"),
        MigGpus(A100, {"resnet50": points(1.0), "alexnet": points(3.0)}, 4.5, "whole-gpus"),
    ]
    assert contest(BOTH, of_peers) == contest(BOTH, types)


def test_peers_take_the_cheaper_of_two_types(offer: Offer) -> None:
    cheap = replace(offer, name="T4", cost_per_hour=0.5)
    supplies = [SharedGpus(offer, strategy="igniter"), SharedGpus(cheap, strategy="igniter")]
    plan = best_plan(BOTH, supplies, "igniter")
    assert (plan.strategy, plan.gpu_type) == ("igniter", "T4")
    assert plan == supplies[1].plan(BOTH)


def test_one_that_places_more_counts_as_cheaper(offer: Offer) -> None:
    """The cheap type has too little memory for one of two."""
    small = SharedGpus(replace(offer, name="T4", mem_mib=4000, cost_per_hour=0.5))
    demand = BOTH.only((BOTH.services[0], replace(BOTH.services[1], mem_mib=9000)))
    plan = cheapest(demand, [[small], [SharedGpus(offer)]])
    assert plan is not None
    assert (plan.gpu_type, plan.unplaced) == ("V100", ())


def test_without_prices_fewer_gpus_count(offer: Offer) -> None:
    free = [SharedGpus(replace(offer, cost_per_hour=0.0), strategy=name) for name in ("gpulets", "gpuloom")]
    wanted = BOTH.only(replace(service, id=f"{service.id}{number}") for service in BOTH.services for number in range(3))
    fewest = min(supply.plan(wanted).gpus for supply in free)
    plan = cheapest(wanted, [[supply] for supply in free])
    assert plan is not None
    assert plan.gpus == fewest < max(supply.plan(wanted).gpus for supply in free)


def test_models_that_are_known_on_different_types_only(types: list[Supply]) -> None:
    demand = Demand((Service("a", "vgg19", 50.0, 60.0), Service("b", "bert", 50.0, 60.0)))
    assert [plan.strategy for plan in contest(demand, types)] == ["gpuloom"]
    assert cheapest(demand, [[supply] for supply in types]) is None
    with pytest.raises(InputError, match="--strategy ffd: knows all models on no single type: expected gpuloom"):
        best_plan(demand, types, "ffd")
    unknown = Demand((Service("a", "gpt", 1.0, 9.0),))
    with pytest.raises(InputError, match="service a: there is no profile of the model 'gpt'"):
        contest(unknown, types)
    with pytest.raises(InputError, match="service a: there is no profile of the model 'gpt'"):
        best_plan(unknown, types, "gpuloom")


def test_strategies_are_found_by_name() -> None:
    assert all(callable(strategy(name)) for name in STRATEGIES)
    with pytest.raises(InputError, match=r"strategy 'ignitor' is unknown \(did you mean 'igniter'\?\): expected"):
        strategy("ignitor")
