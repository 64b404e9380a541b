"""Rows become figures: repetitions are what varies, whatever is not fine is kept, and nothing is invented."""

from dataclasses import replace
from math import exp, inf, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gpuloom.measure.arrangement import Arrangement, Seat, Way
from gpuloom.measure.campaign.order import half_width_pct
from gpuloom.measure.figures import Figure, Interval, LogMean, alone, figures, in_parallel
from gpuloom.measure.results import Outcome
from tests.measure.rows import campaign, copies_on, run

TIMES = st.lists(st.floats(5.0, 20.0), min_size=2, max_size=8)


@given(TIMES)
def test_the_interval_is_students_on_logs(times: list[float]) -> None:
    rows = [row for at, ms in enumerate(times) for row in run(at, copies_on("a", "1g.5gb", 1), at, [ms])]
    (figure,) = figures(rows)
    logs = np.log(times)
    error = float(logs.std(ddof=1)) / len(times) ** 0.5
    low, high = (exp(logs.mean() + end * error) for end in stats.t.ppf([0.05, 0.95], len(times) - 1))
    assert figure.step_ms is not None
    assert (figure.step_ms.value, figure.step_ms.low, figure.step_ms.high) == pytest.approx(
        (exp(logs.mean()), low, high)
    )


@given(TIMES, st.integers(2, 7))
def test_copies_of_a_run_are_not_repetitions(times: list[float], count: int) -> None:
    """Seven copies that share a run's luck say no more than one."""
    single = [row for at, ms in enumerate(times) for row in run(at, copies_on("a", "1g.5gb", 1), at, [ms])]
    many = [row for at, ms in enumerate(times) for row in run(at, copies_on("a", "1g.5gb", count), at, [ms] * count)]
    (one,), (all_,) = figures(single), figures(many)
    assert one.step is not None
    assert all_.step is not None
    assert all_.rate is not None
    assert all_.step.error == pytest.approx(one.step.error)
    assert all_.rate.mean == pytest.approx(log(count * 1e3) - one.step.mean)


def test_once_is_no_interval_unless_others_were_repeated() -> None:
    once = run(0, copies_on("a", "1g.5gb", 1), 0, [10.0])
    (figure,) = figures(once)
    assert figure.step_ms == Interval(10.000000000000002) or figure.step_ms == Interval(10.0)
    twice = [row for at, ms in enumerate((20.0, 21.0)) for row in run(at + 1, copies_on("a", "2g.10gb", 1), at, [ms])]
    pooled = figures([*once, *twice])[0]
    assert pooled.pooled
    assert pooled.step is not None
    assert pooled.step.error == pytest.approx(log(21 / 20) / 2**0.5)


def repeated(*samples: list[float]) -> tuple[Figure, ...]:
    """A figure for each of these lists of step times, in ms; a run each."""
    runs = [(at, repetition, ms) for at, sample in enumerate(samples) for repetition, ms in enumerate(sample)]
    return figures(
        row
        for number, (at, repetition, ms) in enumerate(runs)
        for row in run(number, copies_on(f"w{at}", "1g.5gb", 1), repetition, [ms])
    )


def test_who_varies_otherwise_than_the_rest_is_not_pooled() -> None:
    calm = [[20.0 + 0.1 * at, 20.2 + 0.1 * at, 20.1 + 0.1 * at] for at in range(8)]
    *_, wild = repeated(*calm, [20.0, 26.0])
    assert not wild.pooled
    assert wild.step is not None
    assert wild.step.freedom == 1
    *_, usual = repeated(*calm, [20.0, 20.3])
    assert usual.pooled
    assert usual.step is not None
    assert usual.step.freedom == 8 * 2 + 1
    *_, still = repeated(*([20.0, 26.0, 23.0] for _ in range(8)), [20.0, 20.01, 20.0, 20.01, 20.0])
    assert not still.pooled


def test_who_was_disturbed_makes_nobody_elses_interval_wide_unless_it_was_run_once() -> None:
    calm = [[20.0 + 0.1 * at, 20.3 + 0.1 * at] for at in range(8)]
    twice, once = [20.0, 20.2], [20.0]
    *_, alone_twice, alone_once = repeated(*calm, twice, once)
    *_, disturbed, beside_twice, beside_once = repeated(*calm, [20.0, 60.0], twice, once)
    found = [one.step for one in (alone_twice, alone_once, disturbed, beside_twice, beside_once)]
    errors = [one.error for one in found if one is not None and one.error is not None]
    assert len(errors) == 5
    assert errors[3] == pytest.approx(errors[0]), "it is known that these two runs were not disturbed"
    assert errors[2] > 20 * errors[0]
    assert errors[4] > 10 * errors[1], "whether this one was, nobody can see"
    assert not disturbed.pooled


def test_two_errors_from_one_variance_have_its_freedom() -> None:
    one, other, _ = repeated([10.0, 10.1], [20.0, 20.3], [5.0, 5.1])
    assert one.step is not None
    assert other.step is not None
    ratio = one.step.minus(other.step)
    assert ratio.freedom == one.step.freedom == 3
    assert ratio.error == pytest.approx(2**0.5 * one.step.error)  # type: ignore[operator]


