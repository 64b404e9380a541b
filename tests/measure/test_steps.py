"""Warm-up, window, and what is counted in it."""

import random
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuloom.measure.steps import (
    LEAST_STEPS,
    Heard,
    Stretch,
    Window,
    goes_back,
    is_enough,
    stretch,
    warm_up,
    window,
)


def heard(took_s: list[float], begin_s: float = 0.0) -> list[Heard]:
    """A report at the beginning, and one after each step."""
    return [Heard(at_s, step) for step, at_s in enumerate(accumulate(took_s, initial=begin_s))]


def noisy(steps: int, step_s: float, seed: int, spread: float = 0.03) -> list[float]:
    dice = random.Random(seed)
    return [step_s * (1 + spread * dice.gauss()) for _ in range(steps)]


@given(st.integers(0, 40), st.floats(1.5, 100), st.integers(0, 1000))
def test_a_slow_beginning_is_found(slow: int, factor: float, seed: int) -> None:
    took = [0.1 * factor] * slow + noisy(60 + 2 * slow, 0.1, seed)
    found = warm_up(heard(took))
    # None of it is kept; of the rest no more than half of all is given up.
    assert slow <= found <= len(took) // 2


@given(st.integers(20, 200), st.integers(0, 1000))
def test_a_steady_job_keeps_its_mean(steps: int, seed: int) -> None:
    told = heard(noisy(steps, 0.1, seed))
    found = stretch(told, window([told], told[-1].at_s))
    assert found is not None
    assert found.step_ms == pytest.approx(100, rel=0.05)
    assert found.before + found.steps == steps


def test_a_checkpoint_now_and_then_is_a_part_of_the_work() -> None:
    took = noisy(200, 0.1, 1)
    for at in range(19, 200, 20):
        took[at] += 1.0
    found = stretch(told := heard(took), window([told], told[-1].at_s))
    assert found is not None
    assert found.step_ms == pytest.approx(150, rel=0.05)
    assert found.p50_ms == pytest.approx(100, rel=0.05)
    assert found.p99_ms is not None
    assert found.p99_ms > 1000


def stalling(steps: int, seed: int, every: int, stall_s: float, step_s: float = 0.01) -> list[float]:
    """Quick steps, of which every so manieth waits, as for a data loader."""
    return [took + stall_s * (at % every == 0) for at, took in enumerate(noisy(steps, step_s, seed, 0.01), seed)]


def seen_until_enough(took_s: list[float], steps: int, most_s: float = 30.0) -> Stretch:
    """As a campaign does: every tenth of a second it is asked whether that is enough."""
    told, looked_s = heard(took_s), 0.0
    for at, one in enumerate(told):
        if at > 1 and one.at_s - looked_s >= 0.1:
            looked_s = one.at_s
            if one.at_s >= most_s or is_enough([told[: at + 1]], one.at_s, steps):
                break
    found = stretch(told[: at + 1], window([told[: at + 1]], one.at_s))
    assert found is not None
    return found


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("slow", "slow_s", "every", "stall_s"),
    [
        (slow, slow_s, every, stall_s)
        for slow, slow_s in ((0, 0.0), (1, 2.0), (5, 0.1), (40, 0.1), (40, 0.03), (80, 0.1))
        for every, stall_s in ((1, 0.0), (2, 0.01), (4, 0.03), (50, 0.02))
    ],
)
def test_a_warm_up_is_found_among_stalls(slow: int, slow_s: float, every: int, stall_s: float, seed: int) -> None:
    """40 slow steps, then a stall at every fourth: once both were taken for slow steps alike, and none was given up."""
    dice = random.Random(seed)
    first = [slow_s * (1 + 0.02 * dice.gauss()) for _ in range(slow)]
    found = seen_until_enough(first + stalling(1000, seed, every, stall_s), 100)
    assert found.step_ms == pytest.approx(10 + 1e3 * stall_s / every, rel=0.05)
    assert found.steps >= 100
    assert found.before + found.steps <= 200 + 2 * slow


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("lasts", [5, 20, 50])
def test_a_warm_up_that_fades_is_found(lasts: int, seed: int) -> None:
    took = [one * (1 + 3 * 0.5 ** (at / lasts)) for at, one in enumerate(noisy(1000, 0.01, seed, 0.02))]
    assert seen_until_enough(took, 100).step_ms == pytest.approx(10, rel=0.06)


