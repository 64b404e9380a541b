"""The check by simulation, with measured tables where the folder is there, and the report."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpuloom.gpus.grant import Grant
from gpuloom.perf.queueing.batching import Batching, BatchTimes
from gpuloom.perf.queueing.latency import Poisson, latency_of
from gpuloom.perf.sharing.interference import InterferenceModel
from gpuloom.provision.demand import Demand, Offer, Pattern, Problem, shipped_offer
from gpuloom.provision.plan import Replica, ServicePlan
from gpuloom.provision.report import page
from gpuloom.provision.shares.confirm import p99_ms, times_on
from gpuloom.provision.shares.planner import provision
from gpuloom.provision.strategies import strategy
from gpuloom.sim.service_world import (
    FEWEST,
    REQUESTS,
    RUNS,
    MeasuredModel,
    Verdict,
    measured_model,
    measured_tables,
    verify,
)
from gpuloom.work.measured.service_figures import load_service_figures
from gpuloom.work.measured.service_pairs import MeasuredServices, read_solo_and_pairs
from gpuloom.work.model import Service

FILE = Path(__file__).parents[3] / "shared" / "data" / "igniter" / "solo_and_pairs_v100.jsonl"
measured_only = pytest.mark.skipif(not FILE.exists(), reason="the measured data are not here")


@pytest.fixture(scope="module")
def measured() -> MeasuredServices:
    return read_solo_and_pairs(FILE)


@pytest.fixture(scope="module")
def world(measured: MeasuredServices) -> MeasuredModel:
    return measured_model(measured, load_service_figures("V100"))


def in_world(
    plan: ServicePlan, problem: Problem, model: InterferenceModel, requests: int = REQUESTS, runs: int = RUNS
) -> list[Verdict]:
    times = times_on(plan.replicas, problem.demand.workloads, model)
    return verify(plan, problem.demand, times, np.random.default_rng(1), requests, runs)


def test_predictions_hold_in_a_world_that_is_as_predicted(twelve: tuple[Service, ...], offer: Offer) -> None:
    problem = Problem(twelve[:4], offer)
    verdicts = in_world(provision(problem), problem, offer.model, 4_000, 4)
    assert [one.service for one in verdicts] == ["W1", "W2", "W3", "W4"]
    assert all(one.held for one in verdicts)
    assert all(one.violations <= 0.01 for one in verdicts)


@measured_only
def test_five_gpus_for_regular_arrivals_with_the_measured_table(
    twelve: tuple[Service, ...], measured: MeasuredServices, world: MeasuredModel
) -> None:
    problem = Problem(twelve, shipped_offer("V100", measured_tables(measured)), Pattern.REGULAR, margin=0.3)
    plan = provision(problem)
    verdicts = in_world(plan, problem, world, 2_000, 2)
    assert plan.gpus == plan.lower_bound_gpus == 5
    assert sum(one.violations == 0.0 for one in verdicts) == 12


@measured_only
@pytest.mark.parametrize(("name", "least", "most"), [("gpuloom", 12, 12), ("igniter", 0, 2)])
def test_twelve_of_twelve_keep_their_p99_with_poisson_arrivals(
    name: str, least: int, most: int, twelve: tuple[Service, ...], offer: Offer, world: MeasuredModel
) -> None:
    problem = Problem(twelve, offer)
    verdicts = in_world(strategy(name)(problem), problem, world)
    assert least <= sum(one.held for one in verdicts) <= most


def test_the_report_needs_nothing_and_survives_odd_names(offer: Offer) -> None:
    problem = Problem((Service('<b>"&', "alexnet", 100.0, 20.0), Service("no", "vgg19", 1.0, 1.0)), offer)
    plan = provision(problem)
    times = times_on(plan.replicas, problem.demand.workloads, offer.model)
    text = page(plan, problem.demand, times, [{"strategy": "gpuloom"}], {'<b>"&': ("9.0 ± 0.1", True)})
    assert "<b>" not in text.replace("<b>1", "").replace("<b>$", "").replace("<b>5", "").replace("<b>2", "")
    assert "&lt;b&gt;&quot;&amp;" in text
    assert "http" not in text.replace("http-equiv", "")
    assert "cannot be met" in text


def by_hand(rates: tuple[float, ...], busy_ms: float) -> tuple[ServicePlan, dict[Replica, BatchTimes]]:
    replicas = tuple(
        Replica("a", at, Grant(at, share_pct=100.0, batch=1), 0.0, rate, 1.0) for at, rate in enumerate(rates)
    )
    plan = ServicePlan("by hand", "V100", len(rates), 0.0, None, replicas)
    return plan, {one: BatchTimes.of([busy_ms]) for one in replicas}


def test_replicas_count_by_their_rate() -> None:
    """One has a tenth of the requests: as many of them are simulated, however few that is."""
    plan, times = by_hand((90.0, 10.0), 1.0)
    slow = {one: BatchTimes.of([1.0 if one.number == 0 else 50.0]) for one in times}
    (seen,) = verify(
        plan, Demand((Service("a", "m", 100.0, 40.0),), Pattern.REGULAR), slow, np.random.default_rng(1), 1000, 2
    )
    assert seen.violations == pytest.approx(0.1, abs=0.005)
    least = verify(plan, Demand((Service("a", "m", 100.0, 40.0),)), times, np.random.default_rng(1), 1, 2)[0].requests
    assert least == pytest.approx(2 * 0.95 * FEWEST * 10, rel=0.01)


def test_a_trace_is_run_once_as_a_whole_and_has_no_interval() -> None:
    """The first request of two finds the server free, the second waits: dealt in turn to two, only one is ever late."""
    gaps = np.tile([1.9, 0.1], 100)
    plan, times = by_hand((50.0, 50.0), 9.0)
    demand = Demand((Service("a", "m", 100.0, 10.0),), Pattern.TRACE, {"": gaps})
    (seen,) = verify(plan, demand, times, np.random.default_rng(1))
    assert (seen.requests, seen.p99_within_ms, seen.violations_within) == (200, None, None)
    assert seen.held
    one, times = by_hand((100.0,), 9.0)
    (alone,) = verify(one, demand, times, np.random.default_rng(1))
    assert alone.violations == pytest.approx(0.5, abs=0.01)
    assert alone.p99_ms == pytest.approx(17.0)
    assert not alone.held


def test_every_replica_of_a_trace_is_predicted_from_its_own_part(offer: Offer) -> None:
    """Dealt in turn to two, the first gets one every 10 ms, the second two at a time."""
    moments = np.concatenate([[at, at + 9.0, at + 10.0, at + 10.5] for at in 20.0 * np.arange(50)])
    gaps = np.diff(moments, prepend=-4.5) / 5.0
    problem = Problem((Service("a", "vgg19", 200.0, 60.0),), offer, Pattern.TRACE, {"": gaps / gaps.mean()})
    five = BatchTimes.of([5.0])
    first, second = (p99_ms(problem, "a", five, Batching(1), 100.0, turn, 2) for turn in (0, 1))
    assert first == pytest.approx(5.0)
    assert second == pytest.approx(8.5, rel=0.05)
    plan = provision(replace(problem, services=(Service("a", "vgg19", 900.0, 60.0),)))
    assert len(plan.replicas) > 1
    times = times_on(plan.replicas, problem.demand.workloads, offer.model, problem.margin)
    for turn, one in enumerate(plan.replicas):
        batching = Batching(one.grant.batch or 1, one.queue_delay_ms)
        own = p99_ms(problem, "a", times[one], batching, one.rate_rps, turn, len(plan.replicas))
        assert one.predicted_p99_ms == pytest.approx(own)


def test_more_is_simulated_where_the_interval_leaves_it_open() -> None:
    plan, times = by_hand((60.0,), 10.0)
    exact_ms = latency_of(BatchTimes.of([10.0]), Batching(1), Poisson(60.0)).percentile_ms(99.0)
    near, far = (Demand((Service("a", "m", 60.0, factor * exact_ms),)) for factor in (1.02, 3.0))
    (close,) = verify(plan, near, times, np.random.default_rng(1), 5_000, 8)
    (clear,) = verify(plan, far, times, np.random.default_rng(1), 5_000, 8)
    assert clear.held
    assert clear.requests == 8 * 4_750
    assert close.requests >= 4 * clear.requests
    assert close.p99_within_ms is not None
    assert clear.p99_within_ms is not None
    assert close.p99_within_ms < clear.p99_within_ms
