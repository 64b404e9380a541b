"""iGniter's performance model (TPDS'23), as its authors' code computes it: the peer that ours is measured against.

Time is loading + GPU + feedback. The GPU part is a kernel-launch delay that grows with the number of neighbours, and an
active time that grows with the neighbours' L2 use, both stretched when the power demand passes the cap and the clock
falls. Coefficients come from 11 profiling runs (`igniter_fit`). A MIG instance is to it a share of the whole GPU.
"""

from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass, field
from typing import Any

import numpy as np

from gpuloom.perf.arrays import Bools, Floats
from gpuloom.perf.sharing.interference import Crowd, Latencies

SLOWEST_CLOCK = 0.3
"""Of the highest: no demand makes the clock fall further (the law is a line, fitted near the cap)."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """One type of GPU."""

    clock_mhz: float
    """Its highest."""
    cap_w: float
    idle_w: float
    share_unit_pct: float
    pcie_bytes_per_ms: float
    mhz_per_w: float
    """How the clock changes with the power demand above the cap (negative)."""
    launch_slope_ms: float
    """Launch delay of a kernel with n processes: slope * n + base."""
    launch_base_ms: float


@dataclass(frozen=True, slots=True)
class Traits:
    """What a model brings to a shared GPU, besides its own speed."""

    kernels: float
    idle_ms: float
    """Time between kernels when it is alone."""
    load_bytes: float
    feedback_bytes: float
    cache_sensitivity: float
    """Slowdown per per cent of L2 that the others use."""
    power_slope: float
    """Watt above idle per item a second, and at rest."""
    power_base: float
    cache_slope: float
    """Per cent of L2 per item a second, and at rest."""
    cache_base: float


@dataclass(frozen=True, slots=True)
class IgniterCoefficients:
    traits: Traits
    k: tuple[float, float, float, float, float]
    """Active time alone: (k1 b² + k2 b + k3) / (r + k4) + k5, r the share in per cent."""

    def active_ms(self, batch: Floats, share_pct: Floats) -> Floats:
        k1, k2, k3, k4, k5 = self.k
        return (k1 * batch**2 + k2 * batch + k3) / (share_pct + k4) + k5


@dataclass(frozen=True, slots=True)
class IgniterModel:
    hardware: Hardware
    services: Mapping[str, IgniterCoefficients]
    names: tuple[str, ...] = field(init=False)
    _traits: Floats = field(init=False, repr=False, compare=False)
    """A row for each field of Traits, a column for each model."""
    _k: Floats = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(self.services))
        object.__setattr__(self, "_traits", traits_table([service.traits for service in self.services.values()]))
        object.__setattr__(self, "_k", np.array([service.k for service in self.services.values()]).T)

    def latencies(self, crowd: Crowd) -> Latencies:
        hardware, here, index = self.hardware, crowd.here, np.maximum(crowd.model, 0)
        kernels, idle, load, feedback, sensitivity, *use = self._traits[:, index]
        k1, k2, k3, k4, k5 = self._k[:, index]
        active = (k1 * crowd.batch**2 + k2 * crowd.batch + k3) / (crowd.share_pct * crowd.device.compute + k4) + k5
        power, cache = uses(np.array(use), 1000.0 * crowd.batch / active, here)
        n = here.sum(axis=-1, keepdims=True)
        launch = np.where(n > 1, hardware.launch_slope_ms * n + hardware.launch_base_ms, 0.0)
        others = cache.sum(axis=-1, keepdims=True) - cache
        busy = idle + kernels * launch + active * (1.0 + sensitivity * others)
        demand = hardware.idle_w + crowd.device.beside_w + power.sum(axis=-1, keepdims=True)
        gpu = busy * stretch(hardware, demand, hardware.cap_w)
        load_ms, feedback_ms = (bytes_ * crowd.batch / hardware.pcie_bytes_per_ms for bytes_ in (load, feedback))
        total = load_ms + gpu + feedback_ms
        return Latencies(load_ms, gpu, feedback_ms, total, total)

    def to_figures(self) -> dict[str, Any]:
        services = {name: asdict(service.traits) | {"k": list(service.k)} for name, service in self.services.items()}
        return {"hardware": asdict(self.hardware), "services": services}

    @classmethod
    def from_figures(cls, figures: Mapping[str, Any]) -> "IgniterModel":
        services = {}
        for name, service in figures["services"].items():
            k1, k2, k3, k4, k5 = service["k"]
            services[name] = IgniterCoefficients(traits_of(service), (k1, k2, k3, k4, k5))
        return cls(Hardware(**figures["hardware"]), services)


def traits_of(figures: Mapping[str, Any]) -> Traits:
    return Traits(*(figures[name] for name in Traits.__slots__))


def traits_table(traits: list[Traits]) -> Floats:
    return np.array([astuple(column) for column in traits]).T.reshape(len(Traits.__slots__), len(traits))


def uses(slopes: Floats, ability_per_s: Floats, here: Bools) -> tuple[Floats, Floats]:
    """Watt above idle and per cent of L2 of each seat."""
    power_slope, power_base, cache_slope, cache_base = slopes
    power = np.where(here, power_slope * ability_per_s + power_base, 0.0)
    return power, np.where(here, cache_slope * ability_per_s + cache_base, 0.0)


def stretch(hardware: Hardware, demand_w: Floats, start_w: float) -> Floats:
    """How much longer everything takes once the demand passes `start_w` and the clock falls."""
    clock = hardware.clock_mhz + hardware.mhz_per_w * np.maximum(demand_w - start_w, 0.0)
    return np.asarray(hardware.clock_mhz / np.maximum(clock, SLOWEST_CLOCK * hardware.clock_mhz))
