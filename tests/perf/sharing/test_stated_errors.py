"""The errors that we state: what benchmarks/interference.py prints of models left out, and the figures that ship."""

import runpy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gpuloom.errors import InputError
from gpuloom.perf.sharing.fit import FORMS, SHIPPED, Form, calibrate
from gpuloom.perf.sharing.gpulets import profiled_services
from gpuloom.perf.sharing.igniter_fit import fit_igniter
from gpuloom.perf.sharing.interference import InterferenceModel
from gpuloom.perf.sharing.intervals import Intervals
from gpuloom.perf.sharing.pairs import models_of, without
from gpuloom.work.measured.service_figures import load_service_figures
from gpuloom.work.measured.service_pairs import PairRow, read_solo_and_pairs
from gpuloom.work.measured.service_profiles import Profiles
from tests.perf.sharing.v100 import MODELS, igniter, ours, rows_as

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(BENCHMARKS / "interference.py"))


def test_the_stated_errors_on_models_left_out(data_dir: Path, profiles: Profiles, script: dict[str, Any]) -> None:
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


def test_a_form_is_chosen_without_the_model_that_it_is_judged_on(script: dict[str, Any]) -> None:
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


def test_the_stated_errors_when_the_form_is_not_chosen_in_view(
    data_dir: Path, profiles: Profiles, script: dict[str, Any]
) -> None:
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
    script: dict[str, Any] = runpy.run_path(str(BENCHMARKS / "launch_bound.py"))
    truth = script["LaunchBoundModel"](profiled_services(igniter(), MODELS), Intervals(), 0.3, 0.004)
    found = script["calibrate_launch_bound"](truth.services, rows_as(truth))
    assert (found.launch_growth, found.cache_growth) == pytest.approx((0.3, 0.004), rel=1e-3)


def test_the_script_gives_the_shipped_figures(data_dir: Path) -> None:
    script = runpy.run_path(str(BENCHMARKS / "make_service_figures.py"))
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
