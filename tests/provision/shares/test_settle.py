"""Least shares of several services on one GPU: against every division of the GPU, and what may not matter."""

from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.perf.arrays import Ints
from gpuloom.provision.offer import Offer
from gpuloom.provision.shares.candidates import alone, least_units
from gpuloom.provision.shares.laws import Law, RegularLaw
from gpuloom.provision.shares.settle import EMPTY, Setting, Settled, beside, lateness, settle, times_of
from gpuloom.work.model import Service
from tests.provision.shares.worlds import LAWS, SOME, late_seats, small_services, some_services, world_of

SEVERAL = settings(max_examples=12, deadline=None)


def least_alone(setting: Setting) -> Ints:
    columns = np.arange(len(setting.grid.batches))
    return least_units(setting.items, setting.grid, setting.law, alone(len(setting.items)), columns)


def divisions(units: int, seats: int) -> Ints:
    """Every way to give each seat a unit or more, all of them or fewer."""
    if seats == 2:
        return np.array([(first, second) for first in range(1, units) for second in range(1, units - first + 1)])
    return np.array(
        [
            (first, second, third)
            for first, second in product(range(1, units), repeat=2)
            for third in range(1, units - first - second + 1)
        ]
    )


def settle_one(setting: Setting, group: list[int], batch: list[int]) -> Settled:
    seats, column = np.array([group]), np.array([batch])
    return settle(setting, seats, column, least_alone(setting)[seats, column])


@pytest.mark.parametrize("seats", [2, 3])
@SEVERAL
@given(
    services=some_services(3, least=3, rate_rps=(1.0, 300.0)),
    batch=st.lists(st.integers(0, 6), min_size=3, max_size=3),
    law=st.sampled_from(LAWS),
)
def test_settled_shares_are_the_least_of_all_that_keep_every_promise(
    seats: int, services: tuple[Service, ...], batch: list[int], law: Law, offer: Offer
) -> None:
    setting = world_of(offer, [replace(service, max_batch=None) for service in services], law)
    settled = settle_one(setting, list(range(seats)), batch[:seats])
    tried = divisions(offer.units, seats)
    group, column = np.broadcast_to(np.arange(seats), tried.shape), np.broadcast_to(batch[:seats], tried.shape)
    holds = tried[~late_seats(setting, group, column, tried).any(axis=1)]
    assert settled.fits[0] == bool(len(holds))
    if len(holds):
        assert settled.units[0].tolist() == holds.min(axis=0).tolist()


@SOME
@given(services=small_services(4, least=2), data=st.data())
def test_a_unit_less_for_anybody_makes_that_one_late(
    services: tuple[Service, ...], data: st.DataObject, offer: Offer
) -> None:
    setting = world_of(offer, services)
    batch = [data.draw(st.integers(0, 6)) for _ in services]
    settled = settle_one(setting, list(range(len(services))), batch)
    for seat in np.flatnonzero(settled.fits[0] & (settled.units[0] > 1)):
        less = settled.units.copy()
        less[0, seat] -= 1
        assert late_seats(setting, settled.seats, settled.batch, less)[0, seat]


@SOME
@given(services=small_services(4, least=2), random=st.randoms(use_true_random=False), empty=st.integers(0, 2))
def test_neither_the_order_of_seats_nor_empty_ones_matter(
    services: tuple[Service, ...], random: object, empty: int, offer: Offer
) -> None:
    setting = world_of(offer, services)
    order = list(range(len(services)))
    random.shuffle(order)  # type: ignore[attr-defined]
    straight = settle_one(setting, list(range(len(services))), [2] * len(services))
    least = least_alone(setting)[:, 2]
    seats = np.array([[*order, *[EMPTY] * empty]])
    shuffled = settle(setting, seats, np.full(seats.shape, 2), np.array([[*least[order], *[7] * empty]]))
    assert shuffled.fits.tolist() == straight.fits.tolist()
    assert not shuffled.units[0, len(order) :].any()
    if straight.fits[0]:
        assert shuffled.units[0, : len(order)].tolist() == straight.units[0, order].tolist()


