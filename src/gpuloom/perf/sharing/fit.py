"""Fitting ours: a model's own parameters from its 11 profiling runs, the GPU's two constants once for all models.

The sharpness is the one with which the curves fit the profiles best; the power at which the clock begins to fall is the
one with the least mean error on measured pairs. Everything else is the profile's. The error bars come from leaving out
one model more: constants from pairs without it, errors on pairs with it.

That form was chosen with the measured pairs in view. FORMS are the ones it could have been: benchmarks/interference.py
lets pairs without a model choose among them, which tells what the choice is worth on a model that nobody has seen.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product

import numpy as np

from gpuloom.perf.sharing.alone_curve import AloneCurve, fit_curve
from gpuloom.perf.sharing.alone_table import AloneTable
from gpuloom.perf.sharing.igniter import Hardware
from gpuloom.perf.sharing.igniter_fit import BATCH, SHARE_PCT, fit_hardware, fit_traits, full_clock_ms
from gpuloom.perf.sharing.intervals import Intervals
from gpuloom.perf.sharing.model import Constants, SharedService, SharingModel
from gpuloom.perf.sharing.pairs import Pairs, left_out_intervals, models_of
from gpuloom.work.measured.service_pairs import PairRow
from gpuloom.work.measured.service_profiles import Profiles, ServiceProfile

SHARPNESS = tuple(float(s) for s in np.arange(1.0, 2.01, 0.05).round(2))
THROTTLE_STARTS = tuple(float(s) for s in np.arange(0.8, 1.1, 0.0025).round(4))
"""Looked through, as parts of the power cap."""
CACHE_FACTORS = tuple(float(s) for s in np.arange(0.0, 2.01, 0.5))


@dataclass(frozen=True, slots=True)
class Form:
    """The terms that measured pairs can tell apart, each on or off; as shipped unless stated."""

    soft_floor: bool = True
    """Work and floor as a soft maximum; off: as a sum, like iGniter's."""
    full_launch: bool = True
    """Launches lengthen by the slope of iGniter's line; off: by the line itself at two processes, nearly nothing."""
    clock_from_pairs: bool = True
    """Where the clock begins to fall; off: at the nominal cap."""
    cache_from_pairs: bool = False
    """A factor on what all profiles say about the neighbours' cache use; off: 1."""


SHIPPED = Form()
FORMS = tuple(Form(*switches) for switches in product((True, False), repeat=4))


def calibrate(
    profiles: Profiles, rows: Sequence[PairRow], tables: Mapping[str, AloneTable] | None = None
) -> SharingModel:
    """The model of all profiled services, its constants from `rows` and the profiles of the models in them."""
    model = fit_form(SHIPPED, profiles, rows, tables)
    intervals = left_out_intervals(rows, lambda others: fit_form(SHIPPED, profiles, others, tables))
    return replace(model, constants=replace(model.constants, intervals=intervals))


def fit_form(
    form: Form, profiles: Profiles, rows: Sequence[PairRow], tables: Mapping[str, AloneTable] | None = None
) -> SharingModel:
    """The same for any form, without error bars; without the full launch it is for two processes only."""
    hardware, seen = fit_hardware(profiles.gpu), models_of(rows)
    known = [profile for name, profile in profiles.services.items() if name in seen]
    sharpness = choose_sharpness(known, hardware) if form.soft_floor else 1.0
    services = fit_services(profiles, hardware, sharpness)
    if not form.full_launch:
        hardware = replace(hardware, launch_slope_ms=2.0 * hardware.launch_slope_ms + hardware.launch_base_ms)
    starts = THROTTLE_STARTS if form.clock_from_pairs else (1.0,)
    factors = CACHE_FACTORS if form.cache_from_pairs else (1.0,)
    tried = [
        SharingModel(
            hardware, _scaled(services, factor), Constants(sharpness, start * hardware.cap_w, Intervals()), tables or {}
        )
        for factor, start in product(factors, starts)
    ]
    pairs = Pairs.of(rows, tried[0].names)

    def mean_error(model: SharingModel) -> float:
        return float(np.abs(np.log(model.latencies(pairs.crowd).total_ms[:, 0] / pairs.measured_ms)).mean())

    return min(tried, key=mean_error)


def _scaled(services: Mapping[str, SharedService], factor: float) -> dict[str, SharedService]:
    """As sensitive to the neighbours' cache use as profiled, times `factor`."""
    return {
        name: replace(
            service, traits=replace(service.traits, cache_sensitivity=factor * service.traits.cache_sensitivity)
        )
        for name, service in services.items()
    }


def fit_services(profiles: Profiles, hardware: Hardware, sharpness: float) -> dict[str, SharedService]:
    return {
        name: SharedService(fit_traits(profile, hardware), _curve(profile, hardware, sharpness)[0])
        for name, profile in profiles.services.items()
    }


def choose_sharpness(profiles: Sequence[ServiceProfile], hardware: Hardware) -> float:
    return min(SHARPNESS, key=lambda tried: sum(_curve(profile, hardware, tried)[1] for profile in profiles))


@lru_cache(maxsize=512)
def _curve(profile: ServiceProfile, hardware: Hardware, sharpness: float) -> tuple[AloneCurve, float]:
    return fit_curve(BATCH, SHARE_PCT, full_clock_ms(profile, hardware), sharpness)
