"""One event at a time: what the engine instructs, and what it refuses."""

import pytest

from gpuloom.contract.plan import Plan
from gpuloom.contract.policy import When
from gpuloom.contract.view import Phase
from gpuloom.engine.events import (
    CutFailed,
    Event,
    GpuClosed,
    GpuCut,
    GpuJoined,
    GpuLeft,
    GpuLost,
    GpuRestored,
    JobArrived,
    JobCancelled,
    JobCompleted,
    JobCrashed,
    JobDisplaced,
    JobStalled,
    JobStarted,
    JobStopped,
    Tick,
)
from gpuloom.engine.instructions import Cut, GiveUp, Instruction, Start, Stop, WakeAt
from gpuloom.engine.machine import Decision, IllegalDecision, IllegalEvent
from gpuloom.gpus.cluster import DescribedGpu
from gpuloom.gpus.grant import Grant
from gpuloom.gpus.model import Instance
from gpuloom.gpus.steps import Create, Destroy
from gpuloom.work.model import Job, Kind
from tests.engine.conftest import Bench
from tests.engine.dump import dump

G3A, G3B, G2, G7 = Instance(0, "3g.20gb"), Instance(4, "3g.20gb"), Instance(4, "2g.10gb"), Instance(0, "7g.40gb")


def running(bench: Bench, job_id: str, grant: Grant, at_s: float = 0.0) -> None:
    """Bring a job to work on a grant of a GPU that is already cut that way."""
    bench.arrive(job_id, at_s, Plan(grants={job_id: (grant,)}))
    bench.tell(JobStarted(at_s, "up", job_id))


def cut(bench: Bench, gpu: int, *layout: Instance) -> None:
    """Have a GPU cut by way of a job that comes and goes."""
    bench.arrive("cutter", 0.0, Plan(layouts={gpu: layout}))
    bench.tell(GpuCut(0.0, "cut", gpu, layout))
    bench.tell(JobCancelled(0.0, "no longer needed", "cutter"))


def test_a_whole_gpu_is_used_at_once(bench: Bench) -> None:
    assert bench.arrive(plan=Plan(grants={"a": (Grant(1),)})) == [Start("a", (Grant(1),), resume=False)]
    assert bench.engine.state.jobs["a"].phase is Phase.STARTING
    assert bench.engine.state.idle.total == 1
    assert bench.tell(JobStarted(10.0, "up", "a")) == []
    assert bench.tell(JobCompleted(50.0, "done", "a")) == []
    assert not bench.engine.state.jobs
    assert bench.engine.state.idle.total == 2


def test_a_slice_is_cut_first_and_the_job_started_after(bench: Bench) -> None:
    out = bench.arrive(plan=Plan({0: (G3A,)}, {"a": (Grant(0, G3A),)}))
    assert out == [Cut(0, (Create(G3A),), (G3A,))]
    assert bench.tell(GpuCut(4.0, "cut", 0, (G3A,))) == [Start("a", (Grant(0, G3A),), resume=False)]


def test_an_untouched_instance_keeps_running_while_its_neighbour_is_cut(bench: Bench) -> None:
    cut(bench, 0, G3A, G3B)
    running(bench, "a", Grant(0, G3A))
    out = bench.arrive("b", 1.0, Plan({0: (G3A, G2)}, {"b": (Grant(0, G2),)}))
    assert out == [Cut(0, (Destroy(G3B), Create(G2)), (G3A, G2))]
    assert bench.engine.state.jobs["a"].phase is Phase.RUNNING


def test_a_job_whose_instance_goes_is_stopped_before_the_cut_and_resumed_after(bench: Bench) -> None:
    cut(bench, 0, G7)
    running(bench, "a", Grant(0, G7))
    out = bench.arrive("b", 1.0, Plan({0: (G3A, G3B)}, {"a": (Grant(0, G3A),), "b": (Grant(0, G3B),)}))
    assert out == [Stop("a", save=True)]
    out = bench.tell(JobStopped(2.0, "saved", "a"))
    assert out == [Cut(0, (Destroy(G7), Create(G3A), Create(G3B)), (G3A, G3B))]
    out = bench.tell(GpuCut(6.0, "cut", 0, (G3A, G3B)))
    assert out == [Start("a", (Grant(0, G3A),), resume=True), Start("b", (Grant(0, G3B),), resume=False)]


