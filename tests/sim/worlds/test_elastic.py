"""The world of elastic jobs: rates from the tables, batches by the rules, agents that learn from what they ran."""

import io
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.engine.audit import audit
from gpuloom.engine.log import read
from gpuloom.engine.machine import Decision
from gpuloom.errors import InputError
from gpuloom.gpus.cluster import parse_cluster
from gpuloom.gpus.grant import Grant, Grants
from gpuloom.perf.goodput.goodput import gain
from gpuloom.perf.goodput.tables import ElasticTables
from gpuloom.sim.costs import Costs
from gpuloom.sim.run import build_policy, simulate
from gpuloom.sim.scenario import Scenario
from gpuloom.sim.worlds.elastic import ElasticWorld, progress_per_s, total_step_s
from gpuloom.work.model import Job, Kind, TraceJob
from tests.perf.conftest import small_profile, true_times

GPUS = "4x4xV100-16GB"
CLUSTER = parse_cluster(GPUS)
TABLES = {"toy": ElasticTables(small_profile()), "ncf": ElasticTables(small_profile("ncf"))}


def entry(
    name: str = "a", gpus: int = 4, batch: int | None = 256, submit_s: float = 0.0, model: str = "toy"
) -> TraceJob:
    return TraceJob(Job(name, submit_s, Kind.ELASTIC, model, gpus=gpus, max_gpus=16, batch=batch))


def on(*gpus: int, batch: int | None = None) -> Grants:
    return tuple(Grant(gpu, batch=batch) for gpu in gpus)


def world(**how: Any) -> ElasticWorld:
    return ElasticWorld(TABLES, CLUSTER, **how)


def test_a_tuned_job_advances_as_the_tables_say() -> None:
    run = world().admit(entry())
    report = run.start(30.0, on(0, 1, 2, 3))
    assert report is not None
    assert (report.epoch, report.progress, report.metric, report.goodput) == (0, 0.0, None, None)
    step_s, _ = true_times(1, 4, 64)
    assert run.rate(on(0, 1, 2, 3), ()) == pytest.approx(gain(2.0, 4.0, 4.0) / step_s)
    assert run.mark() == 101.0


def test_epochs_end_at_their_marks_and_the_last_one_ends_the_job() -> None:
    run = world().admit(entry())
    run.start(30.0, on(0, 1))
    first = run.rate(on(0, 1), ())
    for epoch in range(1, 4):
        complete, report = run.reach_mark(100.0 * epoch, on(0, 1))
        assert not complete
        assert report is not None
        assert (report.epoch, report.progress) == (epoch, 101.0 * epoch)
        assert report.metric == pytest.approx(0.5 + 0.1 * (epoch - 1))
        assert run.mark() == 101.0 * (epoch + 1)
    assert run.rate(on(0, 1), ()) > first, "noisier gradients make the same batch worth more"
    assert run.reach_mark(400.0, on(0, 1))[0]


def test_what_node_a_gpu_is_on_decides_the_speed() -> None:
    run = world().admit(entry())
    run.start(0.0, on(0, 1))
    together = run.rate(on(0, 1), ())
    run.start(60.0, on(0, 4))
    assert run.rate(on(0, 4), ()) < together


def test_accumulating_passes_do_not_wait_for_the_network() -> None:
    run = world().admit(entry(batch=1024))
    run.start(0.0, on(0, 1, 2, 3))
    step_s, sync_s = true_times(1, 4, 64)
    assert run.rate(on(0, 1, 2, 3), ()) == pytest.approx(gain(2.0, 4.0, 16.0) / (step_s + 3 * (step_s - sync_s)))


def test_a_granted_batch_overrides_the_tuned_one() -> None:
    tuned, granted = world().admit(entry()), world().admit(entry(batch=64))
    tuned.start(0.0, on(0, 1))
    granted.start(0.0, on(0, 1, batch=128))
    assert granted.rate(on(0, 1, batch=128), ()) == tuned.rate(on(0, 1), ())


