"""Which job on which slice of one GPU: the best assignment, by a table small enough that no case is skipped."""

from collections.abc import Mapping, Sequence
from functools import cache

Speeds = Mapping[str, float]
"""Relative speed on each profile; a profile that is absent lacks the memory."""


def best_assignment(jobs: Sequence[Speeds], profiles: Sequence[str]) -> tuple[float, tuple[str, ...]] | None:
    """One slice for each job with the smallest sum of slowdowns, or None if somebody fits nowhere.

    As many slices as jobs. Equal slices are interchangeable, so the table has a row per multiset that is left over:
    a few dozen at most, against 5,040 orders of seven jobs.
    """
    names = sorted(set(profiles))
    counts = tuple(profiles.count(name) for name in names)

    @cache
    def best(job: int, left: tuple[int, ...]) -> tuple[float, tuple[str, ...]] | None:
        if job == len(jobs):
            return 0.0, ()
        found: tuple[float, tuple[str, ...]] | None = None
        for at, name in enumerate(names):
            speed = jobs[job].get(name)
            if not left[at] or not speed:
                continue
            rest = best(job + 1, (*left[:at], left[at] - 1, *left[at + 1 :]))
            if rest is not None and (found is None or 1 / speed + rest[0] < found[0]):
                found = (1 / speed + rest[0], (name, *rest[1]))
        return found

    return best(0, counts)
