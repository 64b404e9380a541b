"""Which arrangements a plan leads to, and how they are written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuloom.errors import InputError
from gpuloom.gpus.catalogue import MODELS
from gpuloom.gpus.layouts import check, placements
from gpuloom.gpus.model import GpuModel
from gpuloom.measure.arrangement import Arrangement, Seat, Way
from gpuloom.measure.plan import Bounds, Plan, Repeats, Ways, Workload, arrangements, differs, parse, place

A100 = MODELS["A100-40GB"]
TRAIN = Workload("train", ("python", "train.py"))


def names(plan: Plan, model: GpuModel = A100) -> list[str]:
    return [one.name for one in arrangements(plan, model)[0]]


def test_an_a100_has_these() -> None:
    assert names(Plan((TRAIN,))) == [
        *("whole", "1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"),
        *("7 x 1g.5gb", "3 x 2g.10gb", "2 x 3g.20gb"),
        *("whole 50%", "2 x whole 50%", "whole 33%", "3 x whole 33%", "whole 14%", "7 x whole 14%"),
        *("2 x whole together", "3 x whole together", "7 x whole together"),
    ]


def test_a_gpu_without_mig_has_these() -> None:
    ways = (Ways.ALONE, Ways.PARALLEL, Ways.TOGETHER)
    assert names(Plan((TRAIN,), ways), MODELS["V100-16GB"]) == ["whole", "2 x whole together", "4 x whole together"]


def test_what_needs_more_memory_than_there_is_is_left_out_and_said() -> None:
    plan = Plan((Workload("big", ("x",), mem_mib=12_000),), layouts=("1g.5gb",))
    chosen, out = arrangements(plan, A100)
    assert [one.name for one in chosen] == [
        *("whole", "3g.20gb", "4g.20gb", "7g.40gb", "2 x 3g.20gb"),
        *("whole 50%", "2 x whole 50%", "whole 33%", "3 x whole 33%", "whole 14%"),
        *("2 x whole together", "3 x whole together", "1g.5gb"),
    ]
    assert {one.arrangement for one in out} >= {"2g.10gb", "7 x 1g.5gb", "7 x whole together"}
    assert "a copy needs 12,000 MiB and would have 4,864 MiB" in {one.why for one in out}


@pytest.mark.parametrize("model", MODELS.values(), ids=lambda model: model.name)
def test_every_arrangement_can_be_placed_and_is_read_back(model: GpuModel) -> None:
    plan = Plan((TRAIN, Workload("other", ("y",))))
    for arrangement in arrangements(plan, model)[0]:
        instances = place(arrangement, model)
        assert check(model, tuple(sorted(one for one in instances if one is not None))) is None
        assert [one and one.profile for one in instances] == [seat.profile for seat in arrangement.seats]
        assert parse(arrangement.name, (arrangement.seats[0].workload,), model) == arrangement


@given(st.lists(st.sampled_from(["1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb"]), min_size=1, max_size=7), st.data())
def test_layouts_of_several_workloads_are_read_as_they_are_named(profiles: list[str], data: st.DataObject) -> None:
    owners = [data.draw(st.sampled_from(["a", "b"])) for _ in profiles]
    seats = tuple(Seat(owner, profile) for owner, profile in sorted(zip(owners, profiles, strict=True)))
    arrangement = Arrangement(Way.CUT, seats)
    text = " + ".join(f"{seat.profile} ({seat.workload})" for seat in seats)
    if not placements(A100, tuple(sorted(profiles))):
        with pytest.raises(InputError, match="does not fit on one A100-40GB"):
            parse(text, ("a", "b"), A100)
        return
    assert parse(text, ("a", "b"), A100) == arrangement
    assert parse(arrangement.name, ("a", "b") if {*owners} == {"a", "b"} else (owners[0],), A100) == arrangement


def test_shares_and_copies_together() -> None:
    assert parse("whole 70% (a) + whole 30% (b)", ("a", "b"), A100) == Arrangement(
        Way.SHARED, (Seat("a", None, 70.0), Seat("b", None, 30.0))
    )
    assert parse("whole (a) + whole (b)", ("a", "b"), A100).way is Way.TOGETHER
    assert parse("whole", ("a",), A100) == Arrangement(Way.WHOLE, (Seat("a"),))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "'' is not a place; accepted are 3g.20gb, 2 x 1g.5gb, whole and whole 30%"),
        ("3g.20gb (c)", "'c' is not a workload of this plan; accepted: (a), (b)"),
        ("3g.20gb", "'3g.20gb' does not say whose it is; accepted: (a), (b)"),
        ("9g.90gb (a)", "'9g.90gb' is not a profile of A100-40GB; accepted: 1g.5gb"),
        ("3g.20gb (a) + whole (b)", "expected instances only, or the whole device only"),
        ("3 x 3g.20gb (a)", "does not fit on one A100-40GB"),
        ("3g.20gb 50% (a) + 2g.10gb 50% (b)", "shares are of one instance: expected one profile"),
        ("3g.20gb 50% (a) + 3g.20gb (b)", "expected a share such as 50% for every copy, or for none"),
        ("3 x 3g.20gb 50% (a)", "the shares are 150%: at most 100%"),
        ("whole 70% (a) + whole 70% (b)", "the shares are 140%: at most 100%"),
        ("whole 70% (a) + whole (b)", "expected a share such as 50% for every copy, or for none"),
        ("whole 0% (a)", "0% is no share"),
        ("whole 1.2.3% (a)", "1.2.3% is no share"),
        ("0 x whole (a)", "0 copies; accepted are 1 to 48"),
        ("99 x whole (a)", "99 copies; accepted are 1 to 48"),
    ],
)
def test_what_is_no_layout(text: str, sentence: str) -> None:
    with pytest.raises(InputError) as error:
        parse(text, ("a", "b"), A100)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_profiles_that_there_are_not() -> None:
    with pytest.raises(InputError, match="'1c' is not a profile of A100-40GB"):
        arrangements(Plan((TRAIN,), profiles=("1c",)), A100)


def test_what_may_change_between_two_times() -> None:
    plan = Plan((TRAIN,))
    assert differs(plan, Plan((TRAIN,), repeats=Repeats(5, 9), budget_s=7.0)) is None
    assert differs(plan, Plan((Workload("train", ("python", "b.py")),))) == "workload 'train' (python train.py)"
    assert differs(plan, Plan((TRAIN, Workload("b", ("b",))))) == "other workloads"
    assert differs(plan, Plan((TRAIN,), bounds=Bounds(steps=1))) == "other bounds"
    assert differs(plan, Plan((TRAIN,), seed=4)) == "seed 0"


def test_shares_of_a_slice_are_of_one_slice() -> None:
    arrangement = parse("2 x 3g.20gb 50% (a)", ("a",), A100)
    assert arrangement.way is Way.SHARED
    first, second = place(arrangement, A100)
    assert first is not None
    assert first == second
    assert parse(arrangement.name, ("a",), A100) == arrangement
