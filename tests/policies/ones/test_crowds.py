"""Whole runs that a stranger broke: crowds, memory, scattered GPUs, nodes of different sizes, absurd reports."""

import io
import json
from dataclasses import replace
from statistics import fmean

import numpy as np
import pytest

from gpuloom.perf.goodput.remaining import Lengths, index
from gpuloom.policies.ones.policy import Ones
from gpuloom.sim.costs import Costs
from gpuloom.sim.run import Result, simulate
from gpuloom.sim.scenario import Scenario
from gpuloom.work.model import TraceJob
from tests.policies.conftest import Desk, scales_well
from tests.sim.small_traces import jcts, sliced, whole


def run(trace: list[TraceJob], gpus: str, policy: str = "ones") -> Result:
    result = simulate(Scenario(trace, gpus), policy)
    assert result.summary.completed == len(trace)
    assert result.summary.plans_rejected == 0
    return result


def named(entry: TraceJob, name: str | None = "mine", mem_mib: int | None = None) -> TraceJob:
    return replace(entry, job=replace(entry.job, workload=name, mem_mib=mem_mib))


def test_a_crowd_of_equal_jobs_is_served_about_as_in_a_queue() -> None:
    crowd = [named(whole(f"j{number}", 0.0, 1800.0)) for number in range(40)]
    ours, queue = (run(crowd, "1x4xV100-16GB", policy) for policy in ("ones", "whole-fifo"))
    assert ours.summary.restarts <= 10
    assert fmean(jcts(ours).values()) < 1.1 * fmean(jcts(queue).values())


def test_a_job_that_fits_on_few_gpus_does_not_hold_up_the_others() -> None:
    trace = [named(whole("large", 0.0, 600.0), mem_mib=30_000), whole("a", 0.0, 600.0), whole("b", 0.0, 600.0)]
    assert max(jcts(run(trace, "1xV100-16GB,2xA100-40GB")).values()) < 1300


def test_who_can_do_with_a_slice_is_put_on_gpus_that_cannot_be_cut_too() -> None:
    trace = [sliced(f"j{number}", 0.0, 1800.0, mem_mib=4000) for number in range(16)]
    mixed = fmean(jcts(run(trace, "7xV100-16GB,1xA100-40GB")).values())
    assert mixed < 3600, "on the one that can be cut alone it took four times as long"


def test_scattered_gpus_do_for_who_cannot_take_less() -> None:
    trace = [whole("s0", 0.0, 72_000.0), whole("t0", 0.0, 300.0, 3), whole("s1", 0.0, 72_000.0)]
    trace += [whole("t1", 0.0, 300.0, 3), whole("big", 600.0, 600.0, 4)]
    assert jcts(run(trace, "2x4xV100-16GB"))["big"] < 700


def test_nodes_of_different_sizes_make_up_what_one_job_needs() -> None:
    assert jcts(run([whole("big", 0.0, 600.0, 8)], "1x4xV100-16GB,4x1xV100-16GB"))["big"] < 700


def test_a_wide_job_beside_a_steady_crowd_waits_no_longer_than_the_crowd() -> None:
    dice = np.random.default_rng(4)
    crowd = [named(whole(f"s{n}", 700.0 * n, 3600.0 * dice.uniform(0.5, 1.5)), "short") for n in range(80)]
    wide = named(whole("wide", 15_000.0, 600.0, 4), "wide")
    found = jcts(run(sorted([*crowd, wide], key=lambda entry: entry.job.submit_s), "1x4xV100-16GB"))
    assert found["wide"] < max(found.values())
    assert found["wide"] < 12_000, "without a place kept for it, it was the last to run"


def test_turns_that_cost_more_than_the_patience_come_to_an_end() -> None:
    trace = [named(whole(f"j{n}", 0.0, 7200.0, gpus)) for n, gpus in enumerate((4, 4, 1, 1))]
    costly = Scenario(trace, "1x4xV100-16GB", costs=Costs(start_s=10.0, restart_s=3000.0))
    assert simulate(costly, "ones").summary.makespan_s < 60_000


def test_the_costs_that_were_given_are_told() -> None:
    log = io.StringIO()
    simulate(
        Scenario([whole("a", 0.0, 60.0)], "1xV100-16GB", costs=Costs(start_s=7.0, restart_s=77.0)), "ones", log=log
    )
    header = json.loads(log.getvalue().splitlines()[0])["Header"]
    assert header["costs"] == {"start_s": 7.0, "resume_s": 77.0, "resize_s": 77.0}


@pytest.mark.parametrize("lengths", [(1e-300, 1e300), (1e300, 1e300), (1e-300, 1e-300)])
def test_what_jobs_report_may_be_absurd(lengths: tuple[float, float]) -> None:
    known = Lengths()
    for length in lengths:
        known.add("mine", length)
    for done in (0.0, 1e-300, 1.0, 1e300):
        assert np.isfinite(index(known.left("mine", done, done)))
    desk = Desk()
    for number, progress in enumerate((*lengths, 1.0)):
        desk.arrive(f"j{number}", workload="mine")
        desk.report(f"j{number}", replace(scales_well(1), progress=progress))
    policy = Ones(desk.cluster)
    for number in range(1, 4):
        desk.ask(policy, 60.0 * number)
    assert all(desk.held(job_id) for job_id in desk.state.jobs)
