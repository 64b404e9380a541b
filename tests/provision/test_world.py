"""The check by simulation, with measured tables where the folder is there, and the report."""

from pathlib import Path

import numpy as np
import pytest

from gpuloom.provision.gpuloom import provision
from gpuloom.provision.problem import Offer, Pattern, Problem, shipped_offer
from gpuloom.provision.registry import strategy
from gpuloom.provision.report import page
from gpuloom.sim.service_world import MeasuredModel, measured_model, measured_tables, verify
from gpuloom.work.model import Service
from gpuloom.work.service_figures import load_service_figures
from gpuloom.work.service_pairs import MeasuredServices, read_solo_and_pairs

FILE = Path(__file__).parents[3] / "shared" / "data" / "igniter" / "solo_and_pairs_v100.jsonl"
measured_only = pytest.mark.skipif(not FILE.exists(), reason="the measured data are not here")


@pytest.fixture(scope="module")
def measured() -> MeasuredServices:
    return read_solo_and_pairs(FILE)


@pytest.fixture(scope="module")
def world(measured: MeasuredServices) -> MeasuredModel:
    return measured_model(measured, load_service_figures("V100"))


def test_predictions_hold_in_a_world_that_is_as_predicted(twelve: tuple[Service, ...], offer: Offer) -> None:
    problem = Problem(twelve[:4], offer)
    verdicts = verify(provision(problem), problem, offer.model, np.random.default_rng(1), 4_000, 4)
    assert [one.service for one in verdicts] == ["W1", "W2", "W3", "W4"]
    assert all(one.held for one in verdicts)
    assert all(one.violations <= 0.01 for one in verdicts)


@measured_only
def test_five_gpus_for_regular_arrivals_with_the_measured_table(
    twelve: tuple[Service, ...], measured: MeasuredServices, world: MeasuredModel
) -> None:
    problem = Problem(twelve, shipped_offer("V100", measured_tables(measured)), Pattern.REGULAR, margin=0.3)
    plan = provision(problem)
    verdicts = verify(plan, problem, world, np.random.default_rng(1), 2_000, 2)
    assert plan.gpus == plan.lower_bound_gpus == 5
    assert sum(one.violations == 0.0 for one in verdicts) == 12


@measured_only
@pytest.mark.parametrize(("name", "least", "most"), [("gpuloom", 12, 12), ("igniter", 0, 2)])
def test_twelve_of_twelve_keep_their_p99_with_poisson_arrivals(
    name: str, least: int, most: int, twelve: tuple[Service, ...], offer: Offer, world: MeasuredModel
) -> None:
    problem = Problem(twelve, offer)
    verdicts = verify(strategy(name)(problem), problem, world, np.random.default_rng(1))
    assert least <= sum(one.held for one in verdicts) <= most


def test_the_report_needs_nothing_and_survives_odd_names(offer: Offer) -> None:
    problem = Problem((Service('<b>"&', "alexnet", 100.0, 20.0), Service("no", "vgg19", 1.0, 1.0)), offer)
    text = page(provision(problem), problem, [{"strategy": "gpuloom"}], {'<b>"&': (9.0, 0.1, True)})
    assert "<b>" not in text.replace("<b>1", "").replace("<b>$", "").replace("<b>5", "").replace("<b>2", "")
    assert "&lt;b&gt;&quot;&amp;" in text
    assert "http" not in text.replace("http-equiv", "")
    assert "cannot be met" in text
