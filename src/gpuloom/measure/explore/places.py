"""Where a copy can be: every base profile of a device, the whole device, and shares of it. Pure nouns.

A place is compared with the places of other devices by its part of the whole alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gpuloom.gpus.catalogue import base_profiles
from gpuloom.gpus.layouts import total_slices
from gpuloom.gpus.model import GpuModel
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
    total = total_slices(model)
    profiles = sorted(base_profiles(model), key=lambda profile: (profile.slices, profile.size))
    return tuple(
        Place(profile.name, profile.slices / total, float(profile.mem_mib), profile.limit, profile.name)
        for profile in profiles
    )


def shares_of(model: GpuModel, shares_pct: Sequence[float]) -> tuple[Place, ...]:
    """Shares of the uncut device, small ones first. All of its memory is there for everybody who shares it."""
    return tuple(
        Place(Seat("", None, pct).place, pct / 100, float(model.mem_mib), max(int(100.01 // pct), 1), None, pct)
        for pct in sorted(shares_pct)
    )
