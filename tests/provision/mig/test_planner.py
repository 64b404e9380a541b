"""Services on MIG instances: the promises of a plan, the published scenarios, and what is refused."""

from math import ceil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.errors import InputError
from gpuloom.gpus.catalogue import find
from gpuloom.gpus.layouts import as_multiset, multisets, slices_of
from gpuloom.provision.demand import Demand
from gpuloom.provision.mig.options import Option, by_latency
from gpuloom.provision.mig.planner import Counts, count_instances, placeable, plan_mig, seats_of
from gpuloom.provision.supply import MIG_STRATEGIES, MigGpus
from gpuloom.work.measured.mig_services import read_mig_services
from gpuloom.work.model import Service
from gpuloom.work.table import open_table
from tests.provision.drawn import demands, plans
from tests.provision.mig.made_up import A100, SIZES, check_plan, points

PUBLISHED = {"S1": 2, "S2": 3, "S3": 5, "S4": 7}
MEASURED = {"slow": points(0.5), "net": points(), "fast": points(4.0, 2)}


@pytest.mark.parametrize("strategy", MIG_STRATEGIES)
@given(demand=demands(models=tuple(MEASURED)))
@plans(4)
def test_what_every_plan_promises(strategy: str, demand: Demand) -> None:
    gpus = MigGpus(A100, MEASURED, 5.0, strategy)
    plan = gpus.plan(demand)
    options = gpus.options(demand)
    unplaced = {lost.service for lost in plan.unplaced}
    assert unplaced == {service.id for service in demand.services if not options[service.id]}
    check_plan(plan, [service for service in demand.services if service.id not in unplaced], options)
    assert plan.cost_per_hour == pytest.approx(5.0 * plan.gpus)
    assert gpus.plan(demand.only(demand.services[::-1])) == plan


@given(demand=demands(models=tuple(MEASURED)))
@plans(3)
def test_more_freedom_never_needs_more_gpus(demand: Demand) -> None:
    """One process an instance, and no cuts, are both ways to use any instances."""
    plans_by = {name: MigGpus(A100, MEASURED, 5.0, name).plan(demand) for name in MIG_STRATEGIES}
    ours = plans_by.pop("gpuloom")
    for plan in plans_by.values():
        assert len(ours.unplaced) <= len(plan.unplaced)
        assert plan.unplaced or ours.gpus <= plan.gpus


@pytest.mark.parametrize("name", ["A100-40GB", "A30", "H100-80GB"])
@given(demand=demands(most=3, models=("net",)))
@plans(3)
def test_every_type_is_cut_as_it_can_be(name: str, demand: Demand) -> None:
    model = find(name)
    gpus = MigGpus(model, {"net": points()}, 2.0)
    plan = gpus.plan(demand)
    lost = {unplaced.service for unplaced in plan.unplaced}
    check_plan(plan, [service for service in demand.services if service.id not in lost], gpus.options(demand), model)


@given(rate=st.floats(20.0, 2000.0), slo_ms=st.floats(15.0, 100.0))
@settings(max_examples=10, deadline=None)
def test_one_service_needs_as_many_gpus_as_the_best_cut_serves(rate: float, slo_ms: float) -> None:
    options = by_latency(points(), slo_ms)
    plan = plan_mig([Service("s", "m", rate, slo_ms)], {"s": options}, A100, 1.0)
    best_rps = max(sum(options[size].rps for size in cut if size in options) for cut in multisets(A100))
    assert plan.lower_bound_gpus is not None
    assert ceil(rate / best_rps - 1e-6) <= plan.lower_bound_gpus <= plan.gpus <= ceil(rate / best_rps) + 1


rates = st.lists(st.floats(1.0, 3000.0), min_size=1, max_size=5)


@given(rates_rps=rates, slo_ms=st.floats(20.0, 200.0))
@settings(max_examples=20, deadline=None)
def test_counted_instances_are_there_and_enough(rates_rps: list[float], slo_ms: float) -> None:
    options = by_latency(points(), slo_ms)
    counts = count_instances([(rate_rps, options) for rate_rps in rates_rps], A100)
    cuts = multisets(A100)
    assert set(counts.cuts) <= set(cuts)
    for size in SIZES:
        in_use = sum(wanted.get(size, 0) for wanted in counts.instances)
        assert in_use <= sum(many * cut.count(size) for cut, many in counts.cuts.items())
    for rate_rps, wanted in zip(rates_rps, counts.instances, strict=True):
        assert sum(many * options[size].rps for size, many in wanted.items()) >= rate_rps * (1 - 1e-6)
    assert counts.bound <= sum(counts.cuts.values()) + 1e-6


