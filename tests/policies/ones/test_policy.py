"""ONES, ours: who gets more, who stays, what it learns from others, what it remembers."""

from dataclasses import replace

import pytest

from gpuloom.contract.plan import NO_CHANGE, Plan
from gpuloom.contract.view import MoveCosts, Phase, Report, View
from gpuloom.engine.memory import recall
from gpuloom.errors import InputError
from gpuloom.perf.goodput.fit import fit_step_times
from gpuloom.perf.goodput.model import BatchLimits, GoodputModel, Observation
from gpuloom.policies.ones.policy import Ones, allowed
from gpuloom.policies.ones.tuning import LEVERS, Tuning, without
from gpuloom.policies.registry import make_policy
from gpuloom.work.model import Kind
from tests.perf.conftest import true_times
from tests.policies.conftest import Desk, scales_well

LIMITS = BatchLimits(init_batch=64, max_batch=8192, min_local=8, max_local=64)


def seen_on(*placements: tuple[int, int], progress: float = 100.0, noise: float = 1000.0) -> Report:
    """What a job tells that has run on these numbers of nodes and GPUs."""
    seen = []
    for nodes, replicas in placements:
        step_s, sync_s = true_times(nodes, replicas, 32)
        seen.append(Observation(nodes, replicas, 32, step_s - sync_s, step_s))
    rows = tuple(sorted(set(seen)))
    most = max(replicas for _, replicas in placements)
    model = GoodputModel(fit_step_times(rows), 1.0, noise, LIMITS, most, 64, grad_batch=64, seen=rows)
    return Report(0.0, 1, progress, goodput=model)


def ask(desk: Desk, policy: Ones, now_s: float, *finished: str, costs: MoveCosts | None = None) -> Plan:
    """As `desk.ask`, with jobs that have completed since the last round."""
    ended = tuple(desk.state.jobs[job_id] for job_id in finished)
    for job_id in finished:
        desk.state.plan_grants(job_id, ())
        desk.state.forget(job_id)
    told = costs or MoveCosts()

    class At(Desk):
        def view(self, now_s: float) -> View:
            return replace(super().view(now_s), finished=ended, costs=told)

    round_ = At()
    round_.cluster, round_.state = desk.cluster, desk.state
    return round_.ask(policy, now_s)


def test_an_unknown_job_starts_on_a_whole_node_and_says_why(desk: Desk) -> None:
    desk.arrive("a")
    plan = desk.ask(Ones(desk.cluster), 60)
    assert desk.nodes("a") == [0, 0, 0, 0]
    (reason,) = plan.reasons
    assert (reason.subject, reason.chosen) == ("a", "4 GPUs")
    assert reason.why.startswith("nothing is known of it yet, weight 1.00")
    assert [name for name, _ in reason.alternatives] == ["3 GPUs", "2 GPUs", "1 GPU"]
    assert reason.value is not None
    assert all(worth is not None and worth < reason.value for _, worth in reason.alternatives)


def test_it_grows_to_three_times_what_was_seen_in_whole_nodes(desk: Desk) -> None:
    policy, sizes = Ones(desk.cluster), []
    desk.arrive("a")
    for number in range(1, 6):
        desk.ask(policy, 600.0 * number)
        desk.report("a", replace(scales_well(len(desk.held("a"))), progress=1e4))
        sizes.append(len(desk.held("a")))
    assert sizes == [4, 12, 16, 16, 16]
    assert desk.nodes("a") == sorted(desk.nodes("a"))


def test_it_keeps_to_the_limits_of_the_job_and_of_what_it_reports(desk: Desk) -> None:
    policy = Ones(desk.cluster)
    desk.arrive("narrow", max_gpus=3)
    desk.arrive("alone")
    desk.report("narrow", replace(scales_well(3), progress=1e4))
    desk.report("alone", replace(scales_well(1, max_replicas=1), progress=1e4))
    desk.ask(policy, 60)
    assert (len(desk.held("narrow")), len(desk.held("alone"))) == (3, 1)