def test_two_jobs_can_change_places(bench: Bench) -> None:
    running(bench, "a", Grant(0))
    running(bench, "b", Grant(1))
    out = bench.arrive("c", 5.0, Plan(grants={"a": (Grant(1),), "b": (Grant(0),)}))
    assert out == [Stop("a", save=True), Stop("b", save=True)]
    assert bench.tell(JobStopped(6.0, "saved", "a")) == []
    assert bench.tell(JobStopped(7.0, "saved", "b")) == [
        Start("a", (Grant(1),), resume=True),
        Start("b", (Grant(0),), resume=True),
    ]


def test_shares_of_one_device_are_started_side_by_side(bench: Bench) -> None:
    halves = {job: (Grant(0, None, 50.0),) for job in "ab"}
    bench.arrive("a")
    assert len(bench.arrive("b", 1.0, Plan(grants=halves))) == 2


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        (Plan(grants={"a": (Grant(7),)}), "GPU 7: unknown"),
        (Plan(grants={"nobody": (Grant(0),)}), "job nobody: unknown"),
        (Plan(grants={"a": (Grant(0),), "b": (Grant(0),)}), "promised to 200 %"),
        (Plan(grants={"a": (Grant(0, None, 60.0),), "b": (Grant(0, None, 50.0),)}), "promised to 110 %"),
        (Plan(grants={"a": (Grant(0, None, 0.0),)}), "not between 0 and 100"),
        (Plan({0: (G3A, Instance(2, "2g.10gb"))}), "GPU 0:"),
        (Plan({0: (G3B, G3A)}), "GPU 0:"),
        (Plan(grants={"a": (Grant(0, G3A),)}), "not in its layout uncut"),
        (Plan({0: (G3A,)}, {"a": (Grant(0),)}), "holds it whole"),
        (Plan(grants={"a": (Grant(0), Grant(1))}), "2 GPUs, but it takes 1"),
        (Plan({0: (Instance(0, "1g.5gb"),)}, {"a": (Grant(0, Instance(0, "1g.5gb")),)}), "4864 MiB"),
        (Plan({0: (G3A,)}, {"rigid": (Grant(0, G3A), Grant(1))}), "cannot run on a part of a GPU"),
        (Plan(grants={"rigid": (Grant(1), Grant(1))}), "two grants on one GPU"),
        (Plan(grants={"elastic": (Grant(0),)}), "it takes 2 to 3"),
    ],
)
def test_an_infeasible_plan_is_refused_with_its_reason_and_nothing_changes(plan: Plan, reason: str) -> None:
    bench = Bench()
    bench.arrive("a", mem_mib=9000)
    bench.arrive("b")
    bench.arrive("rigid", kind=Kind.RIGID, gpus=2)
    bench.arrive("elastic", kind=Kind.ELASTIC, min_gpus=2, max_gpus=3)
    twin = Bench()
    for job in bench.engine.state.jobs.values():
        twin.arrive(job.id, **{f: getattr(job.job, f) for f in ("kind", "gpus", "min_gpus", "max_gpus", "mem_mib")})
    assert bench.arrive("last", 1.0, plan) == []
    twin.arrive("last", 1.0)
    decision = bench.engine.decision
    assert decision is not None
    assert reason in (decision.rejected or "")
    assert bench.engine.state.plans_rejected == 1
    bench.engine.state.plans_rejected = 0
    assert dump(bench.engine.state) == dump(twin.engine.state)


