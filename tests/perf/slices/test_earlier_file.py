"""The file of what was seen: read back as it was written, put together in any order, and nothing else taken for it."""

import json
from collections.abc import Sequence
from contextlib import suppress
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuloom.errors import InputError
from gpuloom.perf.slices.earlier import Rate, Row
from gpuloom.perf.slices.earlier_file import MOST_ROWS, MOST_SOURCES, from_text, is_sound, merged, to_text

texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
rates = st.builds(Rate, st.floats(1e-6, 1e6), st.integers(1, 10**6))
rows = st.builds(
    Row,
    workload=st.sampled_from(["w", "v"]) | texts,
    model=st.sampled_from(["A100-40GB", "A30"]),
    source=st.sampled_from(["run 1", "run 2", "run 3"]) | texts,
    at_unix_s=st.integers(0, 5).map(float) | st.floats(0, 1e10),
    folder=st.none() | st.sampled_from(["", "/here"]),
    measured=st.booleans(),
    driver=st.none() | texts,
    unit=texts,
    pace=st.sampled_from([1.0, 5.0]),
    rates=st.dictionaries(st.sampled_from(["7g.40gb", "3g.20gb", "whole"]) | texts, rates, max_size=4),
    too_small=st.lists(texts, max_size=2).map(tuple),
)
files = st.lists(rows, max_size=12)


@given(files)
def test_what_is_read_is_what_was_written(file: list[Row]) -> None:
    assert from_text(to_text(file), "m") == tuple(file)
    assert all(map(is_sound, file))


@given(files, files, files)
def test_putting_files_together_knows_no_order_and_twice_is_once(
    one: list[Row], two: list[Row], three: list[Row]
) -> None:
    both = merged(one, two)
    assert merged(two, one) == both
    assert merged(both) == both
    assert merged(both, one) == both
    assert merged(both, three) == merged(one, merged(two, three))


def of_source(source: str, at_unix_s: float, observations: int = 1, workload: str = "w") -> Row:
    return Row(workload, "A100-40GB", source, at_unix_s, rates={"3g.20gb": Rate(2.0, observations)})


def test_a_run_that_writes_again_counts_once() -> None:
    first, later = of_source("run 1", 10.0, 3), of_source("run 1", 20.0, 8)
    assert merged([first], [later]) == (later,)


def test_the_newest_sources_stay() -> None:
    many = [of_source(f"run {at}", float(at)) for at in range(3 * MOST_SOURCES)]
    kept = merged(many[::2], many[1::2])
    assert {row.source for row in kept} == {row.source for row in many[-MOST_SOURCES:]}


def test_a_file_does_not_grow_for_ever_and_loses_the_oldest() -> None:
    many = [of_source("run 1", float(at), workload=f"w{at}") for at in range(MOST_ROWS + 50)]
    Random(1).shuffle(many)
    kept = merged(many)
    assert len(kept) == MOST_ROWS
    assert min(row.at_unix_s for row in kept) == 50.0


GOOD = json.loads(to_text([of_source("run 1", 1.0)]))


def with_row(**fields: object) -> str:
    return json.dumps(GOOD | {"seen": [GOOD["seen"][0] | fields]})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "m: is damaged, or no JSON"),
        (to_text([of_source("run 1", 1.0)])[:-9], "m: is damaged, or no JSON"),
        ("[" * 100_000, "m: is damaged, or no JSON"),
        ("[]", "m: is something else"),
        ('{"format": "gpuloom memory", "version": 1}', "m: is something else"),
        ('{"format": "mine", "version": 1, "seen": []}', "m: is something else"),
        ('{"format": "gpuloom memory", "version": 2, "seen": []}', "m: is a memory of version 2, this gpuloom knows"),
        (json.dumps(GOOD | {"seen": [5]}), "m: row 1: it is wrong"),
        (with_row(workload=None), "m: row 1: workload is wrong"),
        (with_row(rates={"3g.20gb": [0.0, 1]}), "m: row 1: has figures that cannot be"),
        (with_row(rates={"3g.20gb": [float("nan"), 1]}), "m: row 1: has figures that cannot be"),
        (with_row(rates={"3g.20gb": [1.0, 0]}), "m: row 1: has figures that cannot be"),
        (with_row(rates={"3g.20gb": [1.0, 10**400]}), "m: row 1: "),
        (with_row(rates={"3g.20gb": 1.0}), "m: row 1: rates.3g.20gb is wrong"),
        (with_row(at_unix_s=-1), "m: row 1: has figures that cannot be"),
        (with_row(pace=float("inf")), "m: row 1: has figures that cannot be"),
        (with_row(workload="w" * 5000), "m: row 1: has figures that cannot be"),
    ],
)
def test_what_is_not_such_a_file_is_one_sentence(text: str, says: str) -> None:
    with pytest.raises(InputError) as refused:
        from_text(text, "m")
    assert str(refused.value).startswith(says)
    assert "\n" not in str(refused.value)


@given(st.text() | st.binary().map(lambda data: data.decode("latin-1")))
def test_whatever_it_is_it_is_read_or_refused(text: str) -> None:
    with suppress(InputError):
        assert all(map(is_sound, from_text(text, "m")))


def test_a_field_of_a_later_gpuloom_is_passed_over() -> None:
    assert from_text(with_row(colour="red"), "m") == (of_source("run 1", 1.0),)


def unsound() -> Sequence[Row]:
    endless = Row("w" * 5000, "A30", "run 1", 1.0)
    torn = Row("\ud800", "A30", "run 1", 1.0)
    return endless, torn


@pytest.mark.parametrize("row", unsound())
def test_what_could_not_be_read_back_is_known_before_it_is_written(row: Row) -> None:
    assert not is_sound(row)
