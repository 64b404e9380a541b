"""Minimising a function of a few numbers within bounds: BFGS on those that are not at a bound.

For fits of a handful of parameters. Finds the minima that scipy's L-BFGS-B finds, or lower ones; that one goes through
LAPACK, whose threads fight over matrices of this size for milliseconds a step when the machine is busy.
"""

from collections.abc import Callable

import numpy as np

from gpuloom.perf.arrays import Floats

Function = Callable[[Floats], tuple[float, Floats]]
"""Value and gradient."""

_FLAT = 1e-5
"""Largest slope of a minimum."""
_STALLED = 1e-6
"""Relative gain of a step that was not worth it."""
_MOST_STEPS = 100
_MOST_TRIALS = 12
_LONGEST = 1.0
"""Most that a number changes in a step of full length."""
_LOWER, _FLATTER = 1e-4, 0.9
"""Weak Wolfe conditions: a step ends lower than this part of what the slope promised, on this part of the slope."""


def minimise(function: Function, start: Floats, low: Floats, high: Floats) -> Floats:
    """The argument of a local minimum, from `start` downhill."""
    x = np.clip(start, low, high)
    value, slope = function(x)
    metric: Floats | None = None
    stalled = False
    for _ in range(_MOST_STEPS):
        free = ~(((x <= low) & (slope > 0)) | ((x >= high) & (slope < 0)))
        uphill = slope * free
        if np.abs(uphill).max() < _FLAT:
            break
        direction = -uphill if metric is None else -(metric @ uphill) * free
        if direction @ uphill > -1e-14:
            metric, direction = None, -uphill
        direction *= min(1.0, _LONGEST / np.abs(direction).max())
        x_new, value_new, slope_new = _step(function, x, value, float(slope @ direction), direction, low, high)
        small = value - value_new <= _STALLED * max(abs(value), 1.0)
        if small and stalled:
            break
        # After a step that was not worth it, what was learned of the curvature may mislead: once more from the slope.
        stalled, metric = small, None if small else _learned(metric, x_new - x, slope_new - slope)
        if value_new < value:
            x, value, slope = x_new, value_new, slope_new
    return x


def _step(
    function: Function, x: Floats, value: float, promise: float, direction: Floats, low: Floats, high: Floats
) -> tuple[Floats, float, Floats]:
    """A point along the direction, bent at the bounds, by bisection (Lewis and Overton 2013: it also passes kinks)."""
    too_short, too_long, length = 0.0, np.inf, 1.0
    for _ in range(_MOST_TRIALS):
        there = np.minimum(np.maximum(x + length * direction, low), high)
        value_there, slope_there = function(there)
        if value_there > value + _LOWER * length * promise:
            too_long = length
        elif float(slope_there @ (direction * (low < there) * (there < high))) < _FLATTER * promise and length < 8:
            too_short = length
        else:
            break
        length = (too_short + too_long) / 2 if too_long < np.inf else 2 * length
    return there, value_there, slope_there


def _learned(metric: Floats | None, step: Floats, change: Floats) -> Floats | None:
    """The inverse of the curvature, with what a step has shown of it (Nocedal and Wright, 6.17 and 6.20)."""
    curvature = float(step @ change)
    if curvature <= 1e-14:
        return metric
    if metric is None:
        metric = np.eye(len(step)) * (curvature / float(change @ change))
    towards = metric @ change
    across = np.outer(towards, step) / curvature
    along = np.outer(step, step) * ((1.0 + float(change @ towards) / curvature) / curvature)
    return np.asarray(metric + along - across - across.T)
