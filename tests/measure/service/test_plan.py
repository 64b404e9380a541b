"""Which servers are started together, and at which batches they are asked."""

from hypothesis import given
from hypothesis import strategies as st

from gpuloom.gpus.catalogue import MODELS
from gpuloom.measure.plan import Plan, Served, Workload, arrangements, parse
from gpuloom.measure.service.plan import BOUNDS, REPEATS, Grid, batches_of, service_plan

A100 = MODELS["A100-40GB"]


def model(name: str, *batches: int) -> Workload:
    return Workload(name, (), served=Served(f"/{name}", batches or (1, 2, 8)))


def plan(grid: Grid, *models: Workload) -> Plan:
    return service_plan(models, grid, BOUNDS, REPEATS, 0, None)


def asked(text: str, *models: Workload) -> list[tuple[int, ...]]:
    return batches_of(parse(text, [one.name for one in models], A100), {one.name: one for one in models})


def test_alone_beside_and_on_slices() -> None:
    grid = Grid((50.0, 100.0), True, ("3g.20gb",), (1, 3))
    assert plan(grid, model("a"), model("b")).layouts == (
        *("whole 50% (a)", "whole (a)", "whole 50% (b)", "whole (b)"),
        *("whole 50% (a) + whole 50% (a)", "whole 50% (a) + whole 50% (b)", "whole 50% (b) + whole 50% (b)"),
        *("3g.20gb (a)", "3 x 3g.20gb 33.33333333% (a)", "3g.20gb (b)", "3 x 3g.20gb 33.33333333% (b)"),
    )


@given(
    shares=st.sets(st.integers(1, 100).map(float), min_size=1, max_size=5),
    count=st.integers(1, 3),
    processes=st.sets(st.integers(1, 7), min_size=1),
)
def test_every_plan_can_be_carried_out_and_asks_every_pair(shares: set[float], count: int, processes: set[int]) -> None:
    models = [model(f"m{number}") for number in range(count)]
    made = plan(Grid(tuple(sorted(shares)), True, ("1g.5gb", "2g.10gb"), tuple(processes)), *models)
    found, left_out = arrangements(made, A100)
    assert not left_out
    by_name = {one.name: one for one in models}
    beside = {frozenset(seat.workload for seat in one.seats) for one in found if len(one.seats) == 2}
    assert {frozenset((one.name, other.name)) for one in models for other in models} <= beside
    for one in found:
        assert sum(seat.share_pct for seat in one.seats) <= 100 + 1e-6
        times = batches_of(one, by_name)
        assert times
        assert all(len(batches) == len(one.seats) for batches in times)


def test_batches_alone_beside_and_in_a_slice() -> None:
    a, b = model("a", 1, 2, 8), model("b", 1, 4)
    assert asked("whole 50% (a)", a, b) == [(1,), (2,), (8,)]
    assert asked("whole 50% (a) + whole 50% (b)", a, b) == [(1, 1), (1, 4), (8, 1), (8, 4)]
    assert asked("whole 50% (a) + whole 50% (a)", a, b) == [(1, 1), (1, 8), (8, 8)]
    assert asked("whole 30% (a) + whole 70% (a)", a, b) == [(1, 1), (1, 8), (8, 1), (8, 8)]
    assert asked("2 x 3g.20gb 50% (a)", a, b) == [(1, 1), (2, 2), (8, 8)]
    assert asked("3 x whole 30% (b)", a, b) == [(1, 1, 1), (4, 4, 4)]
    assert asked("whole 50% (c) + whole 50% (c)", model("c", 4)) == [(4, 4)]
