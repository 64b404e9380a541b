"""How long a batch alone keeps the GPU busy, by batch and share: four parameters from nine profiling runs.

A kernel takes as long as its thread blocks need on the SMs it has (work, batch / share), but never less than one block
does (floor): over a network's many kernels that is a soft maximum of the two, a p-norm. iGniter adds them (p = 1), so
its k5 is paid in full even where the work hides it: that is why it over-predicts small batches. Reading the weights
through few SMs (weights / share) and activations through the memory (stream * batch) come on top. The sharpness p is
one number for a type of GPU; `fit` finds it, with the four, from the profiles.
"""

from dataclasses import dataclass

import numpy as np

from gpuloom.perf.arrays import Floats


@dataclass(frozen=True, slots=True)
class AloneCurve:
    floor_ms: float
    work_ms: float
    """For one item on one per cent of the SMs."""
    weights_ms: float
    """On one per cent of the SMs."""
    stream_ms: float
    """For one item with the whole memory bandwidth."""


def active_ms(curve: Floats, sharpness: float, batch: Floats, share_pct: Floats, memory: float = 1.0) -> Floats:
    """`curve` has a row for each field of AloneCurve; `memory` is the device's part of the bandwidth."""
    floor, work, weights, stream = curve
    soft_max = (floor**sharpness + (work * batch / share_pct) ** sharpness) ** (1.0 / sharpness)
    return np.asarray(soft_max + weights / share_pct + stream * batch / memory)


def fit_curve(batch: Floats, share_pct: Floats, measured_ms: Floats, sharpness: float) -> tuple[AloneCurve, float]:
    """The curve with the least squared relative errors, and their sum."""
    from scipy.optimize import least_squares  # slow to import, and who only predicts does not need it

    last = int(np.argmax(batch / share_pct))
    work = measured_ms[last] * share_pct[last] / batch[last]
    scale = np.array([measured_ms.min(), work, 0.1 * work, 0.001 * work])

    def errors(scaled: Floats) -> Floats:
        return np.asarray(np.log(active_ms(scaled * scale, sharpness, batch, share_pct) / measured_ms))

    solution = least_squares(errors, np.array([0.7, 1.0, 1.0, 0.1]), bounds=(0.0, np.inf), xtol=1e-10, ftol=1e-10)
    floor, work, weights, stream = map(float, solution.x * scale)
    return AloneCurve(floor, work, weights, stream), float(2.0 * solution.cost)
