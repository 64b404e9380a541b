"""The world of elastic jobs: rates from the tables, batches by the rules, agents that learn from what they ran."""

import io
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.contract.plan import NO_CHANGE, Plan
from gpuloom.contract.policy import Policy, When
from gpuloom.contract.view import MoveCosts, Report, View
from gpuloom.engine.audit import audit
from gpuloom.engine.events import Event, JobCrashed, JobReported
from gpuloom.engine.log import Header, read
from gpuloom.engine.machine import Decision, Engine
from gpuloom.errors import InputError
from gpuloom.gpus.cluster import Cluster, parse_cluster
from gpuloom.gpus.grant import Grant, Grants
from gpuloom.perf.goodput.goodput import gain
from gpuloom.perf.goodput.tables import ElasticTables
from gpuloom.sim.body import VirtualBody, Watcher
from gpuloom.sim.costs import Costs
from gpuloom.sim.faults import NO_FAULTS, Faults
from gpuloom.sim.run import build_policy, simulate
from gpuloom.sim.scenario import Scenario
from gpuloom.sim.worlds.elastic import TRIAL_STEPS, ElasticWorld, progress_per_s, stretched, total_step_s
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


# ---- lengths -----------------------------------------------------------------------------------------------------

marks_of_a_job = st.lists(st.floats(0.5, 100.0), min_size=1, max_size=12).map(lambda gaps: tuple(accumulate(gaps)))


@given(marks_of_a_job, st.floats(0.05, 8.0))
def test_a_stretched_job_ends_where_it_should_and_gives_nothing_away(marks: tuple[float, ...], stretch: float) -> None:
    longer = stretched(marks, stretch)
    assert longer[-1] == pytest.approx(marks[-1] * stretch)
    assert all(one < other for one, other in pairwise(longer))
    common = min(len(longer) - 1, len(marks))
    assert longer[:common] == marks[:common], "until its end its epochs are those of every other job"


def test_stretches_by_hand() -> None:
    assert stretched((10.0, 20.0, 40.0), 1.0) == (10.0, 20.0, 40.0)
    assert stretched((10.0, 20.0, 40.0), 0.6) == (10.0, 20.0, 24.0)
    assert stretched((10.0, 20.0, 40.0), 0.5) == (10.0, 20.0)
    assert stretched((10.0, 20.0, 40.0), 2.2) == (10.0, 20.0, 40.0, 60.0, 80.0, 88.0)
    assert stretched((10.0,), 2.5) == (10.0, 20.0, 25.0)


@pytest.mark.parametrize("stretch", [0.3, 0.5, 2.0, 3.7])
def test_a_stretched_job_takes_its_time(stretch: float) -> None:
    job = replace(entry(), stretch=stretch)
    run, grants, alone_s, before = world().admit(job), on(0, 1, 2, 3), 0.0, 0.0
    run.start(0.0, grants)
    complete = False
    while not complete:
        alone_s += (run.mark() - before) / run.rate(grants, ())
        before = run.mark()
        complete, _ = run.reach_mark(0.0, grants)
    assert before == pytest.approx(404.0 * stretch)
    assert world().alone_s(job) == pytest.approx(alone_s)
    assert world().single_gpu_s(job) == pytest.approx(stretch * world().single_gpu_s(entry()))
    assert (world().hints(job).iterations or ())[-1] == pytest.approx(100.0 * stretch)


@settings(max_examples=30)
@given(st.floats(0.2, 40.0), st.floats(0.2, 40.0))
def test_a_larger_share_is_never_slower(one: float, other: float) -> None:
    """Within a node; the made-up network across nodes costs more than the second node brings."""
    small, large = sorted((min(one, 4.0), min(other, 4.0)))
    fair = world(start_s=0.0)
    assert fair.shared_s(entry(), large) <= fair.shared_s(entry(), small) * (1 + 1e-9)


def test_a_part_of_a_gpu_is_that_part_of_its_speed_and_between_two_numbers_speeds_are_straight() -> None:
    fair = world(start_s=0.0)
    assert fair.shared_s(entry(), 0.25) == pytest.approx(4 * fair.shared_s(entry(), 1.0))
    flat = replace(entry(), stretch=0.2)  # within its first epoch, where the rate is one
    rates = [1 / fair.shared_s(flat, gpus) for gpus in (2.0, 2.5, 3.0)]
    assert rates[1] == pytest.approx((rates[0] + rates[2]) / 2)
    assert world().shared_s(flat, 2.0) == pytest.approx(30.0 + fair.shared_s(flat, 2.0))
    assert fair.shared_s(entry(model="ncf"), 8.0) == fair.shared_s(entry(model="ncf"), 1.0), "it runs on one"


# ---- moving about ------------------------------------------------------------------------------------------------


class Scripted(Policy):
    """Does what it is told at each moment."""

    when = When(every_s=10.0)

    def __init__(self, cluster: Cluster, script: dict[float, tuple[int, ...]]) -> None:  # noqa: ARG002
        self.script = script

    def decide(self, view: View) -> Plan:
        if view.now_s not in self.script or "a" not in view.jobs:
            return NO_CHANGE
        return Plan(grants={"a": on(*self.script[view.now_s])})


class Diary(Watcher):
    def __init__(self) -> None:
        self.times: dict[str, list[float]] = {}
        self.reports: list[Report] = []

    def event(self, event: Event) -> None:
        self.times.setdefault(type(event).__name__, []).append(event.at_s)
        if isinstance(event, JobReported):
            self.reports.append(event.report)


