"""What can be had: shipped types, types with a user's profile, and what a profile does not tell."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpuloom.errors import InputError
from gpuloom.perf.sharing.alone_table import AloneTable
from gpuloom.perf.sharing.interference import solo_ms
from gpuloom.perf.sharing.model import SharingModel
from gpuloom.provision.demand import Demand
from gpuloom.provision.offer import COST_PER_HOUR, Offer, profiled_offer
from gpuloom.provision.shipped import offer_with, shipped_offer, shipped_table
from gpuloom.provision.supply import SharedGpus
from gpuloom.work.measured.service_profiles import Profiles, read_service_profiles
from gpuloom.work.model import Service


@pytest.fixture(scope="module")
def profiles(data_dir: Path) -> Profiles:
    return read_service_profiles(data_dir / "igniter" / "profile_v100.jsonl")


def ours(offer: Offer) -> SharingModel:
    assert isinstance(offer.model, SharingModel)
    return offer.model


def table_of(ms: float) -> AloneTable:
    return AloneTable.of({(batch, share): ms * batch for batch in (1, 32) for share in (10.0, 100.0)})


def test_shipped_figures(offer: Offer) -> None:
    assert (offer.name, offer.mem_mib, offer.cost_per_hour) == ("V100", 16_384, COST_PER_HOUR["V100"])
    assert (offer.unit_pct, offer.units) == (2.5, 40)
    assert set(offer.model.names) == set(offer.igniter.names) == {"alexnet", "resnet50", "vgg19", "ssd"}
    with pytest.raises(InputError, match="no figures of services ship for 'T4': expected one of V100"):
        shipped_offer("T4")


def test_measured_tables_take_the_place_of_curves(offer: Offer) -> None:
    """Those of models that no figures ship of have no place to take."""
    tabled = shipped_offer("V100", {"ssd": table_of(70.0), "bert": table_of(1.0)})
    assert set(ours(tabled).tables) == {"ssd"}
    assert float(solo_ms(tabled.model, "ssd", 1, 100.0)) == pytest.approx(70.0, rel=0.01)
    assert float(solo_ms(tabled.model, "vgg19", 1, 100.0)) == float(solo_ms(offer.model, "vgg19", 1, 100.0))


def test_the_shipped_queue_table_is_read_once() -> None:
    assert shipped_table() is shipped_table()


def test_the_profile_that_the_figures_came_from_gives_the_same_gpu(offer: Offer, profiles: Profiles) -> None:
    profiled = offer_with(profiles, "V100")
    assert (profiled.name, profiled.mem_mib, profiled.cost_per_hour) == (
        offer.name,
        offer.mem_mib,
        offer.cost_per_hour,
    )
    assert ours(profiled).constants.throttle_start_w == pytest.approx(ours(offer).constants.throttle_start_w)
    for model in offer.model.names:
        same = solo_ms(profiled.model, model, np.array([1, 8, 32]), 50.0)
        assert same == pytest.approx(solo_ms(offer.model, model, np.array([1, 8, 32]), 50.0), rel=0.02)


@pytest.mark.parametrize("part", [0.25, 1.0, 2.0])
def test_the_clock_falls_at_the_same_part_of_the_power_cap(part: float, offer: Offer, profiles: Profiles) -> None:
    gpu = replace(profiles.gpu, cap_w=profiles.gpu.cap_w * part)
    profiled = profiled_offer("T4", replace(profiles, gpu=gpu), offer, {})
    start_w, cap_w = ours(profiled).constants.throttle_start_w, ours(profiled).hardware.cap_w
    assert start_w / cap_w == pytest.approx(ours(offer).constants.throttle_start_w / ours(offer).hardware.cap_w)
    assert ours(profiled).constants.intervals == ours(offer).constants.intervals


def test_a_type_that_no_figures_ship_of(profiles: Profiles) -> None:
    """It has the catalogue's memory, no price, and no tables: what was measured was measured on another."""
    tables = {"ssd": table_of(70.0), "bert": table_of(1.0)}
    other = offer_with(profiles, "T4", tables)
    assert (other.name, other.mem_mib, other.cost_per_hour) == ("T4", 15_360, 0.0)
    assert ours(other).tables == {}
    assert set(ours(offer_with(profiles, "V100", tables)).tables) == {"ssd"}
    with pytest.raises(InputError, match="nonsense"):
        offer_with(profiles, "nonsense")


def test_a_profiled_type_can_be_planned_on(profiles: Profiles) -> None:
    plan = SharedGpus(offer_with(profiles, "T4")).plan(Demand((Service("a", "ssd", 20.0, 60.0),)))
    assert (plan.gpu_type, plan.gpus, plan.unplaced) == ("T4", 1, ())
