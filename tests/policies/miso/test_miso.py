"""`miso`: what it promises each job, and what it does not waste. Asked by hand, and in whole small runs."""

import io
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.contract.view import Estimates, JobView, Phase, Report
from gpuloom.engine.log import read
from gpuloom.engine.machine import Decision
from gpuloom.errors import InputError
from gpuloom.gpus.cluster import parse_cluster
from gpuloom.gpus.grant import Grant
from gpuloom.gpus.layouts import parse
from gpuloom.gpus.model import GpuModel
from gpuloom.perf.speed import Estimate
from gpuloom.policies.miso.cuts import CutBook, Seat
from gpuloom.policies.miso.policy import Miso
from gpuloom.policies.miso.tuning import LEVERS, Tuning, without
from gpuloom.policies.slicing import slices_by_count
from gpuloom.sim.run import Result, simulate
from gpuloom.sim.scenario import Scenario
from gpuloom.work.measured.figures import load_figures
from gpuloom.work.model import Job, Kind, TraceJob
from tests.policies.conftest import Desk

GIB = 1024


def entry(job_id: str, length_s: float, submit_s: float = 0.0, workload: str | None = None, **fields: Any) -> TraceJob:
    given: dict[str, Any] = {"mem_mib": 4 * GIB} | fields
    return TraceJob(Job(job_id, submit_s, Kind.SLICEABLE, workload, **given), length_s)


def run(jobs: Sequence[TraceJob], gpus: str = "1xA100-40GB", policy: str = "miso") -> tuple[Result, list[Decision]]:
    """The figures, and all that was decided."""
    log = io.StringIO()
    result = simulate(Scenario(sorted(jobs, key=lambda one: one.job.submit_s), gpus), policy, 1, log=log)
    entries = read(log.getvalue().splitlines(keepends=True), "log")
    return result, [entry for entry in entries if isinstance(entry, Decision)]


class Slices(Desk):
    """A desk for jobs on slices."""

    def come(self, job_id: str, workload: str | None = None, **fields: Any) -> None:
        given: dict[str, Any] = {"mem_mib": 4 * GIB} | fields
        self.arrive(job_id, workload=workload, kind=Kind.SLICEABLE, **given)

    def sit(self, gpu: int, layout: str, *job_ids: str, reports: Sequence[float] = ()) -> None:
        """Everybody runs on a slice of this layout, in order, and reports so many batches a second."""
        model = self.cluster.gpus[gpu].model
        instances = parse(model, layout)
        self.state.gpus[gpu] = self.state.gpus[gpu]._replace(layout=instances, actual=instances)
        for at, (job_id, instance) in enumerate(zip(job_ids, instances, strict=True)):
            grants = (Grant(gpu, instance),)
            self.state.plan_grants(job_id, grants)
            report = Report(self.state.now_s, batches_per_s=reports[at]) if reports else None
            self.change(job_id, held=grants, phase=Phase.RUNNING, starts=1, report=report, since_s=self.state.now_s)

    def change(self, job_id: str, **fields: Any) -> None:
        self.state.put(self.state.jobs[job_id]._replace(**fields))

    def decide(self, policy: Miso, now_s: float = 100.0) -> dict[str, str]:
        """Who gets what: "GPU profile", or what is said of those that wait."""
        plan = policy.decide(self.view(now_s))
        self.probed = plan.probes
        return {job_id: " ".join(f"{g.gpu} {g.instance}" for g in grants) for job_id, grants in plan.grants.items()}


def believed(policy: Miso, job: JobView, model: GpuModel) -> Estimates:
    return policy.beliefs.of(policy.beliefs.kind(job), model)


def known(*speeds: float) -> dict[str, Estimate]:
    names = ("7g.40gb", "4g.20gb", "3g.20gb", "2g.10gb", "1g.5gb")
    return {name: Estimate(speed, speed, speed) for name, speed in zip(names, speeds, strict=False)}


# ---- what is promised --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("floor", [0.2, 0.5, 0.8, 1.0])
def test_nobody_runs_below_its_floor(floor: float) -> None:
    jobs = [entry(f"j{n}", 600, 5.0 * n, "resnet 128", min_speed=floor) for n in range(6)]
    result, decisions = run(jobs, "2xA100-40GB")
    assert result.summary.completed == 6
    speeds = load_figures().workloads["resnet 128"].speeds
    used = {
        grant.instance.profile
        for decision in decisions
        for grants in decision.plan.grants.values()
        for grant in grants
        if grant.instance is not None and grant.share_pct == 100
    }
    assert used
    assert all(speeds[profile] >= floor - 0.03 for profile in used), "probes err by up to 0.023"


