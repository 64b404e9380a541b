"""How busy a device was: what is told of it, whoever counts. `gpm` and `dcgm` count."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from statistics import fmean
from typing import Protocol

from gpuloom.measure.steps import Window


@dataclass(frozen=True, slots=True)
class Activity:
    """Parts of the time, 0 to 1, as `results.Copy` has them."""

    gract: float | None = None
    smact: float | None = None
    smocc: float | None = None
    drama: float | None = None


NAMES = tuple(field.name for field in fields(Activity))


class Counter(Protocol):
    """Of one device, while one run lasts."""

    def look(self, now_s: float) -> None: ...

    def figures(self, within: Window | None) -> Activity:
        """Of that time; also after it was closed."""

    def close(self) -> None:
        """Let go of the device. Twice is fine."""


def mean_of(samples: Iterable[Mapping[str, float]]) -> Activity:
    """Of each counter by itself: not every sample has every one."""
    samples = list(samples)
    found = {name: [sample[name] for sample in samples if name in sample] for name in NAMES}
    return Activity(**{name: fmean(values) if values else None for name, values in found.items()})
