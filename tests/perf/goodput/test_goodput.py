"""Splitting batches, and what goodput must and must not reward."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gpuloom.perf.goodput.goodput import best_batch, best_goodput, gain, split_batch, step_s
from gpuloom.perf.goodput.model import BatchLimits, GoodputModel, LocalBatch, StepTimes

LIMITS = BatchLimits(init_batch=64, max_batch=4096, min_local=8, max_local=128)
TIMES = StepTimes(a_c=0.05, b_c=0.001, a_n=0.2, b_n=0.01, a_r=0.02, b_r=0.002, gamma=1.5)
MODEL = GoodputModel(TIMES, grad_sqr=1.0, grad_var=20.0, limits=LIMITS, most_replicas=4, max_replicas=64)


@st.composite
def limits(draw: st.DrawFn) -> BatchLimits:
    init = draw(st.integers(1, 512))
    low = draw(st.integers(1, 64))
    return BatchLimits(init, draw(st.integers(max(init, low), 40_000)), low, draw(st.integers(low, 4096)))


@given(limits(), st.integers(1, 40_000), st.integers(1, 64))
def test_a_split_keeps_to_the_limits(bounds: BatchLimits, batch: int, replicas: int) -> None:
    batch = min(max(batch, bounds.init_batch), bounds.max_batch)
    assume(replicas * 2 * (batch // bounds.max_local + 2) <= bounds.max_batch)  # enough samples for every pass
    local = split_batch(batch, replicas, bounds)
    assert 1 <= local.samples <= bounds.max_local
    assert local.total(replicas) <= bounds.max_batch
    assert local.total(replicas) < batch + replicas * (local.accumulation + 1), "no more than rounding up"
    if replicas == 1 and batch > bounds.init_batch:
        assert local.accumulation >= 1, "the noise of the gradient is estimated from two passes"


@pytest.mark.parametrize(
    ("batch", "replicas", "expected"),
    [
        (64, 1, LocalBatch(64, 0)),
        (65, 1, LocalBatch(33, 1)),
        (128, 1, LocalBatch(64, 1)),
        (512, 2, LocalBatch(128, 1)),
        (512, 4, LocalBatch(128, 0)),
        (500, 3, LocalBatch(84, 1)),
        (4096, 3, LocalBatch(124, 10)),
    ],
)
def test_splits_worked_out_by_hand(batch: int, replicas: int, expected: LocalBatch) -> None:
    assert split_batch(batch, replicas, LIMITS) == expected


def test_optimus_takes_two_passes_on_one_gpu_whatever_the_batch() -> None:
    assert split_batch(64, 1, LIMITS, always_accumulate_alone=True) == LocalBatch(32, 1)


@given(st.floats(1e-6, 1e6), st.floats(0, 1e6), st.floats(1, 100), st.floats(1, 100))
def test_a_larger_batch_gains_but_less_than_its_size(sqr: float, var: float, one: float, other: float) -> None:
    small, large = sorted((one, other))
    assert gain(sqr, var, 1.0) == pytest.approx(1.0)
    assert gain(sqr, var, small) <= gain(sqr, var, large) * (1 + 1e-9)
    assert gain(sqr, var, large) <= large * (1 + 1e-9)


def test_without_any_gradient_nothing_is_gained() -> None:
    assert gain(0.0, 0.0, 8.0) == 1.0


def test_goodput_is_what_the_best_batch_gives() -> None:
    """Against the definition, candidate by candidate."""
    for across in (False, True):
        goodputs = best_goodput(MODEL, across, 1, 16)
        for replicas in (2, 3, 8, 16):
            local = best_batch(MODEL, across, replicas)
            scale = local.total(replicas) / LIMITS.init_batch
            compute_s = TIMES.a_c + TIMES.b_c * local.samples
            step = step_s(TIMES, across, replicas, local.samples) + compute_s * local.accumulation
            assert goodputs[replicas - 1] == pytest.approx(gain(1.0, 20.0, scale) / step)


@given(st.integers(1, 30))
def test_goodput_of_a_range_is_that_of_its_parts(first: int) -> None:
    assert np.array_equal(best_goodput(MODEL, True, 1, 40)[first - 1 :], best_goodput(MODEL, True, first, 40))


@pytest.mark.parametrize("field", ["a_c", "b_c", "a_n", "b_n"])
def test_whatever_takes_longer_has_less_goodput(field: str) -> None:
    slower = replace(MODEL, times=TIMES._replace(**{field: 2 * getattr(TIMES, field)}))
    assert (best_goodput(slower, True, 3, 32) < best_goodput(MODEL, True, 3, 32)).all()


def test_crossing_nodes_costs_where_the_network_is_slower() -> None:
    assert (best_goodput(MODEL, True, 2, 32) < best_goodput(MODEL, False, 2, 32)).all()


def test_more_noise_wants_larger_batches() -> None:
    batches = [best_batch(replace(MODEL, grad_var=var), False, 8).total(8) for var in (0.1, 1.0, 10.0, 100.0)]
    assert batches == sorted(batches)
    assert batches[0] < batches[-1]


def test_many_replicas_are_possible_where_the_batch_allows() -> None:
    assert len(best_goodput(MODEL, True, 2, 200)) == 199