def test_a_new_layout_may_not_pull_the_slice_from_under_a_job_it_does_not_mention(bench: Bench) -> None:
    cut(bench, 0, G3A, G3B)
    running(bench, "a", Grant(0, G3A))
    bench.arrive("b", 1.0, Plan({0: (G7,)}))
    assert bench.engine.decision is not None
    assert "job a is on 3g.20gb@0" in (bench.engine.decision.rejected or "")


def test_a_lost_gpu_sends_its_jobs_back_to_their_place_in_the_queue(bench: Bench) -> None:
    running(bench, "a", Grant(0))
    bench.arrive("b", 1.0)
    assert bench.tell(GpuLost(2.0, "fell off the bus", 0)) == [Stop("a", save=False)]
    assert bench.tell(JobStopped(2.0, "killed", "a")) == []
    assert [*bench.engine.state.waiting] == ["a", "b"]
    bench.arrive("c", 3.0, Plan(grants={"a": (Grant(0),)}))
    assert bench.engine.decision is not None
    assert bench.engine.decision.rejected == "job a: GPU 0: lost"
    bench.tell(GpuRestored(4.0, "replaced", 0), Plan(grants={"a": (Grant(0),)}))
    assert bench.engine.state.jobs["a"].phase is Phase.STARTING


def test_a_job_on_two_gpus_leaves_both_when_one_is_lost(bench: Bench) -> None:
    both = (Grant(0), Grant(1))
    bench.arrive("a", 0.0, Plan(grants={"a": both}), kind=Kind.RIGID, gpus=2)
    bench.tell(JobStarted(1.0, "up", "a"))
    assert bench.tell(GpuLost(2.0, "gone", 1)) == [Stop("a", save=False)]
    assert bench.engine.state.idle.total == 1
    bench.tell(JobStopped(3.0, "killed", "a"))
    assert not bench.engine.state.held


def test_a_crashing_job_is_tried_again_and_then_given_up(bench: Bench) -> None:
    out = []
    bench.arrive("a")
    for at_s in range(4):
        bench.arrive(f"other-{at_s}", at_s, Plan(grants={"a": (Grant(0),)}))
        out = bench.tell(JobCrashed(at_s + 0.5, "segmentation fault", "a"))
    assert out == [GiveUp("a", "crashed 4 times, last: segmentation fault")]
    assert "a" not in bench.engine.state.jobs


def test_a_cut_that_fails_half_way_is_finished_from_where_it_stopped(bench: Bench) -> None:
    bench.arrive(plan=Plan({0: (G3A, G3B)}, {"a": (Grant(0, G3B),)}))
    out = bench.tell(CutFailed(4.0, "in use", 0, (G3A,)))
    assert out == [Cut(0, (Create(G3B),), (G3A, G3B))]
    assert bench.tell(GpuCut(8.0, "cut", 0, (G3A, G3B))) == [Start("a", (Grant(0, G3B),), resume=False)]
    assert bench.engine.state.gpus[0].failed_cuts == 0


def test_a_gpu_that_cannot_be_cut_is_taken_out_of_service(bench: Bench) -> None:
    bench.arrive(plan=Plan({0: (G3A,)}, {"a": (Grant(0, G3A),)}))
    for at_s in (1.0, 2.0, 3.0):
        bench.tell(CutFailed(at_s, "reset required", 0, ()))
    assert bench.engine.state.gpus[0].lost
    assert "a" in bench.engine.state.waiting


def frozen_with(bench: Bench) -> list[Instruction]:
    """GPU 0 with `a` at work on one half, and a cut for `b` that failed three times: what was instructed last."""
    cut(bench, 0, G3A)
    running(bench, "a", Grant(0, G3A), 1.0)
    bench.arrive("b", 2.0, Plan({0: (G3A, G3B)}, {"b": (Grant(0, G3B),)}))
    return [bench.tell(CutFailed(at_s, "in use", 0, (G3A,))) for at_s in (3.0, 4.0, 5.0)][-1]


