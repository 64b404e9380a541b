"""The best cut of one GPU for given jobs: every maximal layout with a slice for each, and what moving would cost.

Everything is counted in seconds of a whole GPU that are lost over a horizon: a job at speed s loses (1 - s) of it, and
a job that has to move loses what the move takes. Cuts are remembered by the kinds of jobs, not by their names.
"""

from collections.abc import Callable, Container, Mapping
from typing import NamedTuple

from gpuloom.contract.view import Estimates
from gpuloom.gpus.model import GpuModel
from gpuloom.policies.assignment import best_assignment
from gpuloom.policies.slicing import slices_by_count

Speeds = Callable[[int, GpuModel], Estimates]
"""Of a kind of job: what it is believed to do on each profile of that GPU that is for it."""
MOST_KEPT = 50_000


class Seat(NamedTuple):
    """A job as a cut sees it; equal seats are interchangeable."""

    kind: int
    weight: float
    now: str
    """The profile it has for itself on this GPU; empty if it comes from elsewhere."""


Seats = tuple[Seat, ...]
"""Sorted, so that the same jobs are found again whatever their order."""


class Seating(NamedTuple):
    """Who gets which profile of a cut, and what that costs."""

    lost_s: float
    profiles: tuple[str, ...]
    """One for each seat, in order."""


class CutBook:
    def __init__(self, speeds: Speeds, horizon_s: float, move_s: float, *, every_layout: bool = True) -> None:
        self._speeds, self._horizon_s, self._move_s = speeds, horizon_s, move_s
        self._every_layout = every_layout
        self._seatings: dict[tuple[str, Seats], list[Seating]] = {}
        self._losses: dict[tuple[str, Seat], Mapping[str, float]] = {}

    def seatings(self, model: GpuModel, seats: Seats) -> list[Seating]:
        """The best assignment for each multiset of slices that has room for all, the best first."""
        key = (model.name, seats)
        found = self._seatings.get(key)
        if found is None:
            if len(self._seatings) > MOST_KEPT:
                self.forget()
            layouts_of_n = slices_by_count(model, self._every_layout).get(len(seats), ())
            losses = [self._losses_of(model, seat) for seat in seats] if layouts_of_n else []
            assigned = [best_assignment(losses, profiles) for profiles in layouts_of_n]
            found = self._seatings[key] = sorted(Seating(*best) for best in assigned if best is not None)
        return found

    def lost_s(self, model: GpuModel, seats: Seats) -> float | None:
        """What these jobs lose on this GPU over the horizon; None if they do not all fit."""
        if not seats:
            return 0.0
        seatings = self.seatings(model, seats)
        return seatings[0].lost_s if seatings else None

    def forget(self) -> None:
        """What follows from the losses. These are as they were when a seat was first looked at, and stay so."""
        self._seatings.clear()

    def remember(self, kinds: Container[int]) -> dict[str, dict[str, Mapping[str, float]]]:
        """The losses of seats of these kinds, by GPU model."""
        found: dict[str, dict[str, Mapping[str, float]]] = {}
        for (model, seat), losses in self._losses.items():
            if seat.kind in kinds:
                found.setdefault(model, {})[f"{seat.kind} {seat.weight!r} {seat.now}"] = losses
        return found

    def restore(self, memory: Mapping[str, Mapping[str, Mapping[str, float]]]) -> None:
        for model, seats in memory.items():
            for text, losses in seats.items():
                kind, weight, now = text.split(" ", 2)
                found = {profile: float(loss_s) for profile, loss_s in losses.items()}
                self._losses[model, Seat(int(kind), float(weight), now)] = found

    def _losses_of(self, model: GpuModel, seat: Seat) -> Mapping[str, float]:
        key = (model.name, seat)
        found = self._losses.get(key)
        if found is None:
            believed = self._speeds(seat.kind, model).items()
            found = self._losses[key] = {name: self._loss_s(seat, name, estimate.speed) for name, estimate in believed}
        return found

    def _loss_s(self, seat: Seat, name: str, speed: float) -> float:
        moved = seat.now not in ("", name)
        return seat.weight * (self._horizon_s * (1 - speed) + (self._move_s * speed if moved else 0.0))
