"""However many short jobs keep coming, nobody gets less than half of its fair part for long."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.contract.view import JobView
from gpuloom.gpus.grant import Grant
from gpuloom.policies.ones.owed import PART, Owed, fair_part
from gpuloom.policies.ones.policy import Ones
from gpuloom.policies.ones.tuning import Tuning
from gpuloom.work.model import Job, Kind
from tests.policies.conftest import Desk, scales_well

CLUSTER = Desk().cluster
PATIENCE_S = Tuning().patience_s


def job(job_id: str, gpus: int = 0, submit_s: float = 0.0, **fields: int) -> JobView:
    one = replace(Job(job_id, submit_s, Kind.ELASTIC, max_gpus=64), **fields)  # type: ignore[arg-type]
    return JobView(one, grants=tuple(map(Grant, range(gpus))))


def test_who_holds_its_fair_part_is_owed_nothing() -> None:
    owed, jobs = Owed(100.0), [job("a", 8), job("b", 8)]
    for number in range(1, 100):
        owed.count(jobs, CLUSTER, 16, 60.0 * number)
        assert owed.floors(jobs, [1, 2, 3, 4, 8], 16) == {}


def test_who_waits_gets_its_fair_part_once_the_patience_is_over_and_keeps_it_for_as_long() -> None:
    owed, hungry = Owed(100.0), [job("fed", 16), job("hungry")]
    owed.count(hungry, CLUSTER, 16, 200.0)  # half of 8 GPUs for 200 s are 8 GPUs for 100 s
    assert owed.floors(hungry, [1, 2, 3, 4, 8], 16) == {}
    owed.count(hungry, CLUSTER, 16, 201.0)
    assert owed.floors(hungry, [1, 2, 3, 4, 8], 16) == {"hungry": 8}
    paid = [job("fed", 8), job("hungry", 8)]
    owed.count(paid, CLUSTER, 16, 290.0)
    assert owed.floors(paid, [1, 2, 3, 4, 8], 16) == {"hungry": 8}
    owed.count(paid, CLUSTER, 16, 310.0)
    assert owed.floors(paid, [1, 2, 3, 4, 8], 16) == {}


def test_claims_take_half_of_the_gpus_and_who_is_served_stays_for_its_turn() -> None:
    owed, crowd = Owed(100.0), [job(f"j{number}") for number in range(8)]
    owed.count(crowd, CLUSTER, 4, 201.0)
    assert owed.floors(crowd, [1, 2, 3, 4], 4) == {"j0": 1, "j1": 1}
    served = [job(one.id, int(one.id in ("j0", "j1"))) for one in crowd]
    owed.count(served, CLUSTER, 4, 261.0)
    assert owed.floors(served, [1, 2, 3, 4], 4) == {"j0": 1, "j1": 1}, "though it is others who are owed most now"
    owed.count(served, CLUSTER, 4, 301.0)
    assert owed.floors(served, [1, 2, 3, 4], 4) == {"j2": 1, "j3": 1}


def test_who_needs_more_than_half_of_the_gpus_has_its_turn_too() -> None:
    owed, jobs = Owed(100.0), [job("wide", min_gpus=4), job("b")]
    owed.count(jobs, CLUSTER, 4, 1_000.0)
    assert owed.floors(jobs, [1, 2, 3, 4], 4) == {"wide": 4}


def test_who_needs_more_than_others_leave_is_not_passed_over() -> None:
    owed, jobs = Owed(1_000.0), [job("a"), job("wide", min_gpus=2), job("b")]
    owed.count(jobs[:1], CLUSTER, 4, 3_000.0)
    assert owed.floors(jobs[:1], [1, 2, 3, 4], 4) == {"a": 4}
    served = [job("a", 1), *jobs[1:]]
    for now_s in (3_001.0, 3_901.0):
        owed.count(served, CLUSTER, 4, now_s)
    late = [served[0], jobs[1], job("b", submit_s=1_000.0)]
    owed.restore(owed.remember() | {"owed": {"a": 0.0, "wide": 3_000.0, "b": 2_000.0}})
    assert owed.floors(late, [1, 2, 3, 4], 4) == {"a": 1}, "what a leaves is not b's: it is kept for the wide one"
    owed.count(late, CLUSTER, 4, 4_100.0)
    assert owed.floors(late, [1, 2, 3, 4], 4) == {"wide": 2}


def test_a_turn_is_not_spent_on_starting_again() -> None:
    owed, jobs = Owed(100.0), [job("a"), job("b")]
    owed.count(jobs, CLUSTER, 1, 2_100.0)
    assert owed.floors(jobs, [1], 1, again_s=50.0) == {"a": 1}, "owed half a part for 1,050 s: more than ten starts"
    held = [job("a", 1), job("b")]
    for now_s in (2_300.0, 2_599.0):
        owed.count(held, CLUSTER, 1, now_s)
        assert owed.floors(held, [1], 1, again_s=50.0) == {"a": 1}
    owed.count(held, CLUSTER, 1, 2_601.0)
    assert owed.floors(held, [1], 1, again_s=50.0) == {"b": 1}


def test_time_before_a_job_came_is_not_owed() -> None:
    owed = Owed(100.0)
    owed.count([job("old")], CLUSTER, 4, 10_000.0)
    jobs = [job("old", 4), job("new", submit_s=9_990.0)]
    owed.count(jobs, CLUSTER, 4, 10_001.0)
    assert list(owed.floors(jobs, [1, 2, 3, 4], 4)) == ["old"]


def test_a_part_is_no_more_than_the_job_can_use() -> None:
    assert fair_part(job("a"), 8.0) == 8.0
    assert fair_part(job("a", max_gpus=2), 8.0) == 2.0
    assert fair_part(job("a")._replace(report=scales_well(1, max_replicas=1)), 8.0) == 1.0


@given(
    st.lists(st.tuples(st.integers(0, 8), st.integers(1, 8), st.integers(1, 64)), min_size=1, max_size=40),
    st.integers(1, 32),
)
def test_floors_never_take_more_than_there_is(rows: list[tuple[int, int, int]], gpus: int) -> None:
    jobs = [
        job(f"j{number}", held, min_gpus=least, max_gpus=max(least, most))
        for number, (held, least, most) in enumerate(rows)
    ]
    owed = Owed(10.0)
    owed.count(jobs, CLUSTER, gpus, 1_000.0)
    floors = owed.floors(jobs, [*range(1, 5), *range(8, 33, 4)], gpus)
    assert sum(floors.values()) <= gpus
    assert all(floors[one.id] >= one.job.min_gpus for one in jobs if one.id in floors)


def test_what_was_remembered_makes_the_same_claims() -> None:
    jobs = [job("fed", 16), job("hungry")]
    owed, heir = Owed(100.0), Owed(100.0)
    owed.count(jobs, CLUSTER, 16, 250.0)
    owed.floors(jobs, [1, 2, 3, 4, 8], 16)
    heir.restore(owed.remember())
    for one in (owed, heir):
        one.count([job("fed", 8), job("hungry", 8)], CLUSTER, 16, 290.0)
    assert owed.remember() == heir.remember()
    assert heir.floors(jobs, [1, 2, 3, 4, 8], 16) == {"hungry": 8}


def stream(policy: Ones, rounds: int, newcomers: int) -> tuple[list[int], list[float]]:
    """A long job on 16 GPUs beside so many short ones, new in every round: what it held, and its fair part."""
    desk = Desk()
    desk.arrive("long")
    desk.report("long", replace(scales_well(16), progress=1e7))
    held, parts = [], []
    for number in range(1, rounds + 1):
        for one in range(newcomers):
            if number > 1:
                desk.state.plan_grants(f"n{number - 1}-{one}", ())
                desk.state.forget(f"n{number - 1}-{one}")
            desk.arrive(f"n{number}-{one}")
            desk.report(f"n{number}-{one}", replace(scales_well(16), progress=10.0))
        desk.ask(policy, 60.0 * number)
        desk.check_no_gpu_is_given_twice()
        held.append(len(desk.held("long")))
        parts.append(16 / (newcomers + 1))
    return held, parts


@settings(deadline=None, max_examples=8)
@given(st.integers(1, 24))
def test_a_long_job_beside_a_stream_of_newcomers_has_had_half_of_its_part_at_any_time(newcomers: int) -> None:
    held, parts = stream(Ones(Desk().cluster), 200, newcomers)
    for end in range(len(held)):
        had_s, fair_s = 60.0 * sum(held[:end]), 60.0 * sum(parts[:end])
        # A round is 60 s long: a claim can come, and what is paid can begin to count, a round late.
        assert had_s >= PART * fair_s - parts[0] * (PATIENCE_S + 120.0)


def test_without_the_bound_it_would_starve() -> None:
    desk = Desk()
    held, _ = stream(Ones(desk.cluster, arg="-bound"), 120, 16)
    assert sum(held) == 0
    held, _ = stream(Ones(desk.cluster), 120, 16)
    assert sum(held) > 20


def test_who_is_owed_is_told_why_it_is_placed() -> None:
    desk, policy = Desk("1x2xV100-16GB"), Ones(Desk("1x2xV100-16GB").cluster)
    desk.arrive("long")
    desk.report("long", replace(scales_well(2), progress=1e7))
    for number in range(2):
        desk.arrive(f"short{number}")
        desk.report(f"short{number}", replace(scales_well(2), progress=1.0))
    reasons = [reason.why for number in range(1, 200) for reason in desk.ask(policy, 60.0 * number).reasons]
    assert any("too little for its age and gets no less than 1 GPU" in why for why in reasons)


@pytest.mark.parametrize("memory", [{}, {"owed": 3}, {"owed": {"a": "much"}, "claims": [], "at_s": 0}])
def test_what_cannot_be_read_is_not_restored(memory: object) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        Owed(1.0).restore(memory)
