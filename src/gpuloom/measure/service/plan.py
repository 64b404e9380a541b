"""What there is to measure of models that are served: alone on shares and slices, and beside each other. Pure.

The same campaign carries it out as for commands, so all is layouts: a run starts the servers of one of them, and asks
them at one batch after the other (`batches_of`), because to start a server costs more than to ask it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement, product

from gpuloom.measure.arrangement import Arrangement
from gpuloom.measure.plan import Bounds, Plan, Repeats, Workload

SHARES_PCT = (25.0, 50.0, 75.0, 100.0)
BATCHES = (1, 2, 4, 8)
PROCESSES = (1,)
BOUNDS = Bounds(steps=200, seconds=4.0)
REPEATS = Repeats(least=2, most=4, within_pct=5.0)


@dataclass(frozen=True, slots=True)
class Grid:
    """Where models are asked."""

    shares_pct: tuple[float, ...] = SHARES_PCT
    """Of the whole device. None at all: only slices."""
    pairs: bool = True
    """Also beside each other, two at a time."""
    profiles: tuple[str, ...] = ()
    """Slices."""
    processes: tuple[int, ...] = PROCESSES
    """So many servers of a model share a slice."""


def service_plan(
    models: Sequence[Workload], grid: Grid, bounds: Bounds, repeats: Repeats, seed: int, budget_s: float | None
) -> Plan:
    names = [model.name for model in models]
    alone = [f"{_place(share)} ({name})" for name in names for share in grid.shares_pct]
    beside = [
        f"{_place(share)} ({one}) + {_place(100 - share)} ({other})"
        for one, other in combinations_with_replacement(names, 2)
        for share in _splits(grid.shares_pct)
        if grid.pairs and (one != other or share >= 50)
    ]
    sliced = [
        f"{profile} ({name})" if count == 1 else f"{count} x {profile} {100 / count:.10g}% ({name})"
        for name in names
        for profile in grid.profiles
        for count in grid.processes
    ]
    layouts = (*alone, *beside, *sliced)
    return Plan(tuple(models), (), None, None, None, layouts, bounds, repeats, seed, budget_s)


def _place(share_pct: float) -> str:
    return "whole" if share_pct >= 100 else f"whole {share_pct:g}%"


def _splits(shares_pct: Sequence[float]) -> list[float]:
    """Shares that somebody has while the other has the rest; at least equal ones."""
    inside = {share for share in shares_pct if share < 100}
    return sorted({share for share in inside if any(abs(100 - share - other) < 1e-6 for other in inside)} or {50.0})


def batches_of(arrangement: Arrangement, models: Mapping[str, Workload]) -> list[tuple[int, ...]]:
    """For each time that the servers of a run are asked, the batch of each: rising, what may lack memory comes last.

    Alone, and on a slice, each of their batches, the same for all who share it; beside others the smallest and the
    largest of each, in all combinations (of many: all their smallest, all their largest).
    """
    of = [_served(models, seat.workload) for seat in arrangement.seats]
    if len(of) == 1 or arrangement.seats[0].profile is not None:
        common = [batch for batch in of[0] if all(batch in each for each in of)]
        return [(batch,) * len(of) for batch in common]
    corners = [(batches[0], batches[-1]) for batches in of]
    if len(of) > 2:
        return sorted({tuple(corner[0] for corner in corners), tuple(corner[-1] for corner in corners)})
    found = {*product(*corners)}
    if arrangement.seats[0] == arrangement.seats[1]:  # who is who makes no difference then
        found = {(min(pair), max(pair)) for pair in found}
    return sorted(found, key=lambda pair: (sum(pair), pair))


def _served(models: Mapping[str, Workload], name: str) -> tuple[int, ...]:
    served = models[name].served
    assert served is not None
    return served.batches
