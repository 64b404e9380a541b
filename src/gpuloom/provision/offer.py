"""What can be had: a type of GPU with its price, and what is known of the models on it. What is asked is in `demand`.

Nothing is read here: figures and profiles are passed in, by `shipped` or by whoever has read a user's file.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from gpuloom.errors import InputError
from gpuloom.gpus.catalogue import find
from gpuloom.perf.sharing.alone_table import AloneTable
from gpuloom.perf.sharing.igniter import IgniterModel
from gpuloom.perf.sharing.interference import InterferenceModel
from gpuloom.perf.sharing.model import SharingModel
from gpuloom.work.measured.latency_profiles import LatencyProfile
from gpuloom.work.measured.service_profiles import Profiles

COST_PER_HOUR: Mapping[str, float] = {"V100": 3.06, "A100-40GB": 4.10, "A100-80GB": 5.12}
"""Dollars on demand at AWS: p3.2xlarge, as in iGniter's paper; one of the eight GPUs of p4d.24xlarge, p4de.24xlarge."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A type of GPU that can be had, with what is known of the models on it."""

    name: str
    mem_mib: int
    cost_per_hour: float
    model: InterferenceModel
    """Ours: what `gpuloom` plans with."""
    of_peers: IgniterModel | None = None
    """What the peers plan with; None where only latencies are known."""
    share_unit_pct: float | None = None
    """None: that of the peers' hardware."""
    most_batch: Mapping[str, int] = field(default_factory=dict)
    """By model the largest batch that is known; of those that are missing any."""
    least_pct: Mapping[str, float] = field(default_factory=dict)
    """By model the smallest share that was measured, where that is known."""

    @property
    def igniter(self) -> IgniterModel:
        if self.of_peers is None:
            raise InputError(
                f"only latencies are known on {self.name}, and the peers need counters too: expected the strategy"
                " gpuloom or alone, or profiles of 11 runs"
            )
        return self.of_peers

    @property
    def unit_pct(self) -> float:
        return self.igniter.hardware.share_unit_pct if self.share_unit_pct is None else self.share_unit_pct

    @property
    def units(self) -> int:
        """Of a whole GPU."""
        return round(100.0 / self.unit_pct)


def profiled_offer(name: str, profiles: Profiles, shipped: Offer, tables: Mapping[str, AloneTable]) -> Offer:
    """A type with the models of a profile; what no profile tells is that of a shipped type, the same one or another.

    `tables` are latencies that were measured alone on this type, in place of the curves of a profile.
    """
    from gpuloom.perf.sharing.fit import fit_services
    from gpuloom.perf.sharing.igniter_fit import fit_hardware, fit_igniter

    hardware = fit_hardware(profiles.gpu)
    calibrated = shipped.model
    assert isinstance(calibrated, SharingModel)
    # What was calibrated on measured pairs is the shipped type's; the clock falls at the same part of the power cap.
    start_w = calibrated.constants.throttle_start_w * hardware.cap_w / calibrated.hardware.cap_w
    services = fit_services(profiles, hardware, calibrated.constants.sharpness)
    known = {model: table for model, table in tables.items() if model in services}
    return Offer(
        name,
        find(name).mem_mib,
        COST_PER_HOUR.get(name, 0.0),
        SharingModel(hardware, services, replace(calibrated.constants, throttle_start_w=start_w), known),
        fit_igniter(profiles),
    )


def measured_offer(profile: LatencyProfile, wanted: Collection[str]) -> Offer:
    """A device with models of a latency profile: nothing but what was measured there, of whatever models."""
    from gpuloom.perf.sharing.latency_only import fit_latency_only, services_of

    fitted = fit_latency_only(services_of(profile.alone_ms, profile.p95_ms), profile.pairs)
    model = replace(fitted, services={name: one for name, one in fitted.services.items() if name in wanted})
    cost = COST_PER_HOUR.get(profile.device, 0.0)
    least = {name: min(share for _, share in grid) for name, grid in profile.alone_ms.items()}
    return Offer(profile.device, profile.mem_mib, cost, model, None, profile.share_unit_pct, profile.most_batch, least)
