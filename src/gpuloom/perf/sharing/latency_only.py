"""How long a batch takes beside others where latency is all that was measured: no counters, no power, no kernels.

Alone, a batch takes what the table says (`alone_table`). Beside others it takes longer by a part that is the sum of
three terms, each with a constant of the device, none below 0, fitted to the measured pairs:
- launch: each further process lengthens what a batch waits for rather than works: the *floor*, which is the time of the
  smallest batch on the largest share, as a part of the batch's own time;
- pressure: for what the others are busy with, each counted as its throughput there over the most it ever has: caches
  and memory bandwidth;
- excess: for what all together do beyond one whole device of throughput: power, and clocks that fall.
More constants, or ones of each model's own (shrunk towards those of all), predict models that were left out no better:
benchmarks/interference.py has the errors, beside iGniter's, gpu-lets' and those of `model`, which reads counters too.

Beyond what was measured nothing is believed to be better than in proportion: a smaller share than the least takes as
much longer, and so does a larger batch. Error bars are wide enough for 95 of 100 batches: the spread of batches at that
point, times the errors on pairs with a model that was left out of the fit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from gpuloom.perf.arrays import Floats
from gpuloom.perf.sharing.alone_table import AloneTable
from gpuloom.perf.sharing.interference import Crowd, Latencies
from gpuloom.perf.sharing.intervals import Intervals
from gpuloom.perf.sharing.pairs import Pairs, left_out_intervals, models_of
from gpuloom.work.measured.service_pairs import PairRow

SWEEPS = 30
FORGIVEN = 0.05
"""Relative errors beyond are outliers: they count linearly."""


@dataclass(frozen=True, slots=True)
class Growth:
    """Parts by which a batch takes longer; the constants of a device."""

    launch: float = 0.0
    pressure: float = 0.0
    excess: float = 0.0


@dataclass(frozen=True, slots=True)
class LatencyOnly:
    """All that is known of one model."""

    mean_ms: AloneTable
    p95_ms: AloneTable | None = None
    """None: nobody knows how batches vary."""
    floor_ms: float = field(init=False)
    most_per_ms: float = field(init=False)
    """Items, at the best of the measured points."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "floor_ms", float(self.mean_ms.values[0, -1]))
        object.__setattr__(self, "most_per_ms", float((self.mean_ms.batches[:, None] / self.mean_ms.values).max()))

    def alone_ms(self, batch: Floats, share_pct: Floats) -> Floats:
        inside_batch, inside_share = self.mean_ms.within(batch, share_pct)
        beyond = np.maximum(batch / inside_batch, 1.0) * np.maximum(inside_share / share_pct, 1.0)
        return np.asarray(self.mean_ms(batch, share_pct) * beyond)

    def spread(self, batch: Floats, share_pct: Floats) -> Floats:
        """The 95th percentile over the mean."""
        if self.p95_ms is None:
            return np.ones_like(batch)
        return np.asarray(np.maximum(self.p95_ms(batch, share_pct) / self.mean_ms(batch, share_pct), 1.0))


@dataclass(frozen=True, slots=True)
class LatencyOnlyModel:
    services: Mapping[str, LatencyOnly]
    growth: Growth = field(default_factory=Growth)
    intervals: Intervals = field(default_factory=Intervals)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.services)

    def latencies(self, crowd: Crowd) -> Latencies:
        alone, spread, floor_part, busy = self._alone(crowd)
        n = crowd.here.sum(axis=-1, keepdims=True)
        terms = _terms(floor_part, busy, n)
        total = alone * (1.0 + terms @ np.array([self.growth.launch, self.growth.pressure, self.growth.excess]))
        low, high = self.intervals(floor_part, n)
        none = np.zeros_like(total)
        return Latencies(none, total, none, total * low, total * high * spread)

    def floor_part(self, crowd: Crowd) -> Floats:
        return self._alone(crowd)[2]

    def _alone(self, crowd: Crowd) -> tuple[Floats, Floats, Floats, Floats]:
        """Of each seat: its time alone, how that varies, the floor's part of it, and how busy it keeps the device."""
        alone, spread, floor = (np.ones_like(crowd.batch) for _ in range(3))
        busy = np.zeros_like(crowd.batch)
        all_pct = np.where(crowd.here, crowd.share_pct, 0.0).sum(axis=-1, keepdims=True)
        share_pct = crowd.share_pct * crowd.device.compute * np.minimum(1.0, 100.0 / np.maximum(all_pct, 1e-9))
        for index, service in enumerate(self.services.values()):
            mine = crowd.model == index
            at = crowd.batch[mine], share_pct[mine]
            alone[mine], spread[mine], floor[mine] = service.alone_ms(*at), service.spread(*at), service.floor_ms
            busy[mine] = np.minimum(crowd.batch[mine] / alone[mine] / service.most_per_ms, 1.0)
        return alone, spread, np.minimum(floor / alone, 1.0), busy


