"""Services on MIG instances: the promises of a plan, the published scenarios, and what is refused."""

from math import ceil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.errors import InputError
from gpuloom.gpus.catalogue import find
from gpuloom.gpus.layouts import check
from gpuloom.provision.mig.options import Options, batch_times, by_latency, by_queue
from gpuloom.provision.mig.planner import plan_mig
from gpuloom.provision.plan import ServicePlan
from gpuloom.work.measured.mig_services import MigPoint, read_mig_services
from gpuloom.work.model import Service
from gpuloom.work.table import open_table

A100 = find("A100-80GB")
PUBLISHED = {"S1": 2, "S2": 3, "S3": 5, "S4": 7}


def points(speed: float = 1.0, processes: int = 3) -> tuple[MigPoint, ...]:
    """A made-up model: a floor, work that shrinks with the slices, and processes that share them."""
    found = []
    for slices in (1, 2, 3, 4, 7):
        for batch in (1, 2, 4, 8, 16):
            for count in range(1, processes + 1):
                latency_ms = (2.0 + 3.0 * batch * max(count, 1.5) / slices) / speed
                found.append(MigPoint(slices, batch, count, 1000 * batch / latency_ms, latency_ms))
    return tuple(found)


def check_plan(plan: ServicePlan, services: list[Service], options: dict[str, Options]) -> None:
    """No GPU over-committed, every rate served, the bound below what is used."""
    for gpu in range(plan.gpus):
        shares: dict[object, float] = {}
        for replica in plan.replicas:
            if replica.grant.gpu == gpu:
                shares[replica.grant.instance] = shares.get(replica.grant.instance, 0.0) + replica.grant.share_pct
        assert all(share == pytest.approx(100.0) for share in shares.values())
        assert check(A100, tuple(sorted(instance for instance in shares if instance is not None))) is None
        assert len({r.service for r in plan.replicas if r.grant.gpu == gpu}) <= len(shares)
    for service in services:
        mine = plan.of(service.id)
        assert [replica.number for replica in mine] == list(range(len(mine)))
        assert sum(replica.rate_rps for replica in mine) == pytest.approx(service.rate_rps)
        assert all(replica.predicted_p99_ms <= service.slo_p99_ms for replica in mine)
        for replica in mine:
            assert replica.grant.instance is not None
            option = options[service.id][A100.by_name[replica.grant.instance.profile].slices]
            assert replica.rate_rps <= option.rps / option.processes * (1 + 1e-9)
    assert plan.lower_bound_gpus <= plan.gpus


services = st.lists(
    st.tuples(st.floats(1.0, 3000.0), st.floats(12.0, 200.0), st.floats(0.5, 4.0)), min_size=1, max_size=6
)


@given(services)
@settings(max_examples=25, deadline=None)
def test_what_every_plan_promises(drawn: list[tuple[float, float, float]]) -> None:
    wanted = [Service(f"s{at}", f"m{at}", rate, slo_ms) for at, (rate, slo_ms, _) in enumerate(drawn)]
    options = {
        one.id: by_latency(points(speed), one.slo_p99_ms) for one, (_, _, speed) in zip(wanted, drawn, strict=True)
    }
    plan = plan_mig(wanted, options, A100, 5.0)
    unplaced = {one.service for one in plan.unplaced}
    assert unplaced == {one.id for one in wanted if not options[one.id]}
    check_plan(plan, [one for one in wanted if one.id not in unplaced], options)
    assert plan.cost_per_hour == pytest.approx(5.0 * plan.gpus)
    assert plan_mig(wanted[::-1], options, A100, 5.0) == plan


@given(st.floats(20.0, 2000.0), st.floats(15.0, 100.0))
@settings(max_examples=10, deadline=None)
def test_one_service_needs_as_many_gpus_as_the_best_cut_serves(rate: float, slo_ms: float) -> None:
    options = by_latency(points(), slo_ms)
    plan = plan_mig([Service("s", "m", rate, slo_ms)], {"s": options}, A100, 1.0)
    cuts = [(7,), (4, 3), (3, 3), (4, 2, 1), (3, 2, 2), (2, 2, 2, 1), (1,) * 7, (3, 2, 1, 1), (4, 1, 1, 1)]
    best_rps = max(sum(options[size].rps for size in cut if size in options) for cut in cuts)
    assert plan.lower_bound_gpus <= plan.gpus <= ceil(rate / best_rps) + 1


def test_queues_serve_less_than_they_could_and_keep_the_promise() -> None:
    found = by_queue(points(), slo_ms=40.0)
    assert set(found) == {1, 2, 3, 4, 7}
    for size, option in found.items():
        full_rps = max(point.rps for point in points() if point.slices == size)
        assert 0 < option.rps < full_rps
        assert option.p99_ms(option.rps / option.processes) <= 40.0
    assert [found[size].rps for size in (1, 2, 3, 4, 7)] == sorted(option.rps for option in found.values())
    assert by_queue(points(), slo_ms=2.0) == {}


def test_times_between_measured_batches_lie_on_a_line() -> None:
    noisy = (MigPoint(1, 1, 1, 100.0, 10.0), MigPoint(1, 4, 1, 500.0, 8.0), MigPoint(1, 8, 1, 400.0, 20.0))
    assert batch_times(noisy, 1, 1).busy_ms == pytest.approx([10, 10, 10, 10, 12.5, 15, 17.5, 20])


@pytest.mark.parametrize("scenario", PUBLISHED)
def test_the_published_scenarios(data_dir: Path, scenario: str) -> None:
    measured = read_mig_services(data_dir / "parvagpu" / "a100_mig_mps_profile.csv")
    table = open_table(data_dir / "parvagpu" / "scenarios.csv", ("scenario", "model", "slo_ms", "rate_per_s"), "x")
    wanted = [
        Service(model, model, float(rate), float(slo_ms))
        for _, (name, model, slo_ms, rate) in table.rows()
        if name == scenario
    ]
    options = {one.id: by_latency(measured[one.workload], one.slo_p99_ms) for one in wanted}
    plan = plan_mig(wanted, options, A100, 5.0)
    check_plan(plan, wanted, options)
    assert (plan.gpus, plan.lower_bound_gpus) == (PUBLISHED[scenario], PUBLISHED[scenario])


def test_a_search_that_finds_nothing_in_time_is_told() -> None:
    wanted = [Service(f"s{at}", "m", 100.0 + 37.0 * at, 20.0 + at) for at in range(40)]
    options = {one.id: by_latency(points(), one.slo_p99_ms) for one in wanted}
    with pytest.raises(InputError, match="the solver found no plan on MIG instances within 0 s"):
        plan_mig(wanted, options, A100, 5.0, time_limit_s=0.0)


def test_a_rate_that_no_number_of_processes_serves() -> None:
    plan = plan_mig([Service("s", "m", 9e8, 40.0)], {"s": by_latency(points(), 40.0)}, A100, 5.0)
    assert [one.why for one in plan.unplaced] == [
        "9e+08 requests per second need more than 10,000 replicas on A100-80GB"
    ]


def test_a_process_is_as_busy_as_its_throughput_says() -> None:
    """The latency is written in whole milliseconds: 2 for a batch of which 600 are done in a second."""
    times = batch_times((MigPoint(1, 1, 1, 600.0, 2.0), MigPoint(1, 2, 1, 900.0, 2.0)), 1, 1)
    assert times.busy_ms == pytest.approx([1000 / 600, 2000 / 900])
    assert times.latency_ms == pytest.approx([2.0, 2000 / 900])


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
