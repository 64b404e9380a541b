"""The lower bound: dual functions, and what must hold of what they say about services."""

from dataclasses import replace
from itertools import pairwise
from math import ceil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.provision.offer import Offer
from gpuloom.provision.shares.bound import BLOCKS, EACH, MANY, duals, lower_bound, values_of
from gpuloom.provision.shares.items import Grid
from gpuloom.provision.shares.laws import Law
from gpuloom.provision.shares.packing import group_of, pack
from gpuloom.work.model import Service
from tests.provision.shares.worlds import LAWS, rates_per_ms, small_services, some_services, world_of

SEVERAL = settings(max_examples=10, deadline=None)
ROUNDING = 1e-9


@given(shares=st.lists(st.integers(1, 40), min_size=1, max_size=40))
def test_dual_functions_never_exceed_a_gpu(shares: list[int]) -> None:
    group, left = [], 40
    for share in shares:
        if share <= left:
            group.append(share)
            left -= share
    values = np.array(group) / 40.0
    for dual in duals(40):
        assert float(dual(values).sum()) <= 1.0 + ROUNDING


@pytest.mark.parametrize("units", [8, 40, 100])
def test_dual_functions_do_not_fall_and_a_gpu_is_one(units: int) -> None:
    shares = np.arange(units + 1) / units
    for dual in duals(units):
        values = dual(shares)
        assert (np.diff(values) >= -ROUNDING).all()
        assert values[0] == 0.0
        assert values[-1] == pytest.approx(1.0)


def test_large_items_count_in_full() -> None:
    """Three that take more than half a GPU need three, though together they are 1.65: some dual function says so."""
    shares = np.full(3, 0.55)
    assert max(float(dual(shares).sum()) for dual in duals(40)) == 3.0
    assert ceil(shares.sum()) == 2


def test_blocks_leave_no_number_of_replicas_out() -> None:
    for blocks in (BLOCKS, EACH):
        assert blocks[0][0] == 1
        assert all(last + 1 == first for (_, last), (first, _) in pairwise(blocks))
        assert blocks[-1][1] + 1 == MANY


def bound_of(services: tuple[Service, ...], offer: Offer, law: Law) -> int:
    return lower_bound(services, rates_per_ms(services), offer, Grid.shared(offer, law, 0.3), law)


@SEVERAL
@given(services=small_services(10), law=st.sampled_from(LAWS))
def test_no_packing_needs_fewer(services: tuple[Service, ...], law: Law, offer: Offer) -> None:
    """By every set of values: those on all of its GPUs sum to no more than there are GPUs."""
    settled, _ = pack(world_of(offer, services, law), 8)
    assert bound_of(services, offer, law) <= len(settled.seats)
    grid = Grid.shared(offer, law, 0.3)
    for values in values_of(services, rates_per_ms(services), offer, grid, law):
        for row in settled.seats:
            assert values[group_of(row)].sum() <= 1.0 + ROUNDING


@SEVERAL
@given(services=small_services(6, least=2), law=st.sampled_from(LAWS), more=st.floats(1.0, 3.0))
def test_more_services_or_requests_never_need_less(
    services: tuple[Service, ...], law: Law, more: float, offer: Offer
) -> None:
    bound = bound_of(services, offer, law)
    assert bound_of(services[:-1], offer, law) <= bound
    busier = tuple(replace(service, rate_rps=service.rate_rps * more) for service in services)
    assert bound_of(busier, offer, law) >= bound


@SEVERAL
@given(services=some_services(5), law=st.sampled_from(LAWS), random=st.randoms(use_true_random=False))
def test_the_order_does_not_matter(services: tuple[Service, ...], law: Law, random: object, offer: Offer) -> None:
    patient = [replace(service, slo_p99_ms=service.slo_p99_ms + 40.0) for service in services]
    before = bound_of(tuple(patient), offer, law)
    random.shuffle(patient)  # type: ignore[attr-defined]
    assert bound_of(tuple(patient), offer, law) == before


def test_memory_counts_as_a_share(offer: Offer) -> None:
    light = tuple(Service(f"s{number}", "alexnet", 1.0, 100.0, 5_000) for number in range(7))
    assert bound_of(light, offer, LAWS[0]) == ceil(7 * 5_000 / offer.mem_mib)
    assert bound_of(tuple(replace(service, mem_mib=None) for service in light), offer, LAWS[0]) == 1


def test_a_flood_needs_as_many_gpus_as_its_throughput_takes(offer: Offer) -> None:
    """Beyond the replicas that are looked at one by one."""
    flood = (Service("a", "alexnet", 200_000.0, 50.0),)
    bound = bound_of(flood, offer, LAWS[0])
    assert bound > MANY
    assert bound_of((replace(flood[0], rate_rps=400_000.0),), offer, LAWS[0]) >= 2 * bound - 1
