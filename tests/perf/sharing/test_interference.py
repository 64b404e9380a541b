"""Latency on a shared GPU: iGniter's published coefficients, what must hold for any crowd, and the errors we claim."""

import runpy
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuloom.errors import InputError
from gpuloom.perf.sharing.alone_curve import active_ms, fit_curve
from gpuloom.perf.sharing.alone_table import SoloTable
from gpuloom.perf.sharing.fit import FORMS, SHIPPED, Form, calibrate, fit_form, profiled_only
from gpuloom.perf.sharing.gpulets import GpuletsModel, fit_gpulets, profiled_services
from gpuloom.perf.sharing.igniter import IgniterModel
from gpuloom.perf.sharing.igniter_fit import fit_igniter
from gpuloom.perf.sharing.interference import (
    NOBODY,
    Crowd,
    Device,
    InterferenceModel,
    Latency,
    Placed,
    crowd_of,
    least_share_pct,
    predict,
    solo_ms,
)
from gpuloom.perf.sharing.intervals import Reach, reach_of
from gpuloom.perf.sharing.model import SharingModel
from gpuloom.perf.sharing.pairs import Pairs, models_of, without
from gpuloom.work.measured.service_figures import load_service_figures
from gpuloom.work.measured.service_pairs import PairRow, read_solo_and_pairs
from gpuloom.work.measured.service_profiles import Profiles, read_service_profiles

ROOT = Path(__file__).resolve().parents[3]
MODELS = ("alexnet", "resnet50", "vgg19", "ssd")
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


@lru_cache
def ours() -> SharingModel:
    return SharingModel.from_figures(load_service_figures())


@lru_cache
def igniter() -> IgniterModel:
    return IgniterModel.from_figures(load_service_figures())


@pytest.fixture(scope="module")
def profiles(data_dir: Path) -> Profiles:
    return read_service_profiles(data_dir / "igniter" / "profile_v100.jsonl")


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


def test_the_published_check_of_four_models_together() -> None:
    together = predict(igniter(), [Placed(name, 3, 25) for name in MODELS])
    assert [f"{latency.total_ms:.4f}" for latency in together] == ["2.9321", "10.4622", "23.3505", "35.1548"]


shares = st.sampled_from([2.5, 5.0, 10.0, 20.0, 32.5])
placed = st.builds(Placed, st.sampled_from(MODELS), st.integers(1, 64), shares, st.just(1))
crowds = st.lists(placed, min_size=1, max_size=8).filter(lambda crowd: sum(one.share_pct for one in crowd) <= 100)
"""That fit on a device."""


def totals(model: InterferenceModel, crowd: list[Placed], device: Device | None = None) -> list[float]:
    return [latency.total_ms for latency in predict(model, crowd, device or Device())]


@given(crowds, placed)
def test_one_more_neighbour_never_makes_anybody_faster(crowd: list[Placed], more: Placed) -> None:
    if sum(one.share_pct for one in crowd) + more.share_pct <= 100:
        before, after = predict(ours(), crowd), predict(ours(), [*crowd, more])
        assert all(late.total_ms >= early.total_ms for early, late in zip(before, after, strict=False))


@given(crowds, st.floats(1.01, 3.0))
def test_a_larger_share_is_never_slower_for_its_owner(crowd: list[Placed], factor: float) -> None:
    first, *others = crowd
    share_pct = min(first.share_pct * factor, 100.0 - sum(one.share_pct for one in others))
    if share_pct >= first.share_pct:
        assert totals(ours(), [first._replace(share_pct=share_pct), *others])[0] <= totals(ours(), crowd)[0] + 1e-9


@given(crowds)
def test_a_larger_batch_is_never_faster(crowd: list[Placed]) -> None:
    first, *others = crowd
    larger = predict(ours(), [first._replace(batch=first.batch + 1), *others])[0]
    assert larger.total_ms > predict(ours(), crowd)[0].total_ms


