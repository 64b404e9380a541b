"""A probe begins when everybody on the GPU runs, and its answer reaches the jobs and the policy."""

from gpuloom.contract.plan import Plan
from gpuloom.engine.events import GpuCut, GpuLost, GpuProbed, JobCompleted, JobCrashed, JobStarted
from gpuloom.engine.instructions import Cut, Probe, Start
from gpuloom.gpus.grant import Grant
from gpuloom.gpus.model import Instance
from gpuloom.perf.speed import Estimate
from tests.engine.conftest import Bench

WHOLE = Instance(0, "7g.40gb")
HALF = Grant(0, WHOLE, 50.0)


def probing(bench: Bench) -> bool:
    return bench.engine.state.gpus[0].probing


def mixing(bench: Bench) -> None:
    """Two jobs are to share GPU 0 for a probe."""
    bench.arrive("a")
    out = bench.arrive("b", 1.0, Plan({0: (WHOLE,)}, {"a": (HALF,), "b": (HALF,)}, probes=(0,)))
    assert [type(one) for one in out] == [Cut]
    out = bench.tell(GpuCut(5.0, "cut", 0, (WHOLE,)))
    assert [type(one) for one in out] == [Start, Start]


def test_the_probe_waits_for_the_last_to_run(bench: Bench) -> None:
    mixing(bench)
    assert bench.tell(JobStarted(10.0, "up", "a")) == []
    assert bench.tell(JobStarted(12.0, "up", "b")) == [Probe(0, ("a", "b"))]
    assert probing(bench)
    asked = len(bench.policy.seen)
    estimates = {"3g.20gb": Estimate(0.7, 0.6, 0.8)}
    bench.tell(GpuProbed(42.0, "probed", 0, {"a": estimates, "gone": estimates}))
    assert bench.engine.state.jobs["a"].estimates == estimates
    assert bench.engine.state.jobs["b"].estimates is None
    assert not probing(bench)
    assert len(bench.policy.seen) == asked + 1


def test_who_ends_before_it_runs_does_not_hold_the_probe_up(bench: Bench) -> None:
    mixing(bench)
    bench.tell(JobStarted(10.0, "up", "a"))
    assert bench.tell(JobCrashed(11.0, "bad luck", "b")) == [Probe(0, ("a",))]


def test_a_gpu_that_everybody_left_is_not_probed(bench: Bench) -> None:
    mixing(bench)
    bench.tell(JobCrashed(10.0, "bad luck", "a"))
    assert bench.tell(JobCompleted(11.0, "done", "b")) == []
    assert not bench.engine.state.gpus[0].probe_wanted


def test_a_lost_gpu_is_not_probed_and_a_late_answer_does_no_harm(bench: Bench) -> None:
    mixing(bench)
    bench.tell(JobStarted(10.0, "up", "a"))
    bench.tell(JobStarted(10.0, "up", "b"))
    bench.tell(GpuLost(20.0, "gone", 0))
    bench.tell(GpuProbed(40.0, "probed", 0, {}))
    assert not probing(bench)
    bench.arrive("c", 50.0, Plan(probes=(0,)))
    assert bench.engine.decision is not None
    assert bench.engine.decision.rejected == "GPU 0: cannot be probed: lost"
