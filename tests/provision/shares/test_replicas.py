"""How many replicas, against counting up from one; and who is refused, with which reason."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuloom.provision.offer import Offer
from gpuloom.provision.shares.items import Grid
from gpuloom.provision.shares.laws import Law
from gpuloom.provision.shares.replicas import MORE, Split, split, split_again, units_for
from gpuloom.work.model import Service
from tests.provision.shares.worlds import LAWS, SOME, rates_per_ms, some_services


def split_of(services: tuple[Service, ...], offer: Offer, law: Law, margin: float = 0.3) -> Split:
    return split(services, rates_per_ms(services), offer, Grid.of(offer, law, margin), law)


def units_by_count(service: Service, most: int, offer: Offer, law: Law, margin: float = 0.3) -> list[int]:
    """Least units of one replica, if there are 1, 2, 3…"""
    grid = Grid.of(offer, law, margin)
    copies = (service,) * most
    units = units_for(copies, rates_per_ms(copies), np.arange(1, most + 1), offer.model, grid, law)
    return [int(need) for need in units]


@SOME
@given(services=some_services(6, rate_rps=(1.0, 6_000.0)), law=st.sampled_from(LAWS))
def test_everybody_is_served_or_refused(services: tuple[Service, ...], law: Law, offer: Offer) -> None:
    answer = split_of(services, offer, law)
    served = [service.id for service in answer.services]
    refused = [unplaced.service for unplaced in answer.unplaced]
    assert sorted([*served, *refused]) == sorted(service.id for service in services)
    assert served == [service.id for service in services if service.id in served], "their order has changed"
    assert refused == sorted(refused)
    assert len(answer.replicas) == len(answer.rate_per_ms) == len(served)
    assert answer.rate_per_ms.tolist() == [service.rate_rps / 1000.0 for service in answer.services]


@SOME
@given(services=some_services(4, rate_rps=(1.0, 6_000.0)), law=st.sampled_from(LAWS))
def test_as_few_replicas_as_are_enough_or_a_few_more_that_need_less_together(
    services: tuple[Service, ...], law: Law, offer: Offer
) -> None:
    answer = split_of(services, offer, law)
    for service, replicas in zip(answer.services, answer.replicas, strict=True):
        units = units_by_count(service, replicas + MORE, offer, law)
        assert sorted(units, reverse=True) == units, "a smaller part of the rate needs more"
        fewest = next(count for count, need in enumerate(units, start=1) if need <= offer.units)
        volumes = {count: count * units[count - 1] for count in range(fewest, min(fewest + MORE, len(units)) + 1)}
        if units[0] <= offer.units / 2:
            assert replicas == 1
        else:
            assert replicas == min(volumes, key=lambda count: (volumes[count], count))


@pytest.mark.parametrize("law", LAWS, ids=["table", "table-with-its-error", "regular"])
@SOME
@given(services=some_services(4, rate_rps=(1.0, 6_000.0)), more=st.floats(1.0, 4.0))
def test_more_of_a_rate_never_needs_less(law: Law, services: tuple[Service, ...], more: float, offer: Offer) -> None:
    grid = Grid.of(offer, law, 0.3)
    for count in (1, 2, 5):
        now, later = (
            units_for(services, rates_per_ms(services) * factor, count, offer.model, grid, law)
            for factor in (1.0, more)
        )
        assert (later >= now).all()
    busier = split(services, rates_per_ms(services) * more, offer, grid, law)
    lost = {unplaced.service for unplaced in busier.unplaced}
    assert lost >= {unplaced.service for unplaced in split_of(services, offer, law).unplaced}


@SOME
@given(services=some_services(4), more=st.floats(1.0, 4.0))
def test_who_is_lost_at_higher_rates_joins_who_was_lost_before(
    services: tuple[Service, ...], more: float, offer: Offer
) -> None:
    law = LAWS[0]
    before = split_of(services, offer, law)
    after = split_again(before, before.rate_per_ms * more, offer, Grid.of(offer, law, 0.3), law)
    assert after.unplaced[: len(before.unplaced)] == before.unplaced
    everybody = [*(service.id for service in after.services), *(unplaced.service for unplaced in after.unplaced)]
    assert sorted(everybody) == sorted(service.id for service in services)
    same = split_again(before, before.rate_per_ms, offer, Grid.of(offer, law, 0.3), law)
    assert (same.services, same.replicas, same.unplaced) == (before.services, before.replicas, before.unplaced)


@pytest.mark.parametrize(
    ("service", "why"),
    [
        (
            Service("a", "vgg19", 10.0, 1.0),
            r"1 ms cannot be met: one request of vgg19 alone on a whole V100 takes up to [\d.]+ ms",
        ),
        (
            Service("a", "vgg19", 9e8, 100.0),
            r"9e\+08 requests per second need more than 10,000 replicas on V100",
        ),
        (Service("a", "alexnet", 10.0, 50.0, 16_385), "it needs 16,385 MiB, but a V100 has 16,384"),
    ],
)
def test_a_refusal_has_a_reason(service: Service, why: str, offer: Offer) -> None:
    answer = split_of((service, Service("b", "alexnet", 10.0, 50.0, 16_384)), offer, LAWS[0], 1.0)
    assert [kept.id for kept in answer.services] == ["b"]
    (refused,) = answer.unplaced
    assert refused.service == "a"
    assert re.fullmatch(why, refused.why)


def test_a_promise_that_leaves_no_time_to_wait_is_refused_as_such(offer: Offer) -> None:
    law = LAWS[1]
    grid = Grid.of(offer, law, 1.0)
    model = offer.model.names.index("vgg19")
    alone_ms = float(grid.busy_ms[model, 0, -1] + grid.load_ms[model, 0, -1])
    (refused,) = split_of((Service("a", "vgg19", 1.0, 1.005 * alone_ms),), offer, law, 1.0).unplaced
    assert refused.why.endswith("which leaves too little for waiting")


def test_nobody_is_split_into_nothing(offer: Offer) -> None:
    answer = split_of((), offer, LAWS[0])
    assert (answer.services, answer.replicas, answer.unplaced) == ((), (), ())
