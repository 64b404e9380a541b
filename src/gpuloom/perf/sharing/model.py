"""Ours: how long a batch takes beside others, with an error bar, from the 11 profiling runs that iGniter needs.

iGniter's physics with what it gets wrong put right:
- alone: a soft maximum of work and floor instead of their sum (`alone_curve`), or a measured table where there is one;
- each further process adds the same to the launch of every kernel. iGniter's line has an intercept that rests on one
  run with two copies, and takes nearly all of it away; four of the six measured pairs of models show it in full, two,
  measured one after the other, hardly at all: the session, not the models, seems to decide, and no profile tells;
- the clock falls before the nominal cap: where, is the one constant that is calibrated on measured pairs;
- PCIe is shared: transfers stretch once a direction of the link is asked for more than it carries;
- SMs are shared too: shares that sum to more than the device count in proportion (processes without a limit).
On a MIG instance the share is of fewer SMs, the neighbours' cache use weighs on a smaller cache, streaming takes
longer, and power is still the whole GPU's; no pair was measured there. Errors: benchmarks/interference.py.
"""

from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass, field
from typing import Any

import numpy as np

from gpuloom.perf.arrays import Bools, Floats
from gpuloom.perf.sharing.alone_curve import AloneCurve, active_ms
from gpuloom.perf.sharing.alone_table import AloneTable
from gpuloom.perf.sharing.igniter import Hardware, Traits, stretch, traits_of, traits_table, uses
from gpuloom.perf.sharing.interference import Crowd, Latencies
from gpuloom.perf.sharing.intervals import Intervals

SHORTEST_MS = 1e-6
ROUNDS = 8
"""Until active time and clock agree; each round leaves about a fifth of the difference."""


@dataclass(frozen=True, slots=True)
class SharedService:
    traits: Traits
    curve: AloneCurve


@dataclass(frozen=True, slots=True)
class Constants:
    """Shared by all models on one type of GPU."""

    sharpness: float
    """Of the soft maximum; from the profiles."""
    throttle_start_w: float
    """Power demand at which the clock begins to fall; from measured pairs."""
    intervals: Intervals
    """From measured pairs of models that were left out."""


