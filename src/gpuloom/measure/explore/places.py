"""Where a copy can be: every base profile of a device, the whole device, and shares of it. Pure nouns.

A place is compared with the places of other devices by its part of the whole alone.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpuloom.gpus.catalogue import base_profiles
from gpuloom.gpus.layouts import total_slices
from gpuloom.gpus.model import GpuModel, Profile
from gpuloom.measure.arrangement import Seat


@dataclass(frozen=True, slots=True)
class Place:
    name: str
    """As `Seat.place` writes it."""
    part: float
    """Of the device's compute, 0 to 1."""
    mem_mib: float
    """That a copy can have there."""
    most: int
    """Copies that fit on the device at once, each in such a place."""
    profile: str | None = None
    """None: the uncut device, or a share of it."""
    share_pct: float = 100.0

    @property
    def cut(self) -> bool:
        return self.profile is not None

    def seat(self, workload: str) -> Seat:
        return Seat(workload, self.profile, self.share_pct)


def slices_of(model: GpuModel) -> tuple[Place, ...]:
    """The base profiles, small ones first; none without MIG."""
    profiles = sorted(base_profiles(model), key=lambda profile: (profile.slices, profile.size))
    return tuple(_slice(profile, model) for profile in profiles)


def _slice(profile: Profile, model: GpuModel) -> Place:
    part = profile.slices / total_slices(model)
    return Place(profile.name, part, float(profile.mem_mib), profile.limit, profile.name)


def shares_of(model: GpuModel, shares_pct: Sequence[float]) -> tuple[Place, ...]:
    """Shares of the uncut device, small ones first. All of its memory is there for everybody who shares it."""
    return tuple(_share(pct, model) for pct in sorted(shares_pct))


def _share(pct: float, model: GpuModel) -> Place:
    return Place(Seat("", None, pct).place, pct / 100, float(model.mem_mib), max(int(100.01 // pct), 1), None, pct)


def places_of(seats: Iterable[Seat], model: GpuModel) -> tuple[Place, ...]:
    """Each one once, small parts first, instances before shares."""
    found = {
        _share(seat.share_pct, model) if seat.profile is None else _slice(model.by_name[seat.profile], model)
        for seat in seats
    }
    return tuple(sorted(found, key=lambda place: (not place.cut, place.part, place.mem_mib, place.name)))
