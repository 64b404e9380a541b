"""The best cut of one GPU for given jobs: every maximal layout with a slice for each, and what moving would cost.

Everything is counted in seconds of a whole GPU that are lost over a horizon: a job at speed s loses (1 - s) of it, and
a job that has to move loses what the move takes.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from gpuloom.gpus import layouts
from gpuloom.gpus.model import GpuModel


class Seat(NamedTuple):
    """A job as a cut sees it; equal seats are interchangeable."""

    speeds: tuple[tuple[str, float], ...]
    """By profile, those with enough memory only."""
    now: str
    """The profile it has for itself on this GPU; empty if it comes from elsewhere."""
    weight: float
    move_s: float


class Cut(NamedTuple):
    lost_s: float
    profiles: tuple[str, ...]
    """One for each job, in order."""


@lru_cache
def cuts_of(model: GpuModel) -> dict[int, tuple[tuple[str, ...], ...]]:
    """Multisets of profiles by number of slices, of all maximal layouts."""
    found: dict[int, dict[tuple[str, ...], None]] = {}
    for layout in layouts.maximal(model):
        found.setdefault(len(layout), {})[tuple(sorted(instance.profile for instance in layout))] = None
    return {count: tuple(cuts) for count, cuts in found.items()}


def best_cuts(model: GpuModel, seats: Sequence[Seat], horizon_s: float) -> list[Cut]:
    """The best assignment for each multiset that has room for all, the best first."""
    losses = [{name: _lost_s(seat, name, speed, horizon_s) for name, speed in seat.speeds} for seat in seats]
    found = [cut for profiles in cuts_of(model).get(len(seats), ()) if (cut := _assign(losses, profiles)) is not None]
    return sorted(found)


def _lost_s(seat: Seat, name: str, speed: float, horizon_s: float) -> float:
    moved = seat.now not in ("", name)
    return seat.weight * (horizon_s * (1 - speed) + (seat.move_s * speed if moved else 0.0))


def _assign(losses: Sequence[dict[str, float]], profiles: tuple[str, ...]) -> Cut | None:
    """The smallest total loss with one slice for each job; a table over what is left of each kind of slice."""
    names = sorted(set(profiles))
    table: dict[tuple[int, ...], tuple[float, tuple[str, ...]]] = {tuple(map(profiles.count, names)): (0.0, ())}
    for options in losses:
        after: dict[tuple[int, ...], tuple[float, tuple[str, ...]]] = {}
        for left, (lost_s, chosen) in table.items():
            for at, name in enumerate(names):
                if left[at] and name in options:
                    key = (*left[:at], left[at] - 1, *left[at + 1 :])
                    total_s = lost_s + options[name]
                    if key not in after or total_s < after[key][0]:
                        after[key] = (total_s, (*chosen, name))
        table = after
    return Cut(*min(table.values())) if table else None