@pytest.mark.parametrize(("arrangements", "noise", "most"), [(2, 0.02, 2), (9, 0.02, 8), (9, 0.04, 8)])
def test_intervals_hold_what_they_promise_though_runs_are_repeated_until_they_look_steady(
    arrangements: int, noise: float, most: int
) -> None:
    """Of 1000 ratios 90 % are to be held. With the variance of their own runs it was 86 % of the first and last."""
    dice, held = np.random.default_rng(12), 0
    for _ in range(1000):
        first, second, *_ = repeated(*(until_steady(noise, most, dice) for _ in range(arrangements)))
        assert first.step is not None
        assert second.step is not None
        ends = first.step.minus(second.step).interval
        assert ends.low is not None
        assert ends.high is not None
        held += ends.low <= 1 <= ends.high
    assert 880 <= held <= 930


def until_steady(noise: float, most: int, dice: np.random.Generator) -> list[float]:
    """As a campaign repeats: twice at least, so often at most, until ±3 % seem to be known."""
    times: list[float] = []
    while len(times) < most:
        times.append(20.0 * exp(dice.normal(0.0, noise)))
        width = half_width_pct([1e3 / ms for ms in times])
        if width is not None and width <= 3.0:
            break
    return times


def test_an_interval_without_an_end_is_none() -> None:
    assert LogMean(1.0, 3.0, 1.0).interval == Interval(exp(1.0))
    assert LogMean(1.0, 30.0, 30.0).within(0.999) == Interval(exp(1.0))
    assert LogMean(1.0, 1.0, 30.0).interval.low is not None


def test_what_was_not_fine_is_named_and_not_averaged() -> None:
    arrangement = copies_on("a", "1g.5gb", 2)
    fine, broken = run(0, arrangement, 0, [10.0, 10.0]), run(1, arrangement, 1, [12.0, inf])
    (figure,) = figures([*fine, *broken])
    assert figure.repetitions == 1
    assert figure.outcomes == {Outcome.OK: 3, Outcome.OUT_OF_MEMORY: 1}
    assert not figure.out_of_memory
    (nothing,) = figures(run(0, arrangement, 0, [inf, inf]))
    assert nothing.out_of_memory
    assert nothing.step_ms is None


def test_what_is_not_known_is_none() -> None:
    (figure,) = figures(run(0, copies_on("a", None, 1, Way.WHOLE), 0, [10.0]))
    assert (figure.energy_j, figure.power_w, figure.mem_peak_mib, figure.host_cpus, figure.activity) == (None,) * 5


def test_energy_is_of_a_step_of_anybody() -> None:
    rows = run(0, copies_on("a", "1g.5gb", 2), 0, [10.0, 10.0], power_w=50.0)
    assert figures(rows)[0].energy_j == pytest.approx(500 / 2000)
    assert figures([rows[0], replace(rows[1], power_w=None)])[0].energy_j is None


def test_slow_copies_need_no_more_energy_for_the_end_of_the_time_that_counts() -> None:
    """100 W for 30 s: seven copies with steps of 4 s, of which each has whole ones for 24 to 28 s in it."""
    rows = run(0, copies_on("a", "1g.5gb", 7), 0, [4000.0] * 7, power_w=100.0, energy_j=3000.0)
    rows = [replace(row, steps=6 + row.copy % 2, seconds=24.0 + 4 * (row.copy % 2)) for row in rows]
    assert figures(rows)[0].energy_j == pytest.approx(100 * 4 / 7)


def test_a_mixed_run_has_a_figure_for_each_kind_of_seat() -> None:
    seats = (Seat("a", "4g.20gb"), Seat("a", "2g.10gb"), Seat("b", "1g.5gb"))
    found = figures(run(0, Arrangement(Way.CUT, seats), 0, [10.0, 20.0, 30.0]))
    assert [(f.seat, f.seats, f.copies, f.uniform) for f in found] == [(seat, 1, 3, False) for seat in seats]
    assert alone(found, "a") == {}
    assert in_parallel(found, "a") == []


def test_alone_and_in_parallel_are_told_apart() -> None:
    found = figures(campaign("a", {"1g.5gb": 10.0, "7g.40gb": 5.0}, 2, np.random.default_rng(0)))
    assert set(alone(found, "a")) == {"1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"}
    assert {f.arrangement for f in in_parallel(found, "a")} == {"7 x 1g.5gb", "3 x 2g.10gb", "2 x 3g.20gb"}
    assert figures([]) == ()


@given(st.floats(-3, 3), st.floats(1e-3, 1), st.integers(1, 30))
def test_a_ratio_of_equals_is_one(mean: float, error: float, freedom: int) -> None:
    one = LogMean(mean, error, float(freedom))
    ratio = one.minus(one)
    assert ratio.interval.value == 1
    assert ratio.error == pytest.approx(error * 2**0.5)
    assert ratio.freedom == pytest.approx(2 * freedom)
