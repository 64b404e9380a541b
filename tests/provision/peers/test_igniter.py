"""iGniter's arithmetic and placing: least shares, shares that only grow, and who keeps what it was promised."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.perf.sharing.igniter import IgniterModel
from gpuloom.perf.sharing.interference import predict
from gpuloom.provision.demand import Problem
from gpuloom.provision.offer import Offer
from gpuloom.provision.peers.ffd import provision as first_fit_decreasing
from gpuloom.provision.peers.igniter import grow, place, provision
from gpuloom.provision.peers.igniter_rules import Placement, Workload, batch_of, first_fit, lower_pct, workloads
from gpuloom.provision.plan import on_gpus
from gpuloom.provision.shipped import shipped_offer
from gpuloom.work.model import Service
from tests.provision.drawn import MODELS, plans, services

MODEL = shipped_offer("V100").igniter
UNIT_PCT = MODEL.hardware.share_unit_pct
COOL = replace(MODEL, hardware=replace(MODEL.hardware, cap_w=1e9))
"""The clock never falls: what the least share is reckoned with."""

one_service = st.builds(
    Service, st.just("s"), st.sampled_from(MODELS), st.floats(1.0, 3000.0), st.floats(8.0, 200.0),
    st.none(), st.just(0), st.none() | st.integers(1, 40),
)  # fmt: skip


def is_a_multiple(share_pct: float) -> bool:
    return abs(share_pct / UNIT_PCT - round(share_pct / UNIT_PCT)) < 1e-9


def alone_ms(workload: Workload, share_pct: float, model: IgniterModel = COOL) -> float:
    return predict(model, [workload.placed(share_pct)])[0].total_ms


@given(service=one_service)
@settings(max_examples=80, deadline=None)
def test_a_batch_is_what_arrives_in_half_of_the_slo(service: Service) -> None:
    """The least that fills it, with the loading; or the largest that the service allows."""
    batch = batch_of(service, service.rate_rps, MODEL)
    traits = MODEL.services[service.workload].traits
    each_ms = 1000.0 / service.rate_rps + traits.load_bytes / MODEL.hardware.pcie_bytes_per_ms
    half_ms = service.slo_p99_ms / 2.0
    assert 1 <= batch <= (service.max_batch or batch)
    assert batch == service.max_batch or batch * each_ms >= half_ms * (1 - 1e-6)
    assert batch == 1 or (batch - 1) * each_ms < half_ms * (1 + 1e-6)


@given(service=one_service)
@settings(max_examples=80, deadline=None)
def test_the_least_share_keeps_half_of_the_slo_and_a_unit_less_does_not(service: Service) -> None:
    batch = batch_of(service, service.rate_rps, MODEL)
    share = lower_pct(service, batch, MODEL)
    if share > 100.0:
        return
    workload = Workload(service, 0, service.rate_rps, batch, share)
    assert is_a_multiple(share)
    assert alone_ms(workload, share) <= workload.target_ms * (1 + 1e-6)
    assert share == UNIT_PCT or alone_ms(workload, share - UNIT_PCT) > workload.target_ms * (1 - 1e-6)


@given(service=one_service, longer=st.floats(1.0, 3.0))
@settings(max_examples=60, deadline=None)
def test_more_time_never_needs_a_larger_share(service: Service, longer: float) -> None:
    later = replace(service, slo_p99_ms=service.slo_p99_ms * longer)
    assert lower_pct(later, 4, MODEL) <= lower_pct(service, 4, MODEL)


@given(service=one_service)
@settings(max_examples=40, deadline=None)
def test_replicas_are_whole_gpus_and_one_rest(service: Service) -> None:
    parts, unplaced = workloads((service,), MODEL)
    assert bool(parts) != bool(unplaced)
    assert [part.number for part in parts] == list(range(len(parts)))
    assert all(part.lower_pct == 100.0 for part in parts[:-1])
    assert sum(part.rate_rps for part in parts) == pytest.approx(service.rate_rps if parts else 0.0)


@st.composite
def residents(draw: st.DrawFn) -> list[Workload]:
    drawn = draw(services(4, slo_ms=(15.0, 200.0), rate_rps=(1.0, 300.0)))
    return [part for part in workloads(drawn, MODEL)[0] if part.lower_pct < 60.0]


@given(whose=residents())
@settings(max_examples=40, deadline=None)
def test_shares_only_grow_and_then_all_keep_their_half(whose: list[Workload]) -> None:
    given_pct = [workload.lower_pct for workload in whose]
    shares = grow(whose, list(given_pct), MODEL)
    if shares is None:
        assert sum(given_pct) > 60.0
        return
    assert all(later >= earlier for earlier, later in zip(given_pct, shares, strict=True))
    assert all(is_a_multiple(share) for share in shares)
    assert sum(shares) <= 100.0 + 1e-6
    placed = [workload.placed(share) for workload, share in zip(whose, shares, strict=True)]
    for workload, latency in zip(whose, predict(MODEL, placed), strict=True):
        assert latency.total_ms <= workload.target_ms


@given(whose=residents())
@settings(max_examples=40, deadline=None)
def test_a_neighbour_never_lowers_what_others_need(whose: list[Workload]) -> None:
    if len(whose) < 2:
        return
    fewer = grow(whose[:-1], [workload.lower_pct for workload in whose[:-1]], MODEL)
    more = grow(whose, [workload.lower_pct for workload in whose], MODEL)
    if more is not None:
        assert fewer is not None
        assert all(with_it >= without for without, with_it in zip(fewer, more[:-1], strict=True))


@given(wanted=services(8))
@plans(20)
def test_who_shares_a_gpu_keeps_its_promise(wanted: tuple[Service, ...], offer: Offer) -> None:
    """Under its own model, with arrivals as it thinks them."""
    plan = provision(Problem(wanted, offer))
    slo_ms = {service.id: service.slo_p99_ms for service in wanted}
    for together in on_gpus(plan.replicas).values():
        if len(together) > 1:
            assert all(replica.predicted_p99_ms <= slo_ms[replica.service] for replica in together)


@given(others=residents(), newcomers=residents())
@settings(max_examples=40, deadline=None)
def test_the_gpu_whose_total_grows_least_takes_it(others: list[Workload], newcomers: list[Workload]) -> None:
    """Against trying every GPU; the first of equal ones, and a further one only where none has room."""
    gpus: Placement = [[(other, other.lower_pct)] for other in others]
    for newcomer in newcomers:
        growth = {}
        for gpu, together in enumerate(gpus):
            shares = [*(share for _, share in together), newcomer.lower_pct]
            grown = grow([*(resident for resident, _ in together), newcomer], shares, MODEL)
            if grown is not None:
                growth[gpu] = round(sum(grown) - sum(shares[:-1]), 6)
        before = [len(together) for together in gpus]
        place(newcomer, gpus, MODEL)
        chosen = min(growth, key=lambda gpu: (growth[gpu], gpu)) if growth else len(before)
        before += [0] * (not growth)
        before[chosen] += 1
        assert [len(together) for together in gpus] == before


@given(wanted=services(8))
@plans(20)
def test_first_fit_looks_at_the_first_gpus_first(wanted: tuple[Service, ...], offer: Offer) -> None:
    """Shares are the least alone; whoever is on a later GPU had no room on any earlier one."""
    plan = first_fit_decreasing(Problem(wanted, offer))
    least = {(part.service.id, part.number): part.lower_pct for part in workloads(wanted, offer.igniter)[0]}
    assert {(replica.service, replica.number): replica.grant.share_pct for replica in plan.replicas} == least
    residents = on_gpus(plan.replicas)
    for later in range(plan.gpus):
        for replica in residents[later]:
            for earlier in range(later):
                before = [
                    other.grant.share_pct
                    for other in residents[earlier]
                    if other.grant.share_pct >= replica.grant.share_pct
                ]
                assert sum(before) + replica.grant.share_pct > 100.0


@given(shares=st.lists(st.sampled_from([2.5, 20.0, 33.3, 50.0, 66.7, 100.0]), max_size=20))
@settings(max_examples=60, deadline=None)
def test_first_fit_opens_a_gpu_only_where_none_has_room(shares: list[float]) -> None:
    gpus: Placement = []
    workload = Workload(Service("s", "ssd", 1.0, 50.0), 0, 1.0, 1, 2.5)
    for share in shares:
        full = [sum(taken for _, taken in gpu) + share > 100.0 + 1e-9 for gpu in gpus]
        before = len(gpus)
        first_fit(gpus, workload, share)
        assert len(gpus) == before + all(full)
    assert sum(len(gpu) for gpu in gpus) == len(shares)
