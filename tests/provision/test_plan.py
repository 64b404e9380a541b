"""A plan as data: parts are joined and taken apart without losing anybody; who is late, and where memory runs out."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.gpus.grant import Grant
from gpuloom.provision.plan import Replica, ServicePlan, Unplaced, joined, moved, on_gpus, part_of

TYPES = ("V100", "T4", "A100-80GB")


def replica(service: str, gpu: int, number: int = 0, mem_mib: int | None = None, p99_ms: float = 5.0) -> Replica:
    return Replica(service, number, Grant(gpu, share_pct=10.0, mem_mib=mem_mib, batch=1), 0.0, 1.0, p99_ms)


@st.composite
def some_parts(draw: st.DrawFn) -> list[ServicePlan]:
    """Plans on a type each, with services of their own; some of nobody."""
    parts = []
    for index, gpu_type in enumerate(TYPES[: draw(st.integers(1, 3))]):
        gpus = draw(st.integers(0, 3))
        replicas = [
            replica(f"{gpu_type} {draw(st.integers(0, 2))}", gpu, number)
            for gpu in range(gpus)
            for number in range(2 * gpu, 2 * gpu + draw(st.integers(1, 2)))
        ]
        lost = tuple(Unplaced(f"lost {index}", "why") for _ in range(draw(st.integers(0, 1))))
        parts.append(ServicePlan("gpuloom", gpu_type, gpus, 1.5 * gpus, None, tuple(replicas), lost))
    return parts


@given(parts=some_parts())
@settings(max_examples=60, deadline=None)
def test_joined_plans_come_apart_again(parts: list[ServicePlan]) -> None:
    plan = joined(parts)
    assert plan.gpus == sum(part.gpus for part in parts)
    assert plan.cost_per_hour == pytest.approx(sum(part.cost_per_hour for part in parts))
    assert plan.counts == {part.gpu_type: part.gpus for part in parts if part.gpus} or plan.gpus == 0
    assert {lost.service for lost in plan.unplaced} == {lost.service for part in parts for lost in part.unplaced}
    assert len(plan.replicas) == sum(len(part.replicas) for part in parts)
    assert bool(plan.types) == (len(plan.counts) > 1)
    first = 0
    for part in parts:
        services = frozenset(part.by_service())
        again, gpus = part_of(plan, part.gpu_type, services)
        assert again.replicas == part.replicas
        assert gpus == list(range(first, first + part.gpus))
        assert all(plan.type_of(gpu) == part.gpu_type for gpu in gpus)
        first += part.gpus


@given(parts=some_parts())
@settings(max_examples=30, deadline=None)
def test_everybody_is_on_one_gpu_and_of_one_service(parts: list[ServicePlan]) -> None:
    plan = joined(parts)
    residents = on_gpus(plan.replicas)
    assert set(residents) == set(range(plan.gpus))
    assert sum(map(len, residents.values())) == len(plan.replicas)
    for service, replicas in plan.by_service().items():
        assert tuple(replicas) == plan.of(service)


def test_a_part_has_the_gpus_of_its_services_only() -> None:
    plan = ServicePlan("gpuloom", "V100", 3, 9.0, None, (replica("a", 0), replica("b", 1), replica("a", 2, 1)))
    part, gpus = part_of(plan, "V100", frozenset("a"))
    assert gpus == [0, 2]
    assert [(resident.service, resident.grant.gpu) for resident in part.replicas] == [("a", 0), ("a", 1)]
    assert part_of(plan, "T4", frozenset("a")) == (ServicePlan("gpuloom", "T4", 0, 0.0, None, ()), [])


def test_a_single_part_keeps_what_it_proved() -> None:
    plan = ServicePlan("gpuloom", "V100", 1, 3.0, 1, (replica("a", 0),))
    assert joined([plan]) == plan
    nobody = ServicePlan("gpuloom", "T4", 0, 0.0, 0, (), (Unplaced("b", "too fast"),))
    assert joined([plan, nobody]).lower_bound_gpus is None
    assert joined([nobody]) == nobody


def test_moving_changes_the_gpu_only() -> None:
    resident = replica("a", 0, mem_mib=5)
    assert moved(resident, 7) == replace(resident, grant=resident.grant._replace(gpu=7))


@given(p99_ms=st.lists(st.floats(0.1, 50.0), min_size=1, max_size=6), slo_ms=st.floats(0.1, 50.0))
def test_late_is_above_the_promise(p99_ms: list[float], slo_ms: float) -> None:
    replicas = tuple(replica("a", 0, number, p99_ms=p99) for number, p99 in enumerate(p99_ms))
    plan = ServicePlan("gpuloom", "V100", 1, 3.0, None, replicas)
    late = plan.late({"a": slo_ms})
    assert [resident.predicted_p99_ms for resident in late] == [p99 for p99 in p99_ms if p99 > slo_ms]
    assert plan.late({"a": 100.0}) == ()


@pytest.mark.parametrize(
    ("mem_mib", "over"), [((None, None), 0), ((8000, 8000), 0), ((8000, 8400), 1), ((20_000, None), 1)]
)
def test_gpus_over_memory(mem_mib: tuple[int | None, int | None], over: int) -> None:
    """Of a V100 with 16 GiB; the second GPU has nobody who states any."""
    first, second = mem_mib
    replicas = (replica("a", 0, 0, first), replica("b", 0, 0, second), replica("c", 1))
    assert ServicePlan("ffd", "V100", 2, 6.0, None, replicas).gpus_over_memory == over


def test_memory_is_that_of_each_gpus_type() -> None:
    replicas = tuple(replica(name, gpu, mem_mib=15_900) for gpu, name in enumerate("ab"))
    mixed = ServicePlan("gpuloom", "V100+T4", 2, 4.0, None, replicas, types=("V100", "T4"))
    assert mixed.gpus_over_memory == 1
