"""Profiles of services that obey laws exactly, so that a fit has a truth to find without the measured data."""

from collections.abc import Callable, Mapping

import numpy as np

from gpuloom.perf.arrays import Floats
from gpuloom.perf.sharing.alone_curve import AloneCurve, active_ms
from gpuloom.perf.sharing.igniter import Hardware, Traits
from gpuloom.perf.sharing.igniter_fit import BATCH, SHARE_PCT
from gpuloom.perf.sharing.model import SharedService
from gpuloom.work.measured.service_profiles import GpuProfile, Profiles, ServiceProfile

HARDWARE = Hardware(
    clock_mhz=1500.0,
    cap_w=300.0,
    idle_w=50.0,
    share_unit_pct=2.5,
    pcie_bytes_per_ms=1e7,
    mhz_per_w=-1.25,
    launch_slope_ms=0.004,
    launch_base_ms=-0.006,
)
SERVICES = {
    "ant": SharedService(
        Traits(40, 0.05, 6e5, 4e3, 0.002, 0.03, 40.0, 0.003, 2.0), AloneCurve(0.9, 12.0, 6.0, 0.02)
    ),
    "bee": SharedService(
        Traits(90, 0.08, 6e5, 4e3, 0.003, 0.2, 30.0, 0.02, 1.0), AloneCurve(2.0, 55.0, 8.0, 0.08)
    ),
    "cat": SharedService(
        Traits(30, 0.04, 6e5, 4e3, 0.0025, 0.5, 20.0, 0.05, 3.0), AloneCurve(1.2, 150.0, 40.0, 0.1)
    ),
}  # fmt: skip
SHARPNESS = 1.35
Curve = Callable[[Floats, Floats], Floats]
"""Active time alone, by batch and share."""


def gpu_profile(hardware: Hardware = HARDWARE) -> GpuProfile:
    """Each further copy asks for 60 W more, and from the fourth on the clock falls."""
    power_w = np.array([150.0, 210.0, 270.0])
    beyond_w = power_w[2] + 60.0 * np.array([1.0, 2.0]) - hardware.cap_w
    clock = np.array([hardware.clock_mhz] * 3 + list(hardware.clock_mhz + hardware.mhz_per_w * beyond_w))
    copies = np.arange(1, 6)
    gap = 0.002 + np.where(copies > 1, hardware.launch_slope_ms * copies + hardware.launch_base_ms, 0.0)
    return GpuProfile(
        hardware.clock_mhz,
        hardware.cap_w,
        hardware.idle_w,
        hardware.share_unit_pct,
        hardware.pcie_bytes_per_ms,
        (*map(float, power_w), 300.0, 300.0),
        tuple(map(float, clock)),
        tuple(map(float, gap * hardware.clock_mhz / clock)),
    )


def service_profile(name: str, traits: Traits, curve: Curve, hardware: Hardware = HARDWARE) -> ServiceProfile:
    """As nine runs at the full clock and two at batch 16 with half of the SMs would show it."""
    active = curve(BATCH, SHARE_PCT)
    ability = 1000.0 * BATCH / active
    both, neighbour_l2_pct = float(curve(np.array([16.0]), np.array([50.0]))[0]), 12.0
    return ServiceProfile(
        name,
        traits.kernels,
        traits.load_bytes,
        traits.feedback_bytes,
        _rows(active + traits.idle_ms),
        _rows(hardware.idle_w + traits.power_slope * ability + traits.power_base),
        _rows(np.full(9, hardware.clock_mhz)),
        tuple(map(float, (traits.cache_slope * ability + traits.cache_base)[[0, 4, 8]])),
        traits.idle_ms,
        both,
        neighbour_l2_pct,
        both * (1.0 + traits.cache_sensitivity * neighbour_l2_pct),
        hardware.clock_mhz,
    )


def made_up_profiles(services: Mapping[str, SharedService] = SERVICES, sharpness: float = SHARPNESS) -> Profiles:
    """Of services that obey our own law."""
    return Profiles(
        gpu_profile(),
        {name: service_profile(name, one.traits, our_law(one, sharpness)) for name, one in services.items()},
    )


def our_law(service: SharedService, sharpness: float = SHARPNESS) -> Curve:
    curve = service.curve
    parameters = np.array([curve.floor_ms, curve.work_ms, curve.weights_ms, curve.stream_ms])
    return lambda batch, share_pct: active_ms(parameters, sharpness, batch, share_pct)


def _rows(values: Floats) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(map(float, row)) for row in values.reshape(3, 3))