def test_seats_are_dealt_gpu_by_gpu_and_never_twice() -> None:
    option = {size: Option(size, 1, 1, 100.0 * size, lambda rate_rps: rate_rps) for size in SIZES}
    wanted = [Service(name, "m", 1.0, 9.0) for name in "ab"]
    counts = Counts({(4, 2, 1): 2, (7,): 1}, [{4: 2, 1: 1}, {7: 1, 2: 2, 1: 1}], 3.0)
    seats = seats_of(wanted, {"a": option, "b": option}, counts, A100, first_gpu=5)
    devices = [device for held in seats.values() for _, device in held]
    assert len(set(devices)) == len(devices) == 7
    cuts: dict[int, list[int]] = {}
    for gpu, instance in devices:
        cuts.setdefault(gpu, []).append(A100.by_name[instance.profile].slices)
    assert {gpu: as_multiset(sizes) for gpu, sizes in cuts.items()} == {5: (7,), 6: (4, 2, 1), 7: (4, 2, 1)}
    assert [slices_of(A100, (instance,)) for _, (_, instance) in seats["a"]] == [(4,), (4,), (1,)]


def test_points_of_sizes_that_a_gpu_lacks_serve_nobody() -> None:
    """Measured on an A100, asked of an A30: only 7g is fast enough, which an A30 cannot be cut into."""
    only_large = tuple(point for point in points() if point.slices in (3, 7))
    plan = MigGpus(find("A30"), {"net": only_large}).plan(Demand((Service("s", "net", 9.0, 60.0),)))
    assert [lost.why for lost in plan.unplaced] == ["no instance of an A30-24GB keeps its p99 of 60 ms"]


def test_whom_no_instance_serves_is_named_with_what_it_stated() -> None:
    stated = Service("s", "m", 9.0, 3.0, mem_mib=70_000, max_batch=2)
    _, (lost,) = placeable([stated], {"s": {}}, A100)
    assert lost.why == (
        "no instance of an A100-80GB keeps its p99 of 3 ms with 70000 MiB a process and batches of at most 2"
    )


@pytest.mark.parametrize("scenario", PUBLISHED)
def test_the_published_scenarios(data_dir: Path, scenario: str) -> None:
    measured = read_mig_services(data_dir / "parvagpu" / "a100_mig_mps_profile.csv")
    table = open_table(data_dir / "parvagpu" / "scenarios.csv", ("scenario", "model", "slo_ms", "rate_per_s"), "x")
    wanted = [
        Service(model, model, float(rate), float(slo_ms))
        for _, (name, model, slo_ms, rate) in table.rows()
        if name == scenario
    ]
    options = {service.id: by_latency(measured[service.workload], service.slo_p99_ms) for service in wanted}
    plan = plan_mig(wanted, options, A100, 5.0)
    check_plan(plan, wanted, options)
    assert (plan.gpus, plan.lower_bound_gpus) == (PUBLISHED[scenario], PUBLISHED[scenario])


def test_a_search_that_finds_nothing_in_time_is_told() -> None:
    wanted = [Service(f"s{number}", "m", 100.0 + 37.0 * number, 20.0 + number) for number in range(40)]
    options = {service.id: by_latency(points(), service.slo_p99_ms) for service in wanted}
    with pytest.raises(InputError, match="the solver found no plan on MIG instances within 0 s"):
        plan_mig(wanted, options, A100, 5.0, time_limit_s=0.0)


def test_a_rate_that_no_number_of_processes_serves() -> None:
    plan = plan_mig([Service("s", "m", 9e8, 40.0)], {"s": by_latency(points(), 40.0)}, A100, 5.0)
    assert [lost.why for lost in plan.unplaced] == [
        "9e+08 requests per second need more than 10,000 replicas on A100-80GB"
    ]


def test_a_promise_that_no_instance_keeps() -> None:
    plan = plan_mig([Service("s", "m", 10.0, 3.0)], {"s": by_latency(points(), 3.0)}, A100, 5.0)
    assert (plan.gpus, plan.replicas) == (0, ())
    assert plan.unplaced[0].why == "no instance of an A100-80GB keeps its p99 of 3 ms"


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ("m,1,1,1,5,", "line 2, column 'latency_s' is '', but must be seconds"),
        ("m,9,1,1,5,0.1", "line 2, column 'mig_gpcs' is '9'"),
        ("m,1,1,1,5,0", "both throughput and latency 0, or neither"),
        ("m,1,1,1,5", "line 2"),
    ],
)
def test_wrong_rows(tmp_path: Path, row: str, why: str) -> None:
    path = tmp_path / "p.csv"
    path.write_text(f"model,mig_gpcs,batch,processes,throughput_per_s,latency_s\n{row}\n")
    with pytest.raises(InputError, match=why.replace("(", "\\(")):
        read_mig_services(path)


def test_wrong_files(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    for text, why in (
        ("model,mig_gpcs,batch,processes,throughput_per_s,latency_s\n", "has no rows"),
        ("model,batch\n", "has no column 'mig_gpcs'"),
        (
            "model,mig_gpcs,batch,processes,throughput_per_s,latency_s\nm,1,1,1,5,1\nm,1,1,1,6,1\n",
            "a point that the file has not had yet",
        ),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=why):
            read_mig_services(path)
