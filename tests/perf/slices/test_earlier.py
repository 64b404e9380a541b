"""What earlier runs saw, put together: relative speeds survive another code, driver or unit; nothing else is mixed."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuloom.gpus.catalogue import find
from gpuloom.gpus.host.cpu import cpu_model
from gpuloom.perf.slices.earlier import WHOLE, Earlier, Rate, Row, earlier_of, put_together
from gpuloom.work.model import Job

A100 = find("A100-40GB")
TRUE = {"7g.40gb": 10.0, "4g.20gb": 7.0, "3g.20gb": 6.0, "2g.10gb": 4.0, "1g.5gb": 2.0}
"""Steps a second; a row sees some of it, at a level of its own."""


def row(source: str, at_unix_s: float, rates: Mapping[str, float], **more: object) -> Row:
    told = {profile: Rate(rate, 3) for profile, rate in rates.items()}
    return Row("w", "A100-40GB", source, at_unix_s, rates=told, **more)  # type: ignore[arg-type]


def at_level(level: float, *profiles: str) -> dict[str, float]:
    return {profile: level * TRUE[profile] for profile in profiles}


def relative(known: Earlier) -> dict[str, float]:
    most = next(iter(known.rates))
    return {profile: rate / known.rates[most] * TRUE[most] for profile, rate in known.rates.items()}


@given(
    levels=st.lists(st.floats(0.01, 100), min_size=1, max_size=6),
    seen=st.lists(st.sets(st.sampled_from(sorted(TRUE)), min_size=1), min_size=6, max_size=6),
    drivers=st.lists(st.sampled_from(["550", "560"]), min_size=6, max_size=6),
)
def test_relative_speeds_are_the_true_ones_whatever_the_levels(
    levels: Sequence[float], seen: Sequence[set[str]], drivers: Sequence[str]
) -> None:
    """As long as every row speaks of the same work: each level is of its own, so no two rows have the same terms."""
    rows = [
        row(f"run {at}", float(at), at_level(level, *seen[at]), driver=f"{drivers[at]} {at}")
        for at, level in enumerate(levels)
    ]
    known = put_together(rows, A100)
    assert {*known.rates} >= seen[len(levels) - 1]
    assert relative(known) == pytest.approx({profile: TRUE[profile] for profile in known.rates})
    assert put_together(reversed(rows), A100) == known, "the order in which rows are found says nothing"


def test_an_older_row_is_brought_to_the_level_of_the_newer() -> None:
    """The code was made twice as fast in between, and what was seen before still says how fast slices are."""
    old = row("run 1", 1.0, at_level(1.0, "7g.40gb", "3g.20gb"))
    new = row("run 2", 2.0, at_level(2.0, "3g.20gb", "2g.10gb"))
    assert put_together([old, new], A100).rates == pytest.approx(at_level(2.0, "7g.40gb", "3g.20gb", "2g.10gb"))


def test_rows_that_share_nothing_count_as_they_are_only_under_the_same_terms() -> None:
    new = row("run 2", 2.0, at_level(1.0, "3g.20gb"), driver="560")
    same, other = (row("run 1", 1.0, at_level(1.0, "7g.40gb"), driver=driver) for driver in ("560", "550"))
    assert {*put_together([new, same], A100).rates} == {"7g.40gb", "3g.20gb"}
    assert {*put_together([new, other], A100).rates} == {"3g.20gb"}
    epochs = row("measure 1", 1.0, at_level(0.01, "7g.40gb"), driver="560", unit="output: epoch", measured=True)
    known = put_together([new, epochs], A100)
    assert {*known.rates} == {"3g.20gb"}
    assert (known.measured, known.ran) == (False, True), "what does not count is not named either"


def test_a_row_takes_others_of_its_terms_along_to_the_level_that_it_was_brought_to() -> None:
    newest = row("run 3", 3.0, at_level(2.0, "3g.20gb"), driver="560")
    both = row("run 2", 2.0, at_level(1.0, "3g.20gb", "2g.10gb"), driver="550")
    oldest = row("run 1", 1.0, at_level(1.0, "7g.40gb"), driver="550")
    assert put_together([newest, both, oldest], A100).rates == pytest.approx(
        at_level(2.0, "3g.20gb", "2g.10gb", "7g.40gb")
    )


def test_whether_it_fits_is_what_the_newest_says() -> None:
    ran_out = row("measure 1", 1.0, at_level(1.0, "3g.20gb"), too_small=("1g.5gb", "2g.10gb"), measured=True)
    fitted = row("run 2", 2.0, at_level(1.0, "2g.10gb"))
    known = put_together([ran_out, fitted], A100)
    assert known.too_small_mib == A100.by_name["1g.5gb"].mem_mib
    assert (known.measured, known.ran) == (True, True)
    again = row("measure 3", 3.0, {}, too_small=("2g.10gb",), measured=True)
    known = put_together([ran_out, fitted, again], A100)
    assert known.too_small_mib == A100.by_name["2g.10gb"].mem_mib
    assert {*known.rates} == {"3g.20gb"}


def test_the_uncut_device_is_its_largest_slice_only_where_that_has_all_of_it() -> None:
    """An A100's 7g has 98 of 108 SMs; a CPU device's 7c has all sevenths."""
    assert WHOLE not in put_together([row("run 1", 1.0, {WHOLE: 11.0, "3g.20gb": 6.0})], A100).rates
    cpu = cpu_model(2.0, 4096)
    told = Row("w", cpu.name, "run 1", 1.0, rates={WHOLE: Rate(8.0, 1), "3c": Rate(4.0, 1)})
    assert put_together([told], cpu).rates == {"7c": 8.0, "3c": 4.0}


def test_only_what_these_jobs_are_on_these_models_is_handed_in() -> None:
    rows = [
        row("run 1", 1.0, TRUE),
        Row("v", "A100-40GB", "run 1", 1.0, rates={"7g.40gb": Rate(1.0, 1)}),
        Row("w", "H100-80GB", "run 1", 1.0, rates={"7g.80gb": Rate(1.0, 1)}),
        Row("python x.py", "A100-40GB", "run 1", 1.0, "/here", rates={"7g.40gb": Rate(2.0, 1)}),
        Row("python y.py", "A100-40GB", "run 1", 1.0, "/there", rates={"7g.40gb": Rate(3.0, 1)}),
    ]
    jobs = [
        Job("b", command=("python", "x.py")),
        Job("c", command=("python", "y.py")),
        Job("a", workload="w", command=("python", "x.py")),
        Job("d", workload="w"),
        Job("e"),
    ]
    found = earlier_of(rows, jobs, [A100], "/here", now_unix_s=61.0)
    assert [(one.workload, one.model) for one in found] == [("python x.py", "A100-40GB"), ("w", "A100-40GB")]
    assert [one.age_s for one in found] == [60.0, 60.0]


def test_however_often_it_was_seen_it_counts_as_one_report() -> None:
    known = put_together([row("run 1", 1.0, TRUE)], A100)
    assert {seen.runs for seen in known.seen.values()} == {1}
    assert known.seen["3g.20gb"].reach == pytest.approx(0.049, abs=0.001)
