"""A job whose model nobody has measured: first undo the crowd, then follow the trend of those that were measured.

Step one, quadratic ridge regression for each number of jobs: from its slowdowns in the mix to the *solo slowdown*, how
much slower it would be at 14 % than at 100 % if it were alone. Step two, kernel ridge regression over the measured
workloads: from the solo slowdown to its latency on 7g and 4g relative to 3g. Both are smooth and small, because there
are few models to learn from; even with the exact solo slowdown the mean error is 0.027 of relative latency for a
model that was left out, since how much memory bandwidth a job needs does not show under MPS.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gpuloom.errors import InputError
from gpuloom.perf.arrays import Floats, Ints
from gpuloom.perf.slices.mix import Mix, ridge_inputs

FEWEST_ROWS = 30
"""Of a number of jobs with fewer rows than this, the regression of the nearest number is used."""
PRIOR_VARIANCE = 0.03


@dataclass(frozen=True, slots=True)
class Smoothness:
    """What is chosen by leaving one more family out (`training.choose_smoothness`)."""

    ridge: float = 10.0
    length: float = 0.5
    """Of the kernel, in units of the solo slowdown."""
    noise: float = 0.01
    """How far a workload may lie off the trend: variance of its relative latency."""


@dataclass(frozen=True, slots=True)
class Ridges:
    """One quadratic regression for each number of jobs from 2, all on the same columns."""

    mean: Floats
    scale: Floats
    coefficients: Floats
    constant: Floats

    def __call__(self, size: int, inputs: Floats) -> Floats:
        row = min(size - 2, len(self.mean) - 1)
        products = quadratic((inputs - self.mean[row]) / self.scale[row])
        return np.asarray(products @ self.coefficients[row] + self.constant[row])


@dataclass(frozen=True, slots=True)
class Trend:
    """Step two: the latency on 7g and on 4g relative to 3g, by solo slowdown."""

    anchors: Floats
    """Solo slowdown of each measured workload."""
    weights: Floats
    """Of each anchor: its pull on either latency."""
    middle: Floats
    length: float

    def __call__(self, solo: Floats) -> Floats:
        """A row for each job; beyond what was measured it stays level."""
        within = np.clip(solo, self.anchors.min(), self.anchors.max())
        return np.asarray(_kernel(within, self.anchors, self.length) @ self.weights + self.middle)


@dataclass(frozen=True, slots=True)
class SoloModel:
    gauged: Ridges
    bare: Ridges
    trend: Trend

    def solo(self, mix: Mix) -> Floats:
        """Solo slowdown of each job. One that is alone shows it."""
        if mix.size == 1:
            return mix.own[:, 0]
        return (self.bare if mix.bare else self.gauged)(mix.size, ridge_inputs(mix))

    def to_arrays(self) -> dict[str, Floats]:
        parts = (("gauged", self.gauged, _RIDGES), ("bare", self.bare, _RIDGES), ("trend", self.trend, _TREND))
        return {f"{kind}.{name}": np.asarray(getattr(part, name)) for kind, part, names in parts for name in names}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Floats]) -> "SoloModel":
        gauged, bare = (Ridges(*(arrays[f"{kind}.{name}"] for name in _RIDGES)) for kind in ("gauged", "bare"))
        anchors, weights, middle, length = (arrays[f"trend.{name}"] for name in _TREND)
        return cls(gauged, bare, Trend(anchors, weights, middle, float(length)))


_RIDGES = ("mean", "scale", "coefficients", "constant")
_TREND = ("anchors", "weights", "middle", "length")


def fit_ridges(inputs: Floats, sizes: Ints, solo: Floats, most: int, strength: float) -> Ridges:
    """Step one: from the columns of `ridge_inputs` to the true solo slowdown, for 2 to `most` jobs.

    Each is fitted to mixes of its own size, one more and one less.
    """
    fits = {}
    for size in range(2, most + 1):
        if np.count_nonzero(sizes == size) >= FEWEST_ROWS:
            near = np.abs(sizes - size) <= 1
            fits[size] = _ridge(inputs[near], solo[near], strength)
    if not fits:
        raise InputError(
            f"too few mixes of two jobs or more to train on: expected one size of which there are {FEWEST_ROWS} jobs"
        )
    nearest = [fits[min(fits, key=lambda other: (abs(other - size), other))] for size in range(2, most + 1)]
    return Ridges(*(np.array(parts) for parts in zip(*nearest, strict=True)))


def fit_trend(anchors: Floats, latencies: Floats, smoothness: Smoothness) -> Trend:
    middle = latencies.mean(axis=0)
    covariance = _kernel(anchors, anchors, smoothness.length) + smoothness.noise * np.eye(len(anchors))
    return Trend(anchors, np.linalg.solve(covariance, latencies - middle), middle, smoothness.length)


def quadratic(x: Floats) -> Floats:
    """The columns and all their products."""
    first, second = np.triu_indices(x.shape[1])
    return np.concatenate([x, x[:, first] * x[:, second]], axis=1)


def _kernel(x: Floats, y: Floats, length: float) -> Floats:
    return np.asarray(PRIOR_VARIANCE * np.exp(-0.5 * ((x[:, None] - y[None, :]) / length) ** 2))


def _ridge(x: Floats, y: Floats, strength: float) -> tuple[Floats, ...]:
    mean, scale = x.mean(axis=0), x.std(axis=0) + 1e-9
    products = quadratic((x - mean) / scale)
    centre, spread = products.mean(axis=0), products.std(axis=0) + 1e-9
    z = (products - centre) / spread
    coefficients = np.linalg.solve(z.T @ z + strength * np.eye(z.shape[1]), z.T @ (y - y.mean())) / spread
    return mean, scale, coefficients, y.mean() - centre @ coefficients
