"""Layouts: published counts, the real rules one by one, and the ways of writing them."""

import pickle
from contextlib import suppress
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.errors import InputError
from gpuloom.gpus import layouts
from gpuloom.gpus.catalogue import MODELS, find
from gpuloom.gpus.model import GpuModel, Instance

A100 = MODELS["A100-40GB"]
A30 = MODELS["A30-24GB"]
RTX = MODELS["RTX-PRO-6000-96GB"]


def exact(text: str) -> tuple[Instance, ...]:
    """Instances as written, legal or not."""
    pairs = (item.split("@") for item in text.split(","))
    return tuple(Instance(int(start), profile) for profile, start in pairs)


@pytest.mark.parametrize(
    ("name", "every", "maximal", "multisets"),
    [("A100-40GB", 298, 19, 14), ("A100-80GB", 298, 19, 14), ("H200-141GB", 298, 19, 14), ("A30-24GB", 26, 5, 4)],
)
def test_published_counts(name: str, every: int, maximal: int, multisets: int) -> None:
    model = find(name)
    assert len(set(layouts.every(model))) == len(layouts.every(model)) == every
    assert len(set(layouts.maximal(model))) == len(layouts.maximal(model)) == maximal
    assert len(layouts.multisets(model)) == multisets


def test_maximal_layouts_of_an_a100_are_left_half_times_right_half() -> None:
    left = ["4g.20gb@0", "3g.20gb@0"]
    left += [",".join(pair) for pair in product(("2g.10gb@0", "1g.5gb@0,1g.5gb@1"), ("2g.10gb@2", "1g.5gb@2,1g.5gb@3"))]
    right = ["3g.20gb@4", "2g.10gb@4,1g.5gb@6", "1g.5gb@4,1g.5gb@5,1g.5gb@6"]
    expected = {exact(f"{a},{b}") for a, b in product(left, right)} | {exact("7g.40gb@0")}
    assert set(layouts.maximal(A100)) == expected


def test_an_uncut_gpu_is_legal_everywhere() -> None:
    assert all(layouts.check(model, ()) is None for model in MODELS.values())
    assert layouts.every(MODELS["T4-16GB"]) == ((),)
    assert layouts.maximal(MODELS["T4-16GB"]) == ()


@pytest.mark.parametrize(
    "text",
    ["4g.20gb@0,3g.20gb@4", "1g.10gb@0,1g.10gb@2,1g.10gb@4,1g.10gb@6", "1g.5gb+me@0,1g.5gb@1", "3g.20gb@0,1g.10gb@6"],
)
def test_legal(text: str) -> None:
    assert layouts.check(A100, exact(text)) is None


@pytest.mark.parametrize(
    ("model", "text", "reason"),
    [
        (A100, "1g.5gb@7", "cannot start at 7"),
        (A100, "3g.20gb@2", "only at 0, 4"),
        (A100, "4g.20gb@0,2g.10gb@2", "overlap"),
        (A100, "3g.20gb@4,1g.5gb@0", "order"),
        (A100, "1g.5gb@0,1g.5gb@0", "overlap"),
        (A100, "1g.10gb@0,1g.5gb@1", "overlap"),
        (A100, "1g.5gb+me@0,1g.5gb+me@1", "at most 1"),
        (A100, "9g.5gb@0", "no profile"),
        (MODELS["V100-16GB"], "1g.5gb@0", "no MIG"),
        (A30, "1g.6gb+me@0,2g.12gb+me@2", "media"),
        (RTX, "1g.24gb+me.all@0,1g.24gb@3", "every media engine"),
    ],
)
def test_illegal_with_a_reason(model: GpuModel, text: str, reason: str) -> None:
    assert reason in (layouts.check(model, exact(text)) or "")


def test_all_media_engines_in_one_leave_room_for_pure_compute() -> None:
    assert layouts.check(RTX, exact("1g.24gb+me.all@0,1g.24gb-me@3,2g.48gb-me@6")) is None


def test_free_is_not_placeable() -> None:
    left_over = exact("1g.5gb@0,1g.5gb@1,1g.5gb@5")
    assert layouts.places_beside(A100, left_over, "3g.20gb") == ()
    assert layouts.places_beside(A100, left_over, "2g.10gb") == exact("2g.10gb@2")
    assert layouts.places_beside(A100, exact("4g.20gb@0"), "3g.20gb") == exact("3g.20gb@4")
    with pytest.raises(InputError, match=r"3g\.20gb"):
        layouts.places_beside(A100, (), "3g.40gb")