@pytest.mark.parametrize("least", [3, 5, 8])
def test_a_job_is_never_given_fewer_gpus_than_it_takes(desk: Desk, least: int) -> None:
    policy = Ones(desk.cluster)
    desk.arrive("wide", min_gpus=least)
    for number in range(6):
        desk.arrive(f"narrow{number}")
    for number in range(1, 6):
        desk.ask(policy, 600.0 * number)
        for job_id in desk.state.jobs:
            if held := len(desk.held(job_id)):
                desk.report(job_id, replace(scales_well(held), progress=100.0 * number))
        assert not desk.held("wide") or len(desk.held("wide")) >= least
    assert any(desk.held(job_id) for job_id in desk.state.jobs)


def test_a_job_that_takes_more_than_a_node_starts_all_the_same(desk: Desk) -> None:
    desk.arrive("wide", min_gpus=6)
    desk.ask(Ones(desk.cluster), 60)
    assert len(desk.held("wide")) == 8


def test_a_job_for_which_no_allowed_number_will_do_gets_the_least_that_it_takes(desk: Desk) -> None:
    policy = Ones(desk.cluster)
    desk.arrive("six", min_gpus=6, max_gpus=7)
    desk.arrive("small", max_gpus=2)
    desk.ask(policy, 60)
    assert desk.nodes("six") == [0, 0, 0, 0, 1, 1]
    assert desk.nodes("small") == [1, 1]
    desk.report("six", replace(scales_well(6), progress=1e4))
    assert desk.ask(policy, 120).grants == {}, "and keeps it"
    desk.arrive("vast", min_gpus=20, max_gpus=20)
    assert desk.ask(policy, 180).grants == {}, "there are only 16"


def test_whoever_has_less_left_gets_more(desk: Desk) -> None:
    policy = Ones(desk.cluster)
    for job_id, progress in (("long", 1e6), ("short", 1e3)):
        desk.arrive(job_id)
        desk.report(job_id, replace(scales_well(16), progress=progress))
    desk.ask(policy, 60)
    assert len(desk.held("short")) > len(desk.held("long"))


def test_without_ranks_all_alike_get_alike(desk: Desk) -> None:
    policy = Ones(desk.cluster, arg="-ranks")
    for job_id, progress in (("long", 1e6), ("short", 1e3)):
        desk.arrive(job_id)
        desk.report(job_id, replace(scales_well(16), progress=progress))
    desk.ask(policy, 60)
    assert len(desk.held("short")) == len(desk.held("long")) == 8


def test_nobody_moves_while_nothing_changes(desk: Desk) -> None:
    policy = Ones(desk.cluster)
    for number in range(7):
        desk.arrive(f"j{number}")
    desk.ask(policy, 60)
    for job_id in desk.state.jobs:
        desk.report(job_id, replace(scales_well(max(len(desk.held(job_id)), 1)), progress=1e4))
    for number in range(2, 5):
        desk.ask(policy, 60.0 * number)
    assert desk.ask(policy, 600).grants == {}


def test_a_change_has_to_be_worth_what_it_costs() -> None:
    def moves(costs: MoveCosts, *, in_place: bool) -> int:
        desk = Desk()
        desk.arrive("a", in_place=in_place)
        desk.put("a", 0, 1, 2)
        desk.state.put(desk.state.jobs["a"]._replace(phase=Phase.RUNNING))
        desk.report("a", replace(scales_well(3), progress=1e4))
        grants = ask(desk, Ones(desk.cluster), 60, costs=costs).grants.get("a", ())
        return len({grant.gpu for grant in grants} - {0, 1, 2})

    dear, cheap = MoveCosts(300.0, 300.0, 300.0), MoveCosts(300.0, 300.0, 1.0)
    assert moves(dear, in_place=False) == moves(cheap, in_place=False) == 0
    assert moves(dear, in_place=True) == 0
    assert moves(cheap, in_place=True) > 0, "resized in place it costs next to nothing"


