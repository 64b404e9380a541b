"""Few services: the fewest GPUs, against every way to group them, and against packing."""

from collections import Counter
from collections.abc import Iterator

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.provision.offer import Offer
from gpuloom.provision.shares.candidates import alone, least_units
from gpuloom.provision.shares.laws import Law
from gpuloom.provision.shares.packing import Groups, group_of, pack
from gpuloom.provision.shares.patterns import Options, fewest, settle_both, typical_choice
from gpuloom.provision.shares.settle import Setting, settle
from gpuloom.work.model import Service
from tests.provision.shares.worlds import LAWS, SOME, check_settled, late_seats, small_services, world_of

SEVERAL = settings(max_examples=12, deadline=None)


def partitions(items: list[int]) -> Iterator[Groups]:
    """Every way to group them."""
    if not items:
        yield []
        return
    first, *rest = items
    for groups in partitions(rest):
        yield [[first], *groups]
        for index, group in enumerate(groups):
            yield [*groups[:index], [first, *group], *groups[index + 1 :]]


def fitting_groups(setting: Setting, groups: Groups) -> set[tuple[int, ...]]:
    columns = np.arange(len(setting.grid.batches))
    least = least_units(setting.items, setting.grid, setting.law, alone(len(setting.items)), columns)
    settled = settle_both(setting, groups, least, typical_choice(setting, least))
    return {
        tuple(group)
        for group, fits in zip(groups, settled.fits, strict=True)
        if fits and setting.items.mem_mib[group].sum() <= setting.offer.mem_mib
    }


def single(count: int) -> Options:
    """Each service with one replica."""
    return Options(tuple(range(count)), (1,) * count)


@SEVERAL
@given(services=small_services(5), law=st.sampled_from(LAWS))
def test_no_way_to_group_them_needs_fewer_gpus(services: tuple[Service, ...], law: Law, offer: Offer) -> None:
    setting = world_of(offer, services, law)
    settled = fewest(setting, single(len(services)))
    assert settled is not None
    check_settled(setting, settled)
    assert sorted(item for row in settled.seats for item in group_of(row)) == list(range(len(services)))
    ways = list(partitions(list(range(len(services)))))
    fits = fitting_groups(setting, [list(group) for group in sorted({tuple(group) for way in ways for group in way})])
    assert len(settled.seats) == min(len(way) for way in ways if all(tuple(group) in fits for group in way))


@SEVERAL
@given(services=small_services(9))
def test_never_more_gpus_than_by_packing(services: tuple[Service, ...], offer: Offer) -> None:
    setting = world_of(offer, services)
    exact, (packed, _) = fewest(setting, single(len(services))), pack(setting, 8)
    assert exact is not None
    assert len(exact.seats) <= len(packed.seats)


@SEVERAL
@given(services=small_services(3), data=st.data())
def test_every_service_gets_one_of_its_numbers_of_replicas(
    services: tuple[Service, ...], data: st.DataObject, offer: Offer
) -> None:
    numbers = [sorted(data.draw(st.sets(st.integers(1, 3), min_size=1, max_size=2))) for _ in services]
    options = Options(
        tuple(index for index, counts in enumerate(numbers) for _ in counts),
        tuple(count for counts in numbers for count in counts),
    )
    split = [
        Service(f"{services[index].id}/{count}", services[index].workload, services[index].rate_rps / count, 90.0)
        for index, count in zip(options.service, options.replicas, strict=True)
    ]
    setting = world_of(offer, split)
    settled = fewest(setting, options)
    assert settled is not None
    check_settled(setting, settled)
    held = Counter(item for row in settled.seats for item in group_of(row))
    for index, counts in enumerate(numbers):
        taken = [(options.replicas[item], held[item]) for item in held if options.service[item] == index]
        assert len(taken) == 1, "replicas of one service disagree on their number"
        ((wanted, placed),) = taken
        assert wanted == placed
        assert wanted in counts


def test_replicas_of_one_service_may_share_a_gpu(offer: Offer) -> None:
    """Three of them, if it must have three."""
    third = Service("a", "alexnet", 20.0, 80.0)
    settled = fewest(world_of(offer, [third]), Options((0,), (3,)))
    assert settled is not None
    assert [group_of(row) for row in settled.seats] == [[0, 0, 0]]


@SOME
@given(services=small_services(6, least=2), law=st.sampled_from(LAWS))
def test_batches_for_ones_own_neighbours_never_take_a_gpu_away(
    services: tuple[Service, ...], law: Law, offer: Offer
) -> None:
    """Of both choices of batches the better: whoever fits with the first fits, and needs no more."""
    setting = world_of(offer, services, law)
    columns = np.arange(len(setting.grid.batches))
    least = least_units(setting.items, setting.grid, setting.law, alone(len(services)), columns)
    choice = typical_choice(setting, least)
    groups = [[first, second] for first in range(len(services)) for second in range(first, len(services))]
    both = settle_both(setting, groups, least, choice)
    batch = choice.batch[both.seats]
    first = settle(setting, both.seats, batch, least[both.seats, batch])
    assert (both.fits >= first.fits).all()
    assert (both.total[first.fits] <= first.total[first.fits]).all()
    kept = both.rows(both.fits)
    assert (kept.total <= offer.units).all()
    assert not late_seats(setting, kept.seats, kept.batch, kept.units).any()


def test_too_many_groups_are_left_to_packing(offer: Offer) -> None:
    services = [Service(f"s{number:02}", "alexnet", 0.1, 1e5) for number in range(16)]
    assert fewest(world_of(offer, services), single(16)) is None
