"""The trend for jobs that nobody has measured: a smooth line through what was, level beyond it, undone crowds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.errors import InputError
from gpuloom.perf.arrays import Floats
from gpuloom.perf.slices.mix import MpsSpeeds, as_mix, ridge_inputs
from gpuloom.perf.slices.trend import FEWEST_ROWS, Smoothness, SoloModel, fit_ridges, fit_trend, quadratic
from tests.perf.slices.shipped_weights import shipped

ANCHORS: Floats = np.linspace(-2.0, 0.0, 25)
LATENCIES: Floats = np.column_stack([0.7 + 0.2 * np.sin(ANCHORS), 0.9 - 0.1 * ANCHORS**2 / 4])


def law(inputs: Floats, size: int) -> Floats:
    """Quadratic in the columns, and another for each number of jobs."""
    return inputs[:, 0] * (1 + 0.1 * size) - 0.3 * inputs[:, 1] * inputs[:, 2] + 0.05 * size


def made_up_rows(seed: int, most: int = 5) -> tuple[Floats, np.ndarray, Floats]:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, most + 1, 1200)
    inputs = rng.normal(size=(1200, 4))
    solo = np.array([law(row[None], int(size))[0] for row, size in zip(inputs, sizes, strict=True)])
    return inputs, sizes, solo


def test_the_line_goes_near_what_was_measured() -> None:
    trend = fit_trend(ANCHORS, LATENCIES, Smoothness(length=0.5, noise=1e-4))
    assert trend(ANCHORS) == pytest.approx(LATENCIES, abs=0.01)
    middle = (ANCHORS[:-1] + ANCHORS[1:]) / 2
    assert trend(middle)[:, 0] == pytest.approx(0.7 + 0.2 * np.sin(middle), abs=0.01)


@settings(deadline=None, max_examples=30)
@given(st.floats(0.0, 5.0), st.sampled_from([0.3, 0.8]), st.sampled_from([0.003, 0.03]))
def test_beyond_what_was_measured_it_stays_level(far: float, length: float, noise: float) -> None:
    trend = fit_trend(ANCHORS, LATENCIES, Smoothness(length=length, noise=noise))
    ends, beyond = trend(np.array([-2.0, 0.0])), trend(np.array([-2.0 - far, far]))
    assert beyond == pytest.approx(ends)


def test_the_more_noise_is_allowed_the_nearer_to_the_middle() -> None:
    bent = [fit_trend(ANCHORS, LATENCIES, Smoothness(noise=noise))(ANCHORS) for noise in (0.001, 1.0, 1e6)]
    off = [float(np.abs(latencies - LATENCIES.mean(axis=0)).mean()) for latencies in bent]
    assert off == sorted(off, reverse=True)
    assert off[-1] < 1e-5


def test_a_quadratic_law_of_each_size_is_found() -> None:
    inputs, sizes, solo = made_up_rows(0)
    ridges = fit_ridges(inputs, sizes, solo, 5, strength=1e-6)
    for size in (2, 3, 4, 5):
        rows = sizes == size
        assert ridges(size, inputs[rows]) == pytest.approx(law(inputs[rows], size), abs=0.3)
    assert np.array_equal(ridges(9, inputs[:3]), ridges(5, inputs[:3])), "more jobs than ever seen: as the most"


def test_a_size_with_few_rows_takes_the_nearest() -> None:
    inputs, sizes, solo = made_up_rows(1)
    scarce = (sizes != 4) | (np.cumsum(sizes == 4) < FEWEST_ROWS)
    ridges = fit_ridges(inputs[scarce], sizes[scarce], solo[scarce], 5, strength=1.0)
    assert np.array_equal(ridges(4, inputs[:5]), ridges(3, inputs[:5])), "of two as near, the smaller"
    few = sizes < 0
    few[:10] = True
    with pytest.raises(InputError, match=f"of which there are {FEWEST_ROWS} jobs"):
        fit_ridges(inputs[few], sizes[few], solo[few], 5, strength=1.0)


def test_the_stronger_the_ridge_the_flatter() -> None:
    inputs, sizes, solo = made_up_rows(2)
    spread = [float(np.std(fit_ridges(inputs, sizes, solo, 5, strength)(3, inputs))) for strength in (0.1, 1e3, 1e9)]
    assert spread == sorted(spread, reverse=True)
    assert spread[-1] < 1e-3


@settings(deadline=None, max_examples=30)
@given(st.lists(st.lists(st.floats(-2, 2), min_size=3, max_size=3), min_size=1, max_size=5))
def test_products_of_all_columns(rows: list[list[float]]) -> None:
    x = np.array(rows)
    products = quadratic(x)
    assert products.shape == (len(rows), 3 + 6)
    for row, found in zip(rows, products, strict=True):
        pairs = [row[first] * row[second] for first in range(3) for second in range(first, 3)]
        assert found == pytest.approx([*row, *pairs])


def test_one_alone_shows_its_solo_slowdown() -> None:
    alone = as_mix([MpsSpeeds(1.0, 0.7, 0.4)])
    assert shipped().solo.solo(alone) == pytest.approx(np.log([0.4]))
    crowd = as_mix([MpsSpeeds(1.0, 0.7, 0.4), MpsSpeeds(1.0, 0.9, 0.8)])
    assert shipped().solo.solo(crowd) == pytest.approx(shipped().solo.bare(2, ridge_inputs(crowd)))


def test_what_was_kept_is_the_same_model() -> None:
    again = SoloModel.from_arrays(shipped().solo.to_arrays())
    for name, array in shipped().solo.to_arrays().items():
        assert np.array_equal(again.to_arrays()[name], array), name
