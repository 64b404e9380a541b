"""Values of services on MIG instances: no legal cut is worth more than a GPU, and no plan is below their sum."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.gpus.catalogue import find
from gpuloom.gpus.layouts import multisets
from gpuloom.provision.demand import Demand
from gpuloom.provision.mig.options import Option, Options, by_latency
from gpuloom.provision.mig.planner import count_instances
from gpuloom.provision.mig.values import values_of
from gpuloom.provision.supply import MigGpus
from tests.provision.drawn import demands, plans
from tests.provision.mig.made_up import A100, points

MODELS = ("A100-80GB", "A30")


def option(size: int, rps: float) -> Option:
    return Option(size, 1, 1, rps, lambda _: 1.0)


@st.composite
def some_needs(draw: st.DrawFn, sizes: tuple[int, ...]) -> list[tuple[float, Options]]:
    """Services that some sizes serve, none of them necessarily faster because larger."""
    needs: list[tuple[float, Options]] = []
    for _ in range(draw(st.integers(1, 5))):
        served = draw(st.lists(st.sampled_from(sizes), min_size=1, unique=True))
        needs.append(
            (draw(st.floats(1.0, 3000.0)), {size: option(size, draw(st.floats(5.0, 900.0))) for size in served})
        )
    return needs


@pytest.mark.parametrize("name", MODELS)
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_no_cut_is_worth_more_than_a_gpu(name: str, data: st.DataObject) -> None:
    """Of every maximal cut: whichever services have its instances, what they serve is worth at most 1."""
    model = find(name)
    cuts = multisets(model)
    sizes = tuple(sorted({size for cut in cuts for size in cut}))
    needs = data.draw(some_needs(sizes))
    for values in values_of(needs, model):
        per_instance = {
            size: max(
                (
                    min(value, value * options[size].rps / rate)
                    for value, (rate, options) in zip(values, needs, strict=True)
                    if size in options
                ),
                default=0.0,
            )
            for size in sizes
        }
        for cut in cuts:
            assert sum(per_instance[size] for size in cut) <= 1.0 + 1e-6


@pytest.mark.parametrize("name", MODELS)
@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_the_values_are_a_bound_for_the_fewest_gpus(name: str, data: st.DataObject) -> None:
    model = find(name)
    sizes = tuple(sorted({size for cut in multisets(model) for size in cut}))
    needs = data.draw(some_needs(sizes))
    gpus = sum(count_instances(needs, model).cuts.values())
    for values in values_of(needs, model):
        assert float(values.sum()) <= gpus + 1e-6


def test_nobody_is_worth_less_than_the_cheapest_instance_that_serves_it() -> None:
    seldom = (0.001, {1: option(1, 100.0), 7: option(7, 900.0)})
    large = (0.001, {7: option(7, 900.0)})
    by_slices = values_of([seldom, large], A100)[0]
    assert by_slices == pytest.approx([1 / 7, 1.0])


def test_whom_nothing_serves_is_worth_everything() -> None:
    values = values_of([(5.0, {}), (5.0, {1: option(1, 100.0)})], A100)
    assert all(np.isinf(each[0]) and np.isfinite(each[1]) for each in values)
    assert [np.isinf(each).all() for each in values_of([(5.0, {})], A100)] == [True]


@given(demand=demands(most=4, models=("net",)))
@plans(3)
def test_a_plans_bound_is_never_below_the_values(demand: Demand) -> None:
    gpus = MigGpus(A100, {"net": points()})
    plan = gpus.plan(demand)
    values = gpus.values(demand)
    lost = {unplaced.service for unplaced in plan.unplaced}
    assert values is not None
    for each in values:
        for service, value in zip(demand.services, each, strict=True):
            assert np.isinf(value) == (service.id in lost)
        assert float(each[np.isfinite(each)].sum()) <= plan.gpus + 1e-6


def test_better_prices_than_slices_exist() -> None:
    """Two of 3g fill a GPU, though a slice is left: the second set of values knows it."""
    options = {3: option(3, 10.0)}
    by_slices, best = values_of([(10.0, options), (10.0, options)], A100)
    assert by_slices.sum() == pytest.approx(6 / 7)
    assert best.sum() == pytest.approx(1.0)


def test_a_service_counts_by_its_rate() -> None:
    options = by_latency(points(), 60.0)
    once, twice = (values_of([(rate_rps, options)], A100)[1][0] for rate_rps in (5e3, 1e4))
    assert twice == pytest.approx(2 * once, rel=1e-6)
