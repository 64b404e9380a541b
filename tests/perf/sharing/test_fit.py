"""Fitting ours: made-up services are found again, each form finds its own constants, the shipped form is calibrated."""

from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from gpuloom.errors import InputError
from gpuloom.perf.sharing.fit import (
    FORMS,
    SHARPNESS,
    SHIPPED,
    THROTTLE_STARTS,
    Form,
    calibrate,
    choose_sharpness,
    fit_form,
    fit_services,
)
from gpuloom.perf.sharing.igniter_fit import fit_hardware
from gpuloom.perf.sharing.interference import Placed, predict, solo_ms
from gpuloom.perf.sharing.intervals import Intervals
from gpuloom.perf.sharing.model import Constants, SharingModel
from gpuloom.work.measured.service_pairs import PairRow, read_solo_and_pairs
from gpuloom.work.measured.service_profiles import Profiles
from tests.perf.sharing import made_up_profiles as made_up
from tests.perf.sharing.v100 import MODELS, igniter, ours, rows_as, totals

MADE_UP = made_up.made_up_profiles()
NAMES = tuple(made_up.SERVICES)


def profiled_only(profiles: Profiles) -> SharingModel:
    """Where no pair was ever measured: the clock falls at the nominal cap, and no error is stated."""
    hardware = fit_hardware(profiles.gpu)
    sharpness = choose_sharpness(list(profiles.services.values()), hardware)
    constants = Constants(sharpness, hardware.cap_w, Intervals())
    return SharingModel(hardware, fit_services(profiles, hardware, sharpness), constants)


def made_up_truth(throttle_start: float = 0.95) -> SharingModel:
    constants = Constants(made_up.SHARPNESS, throttle_start * made_up.HARDWARE.cap_w, Intervals())
    return SharingModel(made_up.HARDWARE, made_up.SERVICES, constants)


def test_a_made_up_service_is_found_from_its_eleven_runs() -> None:
    model = profiled_only(MADE_UP)
    assert model.constants.sharpness == made_up.SHARPNESS
    assert asdict(model.hardware) == pytest.approx(asdict(made_up.HARDWARE), rel=1e-6)
    for name, truth in made_up.SERVICES.items():
        assert asdict(model.services[name].curve) == pytest.approx(asdict(truth.curve), rel=0.01, abs=0.005)
        assert asdict(model.services[name].traits) == pytest.approx(asdict(truth.traits), rel=1e-4)


@pytest.mark.parametrize("throttle_start", [0.85, 0.95, 1.0])
def test_the_constants_of_made_up_pairs_are_found_and_nothing_is_missed(throttle_start: float) -> None:
    truth = made_up_truth(throttle_start)
    rows = rows_as(truth, NAMES)
    found = calibrate(MADE_UP, rows)
    assert found.constants.sharpness == truth.constants.sharpness
    assert found.constants.throttle_start_w == pytest.approx(truth.constants.throttle_start_w, abs=1.0)
    assert max(np.exp(found.constants.intervals.high)) < 1.01
    assert min(np.exp(found.constants.intervals.low)) > 0.99
    for row in rows[::7]:
        crowd = [
            Placed(row.model, row.batch, row.share_pct),
            Placed(row.neighbour, row.neighbour_batch, row.neighbour_share_pct),
        ]
        assert totals(found, crowd)[0] == pytest.approx(row.latency_ms, rel=0.01)


def test_intervals_tell_how_far_off_pairs_are() -> None:
    """Pairs that are noisier by a known factor: about nine of ten lie within the stated interval."""
    rng = np.random.default_rng(4)
    rows = [
        row._replace(latency_ms=row.latency_ms * rng.lognormal(0.0, 0.05)) for row in rows_as(made_up_truth(), NAMES)
    ]
    found = calibrate(MADE_UP, rows)
    held = []
    for row in rows:
        (latency, _) = predict(
            found,
            [
                Placed(row.model, row.batch, row.share_pct),
                Placed(row.neighbour, row.neighbour_batch, row.neighbour_share_pct),
            ],
        )
        held.append(latency.low_ms <= row.latency_ms <= latency.high_ms)
    assert 0.8 < np.mean(held) <= 1.0
    assert 1.04 < max(np.exp(found.constants.intervals.high)) < 1.3


