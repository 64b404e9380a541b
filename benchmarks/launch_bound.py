"""Slowdown where all that is known of a service is a solo table and its L2 use: no power, no kernels, no second copy.

That is all the A100 measurements have. The product ships no figures of services there, so this model is only here, to
answer for our idea of interference in `interference.py --a100`.

A model whose latency does not fall with the share waits for its launches: that *floor* is its time at batch 1 on the
whole GPU. Each further process lengthens the launches, hence the floor, by the same part; the work beside it slows with
the others' use of L2. Both are combined as in `perf.sharing.alone_curve`. Two constants for a type of GPU, from pairs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpuloom.perf.arrays import Floats
from gpuloom.perf.sharing.gpulets import GpuletsService
from gpuloom.perf.sharing.interference import Crowd, Latencies
from gpuloom.perf.sharing.intervals import Intervals
from gpuloom.perf.sharing.pairs import Pairs, left_out_intervals
from gpuloom.work.measured.service_pairs import PairRow

SHARPNESS = 2.0


@dataclass(frozen=True, slots=True)
class LaunchBoundModel:
    services: Mapping[str, GpuletsService]
    intervals: Intervals
    launch_growth: float = 0.0
    """Of the floor, for each further process."""
    cache_growth: float = 0.0
    """Of the whole, per per cent of L2 that the others use."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.services)

    def latencies(self, crowd: Crowd) -> Latencies:
        solo, floor, l2 = self._alone(crowd)
        n = crowd.here.sum(axis=-1, keepdims=True)
        others = (l2.sum(axis=-1, keepdims=True) - l2) / crowd.device.memory
        work = np.maximum(solo**SHARPNESS - floor**SHARPNESS, 0.0)
        lengthened = floor * (1.0 + self.launch_growth * (n - 1))
        total = (lengthened**SHARPNESS + work) ** (1.0 / SHARPNESS) * (1.0 + self.cache_growth * others)
        low, high = self.intervals(np.minimum(floor / solo, 1.0), n)
        none = np.zeros_like(total)
        return Latencies(none, total, none, total * low, total * high)

    def floor_part(self, crowd: Crowd) -> Floats:
        solo, floor, _ = self._alone(crowd)
        return np.minimum(floor / solo, 1.0)

    def _alone(self, crowd: Crowd) -> tuple[Floats, Floats, Floats]:
        solo, floor, l2 = np.ones_like(crowd.batch), np.ones_like(crowd.batch), np.zeros_like(crowd.batch)
        for index, one in enumerate(self.services.values()):
            mine = crowd.model == index
            at = crowd.batch[mine], crowd.share_pct[mine] * crowd.device.compute
            solo[mine], l2[mine] = one.solo_ms(*at), one.l2_pct(*at)
            floor[mine] = np.minimum(one.solo_ms.values[0, -1], solo[mine])
        return solo, floor, l2


def calibrate_launch_bound(services: Mapping[str, GpuletsService], rows: Sequence[PairRow]) -> LaunchBoundModel:
    """Its two constants from measured pairs, its error bars from leaving out one model more."""
    intervals = left_out_intervals(rows, lambda others: _fit(services, others))
    return replace(_fit(services, rows), intervals=intervals)


def _fit(services: Mapping[str, GpuletsService], rows: Sequence[PairRow]) -> LaunchBoundModel:
    """By a loss that forgives outliers."""
    from scipy.optimize import least_squares  # slow to import, and who only predicts does not need it

    pairs = Pairs.of(rows, tuple(services))

    def model(constants: Floats) -> LaunchBoundModel:
        return LaunchBoundModel(services, Intervals(), float(constants[0]), float(constants[1]))

    def errors(constants: Floats) -> Floats:
        return np.asarray(np.log(model(constants).latencies(pairs.crowd).total_ms[:, 0] / pairs.measured_ms))

    start, bounds = np.array([0.4, 0.002]), ([0.0, 0.0], [5.0, 0.1])
    return model(least_squares(errors, start, bounds=bounds, loss="soft_l1", f_scale=0.05, x_scale=[0.1, 0.001]).x)
