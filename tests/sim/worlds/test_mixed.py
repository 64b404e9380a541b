"""Elastic jobs and jobs on slices in one run: each in its own world, both under one policy."""

import io

import pytest

from gpuloom.contract.policy import Policy
from gpuloom.engine.audit import audit
from gpuloom.engine.events import JobReported
from gpuloom.engine.log import Header, read_turns
from gpuloom.gpus.cluster import Cluster, parse_cluster
from gpuloom.gpus.grant import Grant
from gpuloom.perf.goodput.tables import ElasticTables
from gpuloom.sim.costs import Costs
from gpuloom.sim.inputs import POLLUX_COSTS
from gpuloom.sim.run import build_policy, make_world, simulate
from gpuloom.sim.scenario import Scenario
from gpuloom.sim.worlds.elastic import ElasticWorld
from gpuloom.sim.worlds.mixed import MixedWorld
from gpuloom.sim.worlds.world import World
from gpuloom.work.measured.figures import load_figures
from gpuloom.work.model import Job, Kind, TraceJob
from tests.perf.conftest import small_profile

GPUS = "2x2xA100-40GB"
TABLES = {"toy": ElasticTables(small_profile())}
RESNET = next(name for name in load_figures().workloads if name.startswith("resnet"))


def elastic(number: int) -> TraceJob:
    return TraceJob(Job(f"e{number}", 400.0 * number, Kind.ELASTIC, "toy", max_gpus=4, batch=256))


def sliceable(number: int) -> TraceJob:
    job = Job(f"s{number}", 30.0 * number, Kind.SLICEABLE, RESNET, mem_mib=4000)
    return TraceJob(job, 500.0)


def scenario(*entries: TraceJob) -> Scenario:
    trace = sorted(entries, key=lambda entry: entry.job.submit_s)
    return Scenario(trace, GPUS, tables=TABLES, costs=POLLUX_COSTS, slice_costs=Costs())


def world_of(told: Scenario) -> World:
    cluster = parse_cluster(GPUS)
    return make_world(told, cluster, build_policy("ones", cluster, 0, None), 0)


def test_it_is_there_only_where_both_kinds_are() -> None:
    assert isinstance(world_of(scenario(elastic(1))), ElasticWorld)
    assert isinstance(world_of(scenario(elastic(1), sliceable(1))), MixedWorld)


def test_a_rigid_job_takes_as_long_as_it_says_whoever_else_is_there() -> None:
    rigid = TraceJob(Job("rigid", 0.0, Kind.RIGID, "toy"), 600.0)
    alone, beside = world_of(scenario(elastic(1), rigid)), world_of(scenario(elastic(1), sliceable(1), rigid))
    assert alone.alone_s(rigid) == beside.alone_s(rigid) == 600.0


def test_each_job_pays_and_is_measured_by_what_its_own_kind_does() -> None:
    world = world_of(scenario(elastic(1), sliceable(1)))
    assert isinstance(world, MixedWorld)
    assert (world.start_s(elastic(1), False), world.start_s(sliceable(1), False)) == (30.0, 10.0)
    assert (world.start_s(elastic(1), True), world.start_s(sliceable(1), True)) == (30.0, 9.0)
    assert world.alone_s(sliceable(1)) == world.single_gpu_s(sliceable(1)) == 500.0
    assert world.alone_s(elastic(1)) != 500.0
    assert world.hints(sliceable(1)).speeds is not None
    assert world.hints(elastic(1)).step_s is not None
    assert world.admit(sliceable(1)).rate((Grant(0),), ()) == 1.0
    untimed = TraceJob(Job("rigid", 0.0, Kind.RIGID, "toy"))
    assert world.of(untimed) is world.of(elastic(1)), "its length is that of the tables"


def test_jobs_on_slices_report_as_steadily_as_elastic_ones() -> None:
    log = io.StringIO()
    simulate(scenario(elastic(1), *map(sliceable, range(8))), "ones", 0, log=log)
    _, turns = read_turns(log.getvalue().splitlines(keepends=True), "log")
    told = [
        (event.at_s, event.report.batches_per_s)
        for turn in turns
        for event in turn.events
        if isinstance(event, JobReported) and event.job_id == "s0"
    ]
    assert len(told) > 5
    assert all(rate is not None and rate > 0 for _, rate in told)


@pytest.mark.parametrize("policy", ["ones", "ones:-slices"])
def test_a_run_of_both_kinds_ends_and_its_log_is_what_happened(policy: str) -> None:
    jobs = [*map(elastic, range(3)), *map(sliceable, range(24))]
    log, again = io.StringIO(), io.StringIO()
    result = simulate(scenario(*jobs), policy, 0, log=log)
    assert result.summary.completed == len(jobs)
    assert result.summary.plans_rejected == 0
    assert (result.summary.repartitions > 0) == (policy == "ones")
    simulate(scenario(*jobs), policy, 0, log=again)
    assert log.getvalue() == again.getvalue(), "the same inputs give the same bytes"

    def fresh(header: Header, cluster: Cluster) -> Policy:
        return build_policy(header.policy, cluster, header.seed, None)

    found = audit(log.getvalue().splitlines(keepends=True), "log", fresh)
    assert found.difference is None
    assert not found.engine.state.jobs
