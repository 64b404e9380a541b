"""Intervals: nine of ten errors lie within, in every cell that has enough; strangers count by family."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.perf.arrays import Floats, Ints
from gpuloom.perf.slices.intervals import (
    CROWDS,
    FEWEST_ERRORS,
    LEVEL,
    SLICES,
    STRETCHES,
    Intervals,
    crowd_of,
    intervals_of_known,
    intervals_of_strangers,
)
from gpuloom.perf.slices.mix import MpsSpeeds, as_mix

JOBS = 2000


def made_up(seed: int, families: int = 5) -> tuple[Ints, Ints, Floats, Floats]:
    """Crowd and family of each job, predicted and true speeds: errors that grow with the crowd and the slice."""
    rng = np.random.default_rng(seed)
    crowd, family = rng.integers(0, CROWDS, JOBS), rng.integers(0, families, JOBS)
    truth = rng.uniform(0.2, 1.0, (JOBS, len(SLICES)))
    size = 0.01 * (1 + crowd)[:, None] * (1 + np.arange(len(SLICES)))
    predicted = truth + rng.normal(0, 1, truth.shape) * size
    truth[rng.uniform(size=truth.shape) < 0.1] = np.nan
    return crowd, family, predicted, truth


def held(intervals: Intervals, crowd: Ints, predicted: Floats, truth: Floats, row: int) -> Floats:
    known = np.isfinite(truth[:, row])
    return np.array(
        [
            low <= value <= high
            for (_, low, high), value in zip(
                (intervals(int(c), row, float(p)) for c, p in zip(crowd[known], predicted[known, row], strict=True)),
                truth[known, row],
                strict=True,
            )
        ]
    )


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_nine_of_ten_errors_lie_within(seed: int) -> None:
    crowd, _, predicted, truth = made_up(seed)
    intervals = intervals_of_known(crowd, predicted, truth)
    for row in range(len(SLICES)):
        assert held(intervals, crowd, predicted, truth, row).mean() == pytest.approx(LEVEL, abs=0.03)
    another = made_up(seed + 100)
    for row in range(len(SLICES)):
        inside = held(intervals, another[0], another[2], another[3], row)
        assert inside.mean() == pytest.approx(LEVEL, abs=0.05), "also of jobs that it is not made of"


def test_a_crowd_that_errs_more_has_wider_intervals() -> None:
    crowd, _, predicted, truth = made_up(0)
    reach = intervals_of_known(crowd, predicted, truth).reach.mean(axis=2)
    assert (np.diff(reach, axis=1) > 0).mean() > 0.9
    assert (np.diff(reach.mean(axis=1)) > 0).all()


def test_a_cell_with_few_errors_takes_those_of_its_slice() -> None:
    crowd, _, predicted, truth = made_up(3)
    rare = np.where(crowd == 6, 0, crowd)
    rare[: FEWEST_ERRORS // 2] = 6
    reach = intervals_of_known(rare, predicted, truth, bins=1).reach[:, :, 0]
    errors = np.abs(truth - predicted)
    for row in range(len(SLICES)):
        all_of_slice = np.sort(errors[np.isfinite(errors[:, row]), row])
        assert reach[row, 6] == pytest.approx(np.quantile(all_of_slice, LEVEL), rel=0.02)


@pytest.mark.parametrize("seed", [0, 1])
def test_of_strangers_the_others_errors_hold_each_family(seed: int) -> None:
    """One family errs three times as much: the stretch makes the mean over families hold."""
    crowd, family, predicted, truth = made_up(seed)
    odd = family == 0
    predicted[odd] = (truth + 3 * (predicted - truth))[odd]
    predicted[~np.isfinite(predicted)] = 0.5
    strangers, known = (
        intervals_of_strangers(crowd, family, predicted, truth),
        intervals_of_known(crowd, predicted, truth),
    )
    assert strangers.edges.shape == (len(SLICES), 0)
    assert strangers.reach.mean() > known.reach.mean()
    for row in range(len(SLICES)):
        inside = held(strangers, crowd, predicted, truth, row)
        of_family = family[np.isfinite(truth[:, row])]
        assert np.mean([inside[of_family == one].mean() for one in range(5)]) >= LEVEL - 0.02


def test_families_count_alike_however_many_jobs_they_have() -> None:
    crowd, predicted = np.zeros(1000, np.intp), np.full((1000, len(SLICES)), 0.5)
    truth = predicted + np.repeat([0.01, 0.1], [990, 10])[:, None]
    family = np.repeat([0, 1], [990, 10])
    reach = intervals_of_strangers(crowd, family, predicted, truth).reach
    assert reach.min() >= 0.1 * STRETCHES[0], "ten jobs of a family that errs by 0.1 weigh as much as the 990"
    assert intervals_of_known(crowd, predicted, truth).reach.max() == pytest.approx(0.01)


def test_one_family_alone_has_nobody_to_be_stretched_by() -> None:
    crowd, family, predicted, truth = made_up(0, families=1)
    stretched = intervals_of_strangers(crowd, family, predicted, truth)
    plain = intervals_of_known(crowd, predicted, truth, bins=1)
    assert stretched.reach == pytest.approx(plain.reach)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 6), st.integers(0, 3), st.floats(0.0, 1.2))
def test_an_interval_is_around_its_speed_and_never_below_nothing(crowd: int, row: int, speed: float) -> None:
    crowds, _, predicted, truth = made_up(5)
    intervals = intervals_of_known(crowds, predicted, truth)
    value, low, high = intervals(crowd, row, speed)
    assert 0.0 <= low <= value == speed <= high
    if low > 0:
        assert high - value == pytest.approx(value - low)
    again = Intervals.from_arrays(intervals.to_arrays())
    assert again(crowd, row, speed) == (value, low, high)


@pytest.mark.parametrize(
    ("jobs", "gauges", "crowd"),
    [(1, 2, 0), (2, 1, 1), (3, 1, 1), (6, 1, 2), (1, 0, 3), (2, 0, 4), (6, 0, 5), (7, 0, 6)],
)
def test_how_crowded_a_mix_is(jobs: int, gauges: int, crowd: int) -> None:
    some = MpsSpeeds(1.0, 0.8, 0.5)
    assert crowd_of(as_mix([some] * jobs, [some] * gauges)) == crowd


def test_of_nothing_known_the_interval_says_so() -> None:
    crowd, _, predicted, truth = made_up(0)
    truth[:, 3] = np.nan
    assert (intervals_of_known(crowd, predicted, truth).reach[3] == 1.0).all()
