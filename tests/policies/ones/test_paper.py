"""ONES as published: how limits move, what is deployed, what it remembers."""

from dataclasses import replace

import pytest

from gpuloom.contract.plan import NO_CHANGE, Plan
from gpuloom.contract.view import Report
from gpuloom.engine.memory import recall
from gpuloom.errors import InputError
from gpuloom.policies.ones.paper import OnesPaper
from gpuloom.policies.ones.paper_job import scaled_down
from gpuloom.work.model import Kind
from tests.policies.conftest import Desk, scales_well


def after(epoch: int) -> Report:
    return replace(scales_well(1), epoch=epoch, progress=100.0 * epoch, metric=0.5 + epoch / 100)


def arrive(desk: Desk, job_id: str, gpus: int = 4) -> None:
    desk.arrive(job_id, gpus, batch=64 * gpus)


def test_a_newcomer_starts_on_one_gpu_with_the_local_batch_of_its_request(desk: Desk) -> None:
    arrive(desk, "a")
    plan = desk.ask(OnesPaper(desk.cluster, seed=1), 60)
    assert [grant.batch for grant in plan.grants["a"]] == [64]
    assert plan.reasons[0].chosen == "1 GPU"
    assert "new: limit 1 until 2 epochs" in plan.reasons[0].why


def test_after_two_epochs_at_its_limit_a_job_doubles_up_to_four_times_its_request(desk: Desk) -> None:
    policy, sizes = OnesPaper(desk.cluster, seed=1), []
    arrive(desk, "a", gpus=2)
    for epoch in range(10):
        desk.report("a", after(epoch))
        desk.ask(policy, 60.0 * (epoch + 1))
        sizes.append(len(desk.held("a")))
    assert sizes == [1, 1, 2, 2, 4, 4, 8, 8, 8, 8]
    assert len(set(desk.nodes("a"))) == 2, "packed"


def test_a_job_that_says_nothing_of_its_batch_is_left_to_choose_it(desk: Desk) -> None:
    desk.arrive("a")
    assert desk.ask(OnesPaper(desk.cluster), 60).grants["a"][0].batch is None


def test_it_keeps_to_the_largest_batch(desk: Desk) -> None:
    policy = OnesPaper(desk.cluster, seed=1)
    desk.arrive("a", 4, batch=4 * 4096)
    for epoch in range(10):
        desk.report("a", after(epoch))
        desk.ask(policy, 60.0 * (epoch + 1))
    assert len(desk.held("a")) == 2, "of at most 8192"


def test_newcomers_take_gpus_from_old_jobs_once_those_have_ended_an_epoch() -> None:
    desk = Desk("1x4xV100-16GB")
    policy = OnesPaper(desk.cluster, seed=1)
    arrive(desk, "old")
    for epoch in range(6):
        desk.report("old", after(epoch))
        desk.ask(policy, 60.0 * (epoch + 1))
    assert len(desk.held("old")) == 4
    arrive(desk, "new")
    desk.report("old", after(4))
    assert desk.ask(policy, 420).grants == {}, "it has ended no epoch on what it was given"
    desk.report("old", after(5))
    desk.ask(policy, 480)
    assert len(desk.held("new")) == 1
    desk.check_no_gpu_is_given_twice()


def test_until_a_schedule_can_be_deployed_newcomers_start_on_idle_gpus(desk: Desk) -> None:
    policy = OnesPaper(desk.cluster, seed=1)
    arrive(desk, "a")
    desk.ask(policy, 60)
    arrive(desk, "b")
    plan = desk.ask(policy, 120)
    assert [*plan.grants] == ["b"]


def test_the_longer_a_job_has_run_the_further_it_is_scaled_down() -> None:
    assert [scaled_down(32, 60.0 * medians, 60.0) for medians in (1, 2, 6, 14, 1000)] == [32, 32, 16, 8, 2]


def test_a_job_that_is_alone_keeps_what_nobody_else_wants(desk: Desk) -> None:
    policy = OnesPaper(desk.cluster, seed=1)
    arrive(desk, "long")
    for epoch in range(14):
        desk.report("long", after(epoch))
        desk.ask(policy, 60.0 * (epoch + 1))
    for number in range(3):
        arrive(desk, f"short{number}")
        desk.state.put(desk.state.jobs[f"short{number}"]._replace(starts=1, ran_s=100.0))
    desk.state.put(desk.state.jobs["long"]._replace(ran_s=1000.0))
    desk.ask(policy, 6000)
    assert len(desk.held("long")) == 13


def test_lost_gpus_are_not_given_out(desk: Desk) -> None:
    policy = OnesPaper(desk.cluster, seed=4)
    arrive(desk, "a")
    for epoch in range(20):
        if epoch == 5:
            for gpu in (0, 1, 2, 3, 7):
                if gpu in desk.held("a"):
                    desk.state.plan_grants("a", ())
                desk.lose(gpu)
        desk.report("a", after(epoch))
        desk.ask(policy, 60.0 * (epoch + 1))
        desk.check_no_gpu_is_given_twice()
    assert len(desk.held("a")) == 11


def test_without_any_gpu_it_waits(desk: Desk) -> None:
    for gpu in range(16):
        desk.lose(gpu)
    arrive(desk, "a")
    assert desk.ask(OnesPaper(desk.cluster), 60) == NO_CHANGE


def test_a_job_that_cannot_change_its_size_is_refused_in_one_sentence(desk: Desk) -> None:
    desk.arrive("r", kind=Kind.RIGID)
    with pytest.raises(InputError, match="ones-paper needs elastic jobs: job r is rigid"):
        OnesPaper(desk.cluster).decide(desk.view(60))


def busy_day(policy: OnesPaper, desk: Desk, rounds: range) -> list[Plan]:
    """More jobs than GPUs come, advance at their own pace and leave; each round's plan."""
    plans = []
    for number in rounds:
        if number < 24:
            arrive(desk, f"j{number}", 1 + number % 4)
        for order, job_id in enumerate([*desk.state.jobs]):
            if desk.held(job_id):
                before = desk.state.jobs[job_id].report
                desk.report(job_id, after((before.epoch if before else 0) + order % 3))
            if (report := desk.state.jobs[job_id].report) and report.epoch > 12:
                desk.state.plan_grants(job_id, ())
                desk.state.forget(job_id)
        plans.append(desk.ask(policy, 60.0 * (number + 1)))
        desk.check_no_gpu_is_given_twice()
    return plans


@pytest.mark.parametrize("killed", [3, 17, 29])
def test_whoever_takes_over_its_memory_decides_as_it_would_have(killed: int) -> None:
    desk, twin = Desk(), Desk()
    policy, other = OnesPaper(desk.cluster, seed=5), OnesPaper(twin.cluster, seed=5)
    assert busy_day(policy, desk, range(killed)) == busy_day(other, twin, range(killed))
    heir = OnesPaper(twin.cluster, seed=99)
    heir.restore(recall(other))
    assert recall(heir) == recall(policy), "nothing is lost on the way"
    rest = busy_day(policy, desk, range(killed, 45))
    assert rest == busy_day(heir, twin, range(killed, 45))
    assert any(plan.grants for plan in rest)


def test_nonsense_is_no_memory(desk: Desk) -> None:
    for nonsense in ({}, {"dice": 1}):
        with pytest.raises((ValueError, KeyError, TypeError)):
            OnesPaper(desk.cluster).restore(nonsense)