def test_room_is_what_could_still_be_added() -> None:
    assert layouts.room(A100, ()) == (7,)
    assert layouts.room(A100, exact("1g.5gb@6")) == (4, 2)
    assert layouts.room(A100, exact("1g.5gb@0")) == (3, 2, 1)


@pytest.mark.parametrize(
    ("slices", "layout"),
    [
        ((3, 2, 2), "2g.10gb@0,2g.10gb@2,3g.20gb@4"),
        ((2, 3, 2), "2g.10gb@0,2g.10gb@2,3g.20gb@4"),
        ((4, 3), "4g.20gb@0,3g.20gb@4"),
        ((3,), "3g.20gb@4"),
        ((1,), "1g.5gb@6"),
        ((1, 1), "1g.5gb@4,1g.5gb@5"),
        ((2,), "2g.10gb@4"),
        ((1,) * 7, ",".join(f"1g.5gb@{start}" for start in range(7))),
    ],
)
def test_slices_are_placed_to_leave_the_best_room(slices: tuple[int, ...], layout: str) -> None:
    assert layouts.with_slices(A100, slices) == exact(layout)


@pytest.mark.parametrize("slices", [(4, 4), (5,), (3, 3, 1), (0,), (-1,), (1,) * 8])
def test_slices_that_do_not_fit(slices: tuple[int, ...]) -> None:
    assert layouts.with_slices(A100, slices) is None


def test_without_mig_nothing_can_be_cut() -> None:
    assert layouts.with_slices(MODELS["T4-16GB"], (1,)) is None
    assert layouts.with_slices(MODELS["T4-16GB"], ()) == ()


@pytest.mark.parametrize(
    ("text", "layout"),
    [
        ("3,2,2", "2g.10gb@0,2g.10gb@2,3g.20gb@4"),
        ("3g.20gb, 2g.10gb, 2g.10gb", "2g.10gb@0,2g.10gb@2,3g.20gb@4"),
        ("3g.20gb@4,1g.5gb@0", "1g.5gb@0,3g.20gb@4"),
        ("3g.20gb@0,3", "3g.20gb@0,3g.20gb@4"),
        ("3G@4 , 1g.5GB+me @ 2", "1g.5gb+me@2,3g.20gb@4"),
        ("1g.10gb", "1g.10gb@6"),
    ],
)
def test_the_ways_of_writing_a_layout(text: str, layout: str) -> None:
    assert layouts.parse(A100, text) == exact(layout)


@pytest.mark.parametrize("text", ["", "none", " None "])
def test_an_uncut_gpu_is_written_none(text: str) -> None:
    assert layouts.parse(A100, text) == ()


@pytest.mark.parametrize(
    "text",
    [
        "8",
        "3,,2",
        "3g.40gb",
        "3g.20gb@",
        "3g.20gb@x",
        "3g.20gb@-4",
        "3g.20gb@2",
        "4,4",
        "1,1,1,1,1,1,1,1",
        "@0",
        "3@²",
        "1,",
    ],
)
def test_nonsense_gets_one_sentence_that_quotes_it(text: str) -> None:
    with pytest.raises(InputError) as caught:
        layouts.parse(A100, text)
    assert repr(text) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_more_instances_than_any_gpu_has_are_refused_at_once() -> None:
    with pytest.raises(InputError, match="does not fit"):
        layouts.parse(A100, ",".join("1" * 2000))


@settings(deadline=None)
@given(st.sampled_from(list(MODELS.values())), st.text(alphabet="123478g.5bm@+-, none", max_size=30))
def test_any_text_is_a_legal_layout_or_an_input_error(model: GpuModel, text: str) -> None:
    with suppress(InputError):
        assert layouts.check(model, layouts.parse(model, text)) is None


def test_equal_models_share_what_is_remembered() -> None:
    twin = pickle.loads(pickle.dumps(A100))
    assert twin is not A100
    assert layouts.every(twin) is layouts.every(A100)


def test_drawing() -> None:
    assert layouts.draw(A100, ()) == "|········|"
    assert layouts.draw(A100, layouts.parse(A100, "1@0,1@1,1@5")) == "|1|1|···|1|··|"
    assert layouts.draw(RTX, layouts.parse(RTX, "2@6,1@3")) == "|···|111|222222|"


@pytest.mark.parametrize("model", [A100, A30, RTX], ids=lambda model: model.name)
def test_what_is_written_is_read_again(model: GpuModel) -> None:
    for layout in layouts.every(model):
        assert layouts.parse(model, layouts.written(layout)) == layout
