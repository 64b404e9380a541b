"""Optimus: one each, then to whom one more GPU saves the most."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuloom.contract.view import JobView, Report
from gpuloom.errors import InputError
from gpuloom.policies.optimus import Optimus, remaining_steps, share_out
from gpuloom.work.model import Hints, Job
from tests.policies.conftest import Desk


def told(*step_s: float, steps: float = 1000.0) -> Hints:
    """Half of the steps end the first of two epochs."""
    return Hints(step_s=step_s, iterations=(steps, 2 * steps))


def test_every_job_gets_one_before_anyone_gets_two() -> None:
    jobs = [JobView(Job(f"j{n}"), hints=told(1.0, 0.5)) for n in range(5)]
    assert share_out(jobs, 3) == {"j0": 1, "j1": 1, "j2": 1, "j3": 0, "j4": 0}
    assert share_out(jobs, 7) == {"j0": 2, "j1": 2, "j2": 1, "j3": 1, "j4": 1}, "ties in order of arrival"


def test_the_largest_saving_first_and_none_without_a_saving() -> None:
    jobs = [
        JobView(Job("flat"), hints=told(1.0, 1.0, 1.2)),
        JobView(Job("steep"), hints=told(1.0, 0.6, 0.5, 0.45)),
        JobView(Job("longer"), hints=told(1.0, 0.9, 0.85, steps=3000.0)),
    ]
    assert share_out(jobs, 5) == {"flat": 1, "steep": 2, "longer": 2}, "0.4 x 1000, then 0.1 x 3000 before 0.1 x 1000"
    assert share_out(jobs, 64) == {"flat": 1, "steep": 4, "longer": 3}


@given(
    st.lists(st.lists(st.floats(0.1, 10), min_size=1, max_size=9), min_size=1, max_size=9),
    st.integers(0, 40),
)
def test_never_more_than_there_are(times: list[list[float]], gpus: int) -> None:
    jobs = [JobView(Job(str(n)), hints=told(*steps)) for n, steps in enumerate(times)]
    counts = share_out(jobs, gpus)
    assert sum(counts.values()) <= gpus
    assert all(count <= len(steps) for count, steps in zip(counts.values(), times, strict=True))
    assert sum(counts.values()) >= min(gpus, len(jobs))


def test_remaining_steps_count_from_the_end_of_the_present_epoch() -> None:
    hints = Hints(step_s=(1.0,), iterations=(10.0, 25.0, 45.0))
    assert remaining_steps(JobView(Job("a"), hints=hints)) == 35.0
    assert remaining_steps(JobView(Job("a"), hints=hints, report=Report(0.0, epoch=1))) == 20.0
    assert remaining_steps(JobView(Job("a"), hints=hints, report=Report(0.0, epoch=2))) == 1.0


def test_the_smallest_are_placed_first_and_the_unchanged_stay(desk: Desk) -> None:
    policy = Optimus(desk.cluster)
    desk.arrive("big", hints=told(*(1 / n for n in range(1, 7))))
    desk.ask(policy, 60)
    assert desk.nodes("big") == [0, 0, 0, 0, 1, 1]
    desk.arrive("small", hints=told(1.0))
    plan = desk.ask(policy, 120)
    assert list(plan.grants) == ["small"]
    assert desk.nodes("small") == [2], "the emptiest node"
    assert plan.reasons[0].value == 1000.0, "steps left x seconds per step"
    desk.check_no_gpu_is_given_twice()


def test_lost_gpus_are_not_given_out(desk: Desk) -> None:
    policy = Optimus(desk.cluster)
    desk.lose(5)
    desk.arrive("a", hints=told(*(1 / n for n in range(1, 40))))
    desk.ask(policy, 60)
    assert len(desk.held("a")) == 15
    desk.check_no_gpu_is_given_twice()


def test_a_job_without_step_times_is_refused_in_one_sentence(desk: Desk) -> None:
    desk.arrive("rigid")
    with pytest.raises(InputError, match="job rigid has none"):
        Optimus(desk.cluster).decide(desk.view(60))
