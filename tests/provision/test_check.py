"""The check by simulation, with measured tables where the folder is there, and the report."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.errors import InputError
from gpuloom.gpus.grant import Grant
from gpuloom.perf.queueing.batching import Batching, BatchTimes
from gpuloom.perf.queueing.latency import Poisson, latency_of
from gpuloom.perf.sharing.interference import InterferenceModel
from gpuloom.perf.sharing.measured import MeasuredModel, measured_model, measured_tables
from gpuloom.provision.check import FEWEST, REQUESTS, RUNS, Verdict, verify, world_of
from gpuloom.provision.demand import Demand, Pattern, Problem
from gpuloom.provision.offer import Offer
from gpuloom.provision.plan import Replica, ServicePlan
from gpuloom.provision.report import page
from gpuloom.provision.shares.confirm import p99_ms, times_on
from gpuloom.provision.shares.planner import provision
from gpuloom.provision.shipped import shipped_offer
from gpuloom.provision.spread import spread
from gpuloom.provision.strategies import strategy
from gpuloom.provision.supply import SharedGpus, Supply
from gpuloom.work.measured.service_figures import load_service_figures
from gpuloom.work.measured.service_pairs import MeasuredServices, PairRow, read_solo_and_pairs
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
    assert [verdict.service for verdict in verdicts] == ["W1", "W2", "W3", "W4"]
    assert all(verdict.held for verdict in verdicts)
    assert all(verdict.violations <= 0.01 for verdict in verdicts)


@measured_only
def test_five_gpus_for_regular_arrivals_with_the_measured_table(
    twelve: tuple[Service, ...], measured: MeasuredServices, world: MeasuredModel
) -> None:
    problem = Problem(twelve, shipped_offer("V100", measured_tables(measured)), Pattern.REGULAR, margin=0.3)
    plan = provision(problem)
    verdicts = in_world(plan, problem, world, 2_000, 2)
    assert plan.gpus == plan.lower_bound_gpus == 5
    assert sum(verdict.violations == 0.0 for verdict in verdicts) == 12


@measured_only
@pytest.mark.parametrize(("name", "least", "most"), [("gpuloom", 12, 12), ("igniter", 0, 2)])
def test_twelve_of_twelve_keep_their_p99_with_poisson_arrivals(
    name: str, least: int, most: int, twelve: tuple[Service, ...], offer: Offer, world: MeasuredModel
) -> None:
    problem = Problem(twelve, offer)
    verdicts = in_world(strategy(name)(problem), problem, world)
    assert least <= sum(verdict.held for verdict in verdicts) <= most


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
        Replica("a", gpu, Grant(gpu, share_pct=100.0, batch=1), 0.0, rate, 1.0) for gpu, rate in enumerate(rates)
    )
    plan = ServicePlan("by hand", "V100", len(rates), 0.0, None, replicas)
    return plan, {replica: BatchTimes.of([busy_ms]) for replica in replicas}


def test_replicas_count_by_their_rate() -> None:
    """One has a tenth of the requests: as many of them are simulated, however few that is."""
    plan, times = by_hand((90.0, 10.0), 1.0)
    slow = {replica: BatchTimes.of([1.0 if replica.number == 0 else 50.0]) for replica in times}
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
    single, times = by_hand((100.0,), 9.0)
    (alone,) = verify(single, demand, times, np.random.default_rng(1))
    assert alone.violations == pytest.approx(0.5, abs=0.01)
    assert alone.p99_ms == pytest.approx(17.0)
    assert not alone.held


def test_every_replica_of_a_trace_is_predicted_from_its_own_part(offer: Offer) -> None:
    """Dealt in turn to two, the first gets one every 10 ms, the second two at a time."""
    moments = np.concatenate([[moment, moment + 9.0, moment + 10.0, moment + 10.5] for moment in 20.0 * np.arange(50)])
    gaps = np.diff(moments, prepend=-4.5) / 5.0
    problem = Problem((Service("a", "vgg19", 200.0, 60.0),), offer, Pattern.TRACE, {"": gaps / gaps.mean()})
    five = BatchTimes.of([5.0])
    first, second = (p99_ms(problem, "a", five, Batching(1), 100.0, turn, 2) for turn in (0, 1))
    assert first == pytest.approx(5.0)
    assert second == pytest.approx(8.5, rel=0.05)
    plan = provision(replace(problem, services=(Service("a", "vgg19", 900.0, 60.0),)))
    assert len(plan.replicas) > 1
    times = times_on(plan.replicas, problem.demand.workloads, offer.model, problem.margin)
    for turn, replica in enumerate(plan.replicas):
        batching = Batching(replica.grant.batch or 1, replica.queue_delay_ms)
        own = p99_ms(problem, "a", times[replica], batching, replica.rate_rps, turn, len(plan.replicas))
        assert replica.predicted_p99_ms == pytest.approx(own)


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


@settings(max_examples=6, deadline=None)
@given(
    batch=st.integers(1, 8),
    floor_ms=st.floats(0.5, 4.0),
    each_ms=st.floats(0.2, 2.0),
    load=st.floats(0.1, 0.8),
    delay=st.sampled_from([0.0, 0.5]),
    part=st.sampled_from([0.8, 1.25]),
)
def test_the_verdict_on_one_replica_is_that_of_the_exact_queue(
    batch: int, floor_ms: float, each_ms: float, load: float, delay: float, part: float
) -> None:
    """A promise a quarter above the exact p99 is seen to be kept, one a fifth below it to be broken."""
    times = BatchTimes.of(floor_ms + each_ms * np.arange(1, batch + 1))
    batching = Batching(batch, delay * float(times.busy_ms[-1]))
    rate_rps = load * times.capacity_per_s(batching)
    exact = latency_of(times, batching, Poisson(rate_rps))
    slo_ms = part * exact.percentile_ms(99.0)
    replica = Replica("a", 0, Grant(0, batch=batch), batching.delay_ms, rate_rps, slo_ms)
    plan = ServicePlan("by hand", "V100", 1, 0.0, None, (replica,))
    demand = Demand((Service("a", "m", rate_rps, slo_ms),))
    (verdict,) = verify(plan, demand, {replica: times}, np.random.default_rng(2), 20_000, 4)
    assert verdict.held == (part > 1.0)
    assert verdict.p99_ms == pytest.approx(exact.percentile_ms(99.0), rel=0.08)
    assert verdict.violations == pytest.approx(exact.share_above(slo_ms), abs=0.008)


def test_no_regular_request_is_late_where_the_exact_queue_has_none() -> None:
    plan, times = by_hand((90.0,), 11.0)
    demand = Demand((Service("a", "m", 90.0, 11.5),), Pattern.REGULAR)
    (verdict,) = verify(plan, demand, times, np.random.default_rng(1), 1000, 2)
    assert (verdict.held, verdict.violations) == (True, 0.0)
    assert verdict.longest_ms == pytest.approx(11.0)


def test_the_same_seed_gives_the_same_verdict() -> None:
    plan, times = by_hand((60.0, 30.0), 10.0)
    demand = Demand((Service("a", "m", 90.0, 60.0),))
    once, again, other = (verify(plan, demand, times, np.random.default_rng(seed), 1000, 2) for seed in (5, 5, 6))
    assert once == again
    assert once != other


def verdict(p99_ms: float, within_ms: float | None) -> Verdict:
    return Verdict("a", 10.0, p99_ms, within_ms, 0.0, None, 12.0, 100)


@pytest.mark.parametrize(
    ("p99_ms", "within_ms", "held", "is_open"),
    [
        (9.0, 0.5, True, False),
        (9.8, 0.5, False, True),
        (10.3, 0.5, False, True),
        (11.0, 0.5, False, False),
        (10.0, None, True, False),
        (10.1, None, False, False),
    ],
)
def test_held_is_the_whole_interval(p99_ms: float, within_ms: float | None, held: bool, is_open: bool) -> None:
    assert (verdict(p99_ms, within_ms).held, verdict(p99_ms, within_ms).undecided) == (held, is_open)


def measurements(*models: str, uses: tuple[str, ...] | None = None) -> MeasuredServices:
    """Made up: all models as fast as each other, and slower by a tenth in pairs."""
    grid = {(batch, share): 2.0 + 20.0 * batch / share for batch in (1, 32) for share in (10.0, 50.0, 100.0)}
    used = models if uses is None else uses
    pairs = tuple(PairRow(model, 1, 50.0, other, 1, 50.0, 1.1 * grid[1, 50.0]) for model in used for other in used)
    tables = dict.fromkeys(models, grid)
    return MeasuredServices(pairs, tables, {model: dict.fromkeys(grid, 20.0) for model in used})


def assumptions(
    demand: Demand, supplies: list[Supply], measured: MeasuredServices | None
) -> tuple[list[Supply], list[str | None]]:
    plan = spread(demand, supplies)
    pairs = list(world_of(plan, demand, supplies, measured, {"V100": load_service_figures("V100")}))
    return [supply for supply, _ in pairs], [assumed for _, assumed in pairs]


BOTH = Demand((Service("a", "vgg19", 50.0, 60.0), Service("b", "bert", 50.0, 60.0)))


def test_the_world_is_as_measured_as_far_as_it_was(types: list[Supply]) -> None:
    world, said = assumptions(BOTH, types, measurements("vgg19", "ssd"))
    shares, instances = world
    assert isinstance(shares, SharedGpus)
    assert isinstance(shares.offer.model, MeasuredModel)
    assert set(shares.models) == {"vgg19", "ssd"}
    assert instances is types[1]
    assert said == [None, "A100-80GB: the check simulates the measured points that the plan is made from"]


def test_without_measurements_it_is_as_predicted_and_that_is_said(types: list[Supply]) -> None:
    world, said = assumptions(BOTH, types, None)
    assert world == types
    assert said[0] == "no --measured FILE: the check simulates the planner's own predictions"


def test_types_that_the_plan_does_not_use_are_not_in_its_world(types: list[Supply]) -> None:
    world, said = assumptions(BOTH.only(BOTH.services[1:]), types, None)
    assert [supply.name for supply in world] == ["A100-80GB"]
    assert len(said) == 1


def test_measurements_are_of_a_type_that_figures_ship_of(offer: Offer) -> None:
    other = SharedGpus(replace(offer, name="T4"))
    world, said = assumptions(BOTH.only(BOTH.services[:1]), [other], measurements("vgg19"))
    assert world == [other]
    assert said == ["T4 is not what --measured was measured on: the check simulates the planner's own predictions"]


def test_every_model_of_the_plan_must_be_measured(types: list[Supply]) -> None:
    with pytest.raises(InputError, match="--measured has no solo table of vgg19: expected one of every model"):
        assumptions(BOTH, types, measurements("ssd"))
    with pytest.raises(InputError, match="--measured has no use of L2 of vgg19"):
        assumptions(BOTH, types, measurements("ssd", "vgg19", uses=("ssd",)))


def test_what_is_said_of_one_type_is_said_before_the_next_is_looked_at(types: list[Supply]) -> None:
    plan = spread(BOTH, types)
    figures = {"V100": load_service_figures("V100")}
    world = world_of(plan, BOTH, types[::-1], measurements("ssd"), figures)
    assert next(world)[0] is types[1]
    with pytest.raises(InputError, match="no solo table of vgg19"):
        next(world)
