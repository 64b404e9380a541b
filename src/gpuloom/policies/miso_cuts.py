"""The best cut of one GPU for given jobs: every maximal layout with a slice for each, and what moving would cost.

Everything is counted in seconds of a whole GPU that are lost over a horizon: a job at speed s loses (1 - s) of it, and
a job that has to move loses what the move takes.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from gpuloom.gpus import layouts
from gpuloom.gpus.model import GpuModel
from gpuloom.policies.assignment import best_assignment


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
    found = [best_assignment(losses, profiles) for profiles in cuts_of(model).get(len(seats), ())]
    return sorted(Cut(*best) for best in found if best is not None)


def _lost_s(seat: Seat, name: str, speed: float, horizon_s: float) -> float:
    moved = seat.now not in ("", name)
    return seat.weight * (horizon_s * (1 - speed) + (seat.move_s * speed if moved else 0.0))
