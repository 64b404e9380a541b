"""iGniter's coefficients from its 11 profiling runs, in its authors' way, oddities included.

The clock is undone where it was throttled, except for the throughput that L2 use is fitted against; the launch delay
is a line through two to five copies; the clock's fall is a line through the cap and the power that four and five
copies would ask for if each further one asked for as much as the second and third did.
"""

import numpy as np
from scipy.optimize import curve_fit

from gpuloom.errors import InputError
from gpuloom.perf.arrays import Floats
from gpuloom.perf.sharing.igniter import Hardware, IgniterCoefficients, IgniterModel, Traits
from gpuloom.work.measured.service_profiles import BATCHES, SHARES_PCT, GpuProfile, Profiles, ServiceProfile

BATCH = np.repeat(np.array(BATCHES, float), len(SHARES_PCT))
SHARE_PCT = np.tile(np.array(SHARES_PCT, float), len(BATCHES))
"""Batch and share of the nine solo runs, in the order of the flattened tables."""
_DIAGONAL = [0, 4, 8]


def fit_igniter(profiles: Profiles) -> IgniterModel:
    hardware = fit_hardware(profiles.gpu)
    return IgniterModel(hardware, {name: fit_service(profile, hardware) for name, profile in profiles.services.items()})


def fit_hardware(gpu: GpuProfile) -> Hardware:
    power, clock, gap = (np.array(row) for row in (gpu.copies_power_w, gpu.copies_clock_mhz, gpu.copies_gap_ms))
    demand = power[2] + (power[2] - power[0]) / 2 * np.array([1.0, 2.0]) - gpu.cap_w
    at_full_clock = gap * clock / gpu.clock_mhz
    slope, base = np.polyfit([2.0, 3.0, 4.0, 5.0], at_full_clock[1:] - gap[0], 1)
    return Hardware(
        gpu.clock_mhz,
        gpu.cap_w,
        gpu.idle_w,
        gpu.share_unit_pct,
        gpu.pcie_bytes_per_ms,
        mhz_per_w=float(demand @ (clock[3:] - gpu.clock_mhz) / (demand @ demand)),
        launch_slope_ms=float(slope),
        launch_base_ms=float(base),
    )


def fit_service(profile: ServiceProfile, hardware: Hardware) -> IgniterCoefficients:
    try:
        k, _ = curve_fit(_active, (BATCH, SHARE_PCT), full_clock_ms(profile, hardware), maxfev=100_000)
    except RuntimeError:
        raise InputError(
            f"the solo latencies of {profile.model} follow no curve of iGniter's form: expected milliseconds that fall"
            " with the share and rise with the batch"
        ) from None
    k1, k2, k3, k4, k5 = map(float, k)
    return IgniterCoefficients(fit_traits(profile, hardware), (k1, k2, k3, k4, k5))


def fit_traits(profile: ServiceProfile, hardware: Hardware) -> Traits:
    ability = 1000.0 * BATCH / (np.array(profile.gpu_ms).ravel() - profile.idle_ms)
    full = np.array(profile.clock_mhz).ravel() >= hardware.clock_mhz
    if np.count_nonzero(full) < 2:
        raise InputError(
            f"{profile.model} ran at the full clock in fewer than two of its nine solo runs: expected two or more, from"
            " which its power follows"
        )
    power_slope, power_base = _line(ability[full], np.array(profile.power_w).ravel()[full] - hardware.idle_w)
    cache_slope, cache_base = _line(ability[_DIAGONAL], np.array(profile.l2_pct))
    grown = profile.pair_active_ms * profile.pair_clock_mhz / hardware.clock_mhz / profile.active_ms
    return Traits(
        profile.kernels,
        profile.idle_ms,
        profile.load_bytes,
        profile.feedback_bytes,
        (grown - 1.0) / profile.neighbour_l2_pct,
        power_slope,
        power_base,
        cache_slope,
        cache_base,
    )


def _line(x: Floats, y: Floats) -> tuple[float, float]:
    """By iteration, as the authors fit it: the exact solution differs in the sixth digit, which they publish."""
    (slope, base), _ = curve_fit(lambda points, slope, base: slope * points + base, x, y)
    return float(slope), float(base)


def full_clock_ms(profile: ServiceProfile, hardware: Hardware) -> Floats:
    """Active time of the nine solo runs, as it were at the highest clock."""
    clock = np.minimum(np.array(profile.clock_mhz).ravel() / hardware.clock_mhz, 1.0)
    active = np.array(profile.gpu_ms).ravel() * clock - profile.idle_ms
    if (active <= 0.0).any():
        raise InputError(
            f"{profile.model} spends its whole latency between kernels: expected 'idletime_1' ({profile.idle_ms} ms)"
            " below every 'gpulatency'"
        )
    return active


def _active(point: tuple[Floats, Floats], k1: float, k2: float, k3: float, k4: float, k5: float) -> Floats:
    batch, share_pct = point
    return (k1 * batch**2 + k2 * batch + k3) / (share_pct + k4) + k5
