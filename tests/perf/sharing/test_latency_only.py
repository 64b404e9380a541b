"""Interference from latencies alone: what was measured comes back, and nobody profits from a neighbour."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuloom.perf.sharing.alone_table import AloneTable
from gpuloom.perf.sharing.interference import Crowd, Placed, crowd_of, predict, solo_ms
from gpuloom.perf.sharing.latency_only import Growth, LatencyOnlyModel, evened, fit_latency_only, services_of
from gpuloom.work.measured.service_pairs import PairRow

BATCHES, SHARES_PCT = (1, 2, 4, 8), (20.0, 40.0, 60.0, 80.0, 100.0)


def table(fixed_ms: float, each_ms: float) -> dict[tuple[int, float], float]:
    return {(batch, share): fixed_ms + each_ms * batch * 100 / share for batch in BATCHES for share in SHARES_PCT}


MEAN = {"small": table(2.0, 0.5), "large": table(5.0, 3.0), "flat": table(4.0, 0.05)}
P95 = {"large": {point: 1.2 * ms for point, ms in MEAN["large"].items()}}
SERVICES = services_of(MEAN, P95)
TRUE = LatencyOnlyModel(SERVICES, Growth(0.08, 0.03, 0.1))
PLACES = st.builds(
    Placed,
    st.sampled_from(sorted(MEAN)),
    st.integers(1, 16),
    st.floats(1.0, 50.0),
    st.just(1),
)


def pair_rows(model: LatencyOnlyModel, noise: float = 0.0) -> list[PairRow]:
    dice, rows = np.random.default_rng(1), []
    for first in MEAN:
        for second in MEAN:
            for batch, other in ((1, 1), (1, 8), (8, 1), (8, 8), (4, 2)):
                for share in (20.0, 60.0):
                    there = Placed(first, batch, share), Placed(second, other, 100.0 - share)
                    ms = predict(model, there)[0].total_ms * float(np.exp(noise * dice.standard_normal()))
                    rows.append(PairRow(first, batch, share, second, other, 100.0 - share, ms))
    return rows


def test_alone_it_takes_what_was_measured() -> None:
    for name, points in MEAN.items():
        batch, share = np.array([*points], float).T
        assert solo_ms(TRUE, name, batch, share) == pytest.approx([*points.values()])


def test_constants_are_found_again() -> None:
    fitted = fit_latency_only(SERVICES, pair_rows(TRUE))
    assert (fitted.growth.launch, fitted.growth.pressure, fitted.growth.excess) == pytest.approx(
        (0.08, 0.03, 0.1), 0.02
    )
    assert fitted.intervals.high == pytest.approx((0.0, 0.0, 0.0), abs=1e-3)


def test_error_bars_hold_what_was_not_fitted() -> None:
    noisy = pair_rows(TRUE, noise=0.04)
    fitted, other = fit_latency_only(SERVICES, noisy[::2]), noisy[1::2]
    crowd = crowd_of(fitted, [[Placed(*row[:3]), Placed(*row[3:6])] for row in other])
    found, measured = fitted.latencies(crowd), np.array([row.latency_ms for row in other])
    held = (found.low_ms[:, 0] <= measured) & (measured <= found.high_ms[:, 0])
    assert held.mean() > 0.8


def test_the_spread_of_batches_widens_the_upper_end_only() -> None:
    alone = predict(TRUE, [Placed("large", 4, 50.0)])[0]
    assert alone.low_ms == pytest.approx(alone.total_ms)
    assert alone.high_ms == pytest.approx(1.2 * alone.total_ms)
    unknown = predict(TRUE, [Placed("small", 4, 50.0)])[0]
    assert unknown.high_ms == pytest.approx(unknown.total_ms)


def test_without_pairs_nobody_slows_anybody_down() -> None:
    model = fit_latency_only(SERVICES, [])
    beside = predict(model, [Placed("large", 8, 50.0), Placed("small", 8, 50.0)])
    assert beside[0].total_ms == predict(model, [Placed("large", 8, 50.0)])[0].total_ms


def test_pairs_of_one_model_are_enough() -> None:
    rows = [row for row in pair_rows(TRUE) if row.model == row.neighbour == "large"]
    assert fit_latency_only(SERVICES, rows).latencies(
        crowd_of(TRUE, [[Placed("large", 4, 50.0), Placed("large", 4, 50.0)]])
    ).total_ms[0, 0] == pytest.approx(predict(TRUE, [Placed("large", 4, 50.0)] * 2)[0].total_ms, rel=0.05)


@given(st.lists(PLACES, min_size=1, max_size=4), PLACES)
def test_one_more_neighbour_never_helps(residents: list[Placed], more: Placed) -> None:
    before = predict(TRUE, residents)
    for ours, then in zip(before, predict(TRUE, [*residents, more]), strict=False):
        assert then.total_ms >= ours.total_ms * (1 - 1e-12)
        assert then.low_ms <= then.total_ms <= then.high_ms


@given(st.sampled_from(sorted(MEAN)), st.integers(1, 64), st.floats(0.5, 100.0))
def test_beyond_the_table_nothing_is_better_than_in_proportion(name: str, batch: int, share: float) -> None:
    index = np.array([[TRUE.names.index(name)]])
    there = float(TRUE.latencies(Crowd(index, np.array([[float(batch)]]), np.array([[share]]))).total_ms[0, 0])
    inside = MEAN[name][8, 20.0]
    if batch >= 8 and share <= 20.0:
        assert there >= inside * batch / 8 * 20.0 / share * (1 - 1e-9)
    half = float(TRUE.latencies(Crowd(index, np.array([[float(batch)]]), np.array([[share / 2]]))).total_ms[0, 0])
    assert half >= there * (1 - 1e-12)


def test_evening_out_makes_nobody_faster() -> None:
    dice, mean = np.random.default_rng(4), []
    for _ in range(60):
        noisy = {(batch, share): 10.0 * float(np.exp(0.1 * dice.standard_normal())) for batch, share in table(1.0, 1.0)}
        values = evened(AloneTable.of(noisy)).values
        assert (np.diff(values, axis=0) >= -1e-9).all()
        assert (np.diff(values, axis=1) <= 1e-9).all()
        mean.append(values.mean())
    assert np.mean(mean) == pytest.approx(10.05, rel=0.01)  # of the log-normal; a running minimum has 9.4


def test_what_is_in_order_already_stays() -> None:
    points = table(2.0, 3.0)
    assert evened(AloneTable.of(points)).values == pytest.approx(AloneTable.of(points).values, rel=1e-9)