def test_a_failed_cut_freezes_the_layout_and_stops_nobody_who_works_there(bench: Bench) -> None:
    assert frozen_with(bench) == []
    state = bench.engine.state
    assert state.jobs["a"].phase is Phase.RUNNING
    assert state.gpus[0].tenants == ("a",)
    assert [*state.waiting] == ["b"]
    assert state.gpus[0].layout == (G3A,)
    refused = bench.arrive("c", 6.0, Plan(grants={"c": (Grant(0, G3B),)}))
    assert refused == []
    assert bench.engine.decision is not None
    assert bench.engine.decision.rejected == "job c: GPU 0: it cannot be cut now, and stays as it is"


def test_a_plan_may_say_again_what_is_so_on_a_frozen_gpu(bench: Bench) -> None:
    frozen_with(bench)
    assert bench.arrive("c", 6.0, Plan({0: (G3A,)}, {"a": (Grant(0, G3A),), "b": (Grant(1),)})) == [
        Start("b", (Grant(1),), resume=False)
    ]


def test_a_frozen_gpu_is_cut_again_once_it_is_restored(bench: Bench) -> None:
    frozen_with(bench)
    again = Plan({0: (G3A, G3B)}, {"b": (Grant(0, G3B),)})
    assert bench.tell(GpuRestored(40.0, "?", 0), again) == [Cut(0, (Create(G3B),), (G3A, G3B))]
    assert bench.tell(GpuCut(41.0, "cut", 0, (G3A, G3B))) == [Start("b", (Grant(0, G3B),), resume=False)]
    assert bench.engine.state.jobs["a"].phase is Phase.RUNNING


def test_a_frozen_gpu_that_is_lost_takes_its_jobs_with_it(bench: Bench) -> None:
    frozen_with(bench)
    assert bench.tell(GpuLost(6.0, "fell off the bus", 0)) == [Stop("a", save=False)]
    assert not bench.engine.state.frozen


def test_who_leaves_a_frozen_gpu_leaves_it_to_nobody(bench: Bench) -> None:
    frozen_with(bench)
    bench.tell(JobCompleted(6.0, "done", "a"))
    bench.tell(GpuRestored(40.0, "?", 0))
    assert not bench.engine.state.gpus[0].lost


def test_a_gpu_is_closed_to_newcomers_and_not_to_who_works_there(bench: Bench) -> None:
    running(bench, "a", Grant(0))
    bench.arrive("b", 1.0, Plan(grants={"b": (Grant(1),)}))
    assert bench.tell(GpuClosed(2.0, "nobody can be launched there", 1)) == []
    assert bench.engine.state.jobs["b"].phase is Phase.STARTING, "it may come up all the same"
    displaced = JobDisplaced(3.0, "cannot be launched", "b")
    assert bench.tell(displaced, Plan(grants={"b": (Grant(1),)})) == []
    assert bench.engine.last_refusal is not None
    assert bench.tell(GpuRestored(33.0, "?", 1), Plan(grants={"b": (Grant(1),)})) == [
        Start("b", (Grant(1),), resume=True)
    ]
    assert bench.engine.state.jobs["b"].crashes == 0


def test_what_came_of_a_cut_under_way_is_known_of_a_closed_gpu_too(bench: Bench) -> None:
    bench.arrive("a", 0.0, Plan({0: (G3A,)}, {"a": (Grant(0, G3A),)}))
    bench.tell(GpuClosed(1.0, "?", 0))
    assert bench.tell(GpuCut(2.0, "cut", 0, (G3A,))) == []
    assert bench.tell(GpuRestored(30.0, "?", 0), Plan({0: (G3A,)}, {"a": (Grant(0, G3A),)})) == [
        Start("a", (Grant(0, G3A),), resume=False)
    ]


def test_a_log_of_before_is_followed_as_it_was_written() -> None:
    """Then a GPU that could not be cut was lost, with all who were on it."""
    bench = Bench()
    bench.engine.freezes = False
    assert frozen_with(bench) == [Stop("a", save=False)]


