"""Who shares a GPU: every item in exactly one place, nothing over-committed, whatever the services."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuloom.perf.arrays import Ints
from gpuloom.provision.offer import Offer
from gpuloom.provision.shares.laws import Law
from gpuloom.provision.shares.packing import (
    MOST_SEATS,
    Groups,
    best_fit,
    dissolve,
    drop_excess,
    group_of,
    insert,
    insert_all,
    join,
    pack,
    seats_of,
    settle_groups,
)
from gpuloom.provision.shares.settle import EMPTY, Setting, Settled, settle
from gpuloom.work.model import Service
from tests.provision.shares.worlds import LAWS, SOME, check_settled, late_seats, small_services, world_of


def items_on(settled: Settled) -> list[int]:
    return sorted(int(item) for item in settled.seats.ravel() if item != EMPTY)


@pytest.fixture(scope="module")
def setting(offer: Offer) -> Setting:
    """Twelve services of four models, two or three to a GPU, with the whole error bar."""
    services = [
        Service(f"s{number}", offer.model.names[number % 4], 30.0 + 12.0 * number, 40.0 + 3 * number)
        for number in range(12)
    ]
    return world_of(offer, services, LAWS[1], 1.0)


@SOME
@given(services=small_services(14), law=st.sampled_from(LAWS), margin=st.sampled_from([0.0, 1.0]))
def test_every_item_is_placed_once_and_nothing_is_over_committed(
    services: tuple[Service, ...], law: Law, margin: float, offer: Offer
) -> None:
    setting = world_of(offer, services, law, margin)
    settled, _ = pack(setting, 4)
    assert items_on(settled) == list(range(len(services)))
    check_settled(setting, settled)
    assert (settled.seats != EMPTY).any(axis=1).all(), "a GPU is empty"
    assert (settled.seats != EMPTY).sum(axis=1).max() <= MOST_SEATS


def test_packed_shares_are_the_least(setting: Setting) -> None:
    settled, _ = pack(setting, 4)
    check_settled(setting, settled)
    for row, seat in zip(*np.nonzero(settled.units > 1), strict=True):
        less = settled.units[row : row + 1].copy()
        less[0, seat] -= 1
        assert late_seats(setting, settled.seats[row : row + 1], settled.batch[row : row + 1], less)[0, seat]


def test_neighbours_never_lower_what_is_needed(setting: Setting) -> None:
    _, needs = pack(setting, 0)
    alone = settle_groups(setting, needs, [[item] for item in range(12)])
    both = settle_groups(setting, needs, [[item, (item + 1) % 12] for item in range(12)])
    assert (both.units[:, 0] >= alone.units[:, 0]).all()


@SOME
@given(services=small_services(14))
def test_patience_never_costs_a_gpu(services: tuple[Service, ...], offer: Offer) -> None:
    setting = world_of(offer, services)
    hasty, needs = pack(setting, 0)
    patient = dissolve(setting, needs, hasty, 8)
    assert len(patient.seats) <= len(hasty.seats)
    assert items_on(patient) == items_on(hasty)
    check_settled(setting, patient)


def room_of(setting: Setting, units: Ints, groups: Groups) -> list[int]:
    return [setting.offer.units - sum(int(units[item]) for item in group) for group in groups]


@SOME
@given(services=small_services(30), data=st.data())
def test_best_fit_respects_units_memory_and_seats(
    services: tuple[Service, ...], data: st.DataObject, offer: Offer
) -> None:
    setting = world_of(offer, services)
    units = np.array([data.draw(st.integers(1, offer.units)) for _ in services])
    groups = best_fit(setting, units)
    assert sorted(item for group in groups for item in group) == list(range(len(services)))
    assert min(room_of(setting, units, groups)) >= 0
    for group in groups:
        assert sum(int(setting.items.mem_mib[item]) for item in group) <= offer.mem_mib
        assert len(group) <= MOST_SEATS
        assert [int(units[item]) for item in group] == sorted((int(units[item]) for item in group), reverse=True)
    some = [item for item in range(len(services)) if item % 2]
    assert sorted(item for group in best_fit(setting, units, some) for item in group) == some


def test_best_fit_takes_the_fullest_gpu_that_has_room(offer: Offer) -> None:
    setting = world_of(offer, [Service(f"s{number}", "alexnet", 1.0, 100.0) for number in range(6)])
    assert best_fit(setting, np.array([30, 25, 15, 10, 10, 5])) == [[0, 3], [1, 2], [4, 5]]
    heavy = [Service(f"s{number}", "alexnet", 1.0, 100.0, 9_000) for number in range(3)]
    assert best_fit(world_of(offer, heavy), np.array([1, 1, 1])) == [[0], [1], [2]], "no room in memory"


def test_no_more_than_so_many_share_a_gpu(offer: Offer) -> None:
    services = [Service(f"s{number:02}", "alexnet", 0.01, 1e6) for number in range(MOST_SEATS + 3)]
    groups = best_fit(world_of(offer, services), np.ones(len(services), np.intp))
    assert [len(group) for group in groups] == [MOST_SEATS, 3]


@SOME
@given(services=small_services(10, least=3), crowd=st.integers(2, 10))
def test_crowded_gpus_give_up_items_until_they_are_enough(
    services: tuple[Service, ...], crowd: int, offer: Offer
) -> None:
    setting = world_of(offer, [replace(service, mem_mib=None) for service in services])
    _, needs = pack(setting, 0)
    groups = [list(range(first, min(first + crowd, len(services)))) for first in range(0, len(services), crowd)]
    settled, loose = drop_excess(setting, needs, settle_groups(setting, needs, groups))
    check_settled(setting, settled)
    assert sorted([*items_on(settled), *loose]) == list(range(len(services)))
    whole = insert_all(setting, needs, settled, loose)
    check_settled(setting, whole)
    assert items_on(whole) == list(range(len(services)))


def test_the_smallest_is_given_up_first(offer: Offer) -> None:
    rates = (20.0, 300.0, 250.0)
    setting = world_of(offer, [Service(f"s{number}", "vgg19", rate, 60.0) for number, rate in enumerate(rates)])
    _, needs = pack(setting, 0)
    settled, loose = drop_excess(setting, needs, settle_groups(setting, needs, [[0, 1, 2]]))
    assert loose == [0, 2]
    assert [group_of(row) for row in settled.seats] == [[1]]


def test_an_item_for_which_no_gpu_is_enough_is_refused(offer: Offer) -> None:
    """Whom nobody could serve must not get here: `replicas` keeps them out."""
    setting = world_of(offer, [Service("fine", "alexnet", 10.0, 90.0), Service("tight", "vgg19", 10.0, 1.0)])
    with pytest.raises(ValueError, match="item 1 does not fit on a GPU of its own"):
        pack(setting, 4)


@SOME
@given(services=small_services(8, least=2))
def test_inserting_keeps_everybody_who_was_there(services: tuple[Service, ...], offer: Offer) -> None:
    """With the same batch and no less share; who fits nowhere is named."""
    setting = world_of(offer, services)
    settled, needs = pack(setting, 4)
    first = settled.rows(np.arange(len(settled.seats)) == 0)
    loose = [item for item in range(len(services)) if item not in items_on(first)]
    fuller, nowhere = insert(setting, needs, first, loose)
    check_settled(setting, fuller)
    assert len(fuller.seats) == 1
    assert sorted([*items_on(fuller), *nowhere]) == list(range(len(services)))
    there = len(group_of(first.seats[0]))
    assert fuller.seats[0, :there].tolist() == first.seats[0, :there].tolist()
    assert fuller.batch[0, :there].tolist() == first.batch[0, :there].tolist()
    assert (fuller.units[0, :there] >= first.units[0, :there]).all()


def test_who_is_inserted_goes_where_the_least_is_left(offer: Offer) -> None:
    """Three GPUs have room for it: the fullest gets it, and one that is full is left alone."""
    rates = (340.0, 250.0, 120.0, 20.0)
    services = [Service(f"s{number}", "vgg19", rate, 60.0) for number, rate in enumerate(rates)]
    setting = world_of(offer, [*services, Service("full", "vgg19", 460.0, 60.0)])
    _, needs = pack(setting, 0)
    settled = settle_groups(setting, needs, [[4], [2], [0], [1]])
    fuller, nowhere = insert(setting, needs, settled, [3])
    assert nowhere == []
    assert [group_of(row) for row in fuller.seats] == [[4], [2], [0, 3], [1]]


def test_light_gpus_are_dissolved_into_others(offer: Offer) -> None:
    """Each of four has a GPU of its own; one GPU is enough for them. Without patience nothing is tried."""
    setting = world_of(offer, [Service(f"s{number}", "alexnet", 20.0, 80.0) for number in range(4)])
    _, needs = pack(setting, 0)
    apart = settle_groups(setting, needs, [[item] for item in range(4)])
    together = dissolve(setting, needs, apart, 1)
    check_settled(setting, together)
    assert [sorted(group_of(row)) for row in together.seats] == [[0, 1, 2, 3]]
    assert len(dissolve(setting, needs, apart, 0).seats) == 4


@given(groups=st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=6), max_size=6))
def test_groups_are_rows_of_seats_and_back(groups: Groups) -> None:
    seats = seats_of(groups)
    assert [group_of(row) for row in seats] == groups
    assert seats.shape == (len(groups), max((len(group) for group in groups), default=1))


def test_parts_of_different_width_are_joined(offer: Offer) -> None:
    setting = world_of(offer, [Service(f"s{number}", "alexnet", 5.0, 100.0) for number in range(4)])
    narrow, wide = (
        settle(setting, seats_of(groups), np.zeros_like(seats_of(groups)), np.ones_like(seats_of(groups)))
        for groups in ([[3]], [[0, 1, 2]])
    )
    both = join([narrow, wide])
    assert [group_of(row) for row in both.seats] == [[3], [0, 1, 2]]
    assert both.units[0].tolist() == [int(narrow.units[0, 0]), 0, 0]
    assert both.fits.tolist() == [True, True]


def test_nothing_to_pack_is_no_gpu(offer: Offer) -> None:
    settled, _ = pack(world_of(offer, []), 4)
    assert len(settled.seats) == 0
