"""Which GPUs: never one twice, who keeps its number keeps its place, nobody moves for nothing."""

from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.policies.ones.place import place
from tests.policies.conftest import Desk

NODE = 4


def desk_with(held: dict[str, tuple[int, ...]], gpus: str = "4x4xV100-16GB") -> Desk:
    desk = Desk(gpus)
    for job_id, own in held.items():
        desk.arrive(job_id)
        if own:
            desk.put(job_id, *own)
    return desk


def placed(desk: Desk, **wanted: int) -> dict[str, tuple[int, ...]]:
    grants = place(desk.view(0.0), wanted, NODE)
    return {job_id: tuple(grant.gpu for grant in them) for job_id, them in grants.items()}


def test_newcomers_go_to_the_fullest_node_that_has_room() -> None:
    desk = desk_with({"a": (0, 1), "b": (4,), "new": ()})
    assert placed(desk, a=2, b=1, new=2) == {"new": (2, 3)}
    assert placed(desk, a=2, b=1, new=3) == {"new": (5, 6, 7)}


def test_the_largest_choose_first_and_take_whole_nodes() -> None:
    desk = desk_with({"small": (), "large": ()})
    assert placed(desk, small=1, large=12) == {"large": tuple(range(12)), "small": (12,)}


def test_a_job_that_grows_or_shrinks_keeps_what_it_can() -> None:
    desk = desk_with({"a": (5, 6)})
    assert placed(desk, a=3) == {"a": (5, 6, 4)}, "its own stay first: they are its first ranks"
    assert placed(desk, a=1) == {"a": (5,)}
    assert placed(desk, a=8) == {"a": (5, 6, 4, 7, 0, 1, 2, 3)}


def test_a_rest_goes_to_one_more_node_and_what_is_not_enough_is_not_begun() -> None:
    desk = desk_with({"a": (0, 1), "six": ()})
    assert placed(desk, a=2, six=6) == {"six": (4, 5, 6, 7, 2, 3)}
    full = desk_with({"a": (0, 1, 2), "b": (8,), "c": (12,), "six": ()})
    assert placed(full, a=3, b=1, c=1, six=6) == {"six": (4, 5, 6, 7, 9, 10)}


def test_who_is_to_have_nothing_is_paused_and_who_has_nothing_is_not_mentioned() -> None:
    desk = desk_with({"a": (0,), "b": ()})
    assert placed(desk, a=0, b=0) == {"a": ()}


def test_what_is_scattered_is_not_enough_for_a_node_but_for_a_part() -> None:
    desk = desk_with({"a": (0, 1), "b": (4, 5), "c": (8, 9), "d": (12,), "new": ()})
    assert placed(desk, a=2, b=2, c=2, d=1, new=4) == {"new": (13, 14, 15)}
    assert placed(desk, a=2, b=2, c=2, d=1, new=8) == {"new": (13, 14, 15)}


def test_who_cannot_grow_is_not_moved_to_as_many_elsewhere() -> None:
    desk = desk_with({"a": (0, 1), "b": (2, 3), "c": (4, 5), "d": (8, 9), "e": (12, 13)})
    assert placed(desk, a=4, b=2, c=2, d=2, e=2) == {}


def test_who_cannot_take_less_is_spread_over_nodes_and_waits_only_for_numbers() -> None:
    desk = desk_with({"a": (0, 1), "b": (4, 5)}, "2x4xV100-16GB")
    desk.arrive("wide", min_gpus=3)
    assert placed(desk, a=2, b=2, wide=4) == {"wide": (2, 3, 6)}
    desk.lose(6)
    desk.lose(7)
    assert placed(desk, a=2, b=2, wide=4) == {}


def test_nodes_of_other_sizes_and_those_that_have_lost_a_gpu_do_for_who_cannot_take_less() -> None:
    desk = Desk("1x4xV100-16GB,4x1xV100-16GB")
    desk.arrive("eight", min_gpus=8)
    assert placed(desk, eight=8) == {"eight": tuple(range(8))}
    desk = Desk("2x4xV100-16GB")
    desk.arrive("four", min_gpus=4)
    desk.lose(0)
    desk.lose(4)
    assert placed(desk, four=4) == {"four": (1, 2, 3, 5)}


def test_nobody_is_put_where_its_memory_is_not() -> None:
    desk = Desk("1x2xV100-16GB,1x2xA100-40GB")
    desk.arrive("large", mem_mib=30_000)
    desk.arrive("small", mem_mib=10_000)
    assert placed(desk, large=2, small=2) == {"large": (2, 3), "small": (0, 1)}
    desk.arrive("vast", mem_mib=30_000, min_gpus=3)
    assert placed(desk, vast=4) == {}


def test_lost_gpus_are_not_given_out() -> None:
    desk = desk_with({"a": ()}, "1x4xV100-16GB")
    desk.lose(2)
    assert placed(desk, a=4) == {"a": (0, 1, 3)}


@st.composite
def floors(draw: st.DrawFn) -> tuple[Desk, dict[str, int]]:
    """Jobs on random GPUs of 4 x 4, some of them lost, and new numbers for all."""
    order = draw(st.permutations(range(16)))
    sizes = draw(st.lists(st.integers(0, 6), max_size=8))
    desk, used = Desk("4x4xV100-16GB"), 0
    for number, size in enumerate(sizes):
        own = order[used : used + size]
        used += len(own)
        desk.arrive(f"j{number}", min_gpus=draw(st.integers(1, 2)))
        if own:
            desk.put(f"j{number}", *own)
    for gpu in draw(st.sets(st.sampled_from(order[used:]))) if used < 16 else ():
        desk.lose(gpu)
    left = desk.state.idle.total + used
    wanted = {}
    for job_id, job in desk.state.jobs.items():
        options = [n for n in {0, 1, 2, 3, 4, 8, 12, len(job.grants)} if n <= left]
        wanted[job_id] = draw(st.sampled_from(sorted(options)))
        left -= wanted[job_id]
    return desk, wanted


@settings(max_examples=200)
@given(floors())
def test_whatever_is_wanted(floor: tuple[Desk, dict[str, int]]) -> None:
    desk, wanted = floor
    before = {job_id: desk.held(job_id) for job_id in wanted}
    grants = place(desk.view(0.0), wanted, NODE)
    for job_id, them in grants.items():
        assert len(before[job_id]) != wanted[job_id], "who keeps its number keeps its GPUs"
        assert {grant.gpu for grant in them} != set(before[job_id]), "nobody is moved for nothing"
        assert len(them) <= wanted[job_id]
        assert not them or len(them) >= desk.state.jobs[job_id].job.min_gpus
        nodes = {desk.cluster.node_of[grant.gpu] for grant in them}
        least = desk.state.jobs[job_id].job.min_gpus
        assert len(nodes) <= max(1, len(them) // NODE) or len(them) == least, "packed, unless it could not take less"
        desk.state.plan_grants(job_id, ())
    for job_id, them in grants.items():
        desk.state.plan_grants(job_id, them)
    desk.check_no_gpu_is_given_twice()
