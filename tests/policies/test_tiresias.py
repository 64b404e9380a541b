"""Tiresias: two queues, all or nothing, the fullest node first."""

from gpuloom.policies.tiresias import THRESHOLD_GPU_S, Tiresias
from tests.policies.conftest import Desk


def test_jobs_run_in_order_of_arrival_while_they_fit(desk: Desk) -> None:
    policy = Tiresias(desk.cluster)
    for job_id, gpus in (("a", 6), ("b", 8), ("c", 4), ("d", 2)):
        desk.arrive(job_id, gpus)
    plan = desk.ask(policy, 60)
    assert {job_id: len(grants) for job_id, grants in plan.grants.items()} == {"a": 6, "b": 8, "d": 2}, "c does not fit"
    assert desk.nodes("a") == [0, 0, 0, 0, 1, 1], "the emptiest node first, as many as it has"
    assert desk.nodes("b") == [2] * 4 + [3] * 4
    assert desk.nodes("d") == [1, 1]
    desk.check_no_gpu_is_given_twice()


def test_who_keeps_running_is_not_mentioned(desk: Desk) -> None:
    policy = Tiresias(desk.cluster)
    desk.arrive("a", 4)
    desk.ask(policy, 60)
    desk.arrive("b", 4)
    assert list(desk.ask(policy, 120).grants) == ["b"]
    assert not desk.ask(policy, 180).grants


def test_a_job_that_used_its_share_gives_way_and_comes_back(desk: Desk) -> None:
    policy = Tiresias(desk.cluster)
    desk.arrive("long", 16)
    desk.ask(policy, 60)
    desk.arrive("short", 1)
    rounds = int(THRESHOLD_GPU_S / 16 / 60)
    for number in range(1, rounds):
        assert not desk.ask(policy, 60 + 60 * number).grants, "nobody is demoted before the threshold"
    plan = desk.ask(policy, 60 + 60 * rounds)
    assert plan.grants["long"] == ()
    assert len(plan.grants["short"]) == 1
    assert {reason.subject: reason.chosen for reason in plan.reasons} == {"long": "pause", "short": "1 GPU"}
    desk.state.forget("short")
    assert list(desk.ask(policy, 120 + 60 * rounds).grants) == ["long"], (
        "no promotion is needed to run when nobody waits"
    )


def test_time_without_gpus_is_not_counted(desk: Desk) -> None:
    policy = Tiresias(desk.cluster)
    desk.arrive("a", 16)
    desk.arrive("b", 16)
    desk.ask(policy, 60)
    desk.ask(policy, 120)
    assert policy._executed_s == {"a": 60.0, "b": 0.0}
    desk.state.plan_grants("a", ())  # it crashed
    desk.ask(policy, 180)
    assert policy._executed_s["a"] == 60.0


def test_lost_gpus_are_not_given_out(desk: Desk) -> None:
    policy = Tiresias(desk.cluster)
    desk.lose(0)
    desk.arrive("a", 16)
    desk.arrive("b", 15)
    plan = desk.ask(policy, 60)
    assert list(plan.grants) == ["b"]
    desk.check_no_gpu_is_given_twice()
