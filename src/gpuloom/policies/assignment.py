"""Which job on which slice of one GPU: the best assignment, by a table small enough that no case is skipped."""

from collections.abc import Mapping, Sequence

Costs = Mapping[str, float]
"""What a job costs on each profile; a profile that is absent is not for it."""


def best_assignment(jobs: Sequence[Costs], profiles: Sequence[str]) -> tuple[float, tuple[str, ...]] | None:
    """One slice for each job with the smallest sum of costs, or None if somebody fits nowhere.

    Equal slices are interchangeable, so the table has a row for each multiset that is left over: a few dozen at most,
    against 5,040 orders of seven jobs.
    """
    names = sorted(set(profiles))
    table: dict[tuple[int, ...], tuple[float, tuple[str, ...]]] = {tuple(map(profiles.count, names)): (0.0, ())}
    for costs in jobs:
        after: dict[tuple[int, ...], tuple[float, tuple[str, ...]]] = {}
        for left, (total, chosen) in table.items():
            for at, name in enumerate(names):
                if left[at] and name in costs:
                    key = (*left[:at], left[at] - 1, *left[at + 1 :])
                    cost = total + costs[name]
                    if key not in after or cost < after[key][0]:
                        after[key] = (cost, (*chosen, name))
        table = after
    return min(table.values(), default=None)
