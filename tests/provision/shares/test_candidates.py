"""Least shares and batches of items alone, against trying every share."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuloom.perf.arrays import Bools
from gpuloom.provision.offer import Offer
from gpuloom.provision.shares.candidates import Beside, alone, choose, least_units
from gpuloom.provision.shares.items import Grid
from gpuloom.provision.shares.laws import Law, PoissonLaw
from gpuloom.provision.shares.settle import Setting
from gpuloom.work.model import Service
from tests.provision.shares.worlds import LAWS, SOME, some_services, world_of

A_LAW = pytest.mark.parametrize("law", LAWS, ids=["table", "table-with-its-error", "regular"])
A_MARGIN = st.sampled_from([0.0, 0.3])
"""With which more share is always faster."""


def columns(setting: Setting) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    return np.arange(len(setting.grid.batches))


def kept(setting: Setting, item: int, beside: Beside) -> Bools:
    """Whether the item's SLO is kept, by column and units from 1: every one is tried."""
    items, grid = setting.items, setting.grid
    model = items.model[item]
    add, times = beside.add_ms[item], beside.times[item]
    full = add + times * grid.busy_ms[model]
    first = np.broadcast_to(full[0], full.shape)
    batch = np.broadcast_to(grid.batches[:, None], full.shape)
    p99 = setting.law.p99_ms(batch, first, full, times * grid.load_ms[model], items.rate_per_ms[item])
    return np.asarray((p99 <= items.slo_ms[item]) & (batch <= items.most_batch[item]))


def in_the_table(setting: Setting, item: int, beside: Beside) -> Bools:
    """Columns whose loads are all in the table: below its least load the p99 is that at the least, and may jump."""
    items, grid = setting.items, setting.grid
    if not isinstance(setting.law, PoissonLaw):
        return np.ones(len(grid.batches), bool)
    full = beside.add_ms[item] + beside.times[item] * grid.busy_ms[items.model[item]]
    loads = items.rate_per_ms[item] * full / grid.batches[:, None]
    return np.asarray((loads >= setting.law.table.loads[0]).all(axis=1))


@A_LAW
@SOME
@given(services=some_services(5), margin=A_MARGIN, add_ms=st.floats(0.0, 3.0), times=st.floats(1.0, 1.5))
def test_least_units_are_the_first_that_are_enough(
    law: Law, services: tuple[Service, ...], margin: float, add_ms: float, times: float, offer: Offer
) -> None:
    setting = world_of(offer, services, law, margin)
    beside = Beside(np.full(len(services), add_ms), np.full(len(services), times))
    units = least_units(setting.items, setting.grid, law, beside, columns(setting))
    for item in range(len(services)):
        enough = kept(setting, item, beside)
        first = np.where(enough.any(axis=1), enough.argmax(axis=1) + 1, offer.units + 1)
        steady = in_the_table(setting, item, beside)
        assert units[item][steady].tolist() == first[steady].tolist()


@A_LAW
@SOME
@given(services=some_services(5), margin=st.sampled_from([1.0, 3.0]))
def test_least_units_are_enough_even_where_more_share_seems_slower(
    law: Law, services: tuple[Service, ...], margin: float, offer: Offer
) -> None:
    setting = world_of(offer, services, law, margin)
    units = least_units(setting.items, setting.grid, law, alone(len(services)), columns(setting))
    for item in range(len(services)):
        enough = kept(setting, item, alone(len(services)))
        column = np.flatnonzero(units[item] <= offer.units)
        assert enough[column, units[item, column] - 1].all()
        assert not enough[units[item] > offer.units, -1].any()


@A_LAW
@SOME
@given(services=some_services(5), margin=A_MARGIN)
def test_the_choice_needs_the_least_and_is_allowed(
    law: Law, services: tuple[Service, ...], margin: float, offer: Offer
) -> None:
    setting = world_of(offer, services, law, margin)
    units = least_units(setting.items, setting.grid, law, alone(len(services)), columns(setting))
    choice = choose(setting.items, setting.grid, law, alone(len(services)))
    assert choice.units.tolist() == units.min(axis=1).tolist()
    for item, service in enumerate(services):
        if choice.units[item] <= offer.units:
            assert units[item, choice.batch[item]] == choice.units[item]
            assert setting.grid.batches[choice.batch[item]] <= (service.max_batch or 32)


@A_LAW
@SOME
@given(services=some_services(5), more=st.floats(1.0, 3.0))
def test_more_of_a_rate_never_needs_fewer_units(
    law: Law, services: tuple[Service, ...], more: float, offer: Offer
) -> None:
    busier = [
        Service(service.id, service.workload, service.rate_rps * more, service.slo_p99_ms, None, 0, service.max_batch)
        for service in services
    ]
    now, later = (
        least_units(setting.items, setting.grid, law, alone(len(services)), columns(setting))
        for setting in (world_of(offer, services, law), world_of(offer, busier, law))
    )
    assert (later >= now).all()


@A_LAW
@SOME
@given(services=some_services(5), longer=st.floats(1.0, 3.0), margin=st.floats(0.0, 1.0))
def test_neither_a_longer_slo_nor_a_thinner_margin_needs_more(
    law: Law, services: tuple[Service, ...], longer: float, margin: float, offer: Offer
) -> None:
    patient = [
        Service(service.id, service.workload, service.rate_rps, service.slo_p99_ms * longer, None, 0, service.max_batch)
        for service in services
    ]
    now, relaxed, bold = (
        least_units(setting.items, setting.grid, law, alone(len(services)), columns(setting))
        for setting in (
            world_of(offer, services, law, 1.0),
            world_of(offer, patient, law, 1.0),
            world_of(offer, services, law, margin),
        )
    )
    assert (relaxed <= now).all()
    assert (bold <= now).all()


@A_LAW
@SOME
@given(services=some_services(5), add_ms=st.floats(0.0, 3.0), times=st.floats(1.0, 1.5))
def test_neighbours_never_help(
    law: Law, services: tuple[Service, ...], add_ms: float, times: float, offer: Offer
) -> None:
    setting = world_of(offer, services, law)
    beside = Beside(np.full(len(services), add_ms), np.full(len(services), times))
    without = least_units(setting.items, setting.grid, law, alone(len(services)), columns(setting))
    assert (least_units(setting.items, setting.grid, law, beside, columns(setting)) >= without).all()


@A_LAW
@SOME
@given(services=some_services(5))
def test_a_bound_is_no_more_than_what_is_needed_with_the_best_batch(
    law: Law, services: tuple[Service, ...], offer: Offer
) -> None:
    """Even beside the gentlest neighbour, whom whoever has less than a whole GPU cannot do without."""
    setting = world_of(offer, services, law)
    gentle = Grid.shared(offer, law, setting.margin)
    single = alone(len(services))
    needed = least_units(setting.items, gentle, law, single, columns(setting)).min(axis=1)
    bound = least_units(setting.items, gentle, law, single, columns(setting), bound=True).min(axis=1)
    assert (bound <= needed).all()


def test_a_batch_that_is_not_allowed_is_never_enough(offer: Offer) -> None:
    setting = world_of(offer, [Service("a", "alexnet", 50.0, 100.0, max_batch=4)])
    units = least_units(setting.items, setting.grid, setting.law, alone(1), columns(setting))[0]
    allowed = setting.grid.batches <= 4
    assert (units[allowed] <= offer.units).all()
    assert (units[~allowed] == offer.units + 1).all()