def test_starts_and_restarts_cost_what_they_are_said_to() -> None:
    assert (world().start_s(entry(), False), world().start_s(entry(), True)) == (30.0, 30.0)
    cheap = world(start_s=10.0, restart_s=1.0)
    assert (cheap.start_s(entry(), False), cheap.start_s(entry(), True)) == (10.0, 1.0)


def test_an_agent_learns_from_what_it_ran_on() -> None:
    run = world(adaptive=True).admit(entry(batch=None))
    first = run.start(30.0, on(0))
    assert first is not None
    assert first.goodput is not None
    assert (first.goodput.most_replicas, first.goodput.max_replicas) == (1, 16)
    assert (first.goodput.grad_sqr, first.goodput.grad_var) == (2.0, 4.0)
    later = run.start(120.0, on(0, 1, 2, 3))
    assert later is not None
    assert later.goodput is not None
    assert later.goodput.most_replicas == 4
    assert later.goodput.times.a_r > first.goodput.times.a_r, "it has now seen what the network costs"
    _, report = run.reach_mark(200.0, on(0, 1, 2, 3))
    assert report is not None
    assert report.goodput is not None
    assert report.goodput.grad_var == 8.0, "of the epoch it is in"


def test_an_agent_chooses_a_better_batch_than_the_smallest() -> None:
    adaptive, tuned = world(adaptive=True).admit(entry(batch=None)), world().admit(entry(batch=64))
    grants = on(0, 1, 2, 3)
    for run in (adaptive, tuned):
        run.start(0.0, grants)
    assert adaptive.rate(grants, ()) > tuned.rate(grants, ())


def test_ncf_keeps_to_one_gpu_and_to_its_batch() -> None:
    run = world(adaptive=True).admit(entry(model="ncf", batch=None))
    report = run.start(30.0, on(0))
    assert report is not None
    assert report.goodput is not None
    assert report.goodput.max_replicas == 1
    assert run.rate(on(0), ()) == progress_per_s(TABLES["ncf"], (1,), run._local, 0)
    assert run._local.total(1) == 1024, "as much of 32,768 as was validated"


def test_hints_tell_optimus_the_truth() -> None:
    hints = world().hints(entry(batch=256))
    assert hints.step_s is not None
    assert len(hints.step_s) == 16, "the cluster is smaller than 256 / 8"
    assert hints.step_s[3] == pytest.approx(true_times(1, 4, 64)[0])
    assert hints.step_s[7] == pytest.approx(true_times(2, 8, 32)[0])
    assert hints.iterations == (25.0, 50.0, 75.0, 100.0)
    assert len(world().hints(entry(batch=64)).step_s or ()) == 8
    assert len(world().hints(entry(model="ncf")).step_s or ()) == 1


def test_yardsticks() -> None:
    tables = TABLES["toy"]
    assert world().single_gpu_s(entry()) == pytest.approx(404.0 * true_times(1, 1, 64)[0])
    run, alone_s = world().admit(entry()), 0.0
    run.start(0.0, on(0, 1, 2, 3))
    for _ in range(tables.epochs):
        alone_s += 101.0 / run.rate(on(0, 1, 2, 3), ())
        run.reach_mark(0.0, on(0, 1, 2, 3))
    assert world().alone_s(entry()) == pytest.approx(alone_s)
    assert total_step_s(tables, (4,), run._local) == pytest.approx(true_times(1, 4, 64)[0])


def test_an_unmeasured_model_is_refused_in_one_sentence() -> None:
    with pytest.raises(InputError, match="job a runs 'gpt', which has not been measured: measured are toy, ncf"):
        world().admit(entry(model="gpt"))


