"""The nouns of a GPU: model, profile, instance, layout. Their rules live in `layouts`, the figures in `catalogue`."""

from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Profile:
    """A size in which a GPU model can be cut, in NVIDIA's spelling (`3g.20gb`)."""

    name: str
    nvml_id: int
    slices: int
    """Compute slices: the 3 of 3g."""
    size: int
    """Memory units an instance occupies, from its start."""
    starts: tuple[int, ...]
    """The memory units at which an instance may start."""
    mem_mib: int
    sms: int
    limit: int
    """How many instances of this profile one GPU can hold at once."""


@dataclass(frozen=True, slots=True)
class GpuModel:
    """A GPU as sold. Without MIG, `units` is 0 and `profiles` is empty."""

    name: str
    mem_mib: int
    sms: int
    units: int = 0
    """Memory units that instances are placed on (8 on an A100)."""
    profiles: tuple[Profile, ...] = ()
    by_name: dict[str, Profile] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_name", {profile.name: profile for profile in self.profiles})

    @property
    def mig(self) -> bool:
        return bool(self.profiles)

    @property
    def noun(self) -> str:
        """What sentences call one: a part of a CPU's time (`host/cpu.py`) is no GPU."""
        return "device" if self.name.startswith("CPU-") else "GPU"


class Instance(NamedTuple):
    """One slice of a GPU: a profile at an exact placement. A tuple, because policies hash and compare millions."""

    start: int
    profile: str

    def __str__(self) -> str:
        return f"{self.profile}@{self.start}"


Layout = tuple[Instance, ...]
"""How a GPU is cut: its instances in order of start. `()` is an uncut GPU, used whole."""