@SOME
@given(services=small_services(6, least=4))
def test_gpus_settled_together_are_settled_as_each_alone(services: tuple[Service, ...], offer: Offer) -> None:
    setting = world_of(offer, services)
    pairs = [list(pair) for pair in pairwise(range(len(services)))]
    seats = np.array(pairs)
    batch = np.full(seats.shape, 1)
    together = settle(setting, seats, batch, least_alone(setting)[seats, batch])
    for row, pair in enumerate(pairs):
        single = settle_one(setting, pair, [1, 1])
        assert together.units[row].tolist() == single.units[0].tolist()
        assert together.fits[row] == single.fits[0]


@SOME
@given(services=small_services(4, least=2), start=st.integers(0, 5))
def test_where_it_begins_does_not_matter(services: tuple[Service, ...], start: int, offer: Offer) -> None:
    """As long as that is at most the least: from a unit each it comes to the same."""
    setting = world_of(offer, services)
    settled = settle_one(setting, list(range(len(services))), [3] * len(services))
    if settled.fits[0]:
        low = np.clip(settled.units - start, 1, None)
        assert settle(setting, settled.seats, settled.batch, low).units.tolist() == settled.units.tolist()
        again = settle(setting, settled.seats, settled.batch, settled.units)
        assert again.units.tolist() == settled.units.tolist()


@SOME
@given(services=small_services(4, least=2))
def test_what_neighbours_do_is_told_in_two_numbers(services: tuple[Service, ...], offer: Offer) -> None:
    """Which give back the time of a full batch, and are 0 and 1 for who is alone."""
    setting = world_of(offer, services)
    group, column = list(range(len(services))), 3
    settled = settle_one(setting, group, [column] * len(group))
    felt = beside(setting, settled)
    full = times_of(setting, settled.seats, settled.batch, settled.units).full_ms[0]
    units = np.minimum(settled.units[0], offer.units) - 1
    assert felt.add_ms + felt.times * setting.grid.busy_ms[setting.items.model, column, units] == pytest.approx(full)
    assert (felt.add_ms >= 0.0).all()
    assert (felt.times >= 1.0).all()
    single = beside(setting, settle_one(setting, [0], [column]))
    assert (single.add_ms[0], single.times[0]) == pytest.approx((0.0, 1.0), abs=1e-9)


def test_more_for_one_never_helps_another(offer: Offer) -> None:
    """What the search from below rests on."""
    services = [Service(f"s{number}", name, 50.0, 60.0) for number, name in enumerate(offer.model.names)]
    setting = world_of(offer, services)
    for first, second in product(range(4), repeat=2):
        own = np.arange(1, offer.units - 5)
        seats = np.broadcast_to([first, second], (len(own), 2))
        units = np.stack([own, np.full(len(own), 6)], axis=1)
        times = times_of(setting, seats, np.full(seats.shape, 3), units)
        assert (np.diff(times.full_ms[:, 1]) >= -1e-9).all()
        assert (np.diff(times.full_ms[:, 0]) <= 1e-9).all()


def test_a_gpu_that_cannot_be_enough_is_told_from_one_that_can(offer: Offer) -> None:
    services = [Service(f"s{number}", "vgg19", 40.0, 60.0) for number in range(12)]
    setting = world_of(offer, services, RegularLaw())
    crowded, roomy = list(range(12)), [0, *[EMPTY] * 11]
    seats = np.array([crowded, roomy])
    settled = settle(setting, seats, np.zeros(seats.shape, np.intp), least_alone(setting)[np.maximum(seats, 0), 0])
    assert settled.fits.tolist() == [False, True]
    assert settled.total[1] <= offer.units
    assert not settle(setting, seats[:1], np.zeros((1, 12), np.intp), np.full((1, 12), 30)).fits[0]


def test_an_empty_seat_is_never_late_and_rows_can_be_taken(offer: Offer) -> None:
    setting = world_of(offer, [Service("a", "ssd", 10.0, 90.0)])
    seats = np.array([[0, EMPTY], [EMPTY, EMPTY]])
    settled = settle(setting, seats, np.zeros((2, 2), np.intp), np.array([[1, 9], [9, 9]]))
    assert settled.total.tolist() == [settled.units[0, 0], 0]
    times = times_of(setting, settled.seats, settled.batch, settled.units)
    assert (lateness(setting, seats, settled.batch, times)[seats == EMPTY] == -1.0).all()
    assert settled.rows(np.array([1, 0, 0])).seats[:, 0].tolist() == [EMPTY, 0, 0]
    assert settled.rows(settled.total > 0).seats.tolist() == [[0, EMPTY]]
