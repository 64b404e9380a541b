"""Ours: what must hold for any crowd, devices that are instances, tables in place of curves, figures."""

import json
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.perf.sharing.alone_table import AloneTable
from gpuloom.perf.sharing.interference import WHOLE, Capacity, Latency, Placed, crowd_of, predict, solo_ms
from gpuloom.perf.sharing.model import SharingModel
from tests.perf.sharing.v100 import MODELS, crowded, crowds, ours, placed, totals

batches, parts = st.integers(1, 64), st.floats(0.1, 1.0)


def power_w(crowd: list[Placed], device: Capacity = WHOLE) -> float:
    return float(ours().power_w(crowd_of(ours(), [crowd], device))[0])


@settings(deadline=None, max_examples=100)
@given(crowds, placed)
def test_one_more_neighbour_never_makes_anybody_faster(crowd: list[Placed], more: Placed) -> None:
    if sum(one.share_pct for one in crowd) + more.share_pct <= 100:
        before, after = predict(ours(), crowd), predict(ours(), [*crowd, more])
        assert all(late.total_ms >= early.total_ms for early, late in zip(before, after, strict=False))


@settings(deadline=None, max_examples=100)
@given(crowds, st.floats(1.01, 3.0))
def test_a_larger_share_is_never_slower_for_its_owner(crowd: list[Placed], factor: float) -> None:
    first, *others = crowd
    share_pct = min(first.share_pct * factor, 100.0 - sum(one.share_pct for one in others))
    if share_pct >= first.share_pct:
        assert totals(ours(), [first._replace(share_pct=share_pct), *others])[0] <= totals(ours(), crowd)[0] + 1e-9


@settings(deadline=None, max_examples=100)
@given(crowds)
def test_a_larger_batch_is_never_faster(crowd: list[Placed]) -> None:
    first, *others = crowd
    larger = predict(ours(), [first._replace(batch=first.batch + 1), *others])[0]
    assert larger.total_ms > predict(ours(), crowd)[0].total_ms


@settings(deadline=None, max_examples=100)
@given(crowds)
def test_intervals_hold_the_value_and_widen_with_the_crowd(crowd: list[Placed]) -> None:
    latencies = predict(ours(), crowd)
    for latency in latencies:
        assert 0 < latency.low_ms < latency.total_ms < latency.high_ms
        assert latency.total_ms == pytest.approx(latency.load_ms + latency.gpu_ms + latency.feedback_ms)

    def width(latency: Latency) -> float:
        return latency.high_ms / latency.low_ms

    assert width(predict(ours(), crowd[:1])[0]) <= width(latencies[0]) * (1 + 1e-9)


@settings(deadline=None, max_examples=100)
@given(st.sampled_from(MODELS), batches, parts, parts)
def test_a_smaller_instance_is_never_faster_alone(name: str, batch: int, compute: float, memory: float) -> None:
    alone = [Placed(name, batch, 100.0)]
    assert totals(ours(), alone, Capacity(compute, memory))[0] >= totals(ours(), alone)[0] * (1 - 1e-9)


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(MODELS), batches, parts, parts, parts)
def test_the_smaller_of_two_instances_is_never_the_faster(
    name: str, batch: int, compute: float, memory: float, part: float
) -> None:
    alone = [Placed(name, batch, 100.0)]
    larger, smaller = (
        totals(ours(), alone, Capacity(compute, memory)),
        totals(ours(), alone, Capacity(compute * part, memory)),
    )
    assert smaller[0] >= larger[0] * (1 - 1e-9)
    thinner = totals(ours(), alone, Capacity(compute, memory * part))
    assert thinner[0] >= larger[0] * (1 - 1e-9)


def test_processes_without_a_limit_divide_the_instance() -> None:
    instance = Capacity(compute=3 / 7, memory=0.5)
    free = predict(ours(), [Placed("resnet50", 8, 100.0, processes=3)], instance)[0]
    held = predict(ours(), [Placed("resnet50", 8, 100.0 / 3, processes=3)], instance)[0]
    alone = predict(ours(), [Placed("resnet50", 8, 100.0)], instance)[0]
    assert free.total_ms == pytest.approx(held.total_ms)
    assert alone.total_ms < free.total_ms < 4 * alone.total_ms
    assert free.throughput_per_s == pytest.approx(24_000 / (free.gpu_ms + free.feedback_ms))


@settings(deadline=None, max_examples=60)
@given(crowded)
def test_shares_above_all_there_is_count_in_proportion(crowd: list[Placed]) -> None:
    whole = sum(one.share_pct for one in crowd)
    assert whole > 100
    fitting = [one._replace(share_pct=one.share_pct * 100 / whole) for one in crowd]
    assert totals(ours(), crowd) == pytest.approx(totals(ours(), fitting))
    assert power_w(crowd) == pytest.approx(power_w(fitting))


@settings(deadline=None, max_examples=60)
@given(crowds)
def test_what_is_asked_of_the_power_adds_up(crowd: list[Placed]) -> None:
    assert power_w(crowd) == pytest.approx(sum(power_w([one]) for one in crowd))
    assert power_w(crowd) > 0


@settings(deadline=None, max_examples=40)
@given(crowds, st.floats(0.0, 500.0))
def test_power_beside_never_makes_anybody_faster(crowd: list[Placed], beside_w: float) -> None:
    loud, quiet = totals(ours(), crowd, Capacity(beside_w=beside_w)), totals(ours(), crowd)
    assert all(late >= early for early, late in zip(quiet, loud, strict=True))