def test_a_job_in_its_first_start_is_weighed_by_what_that_costs(desk: Desk) -> None:
    desk.arrive("a", in_place=True)
    desk.put("a", 0, 1, 2)
    desk.state.put(desk.state.jobs["a"]._replace(phase=Phase.STARTING))
    desk.report("a", replace(scales_well(3), progress=1e4))
    costs = MoveCosts(start_s=300.0, resume_s=1.0, resize_s=1.0)
    assert ask(desk, Ones(desk.cluster), 60, costs=costs).grants == {}


def test_jobs_of_a_name_learn_from_each_other(desk: Desk) -> None:
    for policy, most in ((Ones(desk.cluster), 12), (Ones(desk.cluster, arg="-name"), 4)):
        desk = Desk()
        desk.arrive("old", workload="toy")
        desk.put("old", 0, 1, 2, 3)
        desk.report("old", seen_on((1, 1), (1, 2), (1, 4), progress=1e5))
        desk.ask(policy, 60)
        desk.state.plan_grants("old", ())
        desk.state.forget("old")
        desk.arrive("new", workload="toy")
        desk.ask(policy, 120)
        assert len(desk.held("new")) == most, "what one of its name has seen, or a first try"


def test_lengths_of_finished_jobs_tell_who_is_nearly_done(desk: Desk) -> None:
    policy = Ones(desk.cluster)
    desk.arrive("done", workload="toy")
    desk.report("done", seen_on((1, 1), (1, 2), (1, 4), (2, 8), progress=1000.0))
    ask(desk, policy, 60)
    for job_id, progress in (("early", 50.0), ("late", 950.0)):
        desk.arrive(job_id, workload="toy")
        desk.report(job_id, seen_on((1, 4), (2, 8), progress=progress))
    plan = ask(desk, policy, 120, "done")
    assert len(desk.held("late")) > len(desk.held("early"))
    early = next(reason for reason in plan.reasons if reason.subject == "early")
    assert "s of one GPU left" in early.why


def test_lost_gpus_are_not_given_out(desk: Desk) -> None:
    policy = Ones(desk.cluster)
    for gpu in (0, 1, 2, 3, 7):
        desk.lose(gpu)
    for job_id in "abc":
        desk.arrive(job_id)
    for number in range(1, 6):
        desk.ask(policy, 600.0 * number)
        desk.check_no_gpu_is_given_twice()
        for job_id in desk.state.jobs:
            if held := len(desk.held(job_id)):
                desk.report(job_id, replace(scales_well(held), progress=1e4))
    assert sum(len(desk.held(job_id)) for job_id in desk.state.jobs) == 11


def test_without_a_job_or_a_gpu_it_waits(desk: Desk) -> None:
    policy = Ones(desk.cluster)
    assert desk.ask(policy, 60) == NO_CHANGE
    for gpu in range(16):
        desk.lose(gpu)
    desk.arrive("a")
    assert desk.ask(policy, 120) == NO_CHANGE


def test_a_job_that_cannot_change_its_size_gets_exactly_that(desk: Desk) -> None:
    policy = Ones(desk.cluster)
    for job_id, gpus in (("three", 3), ("six", 6), ("vast", 17)):
        desk.arrive(job_id, gpus, kind=Kind.RIGID, max_gpus=1)
    desk.arrive("elastic")
    for number in range(1, 6):
        desk.ask(policy, 60.0 * number)
        desk.check_no_gpu_is_given_twice()
        assert (len(desk.held("three")), len(desk.held("six")), len(desk.held("vast"))) == (3, 6, 0)
    assert len(desk.held("elastic")) == 4


