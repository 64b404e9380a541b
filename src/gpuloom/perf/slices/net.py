"""A small network on sets: a job sees itself and the sum of all, so permuting the jobs permutes the answers.

Layers of the DeepSets kind (Zaheer et al., 2017): embed each job, then a few rounds of "own state, the state of the
whole mix, own input". Trained here with Adam on the absolute error, in numpy; some ten thousand weights in one vector,
no framework. Knows arrays only: what the inputs and outputs mean is in `net_training`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod

import numpy as np

from gpuloom.perf.arrays import Ints, Singles

Layers = dict[str, Singles]
ROUNDS = 3
SEATS = 7
"""The state of a mix is the sum over its jobs divided by this, so that it also tells how many they are."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one network is trained: the best of those that `benchmarks/predictor.py --choose-recipe` compares."""

    width: int = 40
    epochs: int = 100
    batch: int = 64
    """Mixes in a batch."""
    rate: float = 0.015
    decay: float = 0.003
    """Weight decay, decoupled from the gradient (AdamW)."""


class SetNet:
    """Weights as one vector, or one row for each of several networks; `layers` are named views into it."""

    def __init__(self, inputs: int, width: int, outputs: int, weights: Singles | None = None) -> None:
        self.shape = (inputs, width, outputs)
        sizes = dict(_shapes(inputs, width, outputs))
        total = sum(map(prod, sizes.values()))
        self.weights = np.zeros(total, np.float32) if weights is None else np.asarray(weights, np.float32)
        if self.weights.shape[-1] != total:
            raise ValueError(f"a network of this shape has {total} weights, found {self.weights.shape[-1]}")
        self.layers: Layers = {}
        begin = 0
        for name, size in sizes.items():
            several = self.weights.shape[:-1]
            self.layers[name] = self.weights[..., begin : begin + prod(size)].reshape(*several, *size)
            begin += prod(size)

    @classmethod
    def random(cls, inputs: int, width: int, outputs: int, rng: np.random.Generator) -> "SetNet":
        net = cls(inputs, width, outputs)
        for name, layer in net.layers.items():
            if len(dict(_shapes(inputs, width, outputs))[name]) == 2:
                fan_in = layer.shape[0] if name[0] in "io" else 2 * width + inputs
                layer[:] = rng.uniform(-1.0, 1.0, layer.shape) / np.sqrt(fan_in)
        return net

    def __call__(self, rows: Singles) -> Singles:
        """Outputs in (0, 1) of one mix, a row for each job; of several networks, their mean."""
        layers = self.layers
        several = self.weights.ndim > 1

        def bias(name: str) -> Singles:
            return layers[name][:, None, :] if several else layers[name]

        h = _swish(_swish(rows @ layers["in.w"] + bias("in.b"))[0] @ layers["in2.w"] + bias("in2.b"))[0]
        for r in range(ROUNDS):
            shared = h.sum(axis=-2, keepdims=True) / SEATS @ layers[f"{r}.all"] + bias(f"{r}.b")
            h = _swish(h @ layers[f"{r}.own"] + rows @ layers[f"{r}.x"] + shared)[0]
        out = _sigmoid(_swish(h @ layers["out.w"] + bias("out.b"))[0] @ layers["out2.w"] + bias("out2.b"))
        return np.asarray(out.mean(axis=0)) if several else out