def test_a_large_job_is_not_starved_by_small_ones() -> None:
    """Small jobs come so fast that a GPU never empties by itself; the large one still runs, after a bounded wait."""
    small = [entry(f"s{n}", 300, 20.0 * n, "mobilenet 64") for n in range(300)]
    large = entry("large", 300, 600.0, "mobilenet 64", mem_mib=39 * GIB)
    result, _ = run([*small, large])
    waits = dict(zip(result.outcomes.ids, result.outcomes.wait_s, strict=True))
    slowest_small_s = 300 / 0.1
    assert waits["large"] <= Tuning().patience_s + slowest_small_s
    assert waits["large"] < 6000 - 600, "not only when the others had ended"


def test_urgent_ones_do_not_starve_the_others() -> None:
    urgent = [entry(f"u{n}", 300, 40.0 * n, "bert 8", mem_mib=20 * GIB, priority=10) for n in range(200)]
    patient = entry("patient", 300, 500.0, "bert 8", mem_mib=20 * GIB)
    result, _ = run([*urgent, patient])
    waits = dict(zip(result.outcomes.ids, result.outcomes.wait_s, strict=True))
    ahead = [one for one in urgent if one.job.submit_s < 500 + Tuning().priority_s]
    assert waits["patient"] < 330 * len(ahead)
    assert waits["patient"] < 330 * len(urgent) - 3000, "not only when the urgent ones had ended"


def test_a_gpu_is_reserved_that_could_hold_the_job() -> None:
    """The emptiest of two would be the smaller one, on which the large job can never run."""
    small = [entry(f"s{n}", 600, 25.0 * n, "mobilenet 64") for n in range(200)]
    large = entry("large", 300, 700.0, "mobilenet 64", mem_mib=60 * GIB)
    result, _ = run([*small, large], "1xA100-80GB,1xA100-40GB")
    waits = dict(zip(result.outcomes.ids, result.outcomes.wait_s, strict=True))
    assert waits["large"] < Tuning().patience_s + 600 / 0.1


def test_a_gpu_is_reserved_that_will_be_free_soon() -> None:
    """A job that has run for long alone on its GPU will go on for long: there is no use in waiting for that one."""
    endless = entry("endless", 40_000, 0.0, "mobilenet 64", min_speed=0.99)
    small = [entry(f"s{n}", 300, 2000 + 20.0 * n, "mobilenet 64") for n in range(400)]
    big = entry("big", 300, 3000.0, "mobilenet 64", mem_mib=30 * GIB)
    result, _ = run([endless, *small, big], "2xA100-40GB")
    waits = dict(zip(result.outcomes.ids, result.outcomes.wait_s, strict=True))
    assert waits["big"] < Tuning().patience_s + 300 / 0.1


def test_nothing_is_reserved_for_a_job_that_could_never_run() -> None:
    desk = Slices("1xA100-40GB")
    desk.come("never", "w", mem_mib=90 * GIB)
    policy = Miso(desk.cluster)
    assert not desk.decide(policy, 2000.0)
    desk.come("other", "w")
    assert list(desk.decide(policy, 3000.0)) == ["other"]


def test_a_floor_that_reports_show_to_be_broken_is_kept_again() -> None:
    """The first job must not be slower than three quarters; what it reports from 4g wakes the policy."""
    jobs = [
        entry("slow", 7200, 0.0, "cyclegan 4", mem_mib=9 * GIB, min_speed=0.75),
        entry("other", 7200, 60.0, "resnet 128"),
    ]
    result, decisions = run(jobs)
    speeds = load_figures().workloads["cyclegan 4"].speeds
    given = [
        (decision.at_s, grant.instance.profile)
        for decision in decisions
        for grant in decision.plan.grants.get("slow", ())
        if grant.instance is not None and grant.share_pct == 100
    ]
    below_s = sum(
        (until_s or result.summary.makespan_s) - at_s
        for (at_s, profile), (until_s, _) in zip(given, [*given[1:], (None, "")], strict=True)
        if speeds[profile] < 0.75
    )
    assert below_s < 120


def test_any_priority_can_be_weighed() -> None:
    desk = Slices("1xA100-40GB")
    for at, priority in enumerate((1_000_000, -1_000_000, 6000)):
        desk.come(f"j{at}", "w", priority=priority)
    assert len(desk.decide(Miso(desk.cluster))) == 3


def test_urgent_ones_go_first() -> None:
    desk = Slices("1xA100-40GB")
    for job_id, priority in (("a", 0), ("b", 0), ("c", 5)):
        desk.come(job_id, "w", mem_mib=39 * GIB, priority=priority)
    assert list(desk.decide(Miso(desk.cluster))) == ["c"]