def _terms(floor_part: Floats, busy: Floats, n: Floats) -> Floats:
    """Of each seat the three of them."""
    all_busy = busy.sum(axis=-1, keepdims=True)
    excess = np.broadcast_to(np.maximum(all_busy - 1.0, 0.0), busy.shape)
    return np.stack([floor_part * (n - 1), all_busy - busy, excess], axis=-1)


def fit_latency_only(services: Mapping[str, LatencyOnly], rows: Sequence[PairRow]) -> LatencyOnlyModel:
    """Constants from all pairs; error bars from those without one model at a time. Without pairs nothing is known."""
    if not rows:
        return LatencyOnlyModel(services)
    if len(models_of(rows)) > 1:
        intervals = left_out_intervals(rows, lambda others: _fit(services, others))
    else:  # nobody can be left out
        intervals = left_out_intervals(rows, lambda _: _fit(services, rows))
    return replace(_fit(services, rows), intervals=intervals)


def _fit(services: Mapping[str, LatencyOnly], rows: Sequence[PairRow]) -> LatencyOnlyModel:
    from scipy.optimize import least_squares  # slow to import, and who only predicts does not need it

    model = LatencyOnlyModel(services)
    pairs = Pairs.of(rows, model.names)
    alone, _, floor_part, busy = model._alone(pairs.crowd)
    terms = _terms(floor_part, busy, pairs.crowd.here.sum(axis=-1, keepdims=True))[:, 0]
    slowdown = pairs.measured_ms / alone[:, 0]

    def errors(constants: Floats) -> Floats:
        return np.asarray(np.log((1.0 + terms @ constants) / slowdown))

    found = least_squares(errors, np.full(3, 0.02), bounds=(0.0, np.inf), loss="soft_l1", f_scale=FORGIVEN).x
    return LatencyOnlyModel(services, Growth(*map(float, found)))


def services_of(
    mean_ms: Mapping[str, Mapping[tuple[int, float], float]],
    p95_ms: Mapping[str, Mapping[tuple[int, float], float]],
) -> dict[str, LatencyOnly]:
    """From points by batch and share; noise is evened out, so that more SMs never take longer, nor more items less."""
    return {
        name: LatencyOnly(
            evened(AloneTable.of(mean)),
            evened(AloneTable.of(p95_ms[name])) if name in p95_ms else None,
        )
        for name, mean in mean_ms.items()
    }


def evened(table: AloneTable) -> AloneTable:
    """The nearest in which more SMs never take longer, nor more items less: by the squares of logs (Dykstra).

    A running minimum would do that too, and make everybody as fast as the luckiest measurement.
    """
    from scipy.optimize import isotonic_regression

    logs = np.log(table.values)
    left = [np.zeros_like(logs), np.zeros_like(logs)]
    for _ in range(SWEEPS):
        before = logs + left[0]
        logs = np.array([isotonic_regression(column).x for column in before.T]).T
        left[0] = before - logs
        before = logs + left[1]
        logs = np.array([isotonic_regression(row, increasing=False).x for row in before])
        left[1] = before - logs
    exact = np.maximum.accumulate(np.minimum.accumulate(np.exp(logs), axis=1), axis=0)  # what the sweeps left
    return replace(table, values=exact)
