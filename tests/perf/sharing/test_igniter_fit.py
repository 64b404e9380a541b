"""iGniter's coefficients: those that its authors publish from their runs, and made-up ones from made-up runs."""

from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.errors import InputError
from gpuloom.perf.sharing.igniter import Hardware, IgniterCoefficients, Traits
from gpuloom.perf.sharing.igniter_fit import (
    BATCH,
    SHARE_PCT,
    fit_hardware,
    fit_igniter,
    fit_service,
    fit_traits,
    full_clock_ms,
)
from gpuloom.work.measured.service_profiles import Profiles
from tests.perf.sharing.made_up_profiles import HARDWARE, SERVICES, gpu_profile, our_law, service_profile
from tests.perf.sharing.v100 import MODELS

PUBLISHED = {
    "alexnet": (20, 0.0317683, 602112, 4000, 0.00237638, 0.0238930, 37.1081, 0.00309205, 2.02957),
    "resnet50": (80, 0.0738162, 602112, 4000, 0.00216306, 0.162335, 4.62686, 0.0219595, -0.189943),
    "vgg19": (29, 0.0392494, 602112, 4000, 0.00201773, 0.536729, 2.08185, 0.0452175, 2.72282),
    "ssd": (93, 0.147877, 1080000, 2968880, 0.00228086, 0.644894, 2.33932, 0.0886305, -0.128589),
}
PUBLISHED_K = {
    "alexnet": (0.00415351, 8.71158, 23.7361, 0.0555205, 0.346011),
    "resnet50": (-0.0175147, 58.2645, -0.0118622, 0.344858, 1.90950),
    "vgg19": (-0.00483465, 158.193, 44.4521, 0.188407, 0.926192),
    "ssd": (0.0251596, 235.847, -16.7816, 0.264273, 3.41698),
}
SERVICE = service_profile("bee", SERVICES["bee"].traits, our_law(SERVICES["bee"]))


def printed(value: float) -> str:
    """As the published table prints it: six significant digits."""
    return f"{value:.6g}"


def test_the_published_coefficients_to_every_printed_digit(profiles: Profiles) -> None:
    model = fit_igniter(profiles)
    for name in MODELS:
        traits, k = model.services[name].traits, model.services[name].k
        fitted = [getattr(traits, field) for field in traits.__slots__]
        assert [printed(value) for value in fitted] == [printed(value) for value in PUBLISHED[name]]
        assert [printed(value) for value in k] == [printed(value) for value in PUBLISHED_K[name]]
    hardware = model.hardware
    assert (hardware.clock_mhz, hardware.cap_w, hardware.idle_w, hardware.share_unit_pct) == (1530, 300, 53.5, 2.5)
    assert hardware.pcie_bytes_per_ms == 1e7
    assert printed(hardware.launch_slope_ms) == "0.00475065"
    assert f"{hardware.launch_base_ms:.8f}" == "-0.00902243"
    assert f"{hardware.mhz_per_w:.6f}" == "-1.025414"


@settings(deadline=None, max_examples=40)
@given(st.floats(-4.0, -0.2), st.floats(0.0005, 0.02), st.floats(-0.01, 0.01))
def test_hardware_that_obeys_the_law_is_found(mhz_per_w: float, slope_ms: float, base_ms: float) -> None:
    truth = replace(HARDWARE, mhz_per_w=mhz_per_w, launch_slope_ms=slope_ms, launch_base_ms=base_ms)
    found: Hardware = fit_hardware(gpu_profile(truth))
    assert asdict(found) == pytest.approx(asdict(truth), rel=1e-6, abs=1e-9)


@settings(deadline=None, max_examples=20)
@given(st.floats(10, 200), st.floats(0.01, 0.3), st.floats(0.0005, 0.01), st.floats(0.01, 0.8), st.floats(0.001, 0.1))
def test_traits_that_a_service_has_are_found(
    kernels: float, idle_ms: float, sensitivity: float, power_slope: float, cache_slope: float
) -> None:
    truth = Traits(kernels, idle_ms, 6e5, 4e3, sensitivity, power_slope, 25.0, cache_slope, 1.5)
    found = fit_traits(service_profile("bee", truth, our_law(SERVICES["bee"])), HARDWARE)
    assert asdict(found) == pytest.approx(asdict(truth), rel=1e-4)


@pytest.mark.parametrize("name", sorted(PUBLISHED_K))
def test_a_service_that_obeys_the_law_is_explained(name: str) -> None:
    """Its five k hide each other (a constant, or a share that is never 0), so what they say is compared."""
    traits = Traits(*PUBLISHED[name])
    truth = IgniterCoefficients(traits, PUBLISHED_K[name])
    found = fit_service(service_profile(name, traits, truth.active_ms), HARDWARE)
    assert found.active_ms(BATCH, SHARE_PCT) == pytest.approx(truth.active_ms(BATCH, SHARE_PCT), rel=1e-4)
    batch, share_pct = np.array([4.0, 8.0, 24.0]), np.array([30.0, 75.0, 20.0])
    assert found.active_ms(batch, share_pct) == pytest.approx(truth.active_ms(batch, share_pct), rel=1e-3)


def test_a_throttled_run_counts_as_at_the_full_clock() -> None:
    half = tuple(tuple(HARDWARE.clock_mhz / 2 for _ in range(3)) for _ in range(3))
    slow = replace(SERVICE, clock_mhz=half, gpu_ms=tuple(tuple(2 * ms for ms in row) for row in SERVICE.gpu_ms))
    assert full_clock_ms(slow, HARDWARE) == pytest.approx(full_clock_ms(SERVICE, HARDWARE))
    assert full_clock_ms(SERVICE, HARDWARE) == pytest.approx(our_law(SERVICES["bee"])(BATCH, SHARE_PCT))


def test_runs_that_no_coefficients_follow_from_are_named() -> None:
    with pytest.raises(InputError, match=r"bee spends its whole latency between kernels: .* \(50.0 ms\)"):
        fit_service(replace(SERVICE, idle_ms=50.0), HARDWARE)
    throttled = tuple(tuple(HARDWARE.clock_mhz - 1 for _ in range(3)) for _ in range(3))
    with pytest.raises(InputError, match="bee ran at the full clock in fewer than two"):
        fit_traits(replace(SERVICE, clock_mhz=throttled), HARDWARE)
