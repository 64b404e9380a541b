"""Both kinds of GPUs answer the same questions: values below any plan, times of every replica, rules of arrivals."""

import numpy as np
import pytest
from hypothesis import given

from gpuloom.errors import InputError
from gpuloom.perf.queueing.latency import Batching, Poisson, latency_of
from gpuloom.provision.demand import Demand, Pattern
from gpuloom.provision.offer import Offer
from gpuloom.provision.plan import on_gpus
from gpuloom.provision.supply import MIG_STRATEGIES, MigGpus, SharedGpus, Supply, times_of
from gpuloom.work.model import Service
from tests.provision.drawn import demands, plans
from tests.provision.mig.made_up import A100, points

MODELS = ("alexnet", "resnet50")


@given(demand=demands(models=MODELS))
@plans(3)
def test_values_sum_to_at_most_the_gpus_of_any_plan(demand: Demand, types: list[Supply]) -> None:
    """Infinite for whom the type serves in no way, and for nobody else."""
    for supply in types:
        plan, sets = supply.plan(demand), supply.values(demand)
        lost = {unplaced.service for unplaced in plan.unplaced}
        assert sets is not None
        for values in sets:
            assert values.shape == (len(demand.services),)
            assert (values >= 0.0).all()
            assert {
                service.id for service, value in zip(demand.services, values, strict=True) if np.isinf(value)
            } == lost
            assert float(values[np.isfinite(values)].sum()) <= plan.gpus + 1e-6
        best = max((float(values[np.isfinite(values)].sum()) for values in sets), default=0.0)
        assert plan.lower_bound_gpus is not None
        assert plan.lower_bound_gpus >= best - 1e-6


@given(demand=demands(models=MODELS))
@plans(3)
def test_every_replica_has_times_and_keeps_its_promise_with_them(demand: Demand, types: list[Supply]) -> None:
    """Without the margin a p99 is no longer than what was predicted with it."""
    for supply in types:
        plan = supply.plan(demand)
        times = supply.times(plan.replicas, demand.workloads)
        assert set(times) == set(plan.replicas)
        for replica in plan.replicas if demand.pattern is Pattern.POISSON else ():
            batching = Batching(replica.grant.batch or 1, replica.queue_delay_ms)
            p99_ms = latency_of(times[replica], batching, Poisson(replica.rate_rps)).percentile_ms(99.0)
            assert p99_ms <= replica.predicted_p99_ms * 1.001


def test_values_of_nobody_who_can_be_served(types: list[Supply]) -> None:
    tight = Demand((Service("a", "resnet50", 10.0, 0.5), Service("b", "alexnet", 10.0, 0.1)))
    for supply in types:
        sets = supply.values(tight)
        assert sets is not None
        assert all(np.isinf(values).all() for values in sets)


def test_a_trace_is_for_shares_only(types: list[Supply]) -> None:
    gaps = {"": np.tile([0.5, 1.5], 100)}
    demand = Demand((Service("a", "alexnet", 50.0, 60.0),), Pattern.TRACE, gaps)
    shares, instances = types
    assert shares.values(demand) is None
    assert shares.plan(demand).lower_bound_gpus is None
    for ask in (instances.plan, instances.values):
        with pytest.raises(InputError, match="trace with --mig: expected poisson or regular on A100-80GB"):
            ask(demand)


def test_strategies_of_instances_choose_among_the_same_points() -> None:
    demand = Demand((Service("a", "net", 300.0, 60.0),), Pattern.REGULAR)
    options = {name: MigGpus(A100, {"net": points()}, 1.0, name).options(demand)["a"] for name in MIG_STRATEGIES}
    assert all(option.processes == 1 for option in options["one-process"].values())
    assert set(options["whole-gpus"]) == {7}
    for size, option in options["one-process"].items():
        assert option.rps <= options["gpuloom"][size].rps
    assert options["whole-gpus"][7].rps == options["gpuloom"][7].rps


def test_options_are_found_once_for_equal_services() -> None:
    gpus = MigGpus(A100, {"net": points()}, 1.0)
    equal = Demand(tuple(Service(name, "net", 10.0, 60.0) for name in "ab"))
    options = gpus.options(equal)
    assert options["a"] is options["b"]
    other = Demand((Service("a", "net", 10.0, 60.0, max_batch=1),))
    assert {option.batch for option in gpus.options(other)["a"].values()} == {1}


def test_the_margin_is_what_is_kept_free(offer: Offer) -> None:
    demand = Demand((Service("a", "vgg19", 300.0, 40.0), Service("b", "ssd", 100.0, 60.0)))
    shares = [
        sum(replica.grant.share_pct for replica in SharedGpus(offer, margin).plan(demand).replicas)
        for margin in (0.0, 1.0, 3.0)
    ]
    assert shares == sorted(shares)
    assert shares[0] < shares[2]


def test_another_world_changes_times_and_nothing_else(offer: Offer) -> None:
    faster = SharedGpus(offer).in_world(offer.igniter)
    assert (faster.name, faster.cost_per_hour, faster.models) == ("V100", offer.cost_per_hour, offer.igniter.names)
    demand = Demand((Service("a", "vgg19", 300.0, 40.0),))
    plan = SharedGpus(offer).plan(demand)
    own, other = (supply.times(plan.replicas, demand.workloads) for supply in (SharedGpus(offer), faster))
    assert own.keys() == other.keys()
    assert any((own[replica].busy_ms != other[replica].busy_ms).any() for replica in plan.replicas)


def test_times_are_those_of_each_gpus_type(types: list[Supply]) -> None:
    demand = Demand((Service("a", "resnet50", 100.0, 60.0),))
    for supply in types:
        plan = supply.plan(demand)
        assert times_of(plan, demand, types).keys() == supply.times(plan.replicas, demand.workloads).keys()
        assert set(on_gpus(plan.replicas)) == set(range(plan.gpus))
        assert times_of(plan, demand, [other for other in types if other is not supply]) == {}