def lived(
    script: dict[float, tuple[int, ...]], costs: Costs, *, in_place: bool = False, faults: Faults = NO_FAULTS
) -> Diary:
    """One long job that is moved about by hand."""
    job = replace(entry(), stretch=3.0)
    job = replace(job, job=replace(job.job, in_place=in_place))
    diary, policy = Diary(), Scripted(CLUSTER, script)
    place = world(start_s=costs.start_s, restart_s=costs.restart_s)
    body = VirtualBody(Engine(CLUSTER, policy, costs=costs.told()), place, costs, [diary], faults)
    body.run([job])
    assert not body.jobs
    return diary


def test_a_first_start_a_resumption_and_a_resize_cost_what_they_cost() -> None:
    script = {10.0: (0,), 20.0: (), 30.0: (0,), 100.0: (), 110.0: (0,), 150.0: (0, 1)}
    diary = lived(script, Costs(start_s=30.0, restart_s=7.0, rescale_s=2.0), in_place=True)
    assert diary.times["JobStarted"] == [60.0, 117.0], "stopped in its first start it had nothing to be resumed"
    assert diary.times["JobRescaled"] == [152.0]


def test_who_is_not_resized_in_place_is_resumed() -> None:
    diary = lived({10.0: (0,), 100.0: (0, 1)}, Costs(start_s=30.0, restart_s=7.0, rescale_s=2.0))
    assert diary.times["JobStarted"] == [40.0, 107.0]
    assert "JobRescaled" not in diary.times


def test_a_job_reports_every_half_minute_once_however_often_it_is_moved() -> None:
    script = {10.0: (0,), 100.0: (), 110.0: (0,), 150.0: (0, 1), 190.0: (), 260.0: (1,)}
    diary = lived(script, Costs(start_s=30.0, restart_s=7.0, rescale_s=2.0), in_place=True)
    progress = [report.progress for report in diary.reports]
    assert progress == sorted(progress)
    times = diary.times["JobReported"]
    assert [report.at_s for report in diary.reports] == times
    epochs = {report.at_s for one, report in pairwise(diary.reports) if report.epoch > one.epoch}
    steady = [at_s for at_s in times if at_s not in epochs]
    assert steady[:8] == [40.0, 70.0, 100.0, 117.0, 130.0, 152.0, 160.0, 190.0]
    assert not any(190.0 < at_s < 267.0 for at_s in times), "who does not work has nothing to tell"
    assert steady[8:11] == [267.0, 297.0, 327.0]


def test_what_it_reports_between_two_epochs_is_how_far_it_truly_is() -> None:
    diary = lived({10.0: (0,)}, Costs(start_s=30.0))
    run = world().admit(entry())
    run.start(0.0, on(0))
    first, second = diary.reports[:2]
    assert (first.at_s, first.progress, second.at_s) == (40.0, 0.0, 70.0)
    assert second.progress == pytest.approx(30.0 * run.rate(on(0), ()))


def test_a_batch_that_was_told_is_paid_for_when_it_is_first_tried() -> None:
    run = world(adaptive=True).admit(entry(batch=None))
    first, second = on(0, batch=256), on(0, batch=300)
    run.start(30.0, first)
    price = run.tried()
    assert price == pytest.approx(TRIAL_STEPS * gain(2.0, 4.0, 4.0), rel=1e-6), "so many steps"
    run.start(40.0, second)
    assert run.tried() > 0
    run.start(50.0, first)
    assert run.tried() == 0.0, "that one is known"


def test_a_resize_is_no_checkpoint() -> None:
    costs = Costs(start_s=30.0, restart_s=7.0, rescale_s=2.0)
    script = {10.0: (0,), 150.0: (0, 1), 200.0: (0, 1)}
    calm = lived(script, costs, in_place=True)
    hit = lived(script, costs, in_place=True, faults=Faults((JobCrashed(160.0, "injected", "a"),)))
    again = next(report for report in hit.reports if report.at_s > 160.0)
    assert again.progress == 0.0 < next(report for report in calm.reports if report.at_s > 150.0).progress


def test_a_policy_can_be_told_other_costs_than_it_pays() -> None:
    scenario = Scenario([entry()], GPUS, tables=TABLES, costs=Costs(start_s=30.0, rescale_s=1.0))
    for told in (None, MoveCosts(5.0, 6.0, 7.0)):
        log = io.StringIO()
        simulate(replace(scenario, told=told), "ones", log=log)
        header = next(iter(read(log.getvalue().splitlines(keepends=True), "log")))
        assert isinstance(header, Header)
        assert header.costs == (told or MoveCosts(30.0, 30.0, 1.0))


def test_ones_runs_to_the_end_and_its_log_replays_to_the_same_plans() -> None:
    trace = [entry(f"j{n}", submit_s=50.0 * n, model=("toy", "ncf")[n % 2]) for n in range(8)]
    for rescale_s in (None, 1.0):
        jobs = [replace(job, job=replace(job.job, in_place=rescale_s is not None)) for job in trace]
        log = io.StringIO()
        scenario = Scenario(jobs, GPUS, tables=TABLES, costs=Costs(start_s=30.0, rescale_s=rescale_s))
        summary = simulate(scenario, "ones", log=log).summary
        assert (summary.completed, summary.plans_rejected) == (8, 0)
        lines = log.getvalue().splitlines(keepends=True)
        found = audit(lines, "log", lambda head, gpus: build_policy(head.policy, gpus, head.seed, None))
        assert found.difference is None
