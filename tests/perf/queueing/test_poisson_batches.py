"""Which batches start: the laws that the solution is made of, what must sum to one, and the sizes that are seen."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.perf.queueing.batching import Batching
from gpuloom.perf.queueing.event_run import serve
from gpuloom.perf.queueing.poisson_batches import (
    NEGLIGIBLE,
    erlang,
    log_factorials,
    panel_of,
    poisson,
    reach,
    relative_decay,
    solve_starts,
)
from tests.perf.queueing.queues import AFFINE, batchings, loads


@settings(deadline=None, max_examples=60)
@given(st.floats(0.01, 40.0), st.integers(1, 64))
def test_poissons_law(mean: float, count: int) -> None:
    (law,) = poisson(np.array([mean]), count)
    assert law[0] == pytest.approx(np.exp(-mean))
    assert law[1:] * np.arange(1, count) == pytest.approx(mean * law[:-1]), "k p(k) = mean p(k - 1)"
    assert law.sum() <= 1.0 + 1e-9
    assert poisson(np.array([mean]), 200).sum() == pytest.approx(1.0)
    assert log_factorials(5) == pytest.approx(np.log([1, 1, 2, 6, 24]))


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 32), st.floats(0.01, 5.0))
def test_erlangs_density_is_one_and_has_come_by_its_reach(order: int, rate: float) -> None:
    times = np.linspace(0.0, 3 * reach(order) / rate, 60_001)[1:]
    density = erlang(times, order, rate)
    step = float(times[1] - times[0])
    assert density.sum() * step == pytest.approx(1.0, abs=2e-3)
    assert (density * times).sum() * step == pytest.approx(order / rate, rel=2e-3)
    assert density[times > reach(order) / rate].sum() * step < 1e-4
    (before,) = poisson(np.array([reach(order)]), order)
    assert before.sum() < 100 * NEGLIGIBLE


@settings(deadline=None, max_examples=60)
@given(st.floats(0.01, 0.999))
def test_the_decay_is_the_positive_root(load: float) -> None:
    root = relative_decay(load)
    assert root > 0
    assert load * root == pytest.approx(np.log1p(root), rel=1e-9)


@pytest.mark.parametrize("count", [10, 12, 16])
def test_a_panel_integrates_polynomials_exactly(count: int) -> None:
    panel = panel_of(count)
    for power in range(2 * count):
        assert panel.weights @ panel.nodes**power == pytest.approx(1.0 / (power + 1))
    for power in range(count):  # the rest of the panel above a node: of the interpolation through all nodes
        above = panel.spread.sum(axis=1) @ panel.nodes**power
        assert above == pytest.approx((1.0 - panel.nodes ** (power + 1)) / (power + 1))


@settings(deadline=None, max_examples=60)
@given(batchings, loads)
def test_everything_sums_to_one(batching: Batching, load: float) -> None:
    busy_ms = AFFINE.busy_ms[: batching.max_batch]
    starts = solve_starts(busy_ms, load * AFFINE.capacity_per_s(batching) / 1000, batching.delay_ms)
    assert starts.weight.sum() + starts.far_weight == pytest.approx(1.0, abs=1e-6)
    assert starts.weight.min() > -1e-5
    assert starts.sizes.sum() == pytest.approx(1.0)
    assert starts.sizes.min() > -1e-12
    assert (np.diff(starts.free_ms[batching.max_batch :]) > 0).all()
    assert -1e-9 <= starts.just_full <= 1 + 1e-9
    assert 1.0 - 1e-9 <= starts.mean_batch <= batching.max_batch + 1e-9


@settings(deadline=None, max_examples=20)
@given(batchings, st.floats(0.1, 0.95))
def test_more_points_change_little(batching: Batching, load: float) -> None:
    busy_ms, rate = AFFINE.busy_ms[: batching.max_batch], load * AFFINE.capacity_per_s(batching) / 1000
    plain, fine = (solve_starts(busy_ms, rate, batching.delay_ms, refine) for refine in (1, 2))
    assert plain.sizes == pytest.approx(fine.sizes, abs=2e-3)
    assert plain.mean_batch == pytest.approx(fine.mean_batch, rel=2e-3)
    assert plain.decay_per_ms == fine.decay_per_ms


@pytest.mark.parametrize(
    ("max_batch", "delay_ms", "load"), [(1, 0.0, 0.8), (4, 0.0, 0.6), (4, 3.0, 0.3), (12, 8.0, 0.8)]
)
def test_the_sizes_are_those_that_are_seen(max_batch: int, delay_ms: float, load: float) -> None:
    batching = Batching(max_batch, delay_ms)
    rate_per_ms = load * AFFINE.capacity_per_s(batching) / 1000
    starts = solve_starts(AFFINE.busy_ms[:max_batch], rate_per_ms, delay_ms)
    generator = np.random.default_rng([max_batch, round(delay_ms)])
    runs = [serve(np.cumsum(generator.exponential(1 / rate_per_ms, 20_000)), AFFINE, batching) for _ in range(5)]
    shares = np.array(
        [np.bincount(run.sizes[100:], minlength=max_batch + 1)[1:] / len(run.sizes[100:]) for run in runs]
    )
    error = shares.std(axis=0, ddof=1) / len(runs) ** 0.5
    assert (np.abs(shares.mean(axis=0) - starts.sizes) <= 5 * error + 2e-3).all()


@settings(deadline=None, max_examples=20)
@given(st.integers(2, 12), st.floats(0.1, 0.9), st.floats(0.5, 20.0))
def test_who_waits_longer_starts_larger_batches(max_batch: int, load: float, delay_ms: float) -> None:
    busy_ms, rate = AFFINE.busy_ms[:max_batch], load * AFFINE.capacity_per_s(Batching(max_batch)) / 1000
    at_once, patient = (solve_starts(busy_ms, rate, delay).mean_batch for delay in (0.0, delay_ms))
    assert at_once <= patient + 1e-6
