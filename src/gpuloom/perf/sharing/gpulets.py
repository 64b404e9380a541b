"""gpu-lets' interference model (ATC'22), as a peer: slowdown linear in both sides' use of L2 and memory bandwidth.

It knows a service by its measured solo latency and use, over batch and share; five coefficients, fitted to measured
pairs, are the same for all. Where a service has several neighbours, which gpu-lets never allows, their uses add up.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gpuloom.perf.arrays import Floats
from gpuloom.perf.sharing.alone_table import AloneTable
from gpuloom.perf.sharing.igniter import IgniterModel
from gpuloom.perf.sharing.interference import Crowd, Latencies
from gpuloom.work.measured.service_pairs import MeasuredServices

BATCHES = range(1, 33)
SHARES_PCT = (10, 20, 30, 40, 50, 60, 70, 80, 90, 100)


@dataclass(frozen=True, slots=True)
class GpuletsService:
    solo_ms: AloneTable
    l2_pct: AloneTable
    dram_pct: AloneTable | None = None
    """None: not measured, taken as 0."""


@dataclass(frozen=True, slots=True)
class GpuletsModel:
    services: Mapping[str, GpuletsService]
    coefficients: tuple[float, ...] = (1.0, 0.0, 0.0, 0.0, 0.0)
    """Constant, own L2, the others' L2, own memory, the others' memory."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.services)

    def latencies(self, crowd: Crowd) -> Latencies:
        solo, uses = self._solo(crowd)
        slowdown = np.where(crowd.here.sum(axis=-1, keepdims=True) > 1, uses @ np.array(self.coefficients), 1.0)
        total, none = solo * slowdown, np.zeros_like(solo)
        return Latencies(none, total, none, total, total)

    def _solo(self, crowd: Crowd) -> tuple[Floats, Floats]:
        """Latency alone, and the columns of the regression."""
        solo, l2, dram = np.ones((3, *crowd.batch.shape)) * np.array([1.0, 0.0, 0.0]).reshape(
            3, *[1] * crowd.batch.ndim
        )
        for index, service in enumerate(self.services.values()):
            seats = crowd.model == index
            points = crowd.batch[seats], crowd.share_pct[seats] * crowd.device.compute
            solo[seats], l2[seats] = service.solo_ms(*points), service.l2_pct(*points)
            dram[seats] = service.dram_pct(*points) if service.dram_pct is not None else 0.0
        others = [use.sum(axis=-1, keepdims=True) - use for use in (l2, dram)]
        return solo, np.stack([np.ones_like(solo), l2, others[0], dram, others[1]], axis=-1)


def fit_gpulets(services: Mapping[str, GpuletsService], crowd: Crowd, measured_ms: Floats) -> GpuletsModel:
    """By least squares on the slowdown of the first seat of each row."""
    solo, uses = GpuletsModel(services)._solo(crowd)
    coefficients = np.linalg.lstsq(uses[:, 0], measured_ms / solo[:, 0], rcond=None)[0]
    return GpuletsModel(services, tuple(map(float, coefficients)))


def measured_services(measured: MeasuredServices) -> dict[str, GpuletsService]:
    """Of the models whose solo latency and uses were measured."""
    return {
        name: GpuletsService(AloneTable.of(solo), AloneTable.of(measured.l2_pct[name]), _optional(measured, name))
        for name, solo in measured.solo_ms.items()
        if name in measured.l2_pct
    }


def profiled_services(igniter: IgniterModel, names: Sequence[str]) -> dict[str, GpuletsService]:
    """From iGniter's profile alone: its solo curve and L2 use; memory use it does not have."""
    batch, share = np.meshgrid(np.array(BATCHES, float), np.array(SHARES_PCT, float), indexing="ij")
    axes = batch[:, 0], share[0]
    services = {}
    for name in names:
        traits, active = igniter.services[name].traits, igniter.services[name].active_ms(batch, share)
        transfer = (traits.load_bytes + traits.feedback_bytes) * batch / igniter.hardware.pcie_bytes_per_ms
        l2 = traits.cache_slope * 1000.0 * batch / active + traits.cache_base
        services[name] = GpuletsService(AloneTable(*axes, active + traits.idle_ms + transfer), AloneTable(*axes, l2))
    return services


def _optional(measured: MeasuredServices, name: str) -> AloneTable | None:
    return AloneTable.of(measured.dram_pct[name]) if name in measured.dram_pct else None