def test_only_profiles_of_models_in_the_pairs_choose_the_sharpness() -> None:
    """One that obeys another law is fitted, but has no say: nobody measured it beside others."""
    odd = made_up.service_profile("odd", made_up.SERVICES["bee"].traits, made_up.our_law(made_up.SERVICES["cat"], 1.0))
    profiles = replace(MADE_UP, services={**MADE_UP.services, "odd": odd})
    found = fit_form(SHIPPED, profiles, rows_as(made_up_truth(), NAMES))
    assert found.constants.sharpness == made_up.SHARPNESS
    assert found.names == (*NAMES, "odd")


def test_pairs_of_models_without_a_profile_are_refused() -> None:
    with pytest.raises(
        InputError, match="the measured pairs name eel: expected models that are profiled, ant, bee, cat"
    ):
        calibrate(MADE_UP, [PairRow("eel", 1, 50.0, "ant", 1, 50.0, 3.0)])
    with pytest.raises(InputError, match="no measured pairs"):
        calibrate(MADE_UP, [])


def test_what_is_looked_through_contains_what_ships() -> None:
    assert ours().constants.sharpness in SHARPNESS
    assert any(
        ours().constants.throttle_start_w == pytest.approx(start * ours().hardware.cap_w) for start in THROTTLE_STARTS
    )
    assert len(set(FORMS)) == 16
    assert SHIPPED in FORMS


def test_without_pairs_the_clock_falls_at_the_cap(profiles: Profiles) -> None:
    bare = profiled_only(profiles)
    assert bare.constants.throttle_start_w == 300
    assert bare.constants.sharpness == ours().constants.sharpness == 1.2
    crowd = [Placed("vgg19", 32, 50.0), Placed("ssd", 32, 50.0)]
    assert totals(bare, crowd)[0] < totals(ours(), crowd)[0]
    alone = predict(bare, crowd)[0]
    assert alone.low_ms == alone.total_ms == alone.high_ms  # no error is stated


@pytest.mark.parametrize("form", FORMS)
def test_each_form_finds_its_own_constants(form: Form, profiles: Profiles) -> None:
    made = fit_form(form, profiles, rows_as(ours()))
    slower = {
        name: replace(one, traits=replace(one.traits, cache_sensitivity=1.5 * one.traits.cache_sensitivity))
        for name, one in fit_form(replace(form, cache_from_pairs=False), profiles, rows_as(ours())).services.items()
    }
    if form.clock_from_pairs:
        made = replace(made, constants=replace(made.constants, throttle_start_w=270.0))
    if form.cache_from_pairs:
        made = replace(made, services=slower)
    found = fit_form(form, profiles, rows_as(made))
    assert found.constants == made.constants
    for name in MODELS:
        assert found.services[name].traits.cache_sensitivity == made.services[name].traits.cache_sensitivity


def test_the_shipped_form_is_what_is_calibrated(data_dir: Path, profiles: Profiles) -> None:
    rows = read_solo_and_pairs(data_dir / "igniter" / "solo_and_pairs_v100.jsonl").pairs
    fitted, calibrated = fit_form(SHIPPED, profiles, rows), calibrate(profiles, rows)
    assert replace(fitted.constants, intervals=calibrated.constants.intervals) == calibrated.constants


def test_small_batches_alone_are_predicted_where_igniter_is_stiff(data_dir: Path) -> None:
    measured = read_solo_and_pairs(data_dir / "igniter" / "solo_and_pairs_v100.jsonl").solo_ms
    share_pct = np.array([20.0, 40.0, 50.0, 60.0, 80.0])
    for name, batches in (("ssd", (1, 2)), ("resnet50", (1, 2, 3, 4))):
        truth = np.array([[measured[name][batch, share] for share in share_pct] for batch in batches])
        batch = np.array(batches, float)[:, None]
        soft, stiff = (
            np.abs(solo_ms(model, name, batch, share_pct) / truth - 1).mean() for model in (ours(), igniter())
        )
        assert soft < 0.07 < 0.1 < stiff
