"""Learning a job's step time from the configurations it has run on (Pollux, OSDI'21, section 4.1).

The fit minimises the root mean square error of the logarithms of compute and step seconds, within bounds. What a job
has no evidence of is fixed at next to nothing, so that an unknown network looks free and the scheduler tries it (the
paper's prior-driven exploration). After ten random configurations of each of Pollux's six models the step time is off
by 6 % (mean) on those seen and by 9 % on others; worst are NCF and YOLOv3 with 11 %.

Exchanging gradients in a ring takes about as long among many as among few. Pollux's law takes what it saw grow within a
node for a growth that goes on across nodes, and is then off by a factor of up to 5 on 32 GPUs; `ring=True` does not.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gpuloom.perf.arrays import Floats
from gpuloom.perf.goodput.bounded_bfgs import minimise
from gpuloom.perf.goodput.model import Observation, StepTimes

LEAST = 1e-8
"""Lower bound of every time: logarithms and ratios stay finite."""
MAX_GAMMA = 10.0
"""Close enough to the maximum of compute and network, that is to their perfect overlap."""
_START = (0.1, 0.01, 0.1, 0.01, 0.1, 0.01, 1.001)
_GAMMA_WEIGHT = 1e-3
_RETROGRESSION_WEIGHT = 1e-2
"""Weight of (b/a)^2: of two fits that explain the same, the one that promises better scaling."""
_UNSEEN_NETWORK = 1.1
"""Across nodes at least so many times the network time within one, until it has been seen."""
_UNSEEN_RING = 2.0
"""The same of a ring: of the slowest exchange that was seen within a node."""
_LOG_LOW = np.log([LEAST] * 6 + [1.0])
_LOG_HIGH = np.log([1e6] * 6 + [MAX_GAMMA])


class _Evidence(NamedTuple):
    samples: Floats
    log_compute: Floats
    log_step: Floats
    network: Floats
    """Rows of weights of a_n, b_n, a_r, b_r in the network time of each observation."""
    floor: Floats
    """Network time of the observations on one GPU."""


def fit_step_times(seen: Sequence[Observation], *, ring: bool = False) -> StepTimes:
    """The model that explains the observations; see the docstring of this file."""
    fixed = _fixed(seen)
    if ring and len({row.replicas for row in seen if row.nodes > 1}) < 2:
        fixed[3] = LEAST  # whether it grows across nodes can be seen only on two numbers of GPUs
    free = [i for i in range(7) if i not in fixed]
    full = np.array([fixed.get(i, start) for i, start in enumerate(_START)])
    evidence = _evidence(seen)

    def loss(logs: Floats) -> tuple[float, Floats]:
        full[free] = values = np.exp(logs)
        value, gradient = _loss(full, evidence)
        return value, gradient[free] * values

    # In logarithms: the parameters differ by orders of magnitude, and a step is a relative change.
    full[free] = np.exp(minimise(loss, np.log(full[free]), _LOG_LOW[free], _LOG_HIGH[free]))
    if all(row.nodes == 1 for row in seen):
        _guess_across(full, max(row.replicas for row in seen), ring)
    return StepTimes(*map(float, full))


def _guess_across(full: Floats, replicas: int, ring: bool) -> None:
    """The network across nodes, from what it was like within one, on up to so many GPUs."""
    if ring:
        full[2] = max(full[2], (full[4] + full[5] * max(replicas - 2, 0)) * _UNSEEN_RING)
        return
    full[2] = max(full[2], full[4] * _UNSEEN_NETWORK)
    full[3] = max(full[3], full[5] * _UNSEEN_NETWORK)


def _fixed(seen: Sequence[Observation]) -> dict[int, float]:
    """Parameters without evidence, by position, and what they are taken to be."""
    fixed: dict[int, float] = {}
    if len({row.samples for row in seen}) == 1:
        fixed[0] = sum(row.compute_s for row in seen) / len(seen) / 2
    if all(row.nodes == 1 for row in seen):
        fixed |= {2: LEAST, 3: LEAST}
    if not any(row.nodes == 1 and row.replicas > 1 for row in seen):
        fixed |= {4: LEAST, 5: LEAST}
    if all(row.replicas <= 2 for row in seen):
        fixed |= {3: LEAST, 5: LEAST}
    return fixed


def _evidence(seen: Sequence[Observation]) -> _Evidence:
    beyond_two = [max(row.replicas - 2, LEAST) for row in seen]
    across = [row.nodes > 1 for row in seen]
    within = [row.nodes == 1 and row.replicas > 1 for row in seen]
    network = np.array([across, np.multiply(across, beyond_two), within, np.multiply(within, beyond_two)], dtype=float)
    return _Evidence(
        np.array([row.samples for row in seen], dtype=float),
        np.log([row.compute_s for row in seen]),
        np.log([row.step_s for row in seen]),
        network,
        np.array([LEAST if row.replicas == 1 else 0.0 for row in seen]),
    )


def _loss(params: Floats, evidence: _Evidence) -> tuple[float, Floats]:
    """The error with its penalties, and its gradient by the seven parameters."""
    a_c, b_c, a_n, b_n, a_r, b_r, gamma = params.tolist()
    compute = a_c + b_c * evidence.samples
    network = params[2:6] @ evidence.network + evidence.floor
    log_compute, log_network = np.log(compute), np.log(network)
    powers = np.exp(gamma * log_compute), np.exp(gamma * log_network)
    both = powers[0] + powers[1]
    log_step = np.log(both) / gamma
    rmse_compute, slope_compute = _rmse(log_compute - evidence.log_compute)
    rmse_step, slope_step = _rmse(log_step - evidence.log_step)

    share = slope_step / both
    by_compute = slope_compute / compute + share * powers[0] / compute
    by_network = evidence.network @ (share * powers[1] / network)
    by_gamma = (share @ (powers[0] * log_compute + powers[1] * log_network) - slope_step @ log_step) / gamma
    ratio_n, ratio_r = b_n / a_n, b_r / a_r
    penalty = _GAMMA_WEIGHT * (gamma - 1) ** 2 + _RETROGRESSION_WEIGHT * (ratio_n**2 + ratio_r**2)
    twice_n, twice_r = 2 * _RETROGRESSION_WEIGHT * ratio_n / a_n, 2 * _RETROGRESSION_WEIGHT * ratio_r / a_r
    gradient = np.array(
        [
            by_compute.sum(),
            by_compute @ evidence.samples,
            by_network[0] - twice_n * ratio_n,
            by_network[1] + twice_n,
            by_network[2] - twice_r * ratio_r,
            by_network[3] + twice_r,
            by_gamma + 2 * _GAMMA_WEIGHT * (gamma - 1),
        ]
    )
    return rmse_compute + rmse_step + penalty, gradient


def _rmse(error: Floats) -> tuple[float, Floats]:
    """Root of the mean square, and its derivative by each error."""
    rmse = float(np.sqrt(error @ error / error.size))
    return rmse, error / (error.size * rmse) if rmse > 0 else np.zeros_like(error)
