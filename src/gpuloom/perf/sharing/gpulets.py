"""gpu-lets' interference model (ATC'22), as a peer: slowdown linear in both sides' use of L2 and memory bandwidth.

It knows a service by its measured solo latency and use, over batch and share; five coefficients, fitted to measured
pairs, are the same for all. Where a service has several neighbours, which gpu-lets never allows, their uses add up.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gpuloom.perf.sharing.alone_table import SoloTable
from gpuloom.perf.sharing.igniter import IgniterModel
from gpuloom.perf.sharing.interference import Crowd, Floats, Latencies
from gpuloom.work.measured.service_pairs import MeasuredServices

BATCHES = range(1, 33)
SHARES_PCT = (10, 20, 30, 40, 50, 60, 70, 80, 90, 100)


@dataclass(frozen=True, slots=True)
class GpuletsService:
    solo_ms: SoloTable
    l2_pct: SoloTable
    dram_pct: SoloTable | None = None
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
        for index, one in enumerate(self.services.values()):
            mine = crowd.model == index
            at = crowd.batch[mine], crowd.share_pct[mine] * crowd.device.compute
            solo[mine], l2[mine] = one.solo_ms(*at), one.l2_pct(*at)
            dram[mine] = one.dram_pct(*at) if one.dram_pct is not None else 0.0
        others = [use.sum(axis=-1, keepdims=True) - use for use in (l2, dram)]
        return solo, np.stack([np.ones_like(solo), l2, others[0], dram, others[1]], axis=-1)


def fit_gpulets(services: Mapping[str, GpuletsService], crowd: Crowd, measured_ms: Floats) -> GpuletsModel:
    """By least squares on the slowdown of the first seat of each row."""
    solo, uses = GpuletsModel(services)._solo(crowd)
    found = np.linalg.lstsq(uses[:, 0], measured_ms / solo[:, 0], rcond=None)[0]
    return GpuletsModel(services, tuple(map(float, found)))


def measured_services(measured: MeasuredServices) -> dict[str, GpuletsService]:
    """Of the models whose solo latency and uses were measured."""
    return {
        name: GpuletsService(SoloTable.of(solo), SoloTable.of(measured.l2_pct[name]), _optional(measured, name))
        for name, solo in measured.solo_ms.items()
        if name in measured.l2_pct
    }


def profiled_services(igniter: IgniterModel, names: Sequence[str]) -> dict[str, GpuletsService]:
    """From iGniter's profile alone: its solo curve and L2 use; memory use it does not have."""
    batch, share = np.meshgrid(np.array(BATCHES, float), np.array(SHARES_PCT, float), indexing="ij")
    found = {}
    for name in names:
        one = igniter.services[name]
        active = one.active_ms(batch, share)
        transfer = (one.traits.load_bytes + one.traits.feedback_bytes) * batch / igniter.hardware.pcie_bytes_per_ms
        l2 = one.traits.cache_slope * 1000.0 * batch / active + one.traits.cache_base
        axes = batch[:, 0], share[0]
        found[name] = GpuletsService(SoloTable(*axes, active + one.traits.idle_ms + transfer), SoloTable(*axes, l2))
    return found


def _optional(measured: MeasuredServices, name: str) -> SoloTable | None:
    return SoloTable.of(measured.dram_pct[name]) if name in measured.dram_pct else None