def test_a_plan_that_changes_while_a_gpu_is_being_cut_is_reached_in_a_second_cut(bench: Bench) -> None:
    bench.arrive("a", 0.0, Plan({0: (G3A,)}, {"a": (Grant(0, G3A),)}))
    assert bench.arrive("b", 1.0, Plan({0: (G7,)}, {"a": (Grant(0, G7),)})) == []
    assert bench.tell(GpuCut(4.0, "cut", 0, (G3A,))) == [Cut(0, (Destroy(G3A), Create(G7)), (G7,))]
    assert bench.tell(GpuCut(8.0, "cut", 0, (G7,))) == [Start("a", (Grant(0, G7),), resume=False)]


def test_a_cancelled_job_is_killed_and_given_up(bench: Bench) -> None:
    running(bench, "a", Grant(0))
    assert bench.tell(JobCancelled(1.0, "by its owner", "a")) == [Stop("a", save=False)]
    assert "a" not in bench.engine.state.waiting
    # A policy that has not noticed: what it gives to the others is carried out all the same.
    assert bench.arrive("b", 2.0, Plan(grants={"a": (Grant(1),), "b": (Grant(1),)})) == [
        Start("b", (Grant(1),), resume=False)
    ]
    assert bench.tell(JobStopped(3.0, "killed", "a")) == [GiveUp("a", "killed")]
    assert bench.tell(JobCompleted(3.0, "done", "b")) == []
    bench.arrive("b", 3.0)
    assert bench.tell(JobCancelled(3.0, "by its owner", "b")) == [GiveUp("b", "by its owner")]
    assert not bench.engine.state.jobs


@pytest.mark.parametrize(
    "event",
    [
        JobStarted(5.0, "?", "a"),
        JobStopped(5.0, "?", "a"),
        JobCompleted(5.0, "?", "a"),
        JobCrashed(5.0, "?", "a"),
        JobCompleted(5.0, "?", "nobody"),
        GpuLost(5.0, "?", 9),
        Tick(-1.0, "?"),
    ],
)
def test_an_event_that_cannot_have_happened_is_refused_and_nothing_changes(bench: Bench, event: JobStarted) -> None:
    bench.arrive("a")
    before = dump(bench.engine.state)
    with pytest.raises(IllegalEvent):
        bench.engine.turn((event,))
    assert dump(bench.engine.state) == before


def test_a_policy_with_a_period_is_asked_at_whole_multiples_while_there_are_jobs() -> None:
    bench = Bench(when=When(every_s=60.0))
    assert bench.arrive("a", 107.0) == [WakeAt(120.0)]
    assert bench.arrive("b", 110.0) == []
    assert bench.tell(Tick(120.0, "round"), Plan(grants={"a": (Grant(0),)})) == [
        Start("a", (Grant(0),), resume=False),
        WakeAt(180.0),
    ]
    assert bench.policy.seen == [120.0]
    bench.tell(JobCancelled(130.0, "?", "b"))
    bench.tell(JobCompleted(140.0, "done", "a"))
    assert bench.tell(Tick(180.0, "round")) == []
    assert bench.arrive("c", 240.0) == [WakeAt(240.0)]


def test_a_policy_can_skip_rounds_in_which_nothing_changed() -> None:
    bench = Bench(when=When(every_s=10.0, only_if_changed=True))
    bench.arrive("a", 0.0)
    for at_s in (0.0, 10.0, 20.0):
        bench.tell(Tick(at_s, "round"))
    assert bench.policy.seen == [0.0]
    bench.arrive("b", 21.0)
    bench.tell(Tick(30.0, "round"))
    assert bench.policy.seen == [0.0, 30.0]


# ---- turns -------------------------------------------------------------------------------------------------------


def test_a_turn_asks_once_after_its_last_event(bench: Bench) -> None:
    bench.policy.plans = [Plan(grants={"a": (Grant(0),), "b": (Grant(1),)})]
    events: list[Event] = [
        JobArrived(1.0, "first", Job("a")),
        JobArrived(2.0, "second", Job("b", 2.0)),
        JobStalled(3.0, "?", "a"),
    ]
    out = bench.engine.turn(events)
    assert out == [Start("a", (Grant(0),), resume=False), Start("b", (Grant(1),), resume=False)]
    assert bench.policy.seen == [3.0]
    assert bench.engine.decision is not None
    assert (bench.engine.decision.at_s, bench.engine.decision.cause) == (3.0, "second")


