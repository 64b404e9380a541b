"""The planner's steps: the tabulated law against the exact queue, the regular law, least shares, dual functions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.perf.queueing.latency import Batching, BatchTimes, Poisson, Regular, latency_of
from gpuloom.provision.demand import Offer
from gpuloom.provision.poisson_law import shipped_table
from gpuloom.provision.shares.bound import duals
from gpuloom.provision.shares.items import Grid, items_of
from gpuloom.provision.shares.laws import PoissonLaw, RegularLaw
from gpuloom.provision.shares.packing import pack, settle_groups
from gpuloom.provision.shares.settle import EMPTY, World, lateness, settle, times_of
from gpuloom.work.model import Service

BATCHES = [int(batch) for batch in shipped_table().batches]


def line(batch: int, floor: float, slope: float) -> BatchTimes:
    return BatchTimes.of(floor + slope * np.arange(1, batch + 1))


@settings(max_examples=40, deadline=None)
@given(batch=st.sampled_from(BATCHES), floor=st.floats(0.0, 5.0), slope=st.floats(0.2, 3.0), load=st.floats(0.05, 0.97))
def test_the_table_brackets_the_queue(batch: int, floor: float, slope: float, load: float) -> None:
    times = line(batch, floor, slope)
    full = float(times.busy_ms[-1])
    rate = load * batch / full
    exact = latency_of(times, Batching(batch), Poisson(1000.0 * rate)).percentile_ms(99.0)
    asked = [np.array([value]) for value in (float(batch), float(times.busy_ms[0]), full, 0.0, rate)]
    law = PoissonLaw()
    assert float(law.at_least_ms(*asked)[0]) <= exact * 1.002
    assert exact <= float(law.p99_ms(*asked)[0]) * 1.002


@settings(max_examples=60, deadline=None)
@given(batch=st.integers(1, 32), floor=st.floats(0.0, 5.0), slope=st.floats(0.2, 3.0), load=st.floats(0.05, 1.0))
def test_no_regular_request_takes_longer_than_the_law_says(batch: int, floor: float, slope: float, load: float) -> None:
    times = line(batch, floor, slope)
    full = float(times.busy_ms[-1])
    rate = load * batch / full
    longest = latency_of(times, Batching(batch), Regular(1000.0 * rate)).percentile_ms(99.999)
    asked = [np.array([value]) for value in (float(batch), float(times.busy_ms[0]), full, 0.0, rate)]
    assert longest <= float(RegularLaw().p99_ms(*asked)[0]) * (1.0 + 1e-6)


@settings(max_examples=40, deadline=None)
@given(
    batch=st.integers(2, 16),
    floor=st.floats(0.1, 5.0),
    slope=st.floats(0.2, 3.0),
    load=st.floats(0.1, 0.9),
    longer=st.floats(1.01, 1.1),
)
def test_longer_batches_never_shorten_the_p99(
    batch: int, floor: float, slope: float, load: float, longer: float
) -> None:
    """What the lower bound rests on, and what is not proven. Within the solution's own error."""
    rate = Poisson(1000.0 * load * batch / float(line(batch, floor, slope).busy_ms[-1]) / 1.1)
    base = latency_of(line(batch, floor, slope), Batching(batch), rate).percentile_ms(99.0)
    for floor_times, slope_times in ((longer, 1.0), (1.0, longer), (longer, longer)):
        slow = line(batch, floor * floor_times, slope * slope_times)
        assert latency_of(slow, Batching(batch), rate).percentile_ms(99.0) >= base * 0.998


@given(shares=st.lists(st.integers(1, 40), min_size=1, max_size=40))
def test_dual_functions_never_exceed_a_gpu(shares: list[int]) -> None:
    group, left = [], 40
    for share in shares:
        if share <= left:
            group.append(share)
            left -= share
    values = np.array(group) / 40.0
    for dual in duals(40):
        assert float(dual(values).sum()) <= 1.0 + 1e-9


@pytest.fixture(scope="module")
def world(offer: Offer) -> World:
    law = PoissonLaw()
    services = [
        Service(f"s{at}", ("alexnet", "resnet50", "vgg19", "ssd")[at % 4], 30.0 + 12.0 * at, 40.0 + 3 * at)
        for at in range(12)
    ]
    rates = np.array([service.rate_rps / 1000.0 for service in services])
    return World(offer, law, items_of(services, [1] * 12, rates, offer.model), Grid.of(offer, law, 1.0), 1.0)


def test_settled_shares_are_the_least(world: World) -> None:
    settled, needs = pack(world, 4)
    assert sorted(int(at) for at in settled.seats.ravel() if at != EMPTY) == list(range(12))
    assert settled.fits.all()
    assert (settled.total <= world.offer.units).all()
    late = lateness(world, settled.seats, settled.batch, times_of(world, settled.seats, settled.batch, settled.units))
    assert (late <= 0.0).all()
    for row, seat in zip(*np.nonzero(settled.units > 1), strict=True):
        less = settled.units[row : row + 1].copy()
        less[0, seat] -= 1
        one = settled.seats[row : row + 1], settled.batch[row : row + 1]
        found = lateness(world, *one, times_of(world, *one, less))
        assert found[0, seat] > 0.0 or less[0, seat] < needs.alone[settled.seats[row, seat], settled.batch[row, seat]]


def test_neighbours_never_lower_what_is_needed(world: World) -> None:
    _, needs = pack(world, 0)
    alone = settle_groups(world, needs, [[at] for at in range(12)])
    both = settle_groups(world, needs, [[at, (at + 1) % 12] for at in range(12)])
    assert (both.units[:, 0] >= alone.units[:, 0]).all()


def test_rows_that_cannot_fit_are_told(world: World) -> None:
    seats = np.arange(12)[None, :]
    batch = np.zeros((1, 12), np.intp)
    assert not settle(world, seats, batch, np.full((1, 12), 30)).fits[0]