@dataclass(frozen=True, slots=True)
class SharingModel:
    hardware: Hardware
    services: Mapping[str, SharedService]
    constants: Constants
    tables: Mapping[str, AloneTable] = field(default_factory=dict)
    """Measured latency alone, transfers included, of the models that have it."""
    names: tuple[str, ...] = field(init=False)
    _traits: Floats = field(init=False, repr=False, compare=False)
    _curves: Floats = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(self.services))
        object.__setattr__(self, "_traits", traits_table([service.traits for service in self.services.values()]))
        object.__setattr__(self, "_curves", np.array([astuple(service.curve) for service in self.services.values()]).T)

    def latencies(self, crowd: Crowd) -> Latencies:
        hardware, here, index = self.hardware, crowd.here, np.maximum(crowd.model, 0)
        kernels, idle, load_bytes, feedback_bytes, sensitivity, *use = self._traits[:, index]
        active = self.active_ms(crowd)
        power, cache = uses(np.array(use), 1000.0 * crowd.batch / active, here)
        power, cache = np.maximum(power, 0.0), np.maximum(cache, 0.0) / crowd.device.memory
        n = here.sum(axis=-1, keepdims=True)
        others = cache.sum(axis=-1, keepdims=True) - cache
        busy = idle + kernels * hardware.launch_slope_ms * (n - 1) + active * (1.0 + sensitivity * others)
        demand = hardware.idle_w + crowd.device.beside_w + power.sum(axis=-1, keepdims=True)
        gpu = busy * stretch(hardware, demand, self.constants.throttle_start_w)
        items = crowd.batch / hardware.pcie_bytes_per_ms
        load_ms, feedback_ms = _on_the_link(load_bytes * items, idle + active, feedback_bytes * items, here)
        total = load_ms + gpu + feedback_ms
        low, high = self.constants.intervals(np.minimum(self._curves[0, index] / active, 1.0), n)
        return Latencies(load_ms, gpu, feedback_ms, total * low, total * high)

    def power_w(self, crowd: Crowd) -> Floats:
        """What each row asks for above idle at the full clock: `beside_w` for the GPU's other instances."""
        use = self._traits[5:, np.maximum(crowd.model, 0)]
        power, _ = uses(use, 1000.0 * crowd.batch / self.active_ms(crowd), crowd.here)
        return np.asarray(np.maximum(power, 0.0).sum(axis=-1))

    def floor_part(self, crowd: Crowd) -> Floats:
        """The floor's part of each seat's active time, on which the error bars depend."""
        return np.asarray(np.minimum(self._curves[0, np.maximum(crowd.model, 0)] / self.active_ms(crowd), 1.0))

    def active_ms(self, crowd: Crowd) -> Floats:
        """Time in kernels with nobody beside it, at the full clock."""
        index, device, sharpness = np.maximum(crowd.model, 0), crowd.device, self.constants.sharpness
        all_pct = np.where(crowd.here, crowd.share_pct, 0.0).sum(axis=-1, keepdims=True)
        share_pct = crowd.share_pct * device.compute * np.minimum(1.0, 100.0 / np.maximum(all_pct, 1e-9))
        active = active_ms(self._curves[:, index], sharpness, crowd.batch, share_pct, device.memory)
        for name, table in self.tables.items():
            column = self.names.index(name)
            seats = crowd.here & (index == column)
            if seats.any():
                batch, share = table.within(crowd.batch[seats], share_pct[seats])
                beyond = active[seats] / active_ms(self._curves[:, column], sharpness, batch, share)
                active[seats] = beyond * self._from_table(column, table, batch, share)
        return np.asarray(active)

    def _from_table(self, column: int, table: AloneTable, batch: Floats, share_pct: Floats) -> Floats:
        """Active time from the latency measured alone on the whole GPU: without transfers and the clock's fall."""
        _, idle, load_bytes, feedback_bytes, _, power_slope, power_base, _, _ = self._traits[:, column]
        gpu_ms = table(batch, share_pct) - (load_bytes + feedback_bytes) * batch / self.hardware.pcie_bytes_per_ms
        active = np.maximum(gpu_ms - idle, SHORTEST_MS)
        for _ in range(ROUNDS):
            demand = self.hardware.idle_w + np.maximum(power_slope * 1000.0 * batch / active + power_base, 0.0)
            full_clock_ms = gpu_ms / stretch(self.hardware, demand, self.constants.throttle_start_w)
            active = np.maximum(full_clock_ms - idle, SHORTEST_MS)
        return np.asarray(active)

    def to_figures(self) -> dict[str, Any]:
        """For a file, which calls intervals `reach`."""
        services = {
            name: asdict(service.traits) | {"curve": asdict(service.curve)} for name, service in self.services.items()
        }
        constants = {
            "sharpness": self.constants.sharpness,
            "throttle_start_w": self.constants.throttle_start_w,
            "reach": self.constants.intervals.to_figures(),
        }
        return {"hardware": asdict(self.hardware), "services": services, "constants": constants}

    @classmethod
    def from_figures(cls, figures: Mapping[str, Any], tables: Mapping[str, AloneTable] | None = None) -> "SharingModel":
        shared = figures["constants"]
        constants = Constants(shared["sharpness"], shared["throttle_start_w"], Intervals.from_figures(shared["reach"]))
        services = {
            name: SharedService(traits_of(service), AloneCurve(**service["curve"]))
            for name, service in figures["services"].items()
        }
        return cls(Hardware(**figures["hardware"]), services, constants, tables or {})


def _on_the_link(load_ms: Floats, busy_ms: Floats, feedback_ms: Floats, here: Bools) -> tuple[Floats, Floats]:
    """Transfers on a link that all share, each direction for itself: stretched by what is asked of it above its rate.

    What each asks for is what it would alone (`busy_ms`), which is the most. That there is no slowdown below the rate
    is a choice: no measured pair asks for more, and fits of a slowdown in proportion to the neighbour's use disagree
    from one part of the pairs to the next.
    """
    period_ms = np.maximum(busy_ms + feedback_ms, load_ms)
    stretched = []
    for transfer_ms in (load_ms, feedback_ms):
        load = np.where(here, transfer_ms / period_ms, 0.0).sum(axis=-1, keepdims=True)
        stretched.append(transfer_ms * np.maximum(load, 1.0))
    return stretched[0], stretched[1]