def test_applying_asks_nobody_and_deciding_asks_only_if_there_was_a_reason(bench: Bench) -> None:
    bench.engine.apply(JobArrived(1.0, "first", Job("a")))
    assert bench.policy.seen == []
    bench.engine.decide()
    bench.engine.decide()
    assert bench.policy.seen == [1.0]
    assert not bench.engine.asked


def test_what_was_decided_is_followed_without_asking(bench: Bench) -> None:
    bench.engine.apply(JobArrived(1.0, "first", Job("a")))
    plan = Plan(grants={"a": (Grant(0),)})
    assert bench.engine.follow(Decision(1.0, "first", plan)) == [Start("a", (Grant(0),), resume=False)]
    assert bench.engine.asked
    assert bench.policy.seen == []
    before = dump(bench.engine.state)
    with pytest.raises(IllegalDecision, match="GPU 7"):
        bench.engine.follow(Decision(1.0, "first", Plan(grants={"a": (Grant(7),)})))
    assert dump(bench.engine.state) == before


@pytest.mark.parametrize("pause_s", [0.0, 59.0, 60.0, 3600.0, 7 * 86400.0 + 1.0])
def test_one_tick_answers_for_all_rounds_that_were_missed(pause_s: float) -> None:
    bench = Bench(when=When(every_s=60.0))
    assert bench.arrive("a", 10.0) == [WakeAt(60.0)]
    assert bench.engine.due_round(59.0) is None
    now_s = 60.0 + pause_s
    tick = bench.engine.due_round(now_s)
    assert tick is not None
    assert now_s - 60.0 < tick.at_s <= now_s
    (wake,) = bench.tell(tick)
    assert isinstance(wake, WakeAt)
    assert now_s < wake.at_s <= now_s + 60.0
    assert bench.policy.seen == [tick.at_s]
    assert bench.engine.due_round(now_s) is None


# ---- a cluster that changes --------------------------------------------------------------------------------------


def test_a_gpu_that_joins_takes_the_next_index_and_is_idle(bench: Bench) -> None:
    before = bench.engine.state.cluster
    bench.tell(GpuJoined(1.0, "plugged in", DescribedGpu(2, 5, "V100-16GB", "GPU-2")))
    state = bench.engine.state
    assert (len(before), len(state.cluster)) == (2, 3)
    assert state.cluster.nodes == {0: (0, 1), 5: (2,)}
    assert state.idle.on(5) == (2,)
    assert bench.arrive("a", 2.0, Plan(grants={"a": (Grant(2),)}), kind=Kind.RIGID) == [
        Start("a", (Grant(2),), resume=False)
    ]


def test_a_gpu_that_leaves_is_gone_for_good_and_its_jobs_come_back(bench: Bench) -> None:
    running(bench, "a", Grant(0))
    assert bench.tell(GpuLeft(1.0, "sold", 0)) == [Stop("a", save=False)]
    assert bench.engine.state.gpus[0].lost
    bench.tell(JobStopped(2.0, "killed", "a"))
    assert "a" in bench.engine.state.waiting
    before = dump(bench.engine.state)
    illegal: list[Event] = [
        GpuRestored(3.0, "?", 0),
        GpuLeft(3.0, "?", 0),
        GpuLeft(3.0, "?", 9),
        GpuJoined(3.0, "?", DescribedGpu(0, 0, "A100-40GB")),
        GpuJoined(3.0, "?", DescribedGpu(2, 0, "of another world")),
    ]
    for event in illegal:
        with pytest.raises(IllegalEvent):
            bench.engine.turn([event])
    assert dump(bench.engine.state) == before
    assert bench.tell(GpuCut(3.0, "too late", 0, ())) == []
