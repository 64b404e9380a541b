"""Small traces whose every second can be worked out by hand."""

import pytest

from gpuloom.engine.events import GpuLost, GpuRestored, JobCrashed
from gpuloom.errors import InputError
from gpuloom.sim.body import Faults
from gpuloom.sim.costs import Costs
from gpuloom.sim.run import Result, Scenario, simulate
from gpuloom.work.model import Job, Kind, TraceJob

FREE = Costs(start_s=0, restart_s=0, cut_s=0, mps_start_s=0)


def whole(job_id: str, submit_s: float, length_s: float, gpus: int = 1) -> TraceJob:
    return TraceJob(Job(job_id, submit_s, Kind.RIGID, gpus=gpus, min_gpus=gpus, max_gpus=gpus), length_s)


def sliced(job_id: str, submit_s: float, length_s: float, workload: str | None = None, mem_mib: int = 0) -> TraceJob:
    return TraceJob(Job(job_id, submit_s, Kind.SLICEABLE, workload, mem_mib=mem_mib), length_s)


def run(trace: list[TraceJob], policy: str, gpus: str = "1xA100-40GB", costs: Costs = FREE, **more: object) -> Result:
    return simulate(Scenario(trace, gpus, costs=costs, **more), policy)  # type: ignore[arg-type]


def jcts(result: Result) -> dict[str, float]:
    return dict(zip(result.outcomes.ids, result.outcomes.jct_s, strict=True))


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


def test_the_shortest_waiting_job_goes_first() -> None:
    trace = [whole("now", 0, 100), whole("long", 1, 90), whole("short", 2, 10)]
    assert jcts(run(trace, "whole-sjf")) == {"now": 100.0, "short": 108.0, "long": 199.0}


def test_a_wide_job_at_the_head_holds_up_those_behind_it() -> None:
    trace = [whole("a", 0, 100), whole("wide", 1, 10, gpus=2), whole("b", 2, 10)]
    assert jcts(run(trace, "whole-fifo", "2xV100")) == {"a": 100.0, "wide": 109.0, "b": 118.0}


def test_a_slice_runs_at_the_measured_speed() -> None:
    from gpuloom.work.measured.figures import load_figures

    speed = load_figures().workloads["resnet 512"].speeds["2g.10gb"]
    result = run([sliced("a", 0, 100, "resnet 512")], "static:2,2,2,1")
    assert jcts(result)["a"] == pytest.approx(100 / speed)


def test_a_cut_and_a_start_cost_what_they_cost() -> None:
    result = run([sliced("a", 0, 100)], "static:7", costs=Costs(start_s=10, cut_s=4))
    assert jcts(result)["a"] == pytest.approx(114)
    assert result.summary.repartitions == 1


def test_neighbours_under_mps_slow_each_other_by_the_authors_penalty() -> None:
    alone = jcts(run([sliced("a", 0, 100)], "mps-only:2"))["a"]
    both = jcts(run([sliced("a", 0, 100), sliced("b", 0, 1000)], "mps-only:2"))["a"]
    assert both == pytest.approx(alone / 0.85)


def test_a_neighbour_that_leaves_gives_the_speed_back() -> None:
    alone = jcts(run([sliced("a", 0, 100)], "mps-only:2"))["a"]
    short = jcts(run([sliced("a", 0, 100), sliced("b", 0, 20)], "mps-only:2"))
    assert short["a"] == pytest.approx(alone + short["b"] * 0.15)


def test_a_crash_loses_the_work_since_the_last_checkpoint() -> None:
    faults = Faults((JobCrashed(60.0, "test", "a"), JobCrashed(70.0, "test", "nobody")))
    assert jcts(run([whole("a", 0, 100)], "whole-fifo", faults=faults))["a"] == 160.0


def test_a_lost_gpu_comes_back_and_the_job_starts_again_from_nothing() -> None:
    faults = Faults((GpuLost(50.0, "test", 0), GpuRestored(80.0, "test", 0)))
    result = run([whole("a", 0, 100)], "whole-fifo", faults=faults, costs=Costs(start_s=5, restart_s=7))
    assert jcts(result)["a"] == 80 + 7 + 100
    assert result.summary.restarts == 1


def test_a_cut_that_fails_half_way_is_paid_twice() -> None:
    faults = Faults(failing_cuts=frozenset({1}))
    result = run([sliced("a", 0, 100)], "static:4,3", faults=faults, costs=Costs(start_s=0, cut_s=4))
    smooth = run([sliced("a", 0, 100)], "static:4,3", costs=Costs(start_s=0, cut_s=4))
    assert jcts(result)["a"] == pytest.approx(jcts(smooth)["a"] + 4)
    assert result.summary.repartitions == 2


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


def test_unlike_gpus_are_given_by_the_memory_a_job_needs() -> None:
    trace = [TraceJob(Job(f"j{n}", 0, Kind.RIGID, mem_mib=mem), 100) for n, mem in enumerate((30_000, 1_000, 30_000))]
    result = run(trace, "whole-fifo", "2xV100,1xA100-40GB")
    assert jcts(result) == {"j0": 100.0, "j1": 100.0, "j2": 200.0}
    assert result.summary.plans_rejected == 0


@pytest.mark.parametrize("policy", ["oracle", "miso-paper", "miso"])
def test_cutting_policies_cope_with_unlike_gpus_and_with_jobs_that_hide_their_memory(policy: str) -> None:
    hidden = [TraceJob(Job(f"j{n}", n, Kind.SLICEABLE, "bert 8"), 500.0) for n in range(6)]
    for gpus in ("1xA100-40GB", "1xA100-40GB,1xA100-80GB,1xA30"):
        summary = run(hidden, policy, gpus, every_s=10.0).summary
        assert (summary.completed, summary.given_up, summary.plans_rejected) == (6, 0, 0)


def test_a_workload_too_large_for_a_whole_gpu_runs_out_of_memory() -> None:
    summary = run([TraceJob(Job("a", 0, Kind.SLICEABLE, "bert 8"), 100)], "whole-fifo", "1xT4").summary
    assert (summary.completed, summary.given_up) == (0, 1)


def test_best_static_prefers_layouts_that_lose_no_job() -> None:
    trace = [TraceJob(Job(f"j{n}", 0, Kind.SLICEABLE, "bert 8"), 500.0) for n in range(4)]
    result = run(trace, "best-static")
    assert result.summary.given_up == 0
    assert result.summary.completed == 4


def test_a_cut_that_was_under_way_when_the_gpu_was_lost_is_not_answered() -> None:
    faults = Faults((GpuLost(5.0, "test", 0), GpuRestored(10.0, "test", 0)))
    result = run([sliced("a", 0, 100)], "static:7", faults=faults, costs=Costs(start_s=0, cut_s=20))
    assert jcts(result)["a"] == pytest.approx(10 + 20 + 100)


def test_a_gpu_that_never_comes_back_is_named() -> None:
    with pytest.raises(InputError, match="GPU 0 of 1xA100-40GB did not come back"):
        run([whole("a", 0, 100)], "whole-fifo", faults=Faults((GpuLost(50.0, "test", 0),)))


def test_a_job_without_a_length_needs_tables() -> None:
    with pytest.raises(InputError, match="job e has no length"):
        run([TraceJob(Job("e", 0, Kind.ELASTIC, "cifar10", max_gpus=4))], "whole-fifo")


def test_rigid_jobs_are_not_shared() -> None:
    with pytest.raises(InputError, match="never places"):
        run([whole("a", 0, 100)], "mps-only")