@pytest.mark.parametrize("policy", ["tiresias", "optimus", "pollux"])
def test_a_run_ends_and_is_repeatable(policy: str) -> None:
    trace = [entry(f"j{n}", gpus=1 + n % 5, submit_s=7.0 * n, model=("toy", "toy", "ncf")[n % 3]) for n in range(12)]
    trace = [replace(job, job=replace(job.job, gpus=1)) if job.job.workload == "ncf" else job for job in trace]
    scenario = Scenario(trace, GPUS, tables=TABLES, costs=Costs(start_s=30.0))
    one, same = simulate(scenario, policy, 3), simulate(scenario, policy, 3)
    assert one.summary == same.summary
    assert one.outcomes.jct_s == same.outcomes.jct_s
    assert one.summary.completed == 12
    assert one.summary.plans_rejected == 0
    assert all(jct_s == int(jct_s) for jct_s in one.outcomes.jct_s), "marks are reached at whole seconds"


def test_a_log_of_pollux_replays_to_the_same_plans() -> None:
    """What the agents reported is all in the log, and the search draws the same numbers again."""
    log = io.StringIO()
    trace = [entry(f"j{n}", submit_s=50.0 * n) for n in range(5)]
    simulate(Scenario(trace, GPUS, tables=TABLES, costs=Costs(start_s=30.0)), "pollux", 3, log=log)
    lines = log.getvalue().splitlines(keepends=True)
    lines = lines[: 2 * len(lines) // 3]
    found = audit(lines, "log", lambda head, gpus: build_policy(head.policy, gpus, head.seed, None))
    assert found.difference is None
    engine = found.engine
    planned: dict[str, Grants] = {}
    for one in read(lines, "log"):
        planned |= one.plan.grants if isinstance(one, Decision) else {}
    assert engine.state.jobs
    assert {job_id: job.grants for job_id, job in engine.state.jobs.items()} == {
        job_id: planned.get(job_id, ()) for job_id in engine.state.jobs
    }


def test_a_job_that_lost_its_work_is_back_in_the_epoch_of_its_checkpoint() -> None:
    run = world().admit(entry())
    run.start(0.0, (Grant(0),))
    first = run.mark()
    run.reach_mark(10.0, (Grant(0),))
    assert run.mark() > first
    run.rewind(0.0)
    assert run.mark() == first
    run.rewind(first)
    assert run.mark() > first


@settings(deadline=None, max_examples=40)
@given(st.sampled_from([64, 128, 256, 512]), st.integers(1, 3))
def test_one_more_gpu_of_the_same_node_is_never_slower(batch: int, gpus: int) -> None:
    """As the made-up law has it: within a node the network costs less than what the smaller local batch saves."""
    run = world().admit(entry(batch=batch))
    rates = []
    for count in (gpus, gpus + 1):
        grants = on(*range(count))
        run.start(0.0, grants)
        rates.append(run.rate(grants, ()))
    assert rates[1] > rates[0] * 0.999


@settings(deadline=None, max_examples=40)
@given(st.floats(0.0, 403.9), st.booleans())
def test_lost_work_is_lost_to_the_epoch_it_was_in(done: float, adaptive: bool) -> None:
    run = world(adaptive=adaptive).admit(entry())
    run.start(0.0, on(0, 1))
    for _ in range(3):
        run.reach_mark(0.0, on(0, 1))
    run.rewind(done)
    marks = TABLES["toy"].epoch_marks
    assert run.mark() == min(mark for mark in marks if mark > done)


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 16), st.sampled_from([None, 64, 256, 1024]))
def test_a_job_alone_takes_what_its_epochs_take_one_after_the_other(gpus: int, batch: int | None) -> None:
    job = entry(gpus=gpus, batch=batch)
    run, grants, alone_s = world().admit(job), on(*range(gpus)), 0.0
    run.start(0.0, grants)
    for _ in range(TABLES["toy"].epochs):
        alone_s += 101.0 / run.rate(grants, ())
        run.reach_mark(0.0, grants)
    assert world().alone_s(job) == pytest.approx(alone_s)
    assert world().batch_of(job) == (batch or 64)
    assert 1 <= world().max_replicas(job, world().batch_of(job)) <= 16


def test_elastic_jobs_cannot_be_probed_for_slices() -> None:
    with pytest.raises(InputError, match="elastic jobs hold whole GPUs"):
        world().probe([entry()], CLUSTER.gpus[0].model)
