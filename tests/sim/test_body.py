"""The virtual body: small traces whose every second can be worked out, and work that no fault creates or hides."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.engine.events import Event, GpuLost, GpuRestored, JobCompleted, JobCrashed
from gpuloom.engine.instructions import Instruction, Start, Stop
from gpuloom.engine.machine import Engine
from gpuloom.gpus.cluster import parse_cluster
from gpuloom.sim.body import RunningJob, VirtualBody, Watcher
from gpuloom.sim.costs import Costs
from gpuloom.sim.faults import Faults
from gpuloom.sim.run import build_policy, make_world
from gpuloom.sim.scenario import Scenario
from gpuloom.work.model import Job, Kind, TraceJob
from tests.sim.small_traces import FREE, GPUS, POLICIES, jcts, passing_faults, run, sliced, traces, whole


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


def test_a_cut_that_was_under_way_when_the_gpu_was_lost_is_not_answered() -> None:
    faults = Faults((GpuLost(5.0, "test", 0), GpuRestored(10.0, "test", 0)))
    result = run([sliced("a", 0, 100)], "static:7", faults=faults, costs=Costs(start_s=0, cut_s=20))
    assert jcts(result)["a"] == pytest.approx(10 + 20 + 100)


class Ledger(Watcher):
    """Counts each job's work by itself, from the rates that it is told: rate times time, less what was not saved."""

    def __init__(self) -> None:
        self.done: dict[str, float] = {}
        self.saved: dict[str, float] = {}
        self.rates: dict[str, tuple[float, float]] = {}
        self.completed: dict[str, float] = {}
        self.working: dict[str, int] = {}
        self.now_s = 0.0

    def _count(self, at_s: float, job_id: str) -> None:
        assert at_s >= self.now_s, "time does not run backwards"
        self.now_s = at_s
        rate, since_s = self.rates.get(job_id, (0.0, at_s))
        self.done[job_id] = self.done.get(job_id, 0.0) + rate * (at_s - since_s)
        self.rates[job_id] = rate, at_s

    def event(self, event: Event) -> None:
        assert event.at_s >= self.now_s
        self.now_s = event.at_s
        if isinstance(event, JobCrashed):
            self._count(event.at_s, event.job_id)
            self.done[event.job_id] = self.saved.get(event.job_id, 0.0)
        elif isinstance(event, JobCompleted):
            self._count(event.at_s, event.job_id)
            self.completed[event.job_id] = self.done[event.job_id]

    def instruction(self, at_s: float, instruction: Instruction) -> None:
        if isinstance(instruction, Start):
            self.working[instruction.job_id] = self.working.get(instruction.job_id, 0) + 1
        elif isinstance(instruction, Stop):
            self._count(at_s, instruction.job_id)
            if instruction.save:
                self.saved[instruction.job_id] = self.done[instruction.job_id]
            else:
                self.done[instruction.job_id] = self.saved.get(instruction.job_id, 0.0)

    def rate(self, at_s: float, job: RunningJob) -> None:
        self._count(at_s, job.entry.job.id)
        self.rates[job.entry.job.id] = job.rate, at_s


def watched(trace: list[TraceJob], policy: str, faults: Faults, costs: Costs) -> tuple[Ledger, VirtualBody]:
    scenario, cluster, ledger = Scenario(trace, GPUS, costs=costs), parse_cluster(GPUS), Ledger()
    engine = Engine(cluster, build_policy(policy, cluster, 1, 10.0))
    body = VirtualBody(engine, make_world(scenario, cluster, engine.policy, 1), costs, [ledger], faults)
    body.run(trace)
    return ledger, body


@settings(deadline=None, max_examples=60)
@given(traces(), st.sampled_from(POLICIES), passing_faults(), st.sampled_from([FREE, Costs(), Costs(checkpoint_s=3.0)]))
def test_no_fault_creates_or_hides_work(trace: list[TraceJob], policy: str, faults: Faults, costs: Costs) -> None:
    ledger, body = watched(trace, policy, faults, costs)
    given_up = body.engine.state.given_up
    assert not body.jobs, "nobody is left behind"
    assert len(ledger.completed) + given_up == len(trace)
    lengths = {entry.job.id: entry.length_s for entry in trace}
    for job_id, done in ledger.completed.items():
        assert done == pytest.approx(lengths[job_id], rel=1e-6, abs=1e-6)
    crashed = {fault.job_id for fault in faults.events if isinstance(fault, JobCrashed)}
    assert given_up == 0 or crashed, "one crash is not enough, but who runs out of memory may give up"


@settings(deadline=None, max_examples=30)
@given(traces(), st.sampled_from(POLICIES))
def test_without_faults_a_price_is_only_ever_paid_in_time(trace: list[TraceJob], policy: str) -> None:
    """Same order of arrivals, same jobs: nobody is done before the seconds that it needs at full speed."""
    result = run(trace, policy, GPUS, Costs(), every_s=10.0)
    lengths = {entry.job.id: entry.length_s or 0.0 for entry in trace}
    for job_id, jct_s in jcts(result).items():
        assert jct_s >= (lengths[job_id] + Costs().start_s) * (1 - 1e-9)


@pytest.mark.parametrize(("submit_s", "every_s"), [(0.9, 0.3), (11.9, 0.7), (215.9, 12.7), (5e-324, 10.0)])
def test_a_round_whose_time_rounds_to_before_now_is_held_now(submit_s: float, every_s: float) -> None:
    """0.9 s is the third round of 0.3 s, but three times 0.3 is a hair less: nobody is asked in the past."""
    result = run([whole("a", submit_s, 100)], "whole-fifo", every_s=every_s)
    assert jcts(result)["a"] == pytest.approx(100.0)


def test_nothing_ever_happens_to_a_policy_that_is_stuck() -> None:
    """Rounds in which nothing is pending end the run, and the body still holds whom it never placed."""
    ledger, body = watched([sliced("a", 0, 100, mem_mib=30_000)], "static:3,3", Faults(), FREE)
    assert list(body.jobs) == ["a"]
    assert not ledger.completed


def test_a_checkpoint_takes_its_time_and_keeps_the_work() -> None:
    """oracle moves a job when another comes: with a price on saving, the sum of waits can only grow."""
    trace = [sliced(f"j{n}", 50.0 * n, 400.0, "resnet 128") for n in range(4)]
    cheap, dear = (
        run(trace, "oracle", GPUS, Costs(checkpoint_s=price_s), every_s=10.0).summary for price_s in (0.0, 20.0)
    )
    assert cheap.checkpoints == dear.checkpoints
    if dear.checkpoints:
        assert (dear.avg_jct_s or 0) > (cheap.avg_jct_s or 0)
