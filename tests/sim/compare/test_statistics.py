"""Several policies over the same seeds: means, standard errors and ratios, as numpy has them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.sim.compare.statistics import LARGEST, MEANS, Figures, for_people, mean_and_error, summarise

values = st.lists(st.floats(0.1, 1e6), min_size=1, max_size=20)


def row(policy: str, seed: int, jct_s: float | None, **more: float | None) -> Figures:
    figures: Figures = dict.fromkeys((*MEANS.split(), *LARGEST.split()), 1.0)
    return {**figures, "policy": policy, "seed": seed, "avg_jct_s": jct_s, "given_up": 0, **more}


def table(rows: list[tuple[float, float]], baseline: str = "base") -> list[Figures]:
    """Of (base, other) for each seed."""
    return summarise(
        [
            row(policy, seed, jct_s)
            for seed, pair in enumerate(rows)
            for policy, jct_s in zip(("base", "other"), pair, strict=True)
        ],
        baseline,
    )


def test_the_standard_error_is_that_of_the_mean() -> None:
    assert mean_and_error([1.0]) == (1.0, None)
    mean, error = mean_and_error([1.0, 2.0, 3.0, 4.0])
    assert mean == 2.5
    assert error == pytest.approx((5 / 3 / 4) ** 0.5)


@settings(deadline=None, max_examples=60)
@given(values)
def test_mean_and_standard_error_are_numpys(numbers: list[float]) -> None:
    mean, error = mean_and_error(numbers)
    assert mean == pytest.approx(np.mean(numbers))
    if len(numbers) == 1:
        assert error is None
    else:
        assert error == pytest.approx(np.std(numbers, ddof=1) / len(numbers) ** 0.5, rel=1e-6, abs=1e-6)


@settings(deadline=None, max_examples=20)
@given(values, st.integers(0, 19))
def test_one_unknown_makes_the_mean_unknown(numbers: list[float], place: int) -> None:
    holed: list[float | None] = [*numbers]
    holed.insert(min(place, len(numbers)), None)
    assert mean_and_error(holed) == (None, None)
    assert mean_and_error([]) == (None, None)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.floats(1.0, 1e5), st.floats(1.0, 1e5)), min_size=2, max_size=10))
def test_ratios_are_taken_seed_by_seed(pairs: list[tuple[float, float]]) -> None:
    base, other = table(pairs)
    theirs, ours = (np.array(column) for column in zip(*pairs, strict=True))
    assert (base["policy"], base["runs"], base["ratio_to_base"], base["ratio_stderr"]) == ("base", len(pairs), 1.0, 0.0)
    assert other["avg_jct_s"] == pytest.approx(ours.mean())
    assert other["ratio_to_base"] == pytest.approx((ours / theirs).mean())
    assert other["ratio_stderr"] == pytest.approx((ours / theirs).std(ddof=1) / len(pairs) ** 0.5, rel=1e-6, abs=1e-9)
    assert other["difference_s"] == pytest.approx((ours - theirs).mean(), abs=1e-6)
    assert other["difference_stderr_s"] == pytest.approx(
        (ours - theirs).std(ddof=1) / len(pairs) ** 0.5, rel=1e-6, abs=1e-6
    )


@settings(deadline=None, max_examples=20)
@given(st.lists(st.tuples(st.floats(1.0, 1e5), st.floats(1.0, 1e5)), min_size=1, max_size=6))
def test_the_order_of_rows_does_not_matter(pairs: list[tuple[float, float]]) -> None:
    rows = [
        row(policy, seed, jct_s) for seed, pair in enumerate(pairs) for policy, jct_s in zip("ab", pair, strict=True)
    ]
    straight = {line["policy"]: line for line in summarise(rows, "a")}
    for line in summarise(rows[::-1], "a"):
        for name, value in line.items():
            assert value == pytest.approx(straight[line["policy"]][name])


def test_maxima_are_over_all_seeds_and_a_mean_is_a_mean() -> None:
    (line,) = summarise(
        [row("a", 1, 10.0, max_wait_s=3.0, p99_jct_s=5.0), row("a", 2, 20.0, max_wait_s=9.0, p99_jct_s=7.0)], "a"
    )
    assert (line["max_wait_s"], line["p99_jct_s"]) == (9.0, 6.0)
    (line,) = summarise([row("a", 1, None, max_wait_s=None)], "a")
    assert (line["avg_jct_s"], line["ratio_to_a"], line["max_wait_s"]) == (None, None, 0.0)


def test_people_see_errors_beside_what_they_are_of() -> None:
    lines = for_people(table([(100.0, 50.0), (200.0, 120.0)]), "base")
    assert lines[1]["policy"] == "other"
    assert lines[1]["mean JCT"] == "85 s ± 35"
    assert lines[1]["to base"] == "0.550 ± 0.050"
    assert lines[1]["difference"] == "-65 s ± 15"
    assert "jobs given up" not in lines[0]
    lost = summarise([row("base", 1, 10.0), row("other", 1, 12.0, given_up=2)], "base")
    assert [line["jobs given up"] for line in for_people(lost, "base")] == ["0", "2"]
    (alone,) = for_people(summarise([row("base", 1, 10.0)], "base"), "base")
    assert alone["mean JCT"] == "10 s", "one seed has no error that could be known"
