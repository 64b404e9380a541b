"""Goodput: useful progress per second, that is steps per second x what a larger batch is worth (Pollux, section 3).

Pure functions of what an agent has learned. `best_goodput` looks at many numbers of replicas at once; the grid of
batches that it tries depends on the limits only and is kept.
"""

from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from math import ceil
from typing import NamedTuple

import numpy as np

from gpuloom.perf.arrays import Bools, Floats
from gpuloom.perf.goodput.model import BatchLimits, GoodputModel, LocalBatch, StepTimes

CANDIDATES = 50
"""Global batches tried, geometrically spaced between the smallest and the largest."""
NEAR_ZERO = 1e-8
"""Tolerance of rounding up, and the network time of a job on one GPU."""
_BLOCK = 64
"""Grids are made for so many replicas, or a multiple of it."""


def gain(grad_sqr: float, grad_var: float, scale: float) -> float:
    """Progress of one step with `scale` times the initial batch, in steps of the initial batch (AdaScale's gain)."""
    noise = grad_var / scale + grad_sqr
    return (grad_var + grad_sqr) / noise if noise > 0 else 1.0


def split_batch(batch: int, replicas: int, limits: BatchLimits, *, always_accumulate_alone: bool = False) -> LocalBatch:
    """Split a wanted global batch over replicas: as few passes as fit the memory, never above the largest global batch.

    A single replica beyond the initial batch makes at least two passes: the gradient's noise is estimated from their
    difference (with `always_accumulate_alone`, at any batch, as Optimus's oracle assumes).
    """
    local = ceil(batch / replicas)
    accumulation = ceil(local / limits.max_local) - 1
    if replicas == 1 and (always_accumulate_alone or batch > limits.init_batch):
        accumulation = max(accumulation, 1)
    return capped(LocalBatch(ceil(local / (accumulation + 1)), accumulation), replicas, limits)


def batches_of(limits: BatchLimits, replicas: int) -> list[int]:
    """The global batches that are tried for so many replicas."""
    least = min(max(limits.init_batch, limits.min_local * replicas), limits.max_batch)
    return [ceil(batch - NEAR_ZERO) for batch in np.geomspace(least, limits.max_batch, CANDIDATES)]


def capped(local: LocalBatch, replicas: int, limits: BatchLimits) -> LocalBatch:
    """The same split, with so many samples that the global batch stays within its limit."""
    most = limits.max_batch // (replicas * (local.accumulation + 1))
    return local._replace(samples=max(min(local.samples, most), 1))


def network_s(times: StepTimes, across_nodes: bool, replicas: int) -> float:
    if replicas <= 1:
        return NEAR_ZERO
    fixed, per_replica = (times.a_n, times.b_n) if across_nodes else (times.a_r, times.b_r)
    return fixed + per_replica * max(replicas - 2, NEAR_ZERO)


def step_s(times: StepTimes, across_nodes: bool, replicas: int, samples: int) -> float:
    """One step without accumulation, as the model has it."""
    compute, network = times.a_c + times.b_c * samples, network_s(times, across_nodes, replicas)
    return float((compute**times.gamma + network**times.gamma) ** (1 / times.gamma))


class _Grid(NamedTuple):
    """For 1, 2, … replicas (rows), the candidate batches (columns). `valid`: every pass is within the limits."""

    samples: Floats
    accumulation: Floats
    scale: Floats
    valid: Bools


@lru_cache(maxsize=256)
def _grid(limits: BatchLimits, blocks: int) -> _Grid:
    replicas = np.arange(1, _BLOCK * blocks + 1)[:, None]
    least = np.minimum(np.maximum(limits.init_batch, limits.min_local * replicas), limits.max_batch)
    batch = np.geomspace(least[:, 0], limits.max_batch, CANDIDATES, axis=1)
    local = batch / replicas
    accumulation = np.ceil(local / limits.max_local - NEAR_ZERO) - 1
    alone = (replicas == 1) & (local > limits.init_batch + NEAR_ZERO)
    accumulation = np.where(alone, np.maximum(accumulation, 1), accumulation)
    samples = np.ceil(local / (accumulation + 1) - NEAR_ZERO)
    scale = replicas * samples * (accumulation + 1) / limits.init_batch
    return _Grid(samples, accumulation, scale, (samples >= limits.min_local) & (samples <= limits.max_local))


def _goodputs(model: GoodputModel, across_nodes: bool, replicas: Sequence[int]) -> Floats:
    """Predicted goodput for these numbers of replicas, in order (rows), at each candidate batch (columns)."""
    grid, times = _grid(model.limits, -(-replicas[-1] // _BLOCK)), model.times
    first, last = replicas[0], replicas[-1]
    rows = slice(first - 1, last) if last - first + 1 == len(replicas) else np.asarray(replicas) - 1
    compute = times.a_c + times.b_c * grid.samples[rows]
    network = np.array([[network_s(times, across_nodes, n)] for n in replicas])
    step = np.exp(np.log(compute**times.gamma + network**times.gamma) / times.gamma)
    total = step + grid.accumulation[rows] * compute
    return np.where(grid.valid[rows], _gains(model, grid.scale[rows]) / total, 0.0)


def _gains(model: GoodputModel, scale: Floats) -> Floats:
    """What a step is worth at each scale of the batch."""
    var, sqr = (model.grad_var, model.grad_sqr) if model.grad_var + model.grad_sqr > 0 else (0.0, 1.0)
    if not model.noise_exponent or not model.grad_batch:
        return np.asarray((var + sqr) / (var / scale + sqr))
    there = var * (scale * (model.limits.init_batch / model.grad_batch)) ** model.noise_exponent
    return np.asarray((there + sqr) / (there / scale + sqr))


def best_goodput(model: GoodputModel, across_nodes: bool, first: int, last: int) -> Floats:
    """The goodput of `first` to `last` replicas, each at its best batch."""
    return np.asarray(_goodputs(model, across_nodes, range(first, last + 1)).max(axis=1))


def goodput_at(model: GoodputModel, counts: Sequence[int], node_size: int) -> Floats:
    """The same for these numbers of replicas, in order, each on as few nodes of that size as possible."""
    inside = bisect_right(counts, node_size)
    parts = [
        _goodputs(model, across, part) for across, part in ((False, counts[:inside]), (True, counts[inside:])) if part
    ]
    return np.concatenate([part.max(axis=1) for part in parts])


def goodput_with(model: GoodputModel, across_nodes: bool, replicas: int, local: LocalBatch) -> float:
    """The goodput of so many replicas with this batch."""
    times = model.times
    total = step_s(times, across_nodes, replicas, local.samples)
    total += local.accumulation * (times.a_c + times.b_c * local.samples)
    scale = np.array([local.total(replicas) / model.limits.init_batch])
    return float(_gains(model, scale)[0] / total)


def best_batch(model: GoodputModel, across_nodes: bool, replicas: int) -> LocalBatch:
    """The batch that promises the most goodput on so many replicas."""
    best = int(_goodputs(model, across_nodes, (replicas,))[0].argmax())
    grid = _grid(model.limits, -(-replicas // _BLOCK))
    local = LocalBatch(int(grid.samples[replicas - 1, best]), int(grid.accumulation[replicas - 1, best]))
    return capped(local, replicas, model.limits)
