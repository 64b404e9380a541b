"""Elastic jobs that are resized in place: what the engine instructs, and that nothing that comes late breaks it."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.contract.plan import Plan
from gpuloom.contract.policy import Policy, When
from gpuloom.contract.view import Phase
from gpuloom.engine.events import (
    GpuLost,
    JobCompleted,
    JobCrashed,
    JobRescaled,
    JobStarted,
    JobStopped,
    RescaleFailed,
    Tick,
)
from gpuloom.engine.instructions import Rescale, Start, Stop
from gpuloom.engine.log import Header
from gpuloom.engine.recovery import recover
from gpuloom.gpus.cluster import Cluster
from gpuloom.gpus.grant import Grant, Grants
from gpuloom.work.model import Kind
from tests.engine.conftest import Bench
from tests.engine.dump import dump
from tests.engine.random_world import STRETCHED, live
from tests.engine.stretching import Stretching


def stretching(header: Header, cluster: Cluster) -> Policy:
    return Stretching(cluster, header.seed, "150,60")


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**31))
def test_whatever_comes_late_or_fails_the_state_is_sound_and_a_replay_is_the_same(seed: int) -> None:
    lived = live(STRETCHED, seed, 250, stretching)
    found = recover(lived.lines, "run.log", stretching)
    assert found.reset is None
    assert dump(found.engine.state) == lived.states[-1]
    state = lived.engine.state
    assert state.plans_rejected == 0
    for job in state.jobs.values():  # everything was answered, so that nobody waits for anybody
        assert job.id not in state.rescaling
        assert job.phase is (Phase.RUNNING if job.grants else Phase.WAITING)
        assert job.held == job.grants


def test_the_random_worlds_do_resize() -> None:
    lived = [live(STRETCHED, seed, 250, stretching) for seed in range(8)]
    words = "".join(line for one in lived for line in one.lines)
    assert words.count('{"JobRescaled":') > 50
    assert words.count('{"RescaleFailed":') > 5


ONE = (Grant(0),)


def on(*gpus: int) -> Grants:
    return tuple(map(Grant, gpus))


def running(grants: Grants = ONE, **fields: Any) -> Bench:
    bench = Bench("4xV100", When(every_s=10.0))
    bench.arrive("a", kind=Kind.ELASTIC, max_gpus=4, in_place=True, **fields)
    tick(bench, 10.0, grants)
    bench.tell(JobStarted(11.0, "test", "a"))
    return bench


def tick(bench: Bench, at_s: float, gpus: Grants, job_id: str = "a") -> list[object]:
    out = bench.tell(Tick(at_s, "round"), Plan(grants={job_id: gpus}))
    return [one for one in out if isinstance(one, Start | Stop | Rescale)]


def test_it_grows_shrinks_and_changes_its_batch_in_place() -> None:
    bench = running()
    more = (Grant(0, batch=32), Grant(1, batch=32))
    for at_s, target in ((20.0, on(0, 1)), (30.0, on(1)), (40.0, on(1, 2, 3)), (50.0, more)):
        assert tick(bench, at_s, target) == [Rescale("a", target)]
        held = {grant.gpu for grant in bench.engine.state.jobs["a"].held}
        assert held >= {grant.gpu for grant in target}
        bench.tell(JobRescaled(at_s + 1, "test", "a"))
        assert bench.engine.state.jobs["a"].held == target
    assert bench.engine.state.jobs["a"].rescales == 4
    assert bench.engine.state.jobs["a"].starts == 1


def test_who_could_not_is_started_again_where_it_should_be_and_keeps_both_until_it_has_left() -> None:
    bench = running()
    tick(bench, 20.0, on(0, 1))
    assert Stop("a", save=True) in bench.tell(RescaleFailed(21.0, "test", "a"))
    assert {grant.gpu for grant in bench.engine.state.jobs["a"].held} == {0, 1}
    assert Start("a", on(0, 1), resume=True) in bench.tell(JobStopped(22.0, "test", "a"))


def test_a_lost_gpu_costs_a_worker_and_not_the_job() -> None:
    bench = running(on(0, 1, 2))
    assert bench.tell(GpuLost(20.0, "test", 1)) == [Rescale("a", on(0, 2))]


def test_a_gpu_that_it_was_only_to_get_is_lost() -> None:
    """Nobody is stopped for a GPU on which it is not, whatever it is doing just then."""
    bench = Bench("4xV100", When(every_s=10.0))
    bench.arrive("a", kind=Kind.ELASTIC, max_gpus=4, in_place=True)
    tick(bench, 10.0, on(0))
    tick(bench, 20.0, on(0, 1))  # it is still starting
    assert bench.tell(GpuLost(21.0, "test", 1)) == []
    assert bench.tell(JobStarted(22.0, "test", "a")) == []
    assert bench.engine.state.jobs["a"].grants == on(0)


def test_too_few_are_left_of_what_it_was_to_get() -> None:
    bench = running(on(0, 1))
    tick(bench, 20.0, on(0))
    tick(bench, 30.0, on(2))
    assert bench.tell(GpuLost(31.0, "test", 2)) == [Stop("a", save=True)]


def test_it_ends_while_it_is_resized() -> None:
    for kind in (JobCompleted, JobCrashed):
        bench = running()
        tick(bench, 20.0, on(0, 1))
        bench.tell(kind(21.0, "test", "a"))
        assert not bench.engine.state.rescaling
        assert not bench.engine.state.held
