"""Whole runs: repeatable to the byte, sound under every policy, and no larger at the end than they need be."""

import io
from dataclasses import fields, replace

import pytest
from hypothesis import given, settings

from gpuloom.contract.policy import Policy
from gpuloom.engine.audit import audit
from gpuloom.engine.events import GpuLost
from gpuloom.engine.log import Header
from gpuloom.engine.machine import Engine
from gpuloom.engine.recovery import recover
from gpuloom.errors import InputError
from gpuloom.gpus.cluster import Cluster, parse_cluster
from gpuloom.sim.body import VirtualBody
from gpuloom.sim.costs import Costs
from gpuloom.sim.faults import Faults
from gpuloom.sim.inputs import Inputs, load
from gpuloom.sim.metrics import Summary
from gpuloom.sim.run import build_policy, figures, make_world, simulate
from gpuloom.sim.scenario import Scenario
from gpuloom.work.model import Job, Kind, TraceJob
from tests.engine.dump import dump
from tests.sim.small_traces import run, sliced, traces, whole

POLICIES = ["whole-fifo", "whole-sjf", "static:3,2,2", "mps-only", "oracle", "miso-paper", "miso", "best-static"]
SMALL = Inputs(gpus="2xA100-40GB", jobs=25)
RESTLESS = Inputs(
    gpus="2xA100-40GB", jobs=25, faults=("gpu-lost:0@900", "gpu-restored:0@1500", "crash:job-3@700", "cut-fails:3")
)


@pytest.mark.parametrize("policy", POLICIES)
def test_the_same_seed_gives_the_same_bytes(policy: str) -> None:
    logs, rows = [], []
    for _ in range(2):
        log = io.StringIO()
        rows.append({**figures(simulate(load(SMALL, 3), policy, 3, log=log)), "wall_s": 0})
        logs.append(log.getvalue())
    assert logs[0] == logs[1]
    assert rows[0] == rows[1]
    assert rows[0]["completed"] == 25
    assert rows[0]["plans_rejected"] == 0


@pytest.mark.parametrize("inputs", [SMALL, RESTLESS], ids=["smooth", "faults"])
@pytest.mark.parametrize("policy", ["whole-fifo", "static:3,2,2", "mps-only", "oracle", "miso-paper", "miso"])
def test_a_log_replays_to_the_same_state(policy: str, inputs: Inputs) -> None:
    log, scenario = io.StringIO(), load(inputs, 1)
    cluster = parse_cluster(scenario.gpus)
    engine = Engine(cluster, build_policy(policy, cluster, 1, scenario.every_s))
    simulate(scenario, policy, 1, log=log)
    VirtualBody(engine, make_world(scenario, cluster, engine.policy, 1), scenario.costs, (), scenario.faults).run(
        scenario.trace
    )
    lines = log.getvalue().splitlines(keepends=True)

    def fresh(header: Header, cluster: Cluster) -> Policy:
        return build_policy(header.policy, cluster, header.seed, header.every_s)

    asked = audit(lines, "run.jsonl", fresh)
    assert asked.difference is None
    assert dump(asked.engine.state) == dump(engine.state)
    assert dump(recover(lines, "run.jsonl", fresh).engine.state) == dump(engine.state)


@pytest.mark.parametrize(
    "policy", ["whole-fifo", "whole-sjf", "static:3,2,2", "mps-only", "oracle", "miso-paper", "miso"]
)
def test_faults_lose_no_job(policy: str) -> None:
    summary = simulate(load(RESTLESS, 2), policy, 2).summary
    assert summary.completed == 25
    assert summary.given_up == 0


def test_what_ran_leaves_nothing_behind() -> None:
    """State, body and curves are as small after a long run as after a short one."""
    trace = [TraceJob(Job(f"j{n}", n * 3600.0, Kind.RIGID), 1800.0) for n in range(3000)]
    scenario = Scenario(trace, "2xV100", costs=Costs())
    cluster = parse_cluster("2xV100")
    engine = Engine(cluster, build_policy("whole-fifo", cluster, 0, 10.0))
    body = VirtualBody(engine, make_world(scenario, cluster, engine.policy, 1), scenario.costs)
    body.run(trace)
    assert not any((body.jobs, body._agenda, engine.state.jobs, engine.state.held, engine.state.order))
    curves = simulate(scenario, "whole-fifo").curves
    assert curves is not None
    assert len(curves.points(0)) <= 1025


def test_best_static_is_the_best_of_all_static_layouts() -> None:
    scenario = load(SMALL, 1)
    best = simulate(scenario, "best-static", 1)
    assert best.layout is not None
    for layout in ("7", "4,3", "3,3", "3,2,2", "4,2,1"):
        other = simulate(scenario, f"static:{layout}", 1).summary.avg_jct_s
        assert (best.summary.avg_jct_s or 0) <= (other or 0) + 1e-9