def test_power_of_other_instances_counts_and_their_cache_does_not() -> None:
    half = Capacity(0.5, 0.5)
    alone = [Placed("vgg19", 16, 100.0)]
    beside_w = power_w(alone, half)
    assert 100 < beside_w < 250
    assert totals(ours(), alone, replace(half, beside_w=beside_w))[0] > totals(ours(), alone, half)[0]


@settings(deadline=None, max_examples=40)
@given(placed, placed, st.floats(0.1, 0.9))
def test_on_a_smaller_cache_a_neighbour_weighs_more(first: Placed, second: Placed, memory: float) -> None:
    """Without streaming, which takes longer there anyway, and far from the power cap."""
    quiet = replace(
        ours(),
        services={
            name: replace(service, curve=replace(service.curve, stream_ms=0.0))
            for name, service in ours().services.items()
        },
        constants=replace(ours().constants, throttle_start_w=1e6),
    )
    alone, both = totals(quiet, [first])[0], totals(quiet, [first, second])[0]
    squeezed = totals(quiet, [first, second], Capacity(memory=memory))[0]
    assert totals(quiet, [first], Capacity(memory=memory))[0] == pytest.approx(alone)
    launches = first_launch_ms(first.model)
    assert squeezed - alone - launches == pytest.approx((both - alone - launches) / memory, rel=1e-6, abs=1e-9)


def first_launch_ms(name: str) -> float:
    """What one more process adds to the launches of a model."""
    return ours().services[name].traits.kernels * ours().hardware.launch_slope_ms


@settings(deadline=None, max_examples=60)
@given(crowds)
def test_the_floor_is_a_part_of_the_active_time(crowd: list[Placed]) -> None:
    seats = crowd_of(ours(), [crowd])
    part, active = ours().floor_part(seats), ours().active_ms(seats)
    assert ((part > 0) & (part <= 1)).all()
    larger = crowd_of(ours(), [[one._replace(batch=one.batch + 8) for one in crowd]])
    assert (ours().active_ms(larger) > active).all()
    assert (ours().floor_part(larger) <= part).all(), "the more items, the less of it"


def test_a_link_that_is_asked_for_too_much_is_slow() -> None:
    chatty = [Placed("ssd", 16, 12.5) for _ in range(8)]
    slow = replace(ours(), hardware=replace(ours().hardware, pcie_bytes_per_ms=2e5))
    shared, alone = predict(slow, chatty)[0], predict(slow, chatty[:1])[0]
    assert shared.feedback_ms > 2 * alone.feedback_ms
    assert predict(ours(), chatty)[0].feedback_ms == pytest.approx(2968880 * 16 / 1e7)


@settings(deadline=None, max_examples=40)
@given(crowds, st.floats(1e4, 1e7))
def test_a_slower_link_is_never_faster(crowd: list[Placed], bytes_per_ms: float) -> None:
    slow = replace(ours(), hardware=replace(ours().hardware, pcie_bytes_per_ms=bytes_per_ms))
    for late, early in zip(predict(slow, crowd), predict(ours(), crowd), strict=True):
        assert late.total_ms >= early.total_ms * (1 - 1e-9)


def test_a_table_is_met_at_its_points_and_followed_beyond_them() -> None:
    table = AloneTable.of({(2, 20.0): 20.0, (2, 80.0): 7.0, (8, 20.0): 70.0, (8, 80.0): 21.0})
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


@pytest.mark.parametrize("name", MODELS)
def test_a_table_of_what_the_curve_says_changes_nothing(name: str) -> None:
    """Alone, at its points, and in the crowds of its points: the clock's fall is undone and put back."""
    points = tuple(product((1, 4, 16, 32), (10.0, 25.0, 50.0, 100.0)))
    measured = {(batch, share): float(solo_ms(ours(), name, batch, share)) for batch, share in points}
    model = replace(ours(), tables={name: AloneTable.of(measured)})
    for batch, share in points:
        assert float(solo_ms(model, name, batch, share)) == pytest.approx(measured[batch, share], rel=2e-3)
    for batch, share in points[:-1]:
        crowd = [Placed(name, batch, min(share, 50.0)), Placed("alexnet", 4, 40.0)]
        assert totals(model, crowd) == pytest.approx(totals(ours(), crowd), rel=2e-3)


def test_figures_make_the_same_model_again() -> None:
    again = SharingModel.from_figures(json.loads(json.dumps(ours().to_figures())))
    assert again == ours()
    assert again.to_figures() == ours().to_figures()
    crowd = [Placed(name, 4, 25.0) for name in MODELS]
    assert totals(again, crowd) == totals(ours(), crowd)
    table = AloneTable.of({(1, 50.0): 9.0})
    assert SharingModel.from_figures(ours().to_figures(), {"ssd": table}).tables == {"ssd": table}


def test_nobody_alone_takes_the_time_of_nobody_else() -> None:
    """Rows do not touch: a device's latencies are its own, whatever the row beside it holds."""
    busy = [Placed("ssd", 64, 50.0), Placed("vgg19", 64, 50.0)]
    both = ours().latencies(crowd_of(ours(), [busy, [Placed("alexnet", 1, 50.0)]])).total_ms
    assert np.allclose(both[1, 0], totals(ours(), [Placed("alexnet", 1, 50.0)]))