@pytest.mark.parametrize("seed", range(5))
def test_few_steps_with_a_slow_first_one(seed: int) -> None:
    took = [2.0, *noisy(11, 0.1, seed, 0.02)]
    found = stretch(told := heard(took), window([told], told[-1].at_s))
    assert found is not None
    assert found.step_ms == pytest.approx(100, rel=0.03)


def test_a_run_that_is_still_warming_up_has_not_seen_enough() -> None:
    told = heard([0.1] * 80 + noisy(500, 0.01, 3))
    assert stretch(told[:111], window([told[:111]], told[110].at_s)) is not None
    assert not is_enough([told[:111]], told[110].at_s, 50)
    assert is_enough([told], told[-1].at_s, 50)


@given(
    st.lists(st.tuples(st.floats(0, 20), st.integers(0, 10), st.floats(0.05, 0.5)), min_size=1, max_size=5),
    st.integers(0, 1000),
)
def test_the_window_begins_when_all_are_steady_and_ends_with_the_first(
    copies: list[tuple[float, int, float]], seed: int
) -> None:
    told = [heard([step_s * 20] * slow + noisy(400, step_s, seed), late_s) for late_s, slow, step_s in copies]
    end_s = min(one[-1].at_s for one in told)
    within = window(told, end_s)
    if within is None:
        assert len(copies) > 1, "one alone has always a time of its own"
        return
    assert within.end_s == end_s
    for one, (_, slow, _) in zip(told, copies, strict=True):
        assert within.begin_s >= one[0].at_s
        told_by_then = sum(report.at_s <= end_s for report in one)
        if told_by_then >= 2 * slow + 10 and one[0].at_s >= max(other[0].at_s for other in told):
            assert within.begin_s >= one[slow].at_s - 1e-9


def test_steps_outside_the_window_are_not_counted() -> None:
    """Alone it was twice as fast, and is so again when the other has gone."""
    early = heard([0.05] * 100 + [0.1] * 100 + [0.05] * 100)
    late = heard([0.1] * 100, 5.0)
    within = window([early, late], late[-1].at_s)
    found = stretch(early, within)
    assert found is not None
    assert found.step_ms == pytest.approx(100, rel=0.01)
    assert found.before >= 99


def test_percentiles_only_of_steps_that_were_seen_one_by_one() -> None:
    told = heard([0.01] * 100)
    within = Window(0.0, told[-1].at_s)
    seen = stretch(told, within)
    assert seen is not None
    assert seen.p95_ms == pytest.approx(10)
    assert stretch(told, within, late_s=0.02) == stretch(told[::1], within, late_s=0.02)
    coarse, blocks = stretch(told, within, late_s=0.02), stretch(told[::5], within)
    assert coarse is not None
    assert blocks is not None
    assert coarse.p50_ms is blocks.p50_ms is None
    assert blocks.step_ms == pytest.approx(seen.step_ms)


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(0, 100)), max_size=30))
def test_whatever_is_heard_nothing_breaks(pairs: list[tuple[float, int]]) -> None:
    told = [Heard(at_s, step) for at_s, step in sorted(pairs)]
    steps = sorted({one.step for one in told})
    told = [Heard(one.at_s, step) for one, step in zip(told, steps, strict=False)]
    found = stretch(told, window([told], 100.0))
    assert found is None or (found.steps >= LEAST_STEPS and found.seconds > 0)


def test_too_little_is_nothing() -> None:
    assert window([heard([0.1] * 10), []], 5.0) is None
    assert stretch(heard([0.1] * (LEAST_STEPS - 1)), Window(0, 9)) is None
    assert stretch(heard([0.1] * 10), None) is None
    assert not is_enough([heard([0.1] * 50), heard([0.1] * 4)], 10.0, 5)
    assert is_enough([heard([0.1] * 50), heard([0.1] * 40)], 10.0, 15)


def test_going_back() -> None:
    assert goes_back([], [Heard(0, 3), Heard(1, 3), Heard(2, 4)]) is None
    assert goes_back([Heard(0, 7)], [Heard(1, 8), Heard(2, 2)]) == (8, 2)
    assert goes_back([Heard(0, 7)], [Heard(1, 6)]) == (7, 6)