def test_a_cut_beside_costs_what_it_is_said_to() -> None:
    """On MIG nothing; the same cuts with a price can only be slower."""
    free, dear = (
        simulate(load(replace(SMALL, costs=costs), 1), "static:3,2,2", 1).summary.avg_jct_s or 0
        for costs in ((), ("stay_s=50",))
    )
    assert free <= dear
    free, dear = (
        simulate(load(replace(SMALL, costs=costs), 1), "miso", 1).summary.avg_jct_s or 0
        for costs in ((), ("stay_s=50",))
    )
    assert free < dear


def test_a_job_that_no_policy_could_place_is_refused_before_the_run() -> None:
    with pytest.raises(InputError, match=r"wide .*fits nowhere"):
        run([whole("wide", 0, 1, gpus=3)], "whole-fifo", "2xV100")
    with pytest.raises(InputError, match=r"big .*fits nowhere"):
        run([sliced("big", 0, 1, mem_mib=99_999)], "oracle")


@pytest.mark.parametrize("every_s", [None, 10.0])
def test_a_job_that_this_policy_never_places_is_named(every_s: float | None) -> None:
    with pytest.raises(InputError, match="never places job a"):
        run([sliced("a", 0, 1, mem_mib=30_000)], "static:3,3", every_s=every_s)


def test_an_empty_trace_is_refused() -> None:
    with pytest.raises(InputError, match="no jobs"):
        run([], "whole-fifo")


def test_best_static_prefers_layouts_that_lose_no_job() -> None:
    trace = [TraceJob(Job(f"j{n}", 0, Kind.SLICEABLE, "bert 8"), 500.0) for n in range(4)]
    result = run(trace, "best-static")
    assert result.summary.given_up == 0
    assert result.summary.completed == 4


def test_a_gpu_that_never_comes_back_is_named() -> None:
    with pytest.raises(InputError, match="GPU 0 of 1xA100-40GB did not come back"):
        run([whole("a", 0, 100)], "whole-fifo", faults=Faults((GpuLost(50.0, "test", 0),)))


def test_a_job_without_a_length_needs_tables() -> None:
    with pytest.raises(InputError, match="job e has no length"):
        run([TraceJob(Job("e", 0, Kind.ELASTIC, "cifar10", max_gpus=4))], "whole-fifo")


def test_rigid_jobs_are_not_shared() -> None:
    with pytest.raises(InputError, match="never places"):
        run([whole("a", 0, 100)], "mps-only")


def test_a_row_of_figures_names_the_run_and_all_of_its_summary() -> None:
    """Names are a contract with scripts."""
    row = figures(run([whole("a", 0, 100)], "whole-fifo"))
    names = [field.name for field in fields(Summary)]
    assert list(row) == ["policy", "seed", *names, "wall_s"]
    assert "layout" in figures(run([sliced("a", 0, 100)], "best-static"))


def test_how_often_a_policy_is_asked_can_be_told() -> None:
    cluster = parse_cluster("1xA100-40GB")
    for name in ("whole-fifo", "oracle", "miso"):
        own, told = build_policy(name, cluster, 0, None), build_policy(name, cluster, 0, 25.0)
        assert told.when.every_s == 25.0
        assert told.when.only_if_changed is (own.when.every_s is None), "who asks for rounds itself gets every one"


def test_progress_is_told_as_time_goes_on() -> None:
    seen: list[tuple[float, int]] = []
    trace = [whole(f"j{n}", 10.0 * n, 100) for n in range(5)]
    simulate(Scenario(trace, "2xV100"), "whole-fifo", on_progress=lambda at_s, done: seen.append((at_s, done)))
    assert seen == sorted(seen)
    assert seen[-1][1] == 5


@settings(deadline=None, max_examples=8)
@given(traces())
def test_best_static_is_never_worse_than_a_layout_that_it_tried(trace: list[TraceJob]) -> None:
    best = run(trace, "best-static", "1xA100-40GB").summary
    for layout in ("7", "4,3", "3,2,2"):
        other = run(trace, f"static:{layout}", "1xA100-40GB").summary
        assert (best.given_up, best.avg_jct_s or 0) <= (other.given_up, (other.avg_jct_s or 0) + 1e-6)


def test_best_static_needs_gpus_that_can_be_cut_and_slices_for_every_job() -> None:
    with pytest.raises(InputError, match="needs GPUs of one model that has MIG"):
        run([sliced("a", 0, 100)], "best-static", "2xV100")
    with pytest.raises(InputError, match="needs GPUs of one model that has MIG"):
        run([sliced("a", 0, 100)], "best-static", "1xA100-40GB,1xA100-80GB")
