"""The network on sets: its gradient, its blindness to order, several as one, and that it learns."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.perf.arrays import Singles
from gpuloom.perf.slices.net import Recipe, Segments, SetNet, backward, train


def random_net(seed: int = 0, inputs: int = 3, width: int = 4, outputs: int = 2) -> SetNet:
    return SetNet.random(inputs, width, outputs, np.random.default_rng(seed))


def random_rows(seed: int, count: int, inputs: int = 3) -> Singles:
    return np.random.default_rng(seed).normal(size=(count, inputs)).astype(np.float32)


def gradient_and_slopes(scale: float, every: int) -> list[tuple[float, float]]:
    """Of some weights: what is computed, and the slope of the error itself."""
    rng = np.random.default_rng(0)
    net = SetNet.random(3, 4, 2, rng)
    net.weights *= scale
    rows, y = rng.normal(size=(9, 3)).astype(np.float32), rng.uniform(size=(9, 2)).astype(np.float32)
    y[4, 1] = np.nan
    counts = np.array([2, 3, 4])
    found = SetNet(3, 4, 2)
    backward(net.layers, found.layers, rows, y, Segments(counts))

    def error(weights: Singles) -> float:
        moved = SetNet(3, 4, 2, weights)
        out = np.concatenate([moved(part) for part in np.split(rows, np.cumsum(counts)[:-1])])
        return float(np.nansum(np.abs(out.astype(float) - y)) / y.size)

    both = []
    for index in range(0, net.weights.size, every):
        step = np.zeros_like(net.weights)
        step[index] = 0.01
        slope = (error(net.weights + step) - error(net.weights - step)) / 0.02
        both.append((float(found.weights[index]), slope))
    return both


def test_the_gradient_of_the_network() -> None:
    for computed, slope in gradient_and_slopes(scale=1.0, every=7):
        assert computed == pytest.approx(slope, abs=2e-4)


def test_the_gradient_goes_through_the_neighbours_too() -> None:
    """Larger weights, so that what the jobs of a mix have in common weighs enough to be missed."""
    for computed, slope in gradient_and_slopes(scale=3.0, every=1):
        assert computed == pytest.approx(slope, abs=5e-5)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 100), st.integers(1, 7).flatmap(lambda size: st.permutations(range(size))))
def test_permuting_the_rows_permutes_the_answers(seed: int, order: list[int]) -> None:
    net, rows = random_net(seed), random_rows(seed + 1, len(order))
    out = net(rows)
    assert out.shape == (len(order), 2)
    assert ((out > 0) & (out < 1)).all()
    assert net(rows[order]) == pytest.approx(out[order], abs=1e-5)


def test_a_job_sees_who_is_beside_it() -> None:
    net, rows = random_net(3), random_rows(4, 5)
    alone, beside = net(rows[:1]), net(rows)
    assert np.abs(beside[0] - alone[0]).max() > 1e-4


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 100), st.integers(1, 4), st.integers(1, 7))
def test_several_networks_answer_with_their_mean(seed: int, count: int, size: int) -> None:
    nets, rows = [random_net(seed + member) for member in range(count)], random_rows(seed, size)
    stacked = SetNet(*nets[0].shape, np.stack([net.weights for net in nets]))
    assert stacked(rows) == pytest.approx(np.mean([net(rows) for net in nets], axis=0), abs=1e-5)


def test_layers_are_views_of_one_vector() -> None:
    net = SetNet(3, 4, 2)
    for layer in net.layers.values():
        layer += 1.0
    assert (net.weights == 1.0).all(), "every weight is in exactly one layer"
    with pytest.raises(ValueError, match=f"has {net.weights.size} weights, found 7"):
        SetNet(3, 4, 2, np.zeros(7, np.float32))


def test_segments_pool_the_rows_of_each_mix() -> None:
    mixes = Segments(np.array([1, 3, 2]))
    assert mixes.starts.tolist() == [0, 1, 4]
    assert mixes.owner.tolist() == [0, 1, 1, 1, 2, 2]
    pooled = mixes.pooled(np.arange(6, dtype=np.float32)[:, None])
    assert pooled[:, 0] * 7 == pytest.approx([0.0, 6.0, 9.0])


def test_it_learns_a_law_of_sets() -> None:
    """Each job's target depends on itself and on how many there are; what nobody measured does not disturb."""
    rng = np.random.default_rng(1)
    mixes = [rng.uniform(-1, 1, (int(rng.integers(1, 8)), 2)).astype(np.float32) for _ in range(200)]
    targets = [np.column_stack([0.5 + 0.2 * mix[:, 0], np.full(len(mix), len(mix) / 10)]) for mix in mixes]
    for target in targets[::5]:
        target[:, 1] = np.nan
    singles = [target.astype(np.float32) for target in targets]
    ticks: list[int] = []
    net = train(mixes, singles, Recipe(width=8, epochs=25, batch=16), rng, lambda: ticks.append(1))
    errors = np.concatenate([np.abs(net(mix) - target) for mix, target in zip(mixes, targets, strict=True)])
    assert np.nanmean(errors) < 0.05
    assert len(ticks) == 25