def test_the_shorter_goes_first_unless_the_longer_has_waited_for_the_difference() -> None:
    desk = Slices("1xA100-40GB")
    desk.come("long", "w", mem_mib=39 * GIB, estimate_s=500.0)
    desk.state.now_s = 100.0
    desk.come("short", "w", mem_mib=39 * GIB, estimate_s=300.0)
    assert list(desk.decide(Miso(desk.cluster), 110.0)) == ["short"]
    assert list(desk.decide(Miso(desk.cluster, arg="-sizes"), 110.0)) == ["long"]
    late = Slices("1xA100-40GB")
    late.come("long", "w", mem_mib=39 * GIB, estimate_s=500.0)
    late.state.now_s = 300.0
    late.come("short", "w", mem_mib=39 * GIB, estimate_s=300.0)
    assert list(late.decide(Miso(late.cluster), 310.0)) == ["long"]


def test_a_job_that_does_not_fit_holds_nobody_up() -> None:
    for policy, runs in (("miso", ["small"]), ("miso:-skipping", [])):
        desk = Slices("1xA100-40GB")
        desk.come("sitting", "w")
        desk.sit(0, "7", "sitting")
        desk.come("large", "w", mem_mib=39 * GIB)
        desk.come("small", "w")
        given = desk.decide(Miso(desk.cluster, arg=policy.partition(":")[2]))
        assert [job_id for job_id in given if job_id != "sitting"] == runs


# ---- what is not wasted --------------------------------------------------------------------------------------------


def test_what_is_known_is_not_probed_again() -> None:
    desk = Slices("1xA100-40GB")
    desk.come("a", "w")
    desk.sit(0, "7", "a")
    desk.come("b", "w")
    policy = Miso(desk.cluster)
    desk.change("a", estimates=known(1.0, 0.9, 0.8, 0.6, 0.3))
    given = desk.decide(policy)
    assert not desk.probed
    assert {place.split()[1].split("@")[0] for place in given.values()} == {"4g.20gb", "3g.20gb"}


def test_memory_that_nobody_states_is_probed_before_it_is_cut() -> None:
    desk = Slices("1xA100-40GB")
    for job_id in "ab":
        desk.come(job_id, mem_mib=None)
    desk.decide(Miso(desk.cluster))
    assert desk.probed == (0,)


def test_a_cut_that_jobs_report_to_be_bad_is_changed() -> None:
    """Both were thought alike; then reports show that the one on 3g would gain by 4g what the other does not need."""
    desk = Slices("1xA100-40GB")
    policy = Miso(desk.cluster)
    desk.come("flat", "flat")
    desk.come("steep", "steep")
    for job_id in ("flat", "steep"):
        desk.change(job_id, estimates=known(1.0, 0.8, 0.7, 0.5, 0.2))
    desk.sit(0, "4,3", "flat", "steep")
    assert not desk.decide(policy, 10.0)
    for at_s, layout, rates in ((20.0, "7", 10.0), (30.0, "3,3", 9.9)):  # the flat one was seen elsewhere before
        other = Slices("1xA100-40GB")
        other.state.now_s = at_s
        other.come("flat too", "flat")
        other.come("nobody", "nobody")
        other.sit(0, layout, *["flat too", "nobody"][: len(layout.split(","))], reports=[rates, 1.0])
        policy.beliefs.learn(other.view(at_s))
    desk.state.now_s = 40.0
    given = desk.decide(policy, 40.0)
    assert given == {"flat": "0 3g.20gb@4", "steep": "0 4g.20gb@0"}
    assert not Miso(desk.cluster, arg="-telemetry").decide(desk.view(40.0)).grants


def test_who_crashes_without_stating_its_memory_is_tried_on_a_larger_slice() -> None:
    desk = Slices("1xA100-40GB")
    policy = Miso(desk.cluster)
    for job_id in "abcdefg":
        desk.come(job_id, "w", mem_mib=None)
    desk.change("a", estimates=known(1.0, 0.8, 0.6, 0.4, 0.2))
    desk.state.plan_grants("a", (Grant(0),))
    policy.beliefs.learn(desk.view(5.0))
    desk.state.plan_grants("a", ())
    assert set(desk.decide(policy, 10.0).values()) == {f"0 1g.5gb@{start}" for start in range(7)}
    model = desk.cluster.gpus[0].model
    assert "1g.5gb" in believed(policy, desk.state.jobs["a"], model)
    desk.change("a", crashes=1)
    desk.decide(policy, 20.0)
    for job_id in "ab":  # of one kind
        assert set(believed(policy, desk.state.jobs[job_id], model)) == {"7g.40gb", "4g.20gb", "3g.20gb", "2g.10gb"}


