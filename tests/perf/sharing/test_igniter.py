"""iGniter's model: the figures that its authors publish, and the law that they state."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.perf.sharing.igniter import SLOWEST_CLOCK, IgniterModel, Traits, stretch, traits_of, traits_table, uses
from gpuloom.perf.sharing.interference import Capacity, Placed, predict
from tests.perf.sharing.v100 import MODELS, crowds, igniter, shares, totals


def test_the_published_check_of_four_models_together() -> None:
    together = predict(igniter(), [Placed(name, 3, 25) for name in MODELS])
    assert [f"{latency.total_ms:.4f}" for latency in together] == ["2.9321", "10.4622", "23.3505", "35.1548"]


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(MODELS), st.integers(1, 64), shares)
def test_alone_it_is_the_law_of_the_paper(name: str, batch: int, share_pct: float) -> None:
    """Without neighbours no launch is delayed and no cache is shared: loading, idle and active time, feedback."""
    (alone,) = predict(igniter(), [Placed(name, batch, share_pct)])
    service, hardware = igniter().services[name], igniter().hardware
    k1, k2, k3, k4, k5 = service.k
    active = (k1 * batch**2 + k2 * batch + k3) / (share_pct + k4) + k5
    assert float(service.active_ms(np.array(float(batch)), np.array(share_pct))) == pytest.approx(active)
    watt = service.traits.power_slope * 1000 * batch / active + service.traits.power_base + hardware.idle_w
    clock = hardware.clock_mhz + hardware.mhz_per_w * max(watt - hardware.cap_w, 0.0)
    assert alone.gpu_ms == pytest.approx((service.traits.idle_ms + active) * hardware.clock_mhz / clock)
    assert alone.load_ms == pytest.approx(service.traits.load_bytes * batch / hardware.pcie_bytes_per_ms)
    assert alone.feedback_ms == pytest.approx(service.traits.feedback_bytes * batch / hardware.pcie_bytes_per_ms)
    assert alone.low_ms == alone.high_ms == alone.total_ms, "it states no error"


@settings(deadline=None, max_examples=60)
@given(crowds, st.floats(0.1, 1.0), st.floats(0.1, 1.0))
def test_an_instance_is_to_it_a_share_of_the_whole(crowd: list[Placed], compute: float, memory: float) -> None:
    scaled = [one._replace(share_pct=one.share_pct * compute) for one in crowd]
    assert totals(igniter(), crowd, Capacity(compute, memory)) == pytest.approx(totals(igniter(), scaled))


@settings(deadline=None, max_examples=60)
@given(st.lists(st.floats(0.0, 2000.0), min_size=2, max_size=8), st.floats(100.0, 400.0))
def test_the_clock_falls_with_the_demand_and_not_for_ever(demands: list[float], start_w: float) -> None:
    factors = stretch(igniter().hardware, np.array(sorted(demands)), start_w)
    assert (np.diff(factors) >= 0).all()
    assert (factors[np.array(sorted(demands)) <= start_w] == 1.0).all()
    assert (factors <= 1.0 / SLOWEST_CLOCK + 1e-12).all()


def test_the_clock_is_a_line_above_the_cap() -> None:
    hardware = replace(igniter().hardware, clock_mhz=1000.0, mhz_per_w=-2.0)
    assert stretch(hardware, np.array([300.0, 400.0, 1e6]), 300.0) == pytest.approx([1.0, 1 / 0.8, 1 / SLOWEST_CLOCK])


def test_an_empty_seat_uses_nothing() -> None:
    power, cache = uses(
        np.array([[2.0] * 2, [5.0] * 2, [0.5] * 2, [1.0] * 2]), np.full(2, 10.0), np.array([True, False])
    )
    assert power.tolist() == [25.0, 0.0]
    assert cache.tolist() == [6.0, 0.0]


@settings(deadline=None, max_examples=20)
@given(st.floats(0.0, 600.0), crowds)
def test_power_beside_it_never_makes_it_faster(beside_w: float, crowd: list[Placed]) -> None:
    quiet, loud = totals(igniter(), crowd), totals(igniter(), crowd, Capacity(beside_w=beside_w))
    assert all(late >= early for early, late in zip(quiet, loud, strict=True))


def test_figures_make_the_same_model_again() -> None:
    again = IgniterModel.from_figures(json.loads(json.dumps(igniter().to_figures())))
    assert again == igniter()
    assert again.names == MODELS
    traits = igniter().services["ssd"].traits
    assert traits_of(asdict(traits) | {"k": [1.0]}) == traits, "what else a figure says is passed over"


def test_traits_are_columns_even_of_nobody() -> None:
    assert traits_table([]).shape == (len(Traits.__slots__), 0)
    column = traits_table([igniter().services["vgg19"].traits])[:, 0]
    assert Traits(*map(float, column)) == igniter().services["vgg19"].traits
