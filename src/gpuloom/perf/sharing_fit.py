"""Fitting ours: a model's own parameters from its 11 profiling runs, the GPU's two constants once for all models.

The sharpness is the one with which the curves fit the profiles best; the power at which the clock begins to fall is the
one with the least mean error on measured pairs. Everything else is the profile's. The error bars come from leaving out
one model more: constants from pairs without it, errors on pairs with it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from gpuloom.perf.igniter_fit import BATCH, SHARE_PCT, fit_hardware, fit_traits, full_clock_ms
from gpuloom.perf.igniter_model import Hardware
from gpuloom.perf.pair_errors import Pairs, left_out_reach, models_of
from gpuloom.perf.reach import Reach
from gpuloom.perf.sharing_model import Constants, SharedService, SharingModel
from gpuloom.perf.solo_curve import SoloCurve, fit_curve
from gpuloom.perf.solo_table import SoloTable
from gpuloom.work.service_pairs import PairRow
from gpuloom.work.service_profiles import Profiles, ServiceProfile

SHARPNESS = tuple(float(s) for s in np.arange(1.0, 2.01, 0.05).round(2))
THROTTLE_STARTS = tuple(float(s) for s in np.arange(0.8, 1.1, 0.0025).round(4))
"""Looked through, as parts of the power cap."""


def calibrate(
    profiles: Profiles, rows: Sequence[PairRow], tables: Mapping[str, SoloTable] | None = None
) -> SharingModel:
    """The model of all profiled services, its constants from `rows` and the profiles of the models in them."""
    model = _without_reach(profiles, rows, tables or {})
    reach = left_out_reach(rows, lambda others: _without_reach(profiles, others, tables or {}))
    return replace(model, constants=replace(model.constants, reach=reach))


def profiled_only(profiles: Profiles) -> SharingModel:
    """Where no pair was ever measured: the clock falls at the nominal cap, and no error is stated."""
    hardware = fit_hardware(profiles.gpu)
    sharpness = choose_sharpness(list(profiles.services.values()), hardware)
    constants = Constants(sharpness, hardware.cap_w, Reach())
    return SharingModel(hardware, fit_services(profiles, hardware, sharpness), constants)


def _without_reach(profiles: Profiles, rows: Sequence[PairRow], tables: Mapping[str, SoloTable]) -> SharingModel:
    hardware = fit_hardware(profiles.gpu)
    seen = models_of(rows)
    sharpness = choose_sharpness([one for name, one in profiles.services.items() if name in seen], hardware)
    constants = Constants(sharpness, hardware.cap_w, Reach())
    model = SharingModel(hardware, fit_services(profiles, hardware, sharpness), constants, tables)
    pairs = Pairs.of(rows, model.names)

    def mean_error(start: float) -> float:
        tried = replace(model, constants=replace(constants, throttle_start_w=start * hardware.cap_w))
        return float(np.abs(np.log(tried.latencies(pairs.crowd).total_ms[:, 0] / pairs.measured_ms)).mean())

    best = min(THROTTLE_STARTS, key=mean_error)
    return replace(model, constants=replace(constants, throttle_start_w=best * hardware.cap_w))


def fit_services(profiles: Profiles, hardware: Hardware, sharpness: float) -> dict[str, SharedService]:
    return {
        name: SharedService(fit_traits(one, hardware), _curve(one, hardware, sharpness)[0])
        for name, one in profiles.services.items()
    }


def choose_sharpness(profiles: Sequence[ServiceProfile], hardware: Hardware) -> float:
    return min(SHARPNESS, key=lambda tried: sum(_curve(one, hardware, tried)[1] for one in profiles))


@lru_cache(maxsize=512)
def _curve(profile: ServiceProfile, hardware: Hardware, sharpness: float) -> tuple[SoloCurve, float]:
    return fit_curve(BATCH, SHARE_PCT, full_clock_ms(profile, hardware), sharpness)