def test_the_first_of_its_kind_may_crash_without_confusing_the_others() -> None:
    """What a kind is believed to need does not change with the job that was the first of it."""
    desk = Slices("1xA100-40GB")
    policy = Miso(desk.cluster)
    for job_id in "abcdefg":
        desk.come(job_id, "w")
    desk.change("a", estimates=known(1.0, 0.8, 0.6, 0.4, 0.2))
    desk.state.plan_grants("a", (Grant(0),))
    policy.beliefs.learn(desk.view(5.0))
    desk.state.plan_grants("a", ())
    desk.decide(policy, 10.0)
    desk.change("a", crashes=1)
    desk.decide(policy, 20.0)
    first, *others = (set(believed(policy, job, desk.cluster.gpus[0].model)) for job in desk.state.jobs.values())
    assert first == {"7g.40gb", "4g.20gb", "3g.20gb", "2g.10gb"}
    assert all("1g.5gb" in other for other in others)


def test_a_crash_on_the_whole_gpu_says_nothing_about_memory() -> None:
    desk = Slices("1xA100-40GB")
    policy = Miso(desk.cluster)
    desk.come("a", "w", mem_mib=None)
    desk.decide(policy, 10.0)
    desk.change("a", crashes=1)
    desk.decide(policy, 20.0)
    assert "1g.5gb" in believed(policy, desk.state.jobs["a"], desk.cluster.gpus[0].model)


def test_instances_that_stay_keep_their_jobs() -> None:
    desk = Slices("1xA100-40GB")
    for job_id in "ab":
        desk.come(job_id, "w")
        desk.change(job_id, estimates=known(1.0, 0.9, 0.7, 0.5, 0.3))
    desk.sit(0, "4,3", "a", "b")
    desk.come("c", "w")
    given = desk.decide(Miso(desk.cluster))
    assert given["a"] == "0 4g.20gb@0", "it is mentioned, but stays"
    assert {given["b"].split("@")[0], given["c"].split("@")[0]} == {"0 2g.10gb", "0 1g.5gb"}


# ---- cuts --------------------------------------------------------------------------------------------------------

A100 = parse_cluster("1xA100-40GB").gpus[0].model
speeds = st.tuples(*[st.floats(0.05, 1.0)] * 4).map(lambda four: known(1.0, *sorted(four, reverse=True)))


@given(st.lists(st.tuples(speeds, st.sampled_from(["", "7g.40gb", "3g.20gb", "1g.5gb"])), min_size=1, max_size=7))
@settings(max_examples=60, deadline=None)
def test_the_order_of_jobs_does_not_change_a_cut(jobs: list[tuple[dict[str, Estimate], str]]) -> None:
    book = CutBook(lambda kind, _: jobs[kind][0], 600.0, 15.0)
    seats = [Seat(kind, 1.0, now) for kind, (_, now) in enumerate(jobs)]
    there, back = book.seatings(A100, tuple(seats)), book.seatings(A100, tuple(reversed(seats)))
    assert [cut.lost_s for cut in there] == pytest.approx([cut.lost_s for cut in back])
    for cut in there:
        assert tuple(sorted(cut.profiles)) in slices_by_count(A100)[len(jobs)]


def test_levers_and_their_names() -> None:
    assert without("") == Tuning()
    for name in LEVERS:
        assert without(f"-{name}") != Tuning()
    assert not without("-migration,-sizes").migrating
    for wrong in ("migration", "-nothing", "--sizes", "-migration -sizes"):
        with pytest.raises(InputError, match="is none of its levers; accepted are -layouts"):
            without(wrong)


@pytest.mark.parametrize("name", LEVERS)
def test_without_any_lever_every_job_still_ends(name: str) -> None:
    jobs = [entry(f"j{n}", 200.0 + 50 * (n % 5), 15.0 * n, ("resnet 128", "bert 4", None)[n % 3]) for n in range(25)]
    result, _ = run(jobs, "2xA100-40GB", f"miso:-{name}")
    assert (result.summary.completed, result.summary.plans_rejected) == (25, 0)


def test_jobs_on_unlike_gpus() -> None:
    """What a probe says of one GPU model does not rule another out."""
    desk = Slices("1xA100-40GB,1xA100-80GB")
    policy = Miso(desk.cluster)
    desk.come("a", "w")
    desk.sit(0, "7", "a")
    desk.change("a", estimates=known(1.0, 0.9, 0.8, 0.5, 0.2))
    desk.decide(policy, 10.0)
    view: JobView = desk.state.jobs["a"]
    assert "3g.20gb" in believed(policy, view, desk.cluster.gpus[0].model)
    assert "3g.40gb" in believed(policy, view, desk.cluster.gpus[1].model)
