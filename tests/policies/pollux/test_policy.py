"""Pollux: what it asks of the search, and what it makes of the answer."""

import pytest

from gpuloom.contract.plan import NO_CHANGE
from gpuloom.errors import InputError
from gpuloom.policies.pollux.policy import Pollux
from gpuloom.work.model import Kind
from tests.policies.conftest import Desk, scales_well


def test_a_newcomer_starts_on_one_gpu(desk: Desk) -> None:
    desk.arrive("a", 8)
    plan = desk.ask(Pollux(desk.cluster, seed=1), 60)
    assert len(plan.grants["a"]) == 1
    assert plan.reasons[0].chosen == "1 GPU"


def test_a_job_at_most_doubles_what_it_was_seen_on(desk: Desk) -> None:
    policy = Pollux(desk.cluster, seed=1)
    desk.arrive("a")
    desk.ask(policy, 60)
    sizes = []
    for number in range(2, 8):
        desk.report("a", scales_well(len(desk.held("a"))))
        desk.ask(policy, 600.0 * number)
        sizes.append(len(desk.held("a")))
    assert sizes == [2, 4, 8, 16, 16, 16]
    assert desk.nodes("a") == sorted(desk.nodes("a"))


def test_it_keeps_to_the_limit_that_the_job_reports(desk: Desk) -> None:
    policy = Pollux(desk.cluster, seed=1)
    desk.arrive("a")
    desk.ask(policy, 60)
    desk.report("a", scales_well(1, max_replicas=1))
    assert desk.ask(policy, 1200) == NO_CHANGE


def test_who_is_not_moved_keeps_its_gpus_and_is_not_mentioned(desk: Desk) -> None:
    policy = Pollux(desk.cluster, seed=2)
    for job_id in "abc":
        desk.arrive(job_id)
    desk.ask(policy, 60)
    before = {job_id: desk.held(job_id) for job_id in "abc"}
    assert not desk.ask(policy, 120).grants, "nobody has reported anything new"
    assert before == {job_id: desk.held(job_id) for job_id in "abc"}


def test_everybody_runs_when_there_is_room_and_nobody_shares_a_gpu(desk: Desk) -> None:
    policy = Pollux(desk.cluster, seed=3)
    for number in range(12):
        desk.arrive(f"j{number}")
        desk.ask(policy, 60.0 * (number + 1))
        for job_id in desk.state.jobs:
            desk.report(job_id, scales_well(max(len(desk.held(job_id)), 1)))
        desk.check_no_gpu_is_given_twice()
    for later in range(20):
        desk.ask(policy, 1000.0 + 60 * later)
        desk.check_no_gpu_is_given_twice()
    assert all(desk.held(job_id) for job_id in desk.state.jobs)


def test_lost_gpus_are_not_given_out(desk: Desk) -> None:
    policy = Pollux(desk.cluster, seed=4)
    for gpu in (0, 1, 2, 3, 7):
        desk.lose(gpu)
    desk.arrive("a")
    for number in range(1, 8):
        desk.ask(policy, 600.0 * number)
        desk.report("a", scales_well(len(desk.held("a"))))
    assert len(desk.held("a")) == 11
    desk.check_no_gpu_is_given_twice()


def test_without_any_gpu_it_waits(desk: Desk) -> None:
    for gpu in range(16):
        desk.lose(gpu)
    desk.arrive("a")
    assert desk.ask(Pollux(desk.cluster), 60) == NO_CHANGE


def test_the_same_views_with_the_same_seed_give_the_same_plans() -> None:
    def plans(seed: int) -> list[object]:
        desk = Desk()
        policy, seen = Pollux(desk.cluster, seed), list[object]()
        for number in range(8):
            desk.arrive(f"j{number}")
            seen.append(desk.ask(policy, 300.0 * (number + 1)))
            for job_id in desk.state.jobs:
                desk.report(job_id, scales_well(max(len(desk.held(job_id)), 1)))
        return seen

    assert plans(5) == plans(5)


def test_a_job_that_cannot_change_its_size_is_refused_in_one_sentence(desk: Desk) -> None:
    desk.arrive("r", kind=Kind.RIGID)
    with pytest.raises(InputError, match="needs elastic jobs: job r is rigid"):
        Pollux(desk.cluster).decide(desk.view(60))


def test_a_job_is_never_given_fewer_gpus_than_it_takes(desk: Desk) -> None:
    policy = Pollux(desk.cluster, seed=6)
    desk.arrive("wide", min_gpus=3)
    desk.arrive("narrow")
    for number in range(1, 6):
        desk.ask(policy, 600.0 * number)
        for job_id in desk.state.jobs:
            desk.report(job_id, scales_well(max(len(desk.held(job_id)), 1)))
        assert len(desk.held("wide")) >= 3