@given(crowds.flatmap(lambda crowd: st.tuples(st.just(crowd), st.permutations(range(len(crowd))))))
def test_the_order_of_residents_does_not_matter(case: tuple[list[Placed], list[int]]) -> None:
    crowd, order = case
    for model in (ours(), igniter()):
        straight = totals(model, crowd)
        assert totals(model, [crowd[at] for at in order]) == pytest.approx([straight[at] for at in order])


@given(crowds)
def test_intervals_hold_the_value_and_widen_with_the_crowd(crowd: list[Placed]) -> None:
    latencies = predict(ours(), crowd)
    for latency in latencies:
        assert 0 < latency.low_ms < latency.total_ms < latency.high_ms
        assert latency.total_ms == pytest.approx(latency.load_ms + latency.gpu_ms + latency.feedback_ms)

    def width(latency: Latency) -> float:
        return latency.high_ms / latency.low_ms

    assert width(predict(ours(), crowd[:1])[0]) <= width(latencies[0]) * (1 + 1e-9)


@given(st.sampled_from(MODELS), st.integers(1, 64), st.floats(0.1, 1.0), st.floats(0.1, 1.0))
def test_a_smaller_instance_is_never_faster_alone(name: str, batch: int, compute: float, memory: float) -> None:
    alone = [Placed(name, batch, 100.0)]
    assert totals(ours(), alone, Device(compute, memory))[0] >= totals(ours(), alone)[0] * (1 - 1e-9)


def test_processes_without_a_limit_divide_the_instance() -> None:
    instance = Device(compute=3 / 7, memory=0.5)
    free = predict(ours(), [Placed("resnet50", 8, 100.0, processes=3)], instance)[0]
    held = predict(ours(), [Placed("resnet50", 8, 100.0 / 3, processes=3)], instance)[0]
    alone = predict(ours(), [Placed("resnet50", 8, 100.0)], instance)[0]
    assert free.total_ms == pytest.approx(held.total_ms)
    assert alone.total_ms < free.total_ms < 4 * alone.total_ms
    assert free.throughput_per_s == pytest.approx(24_000 / (free.gpu_ms + free.feedback_ms))


def test_power_of_other_instances_counts_and_their_cache_does_not() -> None:
    half = Device(0.5, 0.5)
    alone = [Placed("vgg19", 16, 100.0)]
    beside_w = float(ours().power_w(crowd_of(ours(), [alone], half))[0])
    assert 100 < beside_w < 250
    assert totals(ours(), alone, replace(half, beside_w=beside_w))[0] > totals(ours(), alone, half)[0]


def test_a_link_that_is_asked_for_too_much_is_slow() -> None:
    chatty = [Placed("ssd", 16, 12.5) for _ in range(8)]
    slow = replace(ours(), hardware=replace(ours().hardware, pcie_bytes_per_ms=2e5))
    shared, alone = predict(slow, chatty)[0], predict(slow, chatty[:1])[0]
    assert shared.feedback_ms > 2 * alone.feedback_ms
    assert predict(ours(), chatty)[0].feedback_ms == pytest.approx(2968880 * 16 / 1e7)


def test_many_devices_at_once_are_each_as_one() -> None:
    rows = [
        [Placed("ssd", 4, 50.0)],
        [Placed("vgg19", 2, 30.0), Placed("alexnet", 9, 10.0), Placed("ssd", 1, 60.0)],
        [],
    ]
    for model in (ours(), igniter()):
        crowd = crowd_of(model, rows)
        assert crowd.model[0, 1] == NOBODY
        total = model.latencies(crowd).total_ms
        for at, row in enumerate(rows):
            assert total[at, : len(row)] == pytest.approx(totals(model, row))
    assert predict(ours(), []) == []


def test_the_least_share_is_the_least() -> None:
    for model in (ours(), igniter()):
        batch, target_ms = np.array([1, 2, 8, 64]), np.array([12.5, 20.0, 27.5, 5.0])
        found = least_share_pct(model, "ssd", batch, target_ms)
        assert np.isnan(found[-1])
        assert (solo_ms(model, "ssd", batch[:3], found[:3]) <= target_ms[:3]).all()
        assert (solo_ms(model, "ssd", batch[:3], found[:3] - 2.5) > target_ms[:3]).all()


