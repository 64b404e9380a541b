"""Splitting batches, and what goodput must and must not reward."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gpuloom.perf.goodput.goodput import best_batch, best_goodput, capped, gain, goodput_at, network_s, split_batch
from gpuloom.perf.goodput.model import BatchLimits, GoodputModel, LocalBatch, StepTimes
from tests.perf.goodput.step_time import step_s

LIMITS = BatchLimits(init_batch=64, max_batch=4096, min_local=8, max_local=128)
TIMES = StepTimes(a_c=0.05, b_c=0.001, a_n=0.2, b_n=0.01, a_r=0.02, b_r=0.002, gamma=1.5)
MODEL = GoodputModel(TIMES, grad_sqr=1.0, grad_var=20.0, limits=LIMITS, most_replicas=4, max_replicas=64)


@st.composite
def limits(draw: st.DrawFn) -> BatchLimits:
    init = draw(st.integers(1, 512))
    low = draw(st.integers(1, 64))
    return BatchLimits(init, draw(st.integers(max(init, low), 40_000)), low, draw(st.integers(low, 4096)))


times = st.builds(
    StepTimes,
    st.floats(1e-3, 1.0),
    st.floats(1e-5, 0.01),
    st.floats(1e-3, 1.0),
    st.floats(1e-5, 0.1),
    st.floats(1e-3, 1.0),
    st.floats(1e-5, 0.1),
    st.floats(1.0, 10.0),
)


def goodput(model: GoodputModel, across: bool, replicas: int, local: LocalBatch) -> float:
    """By definition: steps of the initial batch that one second of this configuration is worth."""
    compute_s = model.times.a_c + model.times.b_c * local.samples
    whole_s = step_s(model.times, across, replicas, local.samples) + compute_s * local.accumulation
    return gain(model.grad_sqr, model.grad_var, local.total(replicas) / model.limits.init_batch) / whole_s


@settings(deadline=None, max_examples=100)
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


@settings(deadline=None)
@given(st.floats(1e-6, 1e6), st.floats(0, 1e6), st.floats(1, 100), st.floats(1, 100))
def test_a_larger_batch_gains_but_less_than_its_size(sqr: float, var: float, one: float, other: float) -> None:
    small, large = sorted((one, other))
    assert gain(sqr, var, 1.0) == pytest.approx(1.0)
    assert gain(sqr, var, small) <= gain(sqr, var, large) * (1 + 1e-9)
    assert gain(sqr, var, large) <= large * (1 + 1e-9)


@settings(deadline=None, max_examples=60)
@given(st.floats(1e-6, 1e6), st.floats(0, 1e6), st.floats(1, 1000))
def test_a_gain_lies_between_1_and_the_scale(sqr: float, var: float, scale: float) -> None:
    assert 1 - 1e-9 <= gain(sqr, var, scale) <= scale * (1 + 1e-9)
    assert gain(sqr, 0.0, scale) == 1.0, "without noise a larger batch is worth nothing"
    assert gain(0.0, var + 1.0, scale) == pytest.approx(scale), "of noise alone it is worth its size"


def test_without_any_gradient_nothing_is_gained() -> None:
    assert gain(0.0, 0.0, 8.0) == 1.0
    blind = replace(MODEL, grad_sqr=0.0, grad_var=0.0)
    assert best_batch(blind, False, 1).total(1) == LIMITS.init_batch, "so the smallest batch is the best"


@settings(deadline=None, max_examples=60)
@given(times, st.booleans(), st.integers(1, 64), st.integers(1, 512))
def test_a_step_takes_no_less_than_its_longer_part_and_no_more_than_both(
    law: StepTimes, across: bool, replicas: int, samples: int
) -> None:
    compute, network = law.a_c + law.b_c * samples, network_s(law, across, replicas)
    whole = step_s(law, across, replicas, samples)
    assert max(compute, network) * (1 - 1e-9) <= whole <= (compute + network) * (1 + 1e-9)
    assert step_s(law, across, replicas, samples + 1) > whole * (1 - 1e-12)
    assert network_s(law, across, replicas + 1) >= network
    assert network_s(law, across, 1) == pytest.approx(0.0, abs=1e-7)


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 200), st.integers(0, 10), st.integers(1, 64), limits())
def test_a_cap_only_ever_takes_samples_away(
    samples: int, accumulation: int, replicas: int, bounds: BatchLimits
) -> None:
    local = LocalBatch(samples, accumulation)
    less = capped(local, replicas, bounds)
    assert less.accumulation == accumulation
    assert 1 <= less.samples <= samples
    assert less.total(replicas) <= max(bounds.max_batch, replicas * (accumulation + 1))
    if local.total(replicas) <= bounds.max_batch:
        assert less == local


@settings(deadline=None, max_examples=60)
@given(limits(), times, st.booleans(), st.integers(1, 64), st.floats(0.0, 100.0))
def test_the_best_batch_keeps_to_the_limits(
    bounds: BatchLimits, law: StepTimes, across: bool, replicas: int, noise: float
) -> None:
    assume(replicas * bounds.min_local <= bounds.max_batch)
    model = GoodputModel(law, 1.0, noise, bounds, 1, 64)
    local = best_batch(model, across, replicas)
    assert 1 <= local.samples <= bounds.max_local
    assert local.total(replicas) <= max(bounds.max_batch, replicas * (local.accumulation + 1))
    worth = float(best_goodput(model, across, replicas, replicas)[0])
    rounded_up = local._replace(samples=local.samples + 1).total(replicas) / bounds.init_batch
    most = max(rounded_up, 1.0) / step_s(law, across, replicas, local.samples)
    assert worth <= most * (1 + 1e-9), "no more than its throughput, with a sample more where that was cut off"


@settings(deadline=None, max_examples=40)
@given(times, st.booleans(), st.integers(2, 64), st.floats(0.0, 100.0), st.integers(64, 4096))
def test_no_batch_is_much_better_than_the_best(
    law: StepTimes, across: bool, replicas: int, noise: float, batch: int
) -> None:
    """Fifty candidates are tried: between two of them lies 9 %, and less of goodput."""
    model = replace(MODEL, times=law, grad_var=noise)
    local = split_batch(max(batch, LIMITS.min_local * replicas), replicas, LIMITS)
    assume(LIMITS.min_local <= local.samples)
    best = float(best_goodput(model, across, replicas, replicas)[0])
    assert goodput(model, across, replicas, local) <= best * 1.1


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


@settings(deadline=None)
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


@settings(deadline=None, max_examples=60)
@given(st.sets(st.integers(1, 100), min_size=1), st.integers(1, 16), times, st.floats(0.0, 100.0))
def test_goodput_at_some_numbers_is_that_of_all_within_and_across_nodes(
    counts: set[int], node_size: int, law: StepTimes, noise: float
) -> None:
    model, wanted = replace(MODEL, times=law, grad_var=noise), sorted(counts)
    expected = [float(best_goodput(model, count > node_size, count, count)[0]) for count in wanted]
    assert goodput_at(model, wanted, node_size).tolist() == pytest.approx(expected, rel=1e-12)


def test_noise_that_grows_with_the_batch_makes_large_batches_worth_more() -> None:
    seen = replace(MODEL, grad_batch=64)
    grows = replace(seen, noise_exponent=0.3)
    assert goodput_at(seen, [1, 4, 16], 4).tolist() == goodput_at(MODEL, [1, 4, 16], 4).tolist()
    assert (goodput_at(grows, [8, 16, 32], 4) > goodput_at(seen, [8, 16, 32], 4)).all()
    assert best_batch(grows, True, 16).total(16) > best_batch(seen, True, 16).total(16)


def test_noise_seen_at_a_large_batch_was_smaller_at_the_initial_one() -> None:
    early, late = (replace(MODEL, noise_exponent=0.3, grad_batch=batch) for batch in (64, 4096))
    assert (goodput_at(late, [4, 16], 4) < goodput_at(early, [4, 16], 4)).all()
    nobody_knows = replace(MODEL, noise_exponent=0.3)
    assert goodput_at(nobody_knows, [4, 16], 4).tolist() == goodput_at(MODEL, [4, 16], 4).tolist()
