"""What a run was worth: figures that add up, whatever the policy, and that no stranger's time dilutes."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.engine.events import GpuLost
from gpuloom.gpus.cluster import parse_cluster
from gpuloom.gpus.grant import Grant
from gpuloom.gpus.model import Instance
from gpuloom.sim.costs import Costs
from gpuloom.sim.faults import Faults
from gpuloom.sim.metrics import FRAGMENTATION, HELD, QUEUE, USE, compute_share
from gpuloom.sim.run import Result, simulate
from gpuloom.sim.scenario import Scenario
from gpuloom.work.model import TraceJob
from tests.sim.small_traces import GPUS, POLICIES, jcts, passing_faults, run, sliced, traces, whole


def test_fifo_on_one_gpu_queues_and_counts() -> None:
    result = run([whole("a", 0, 100), whole("b", 10, 50)], "whole-fifo", costs=Costs(start_s=10))
    assert jcts(result) == {"a": 110.0, "b": 160.0}
    summary = result.summary
    assert summary.makespan_s == 170.0
    assert summary.avg_wait_s == pytest.approx((10 + 110) / 2)
    assert summary.avg_slowdown == pytest.approx((110 / 100 + 160 / 50) / 2)
    assert summary.stp_per_gpu == pytest.approx(150 / 170)
    assert summary.utilisation == pytest.approx(150 / 170)
    assert summary.gpu_hours == pytest.approx(170 / 3600)
    assert summary.avg_queue == pytest.approx(100 / 170)


def test_a_gpu_is_fragmented_as_long_as_a_badly_placed_slice_is_used() -> None:
    """1g at 1 leaves 6 slices free, but no 4g fits: fragmentation 0.25 while it is used, none while it is not."""
    trace = [sliced("a", 0, 1), sliced("b", 5000, 1000)]
    summary = run(trace, "static:1g.5gb@1").summary
    used_s = sum(run(trace, "static:1g.5gb@1").outcomes.jct_s)
    assert summary.fragmentation == pytest.approx(0.25 * used_s / summary.makespan_s)


@pytest.mark.parametrize("fault", [GpuLost(0.0, "early", 1), GpuLost(50.0, "between", 1), GpuLost(1e6, "late", 1)])
def test_faults_outside_the_run_do_not_stretch_it(fault: GpuLost) -> None:
    summary = run([whole("a", 1000, 100)], "whole-fifo", "2xV100", faults=Faults((fault,))).summary
    assert summary.makespan_s == 100
    assert summary.utilisation == pytest.approx(0.5)
    assert summary.gpu_hours == pytest.approx(100 / 3600)


def test_rounds_after_the_end_do_not_dilute_the_figures() -> None:
    summary = run([whole("a", 0, 100)], "whole-fifo", every_s=100_000.0).summary
    assert summary.makespan_s == 100
    assert summary.utilisation == pytest.approx(1.0)


def with_timeline(trace: list[TraceJob], policy: str, faults: Faults = Faults()) -> Result:  # noqa: B008 - frozen
    return simulate(Scenario(trace, GPUS, every_s=10.0, faults=faults), policy, timeline=True)


@settings(deadline=None, max_examples=40)
@given(traces(), st.sampled_from(POLICIES), passing_faults())
def test_compute_at_work_is_what_the_timeline_shows(trace: list[TraceJob], policy: str, faults: Faults) -> None:
    """Two watchers that know nothing of each other: GPU seconds of the curve, and of the segments that ran."""
    result = with_timeline(trace, policy, faults)
    cluster = parse_cluster(GPUS)
    assert result.timeline is not None
    assert result.curves is not None
    ran_s = sum(
        (segment.end_s - segment.begin_s) * compute_share(cluster, segment.grant)
        for segment in result.timeline.segments
        if segment.phase == "running"
    )
    assert result.curves.totals[USE] * len(cluster) == pytest.approx(ran_s, rel=1e-6, abs=1e-6)
    summary = result.summary
    assert 0 <= summary.utilisation <= 1 + 1e-9
    assert summary.utilisation * len(cluster) * summary.makespan_s <= summary.gpu_hours * 3600 * (1 + 1e-9)
    assert 0 <= summary.fragmentation <= 1


@settings(deadline=None, max_examples=40)
@given(traces(), st.sampled_from(POLICIES), passing_faults())
def test_times_of_jobs_add_up(trace: list[TraceJob], policy: str, faults: Faults) -> None:
    result = with_timeline(trace, policy, faults)
    rows, summary = result.outcomes, result.summary
    lengths = {entry.job.id: entry.length_s or 0.0 for entry in trace}
    submits = {entry.job.id: entry.job.submit_s for entry in trace}
    assert summary.jobs == len(trace) == summary.completed + summary.given_up
    assert list(rows.submit_s) == [submits[job_id] for job_id in rows.ids]
    for job_id, jct_s, wait_s, slowdown in zip(rows.ids, rows.jct_s, rows.wait_s, rows.slowdown, strict=True):
        assert 0 <= wait_s <= jct_s
        assert jct_s - wait_s >= lengths[job_id] * (1 - 1e-9), "from the first start on it needs its length or more"
        assert slowdown == pytest.approx(jct_s / lengths[job_id])
    ends = [submit_s + jct_s for submit_s, jct_s in zip(rows.submit_s, rows.jct_s, strict=True)]
    assert all(before <= after + 1e-6 for before, after in pairwise(ends)), "rows are in order of completion"
    if rows.ids:
        work_s = sum(lengths[job_id] for job_id in rows.ids)
        assert summary.stp_per_gpu * 2 * summary.makespan_s == pytest.approx(work_s)


@settings(deadline=None, max_examples=40)
@given(traces(), st.sampled_from(["whole-fifo", "whole-sjf"]))
def test_whole_gpus_wait_then_run_for_their_length(trace: list[TraceJob], policy: str) -> None:
    """Nobody is moved: a completion time is the wait and the length, and the queue is the sum of the waits."""
    costs = Costs()
    result = simulate(Scenario(trace, GPUS, costs=costs), policy)
    lengths = {entry.job.id: entry.length_s or 0.0 for entry in trace}
    rows, summary = result.outcomes, result.summary
    for job_id, jct_s, wait_s in zip(rows.ids, rows.jct_s, rows.wait_s, strict=True):
        assert jct_s == pytest.approx(wait_s + lengths[job_id])
    queued_s = sum(wait_s - costs.start_s for wait_s in rows.wait_s)
    assert summary.avg_queue * summary.makespan_s == pytest.approx(queued_s, abs=1e-6), "Little's law"
    assert summary.gpu_hours * 3600 == pytest.approx(sum(lengths.values()) + costs.start_s * len(trace))
    assert (summary.restarts, summary.checkpoints, summary.repartitions) == (0, 0, 0)


@settings(deadline=None, max_examples=30)
@given(traces(), st.sampled_from(POLICIES))
def test_percentiles_are_numpys(trace: list[TraceJob], policy: str) -> None:
    result = with_timeline(trace, policy)
    summary, rows = result.summary, result.outcomes
    for name, column in (("jct_s", rows.jct_s), ("wait_s", rows.wait_s), ("slowdown", rows.slowdown)):
        assert getattr(summary, f"avg_{name}") == pytest.approx(np.mean(column))
        assert getattr(summary, f"p99_{name}") == pytest.approx(np.percentile(column, 99))
        assert getattr(summary, f"max_{name}") == max(column)
    assert summary.p50_jct_s == pytest.approx(np.percentile(rows.jct_s, 50))
    assert summary.p90_jct_s == pytest.approx(np.percentile(rows.jct_s, 90))


@pytest.mark.parametrize(
    ("grant", "share"),
    [
        (Grant(0), 1.0),
        (Grant(0, None, 25.0), 0.25),
        (Grant(0, Instance(4, "3g.20gb")), 3 / 7),
        (Grant(0, Instance(0, "1g.5gb"), 50.0), 1 / 14),
    ],
)
def test_how_much_of_a_gpu_a_grant_is(grant: Grant, share: float) -> None:
    assert compute_share(parse_cluster("1xA100-40GB"), grant) == pytest.approx(share)


def test_a_lost_gpu_is_not_held_and_what_nobody_completed_has_no_mean() -> None:
    lost = Faults((GpuLost(20.0, "test", 1),))
    summary = run([whole("a", 0, 100)], "whole-fifo", "2xV100", faults=lost).summary
    assert summary.gpu_hours == pytest.approx(100 / 3600)
    nobody = run([sliced("a", 0, 100, "bert 8")], "whole-fifo", "1xT4").summary
    assert nobody.given_up == 1
    assert nobody.avg_jct_s is nobody.p99_wait_s is nobody.max_slowdown is None
    assert nobody.stp_per_gpu == 0.0


def test_curves_of_a_run_have_one_place_each() -> None:
    assert sorted((QUEUE, USE, HELD, FRAGMENTATION)) == [0, 1, 2, 3]