@pytest.mark.parametrize(
    ("resident", "complaint"),
    [
        (Placed("bert", 1, 50.0), "no profile of the model 'bert': expected one of alexnet, resnet50, ssd, vgg19"),
        (Placed("ssd", 0, 50.0), "the batch of ssd is 0"),
        (Placed("ssd", float("nan"), 50.0), "the batch of ssd is nan"),
        (Placed("ssd", 1, 0.0), "the share of ssd is 0.0"),
        (Placed("ssd", 1, 101.0), "the share of ssd is 101.0"),
        (Placed("ssd", 1, 50.0, 0), "ssd has 0 processes"),
    ],
)
def test_a_wrong_resident_is_refused(resident: Placed, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        predict(ours(), [resident])


def test_other_wrong_input_is_refused() -> None:
    with pytest.raises(InputError, match="memory of a device is 0"):
        Device(1.0, 0.0)
    with pytest.raises(InputError, match="differ in shape"):
        Crowd(np.zeros((1, 2), int), np.ones((1, 1)), np.ones((1, 2)))
    with pytest.raises(InputError, match="no profile of the model 'x'"):
        solo_ms(ours(), "x", 1, 50)
    with pytest.raises(InputError, match="the measured pairs name bert"):
        Pairs.of([PairRow("bert", 1, 50.0, "ssd", 1, 50.0, 3.0)], MODELS)
    with pytest.raises(InputError, match="no measured pairs"):
        Pairs.of([], MODELS)
    with pytest.raises(InputError, match="no share at which all its batches"):
        SoloTable.of({(1, 20.0): 3.0, (2, 40.0): 4.0})


def test_a_table_is_met_at_its_points_and_followed_beyond_them() -> None:
    table = SoloTable.of({(2, 20.0): 20.0, (2, 80.0): 7.0, (8, 20.0): 70.0, (8, 80.0): 21.0})
    model = replace(ours(), tables={"vgg19": table})
    assert table.points == 4
    for batch, share_pct, ms in ((2, 20, 20.0), (8, 80, 21.0)):
        assert float(solo_ms(model, "vgg19", batch, share_pct)) == pytest.approx(ms, rel=1e-4)
    assert float(solo_ms(model, "vgg19", 5, 20)) == pytest.approx(45.0, rel=1e-3)
    assert float(solo_ms(model, "vgg19", 2, 32)) == pytest.approx(7.0 + 13.0 / 2, rel=1e-3)  # half-way in 1 / share
    for batch, share_pct in ((8, 100), (16, 50), (1, 10)):
        by_curve = float(solo_ms(ours(), "vgg19", batch, share_pct))
        assert float(solo_ms(model, "vgg19", batch, share_pct)) == pytest.approx(by_curve, rel=0.5)
    assert float(solo_ms(model, "ssd", 2, 20)) == float(solo_ms(ours(), "ssd", 2, 20))
    noisy = SoloTable.of({(1, 20.0): 5.0, (1, 40.0): 6.0, (2, 20.0): 4.0, (2, 40.0): 3.0}, monotone=True)
    assert (np.diff(noisy.values, axis=1) <= 0).all()
    assert (np.diff(noisy.values, axis=0) >= 0).all()
    assert SoloTable.of({(4, 50.0): 3.0})(np.array([1.0]), np.array([90.0])) == [3.0]


def test_a_curve_finds_its_own_parameters() -> None:
    batch, share_pct = (axis.ravel() for axis in np.meshgrid([1.0, 16.0, 32.0], [10.0, 50.0, 100.0], indexing="ij"))
    truth = np.array([1.8, 55.0, 8.0, 0.08])
    curve, residue = fit_curve(batch, share_pct, active_ms(truth, 1.2, batch, share_pct), 1.2)
    assert (curve.floor_ms, curve.work_ms, curve.weights_ms, curve.stream_ms) == pytest.approx(truth, rel=1e-3)
    assert residue < 1e-10


def test_reach_is_what_was_missed() -> None:
    parts, errors = np.repeat([0.1, 0.5, 0.9], 100), np.tile(np.linspace(-0.1, 0.1, 100), 3) * np.repeat([1, 2, 3], 100)
    reach = reach_of(parts, errors)
    low, high = reach(np.array([0.05, 0.95, 0.95]), np.array([2, 2, 8]))
    assert np.log(high) == pytest.approx([0.09, 0.27, 0.54], abs=1e-6)
    assert np.log(low) == pytest.approx([-0.09, -0.27, -0.54], abs=1e-6)
    assert Reach.from_figures(reach.to_figures()) == reach


def test_gpulets_finds_a_slowdown_that_is_linear() -> None:
    services = profiled_services(igniter(), MODELS)
    truth = GpuletsModel(services, (1.05, 0.002, 0.004, 0.0, 0.0))
    rng = np.random.default_rng(0)
    share = rng.uniform(20, 80, 200)
    crowd = Crowd(rng.integers(0, 4, (200, 2)), rng.uniform(1, 32, (200, 2)), np.column_stack([share, 100 - share]))
    found = fit_gpulets(services, crowd, truth.latencies(crowd).total_ms[:, 0])
    assert found.coefficients == pytest.approx(truth.coefficients, abs=1e-9)
    assert totals(found, [Placed("ssd", 4, 50.0)])[0] == pytest.approx(totals(igniter(), [Placed("ssd", 4, 50.0)])[0])


def test_without_pairs_the_clock_falls_at_the_cap(profiles: Profiles) -> None:
    bare = profiled_only(profiles)
    assert bare.constants.throttle_start_w == 300
    assert bare.constants.sharpness == ours().constants.sharpness == 1.2
    crowd = [Placed("vgg19", 32, 50.0), Placed("ssd", 32, 50.0)]
    assert totals(bare, crowd)[0] < totals(ours(), crowd)[0]
    alone = predict(bare, crowd)[0]
    assert alone.low_ms == alone.total_ms == alone.high_ms  # no error is stated


def test_small_batches_alone_are_predicted_where_igniter_is_stiff(data_dir: Path) -> None:
    measured = read_solo_and_pairs(data_dir / "igniter" / "solo_and_pairs_v100.jsonl").solo_ms
    share_pct = np.array([20.0, 40.0, 50.0, 60.0, 80.0])
    for name, batches in (("ssd", (1, 2)), ("resnet50", (1, 2, 3, 4))):
        truth = np.array([[measured[name][batch, share] for share in share_pct] for batch in batches])
        batch = np.array(batches, float)[:, None]
        mine, stiff = (
            np.abs(solo_ms(model, name, batch, share_pct) / truth - 1).mean() for model in (ours(), igniter())
        )
        assert mine < 0.07 < 0.1 < stiff


def test_the_stated_errors_on_models_left_out(data_dir: Path, profiles: Profiles) -> None:
    script: dict[str, Any] = runpy.run_path(str(ROOT / "benchmarks" / "interference.py"))
    rows = read_solo_and_pairs(data_dir / "igniter" / "solo_and_pairs_v100.jsonl").pairs
    igniter_model = fit_igniter(profiles)
    fits = {"ours": lambda training: calibrate(profiles, training), "igniter": lambda _: igniter_model}
    found = script["leave_one_model_out"](rows, fits)
    assert found["ours"]["mean_error"] < 0.029
    assert found["ours"]["p95_error"] < 0.08
    assert abs(found["ours"]["bias"]) < 0.01
    assert 0.85 < found["ours"]["interval_coverage"] < 0.97
    assert found["igniter"]["mean_error"] == pytest.approx(0.0366, abs=1e-4)
    assert found["igniter"]["interval_coverage"] is None
    assert set(found["ours"]["by_left_out_model"]) == set(MODELS)


def rows_as(model: InterferenceModel, names: Sequence[str] = MODELS) -> list[PairRow]:
    """Pairs that behave exactly as a model says."""
    return [
        PairRow(mine, batch, share_pct, other, 8, 100.0 - share_pct, ms)
        for mine, other in permutations(names, 2)
        for batch in (1, 8, 32)
        for share_pct in (20.0, 50.0, 80.0)
        for ms in totals(model, [Placed(mine, batch, share_pct), Placed(other, 8, 100.0 - share_pct)])[:1]
    ]


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
    assert replace(fitted.constants, reach=calibrated.constants.reach) == calibrated.constants
    assert len(set(FORMS)) == 16
    assert SHIPPED in FORMS


def test_a_form_is_chosen_without_the_model_that_it_is_judged_on() -> None:
    script: dict[str, Any] = runpy.run_path(str(ROOT / "benchmarks" / "interference.py"))
    rows, seen = rows_as(ours()), []

    def truth(training: Sequence[PairRow]) -> InterferenceModel:
        seen.append(models_of(training))
        return ours()

    candidates = {Form(soft_floor=False): lambda _: igniter(), SHIPPED: truth}
    assert script["choose"](without(rows, "ssd"), candidates) == SHIPPED
    assert sorted(map(sorted, seen)) == [["alexnet", "resnet50"], ["alexnet", "vgg19"], ["resnet50", "vgg19"]]
    found = script["nested"](rows, candidates)
    assert found["shipped"]["mean_error"] == found["chosen_inside"]["mean_error"] == pytest.approx(0.0)
    assert set(found["chosen_inside"]["chosen"]) == set(MODELS)
    wrong = found["forms"][0]
    assert 0.01 < wrong["mean_error"] == pytest.approx(wrong["more_than_shipped"])
    assert 0.4 < found["averaged"]["mean_error"] / wrong["mean_error"] < 0.6
    assert script["nested"](rows_as(ours(), MODELS[:3]), candidates) is None  # three models: none can be left out twice


def test_the_stated_errors_when_the_form_is_not_chosen_in_view(data_dir: Path, profiles: Profiles) -> None:
    script: dict[str, Any] = runpy.run_path(str(ROOT / "benchmarks" / "interference.py"))
    rows = read_solo_and_pairs(data_dir / "igniter" / "solo_and_pairs_v100.jsonl").pairs
    candidates = script["candidate_forms"](profiles)
    assert set(candidates) == set(FORMS)
    quick = {form: fit for form, fit in candidates.items() if not form.cache_from_pairs}  # the others are never chosen
    found = script["nested"](rows, quick)
    assert found["shipped"]["mean_error"] == pytest.approx(0.0279, abs=1e-4)
    assert found["chosen_inside"]["mean_error"] == pytest.approx(0.0315, abs=2e-4)
    assert found["chosen_inside"]["p95_error"] == pytest.approx(0.087, abs=1e-3)
    assert found["averaged"]["mean_error"] < 0.029
    assert found["averaged"]["p95_error"] < 0.08


def test_the_launch_bound_model_finds_its_own_constants() -> None:
    script: dict[str, Any] = runpy.run_path(str(ROOT / "benchmarks" / "launch_bound.py"))
    truth = script["LaunchBoundModel"](profiled_services(igniter(), MODELS), Reach(), 0.3, 0.004)
    found = script["calibrate_launch_bound"](truth.services, rows_as(truth))
    assert (found.launch_growth, found.cache_growth) == pytest.approx((0.3, 0.004), rel=1e-3)


def test_the_script_gives_the_shipped_figures(data_dir: Path) -> None:
    script = runpy.run_path(str(ROOT / "benchmarks" / "make_service_figures.py"))
    made = script["json"].loads(script["make"](data_dir))
    shipped = load_service_figures()
    assert made.keys() == shipped.keys()
    for part in ("hardware", "constants"):
        assert made[part].keys() == shipped[part].keys()
    for name in MODELS:
        assert made["services"][name]["k"] == pytest.approx(shipped["services"][name]["k"], rel=1e-4)
        assert made["services"][name]["curve"] == pytest.approx(shipped["services"][name]["curve"], rel=1e-3, abs=1e-4)
    assert made["constants"]["throttle_start_w"] == shipped["constants"]["throttle_start_w"]
    with pytest.raises(InputError, match="no figures of services ship for 'V10'"):
        load_service_figures("V10")