def test_a_rigid_job_waits_rather_than_be_given_a_part_of_what_it_takes(desk: Desk) -> None:
    for number, node in enumerate(range(0, 16, 4)):
        desk.arrive(f"r{number}", 2, kind=Kind.RIGID)
        desk.put(f"r{number}", node, node + 1)
    desk.arrive("three", 3, kind=Kind.RIGID)
    desk.ask(Ones(desk.cluster), 60)
    assert len(desk.held("three")) in (0, 3)
    assert all(len(desk.held(f"r{number}")) in (0, 2) for number in range(4))


def test_levers_may_be_named_in_any_order() -> None:
    assert without("-growth,-name") == without("-name,-growth") != without("-name")


def test_levers_are_turned_off_by_name_and_nonsense_is_refused(desk: Desk) -> None:
    assert without("") == Tuning()
    for name, changes in LEVERS.items():
        assert without(f"-{name}") == replace(Tuning(), **changes) != Tuning()
    both = without("-name,-start")
    assert (both.by_name, both.start_gpus) == (False, 1)
    for nonsense in ("-nothing", "name", "-name,ranks"):
        with pytest.raises(InputError, match="is none of its levers; accepted are -name, -metric, -ranks"):
            make_policy(f"ones:{nonsense}", desk.cluster)


@pytest.mark.parametrize(
    ("gpus", "node_size", "expected"),
    [(3, 4, [1, 2, 3]), (4, 4, [1, 2, 3, 4]), (11, 4, [1, 2, 3, 4, 8]), (4, 1, [1, 2, 3, 4])],
)
def test_within_a_node_any_number_is_allowed_beyond_it_whole_ones(
    gpus: int, node_size: int, expected: list[int]
) -> None:
    assert allowed(gpus, node_size) == expected


def busy_day(policy: Ones, desk: Desk, rounds: range) -> list[Plan]:
    """More jobs than GPUs of three names come, are seen on what they get, and complete; each round's plan."""
    plans = []
    for number in rounds:
        if number < 36:
            desk.arrive(f"j{number}", workload=("toy", "other", None)[number % 3], in_place=number % 2 == 0)
        for order, job_id in enumerate([*desk.state.jobs]):
            job = desk.state.jobs[job_id]
            if not job.grants:
                continue
            desk.state.put(job._replace(phase=Phase.RUNNING))
            nodes = len(set(desk.nodes(job_id)))
            done = (job.report.progress if job.report else 0.0) + 50.0 * (1 + order % 3)
            known = job.report.goodput.seen if job.report and job.report.goodput else ()
            before = tuple((one.nodes, one.replicas) for one in known)
            noise = 100.0 * (1 + number % 5)
            desk.report(job_id, seen_on(*before, (nodes, len(job.grants)), progress=done, noise=noise))
        ended = [
            job_id for job_id, job in desk.state.jobs.items() if job.report and job.report.progress > 400.0 + number
        ]
        plans.append(ask(desk, policy, 60.0 * (number + 1), *ended))
        desk.check_no_gpu_is_given_twice()
    return plans


@pytest.mark.parametrize("killed", [1, 8, 19, 30])
def test_whoever_takes_over_its_memory_decides_as_it_would_have(killed: int) -> None:
    desk, twin = Desk(), Desk()
    policy, other = Ones(desk.cluster), Ones(twin.cluster)
    assert busy_day(policy, desk, range(killed)) == busy_day(other, twin, range(killed))
    heir = Ones(twin.cluster, seed=99)
    heir.restore(recall(other))
    assert recall(heir) == recall(policy), "nothing is lost on the way"
    rest = busy_day(policy, desk, range(killed, 45))
    assert rest == busy_day(heir, twin, range(killed, 45))
    assert any(plan.grants for plan in rest)


def test_nonsense_is_no_memory(desk: Desk) -> None:
    for nonsense in ({}, {"finished": 1}, {"finished": {}, "evidence": {"a": 1}, "young": {}}):
        with pytest.raises((ValueError, KeyError, TypeError)):
            Ones(desk.cluster).restore(nonsense)
