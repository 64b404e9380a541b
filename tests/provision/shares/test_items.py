"""Items and the grid of times: what the planner's arrays say of services and models."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuloom.perf.sharing.interference import Latencies, Placed, predict
from gpuloom.provision.offer import Offer
from gpuloom.provision.shares.items import Grid, items_of, with_margin
from gpuloom.provision.shares.laws import Law
from gpuloom.work.model import Service
from tests.provision.shares.worlds import LAWS, SOME, rates_per_ms, some_services

A_LAW = pytest.mark.parametrize("law", LAWS[1:], ids=["poisson", "regular"])


@SOME
@given(services=some_services(6), data=st.data())
def test_replicas_share_the_rate_and_are_otherwise_copies(
    services: tuple[Service, ...], data: st.DataObject, offer: Offer
) -> None:
    replicas = [data.draw(st.integers(1, 5)) for _ in services]
    items = items_of(services, replicas, rates_per_ms(services), offer.model)
    assert len(items) == sum(replicas)
    assert list(items.service) == sorted(items.service)
    for index, service in enumerate(services):
        own = np.flatnonzero(np.array(items.service) == index)
        assert len(own) == replicas[index]
        assert items.rate_per_ms[own].sum() == pytest.approx(service.rate_rps / 1000.0)
        assert len(set(items.rate_per_ms[own])) == 1
        assert set(items.slo_ms[own]) == {service.slo_p99_ms}
        assert set(items.mem_mib[own]) == {service.mem_mib or 0}
        assert {offer.model.names[model] for model in items.model[own]} == {service.workload}
        assert (items.most_batch[own] >= (service.max_batch or 32)).all()


@SOME
@given(services=some_services(6), data=st.data())
def test_taken_items_are_those_that_were_named(
    services: tuple[Service, ...], data: st.DataObject, offer: Offer
) -> None:
    items = items_of(services, [1] * len(services), rates_per_ms(services), offer.model)
    which = np.array(data.draw(st.lists(st.integers(0, len(services) - 1), max_size=8)), np.intp)
    taken = items.take(which)
    chosen = [services[item] for item in which]
    assert len(taken) == len(which)
    assert taken.service == tuple(which)
    assert taken.slo_ms.tolist() == [service.slo_p99_ms for service in chosen]
    assert taken.rate_per_ms.tolist() == [service.rate_rps / 1000.0 for service in chosen]
    assert [offer.model.names[model] for model in taken.model] == [service.workload for service in chosen]


def test_no_services_are_no_items(offer: Offer) -> None:
    items = items_of((), (), np.zeros(0), offer.model)
    assert len(items) == 0
    assert items.rate_per_ms.shape == items.model.shape == (0,)


@A_LAW
def test_a_grid_has_the_times_of_the_model(law: Law, offer: Offer) -> None:
    """Without a margin, as somebody would ask for them one by one; batch and share are spread over the grid."""
    grid = Grid.of(offer, law, 0.0)
    for model, name in enumerate(offer.model.names):
        for column, units in ((0, 1), (3, 10), (7, 40)):
            share_pct = units * offer.unit_pct
            (alone,) = predict(offer.model, [Placed(name, grid.batches[column], share_pct)])
            busy = max(alone.gpu_ms + alone.feedback_ms, alone.load_ms)
            assert grid.busy_ms[model, column, units - 1] == pytest.approx(busy)
            assert grid.load_ms[model, column, units - 1] == pytest.approx(alone.load_ms)
            smaller = max(grid.batches[column] - 1, 1)
            (before,) = predict(offer.model, [Placed(name, smaller, share_pct)])
            busy = max(before.gpu_ms + before.feedback_ms, before.load_ms)
            assert grid.before_ms[model, column, units - 1] == pytest.approx(busy)


@A_LAW
@pytest.mark.parametrize("margin", [0.0, 0.3])
def test_more_share_is_faster_and_larger_batches_take_longer(law: Law, margin: float, offer: Offer) -> None:
    """Without which shares could not be searched by halving."""
    for grid in (Grid.of(offer, law, margin), Grid.shared(offer, law, margin)):
        assert (np.diff(grid.busy_ms, axis=2) < 0.0).all()
        assert (np.diff(grid.busy_ms, axis=1) >= 0.0).all()


@A_LAW
def test_with_the_whole_error_bar_more_share_is_hardly_ever_slower(law: Law, offer: Offer) -> None:
    """The bar widens in steps as the floor's part of the time grows: then a unit more may seem to cost a little."""
    busy = Grid.of(offer, law, 1.0).busy_ms
    rise = np.diff(busy, axis=2) / busy[:, :, :-1]
    assert rise.max() < 0.01
    assert (rise > 0.0).mean() < 0.005


@A_LAW
def test_even_the_gentlest_neighbour_is_felt_unless_the_gpu_is_whole(law: Law, offer: Offer) -> None:
    alone, shared = Grid.of(offer, law, 1.0), Grid.shared(offer, law, 1.0)
    assert (shared.busy_ms >= alone.busy_ms).all()
    assert (shared.busy_ms[:, :, :-1] > alone.busy_ms[:, :, :-1]).mean() > 0.9
    assert (shared.busy_ms[:, :, -1] == alone.busy_ms[:, :, -1]).all()
    assert (shared.load_ms == alone.load_ms).all()


def test_the_gentlest_neighbour_is_the_one_that_costs_least(offer: Offer) -> None:
    """Whoever it is: batches of 1 on one unit, tried one after the other."""
    grid = Grid.shared(offer, LAWS[0], 0.0)
    for model, name in enumerate(offer.model.names):
        beside = []
        for neighbour in offer.model.names:
            pair = [Placed(name, grid.batches[3], 10 * offer.unit_pct), Placed(neighbour, 1, offer.unit_pct)]
            own = predict(offer.model, pair)[0]
            beside.append(max(own.gpu_ms + own.feedback_ms, own.load_ms))
        assert grid.busy_ms[model, 3, 9] == pytest.approx(min(beside))
        assert min(beside) < max(beside)


@given(
    load=st.floats(0.01, 5.0),
    gpu=st.floats(0.1, 50.0),
    feedback=st.floats(0.01, 2.0),
    above=st.floats(1.0, 1.5),
    margin=st.floats(0.0, 3.0),
)
def test_the_margin_is_a_part_of_the_error_bar(
    load: float, gpu: float, feedback: float, above: float, margin: float
) -> None:
    total = load + gpu + feedback
    parts = [np.array([value]) for value in (load, gpu, feedback, total, total * above)]
    busy, loading = with_margin(Latencies(*parts), margin)
    factor = 1.0 + margin * (above - 1.0)
    assert busy[0] == pytest.approx(factor * max(gpu + feedback, load))
    assert loading[0] == pytest.approx(factor * load)