def train(
    mixes: list[Singles],
    targets: list[Singles],
    recipe: Recipe,
    rng: np.random.Generator,
    tick: Callable[[], None] = lambda: None,
) -> SetNet:
    """A network with a small mean absolute error. Of each mix: its jobs' inputs, and targets (NaN if unknown).

    `tick` is called after each epoch.
    """
    net = SetNet.random(mixes[0].shape[1], recipe.width, targets[0].shape[1], rng)
    gradient = SetNet(*net.shape)
    first, second = np.zeros_like(net.weights), np.zeros_like(net.weights)
    batches = max(1, len(mixes) // recipe.batch)
    total, step = batches * recipe.epochs, 0
    for _ in range(recipe.epochs):
        for chosen in np.array_split(rng.permutation(len(mixes)), batches):
            rows, y = np.concatenate([mixes[k] for k in chosen]), np.concatenate([targets[k] for k in chosen])
            counts = np.array([len(mixes[k]) for k in chosen], np.intp)
            backward(net.layers, gradient.layers, rows, y, Segments(counts))
            rate = recipe.rate * 0.5 * (1.0 + np.cos(np.pi * step / total))
            step += 1
            first += 0.1 * (gradient.weights - first)
            second += 0.001 * (gradient.weights**2 - second)
            direction = first / (1.0 - 0.9**step) / (np.sqrt(second / (1.0 - 0.999**step)) + 1e-8)
            net.weights -= (rate * (direction + recipe.decay * net.weights)).astype(np.float32)
        tick()
    return net


def _shapes(inputs: int, width: int, outputs: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield from (("in.w", (inputs, width)), ("in.b", (width,)), ("in2.w", (width, width)), ("in2.b", (width,)))
    for r in range(ROUNDS):
        yield from ((f"{r}.own", (width, width)), (f"{r}.all", (width, width)), (f"{r}.x", (inputs, width)))
        yield f"{r}.b", (width,)
    yield from (("out.w", (width, width)), ("out.b", (width,)), ("out2.w", (width, outputs)), ("out2.b", (outputs,)))


class Segments:
    """Which rows belong to which mix."""

    def __init__(self, counts: Ints) -> None:
        self.starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
        self.owner = np.repeat(np.arange(len(counts)), counts)

    def pooled(self, h: Singles) -> Singles:
        return np.asarray(np.add.reduceat(h, self.starts, axis=0) / SEATS, np.float32)


def _sigmoid(z: Singles) -> Singles:
    return np.asarray(1.0 / (1.0 + np.exp(-np.clip(z, -60.0, 60.0))), np.float32)


def _swish(z: Singles) -> tuple[Singles, Singles]:
    """z * sigmoid(z) and its slope."""
    s = _sigmoid(z)
    value = z * s
    return value, np.asarray(s + value * (1.0 - s), np.float32)


def _forward(layers: Layers, x: Singles, mixes: Segments) -> tuple[Singles, list[tuple[Singles, Singles]]]:
    """The output, and of every hidden layer its state and slope."""
    kept = [_swish(x @ layers["in.w"] + layers["in.b"])]
    kept.append(_swish(kept[-1][0] @ layers["in2.w"] + layers["in2.b"]))
    for r in range(ROUNDS):
        h = kept[-1][0]
        shared = (mixes.pooled(h) @ layers[f"{r}.all"] + layers[f"{r}.b"])[mixes.owner]
        kept.append(_swish(h @ layers[f"{r}.own"] + x @ layers[f"{r}.x"] + shared))
    kept.append(_swish(kept[-1][0] @ layers["out.w"] + layers["out.b"]))
    return _sigmoid(kept[-1][0] @ layers["out2.w"] + layers["out2.b"]), kept


def backward(layers: Layers, gradient: Layers, x: Singles, y: Singles, mixes: Segments) -> None:
    """Fills in the gradient of the mean absolute error."""
    out, kept = _forward(layers, x, mixes)

    def through(name: str, inputs: Singles, delta: Singles) -> Singles:
        gradient[name][:] = inputs.T @ delta
        return delta @ layers[name].T

    delta = np.nan_to_num(np.sign(out - y)) / np.float32(y.size) * out * (1.0 - out)
    gradient["out2.b"][:] = delta.sum(axis=0)
    delta = through("out2.w", kept[-1][0], delta) * kept[-1][1]
    gradient["out.b"][:] = delta.sum(axis=0)
    delta = through("out.w", kept[-2][0], delta)
    for r in reversed(range(ROUNDS)):
        h, delta = kept[r + 1][0], delta * kept[r + 2][1]
        of_mix = np.add.reduceat(delta, mixes.starts, axis=0)
        gradient[f"{r}.b"][:] = of_mix.sum(axis=0)
        gradient[f"{r}.x"][:] = x.T @ delta
        shared = through(f"{r}.all", mixes.pooled(h), of_mix) / SEATS
        delta = through(f"{r}.own", h, delta) + shared[mixes.owner]
    delta = delta * kept[1][1]
    gradient["in2.b"][:] = delta.sum(axis=0)
    delta = through("in2.w", kept[0][0], delta) * kept[0][1]
    gradient["in.b"][:] = delta.sum(axis=0)
    gradient["in.w"][:] = x.T @ delta
