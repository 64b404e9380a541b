"""How a device is divided for one run, and who sits where: pure nouns, and how they are written."""

from dataclasses import dataclass
from enum import StrEnum


class Way(StrEnum):
    """How copies are kept apart."""

    WHOLE = "whole"
    """One copy has the whole, uncut device."""
    CUT = "cut"
    """Each has an instance of its own."""
    SHARED = "shared"
    """Each has a share of the uncut device: of its SMs, under MPS; of its time, on a CPU device."""
    TOGETHER = "together"
    """All on the uncut device, and nothing between them."""


@dataclass(frozen=True, slots=True, order=True)
class Seat:
    """What one copy has."""

    workload: str
    profile: str | None = None
    """Of its instance, in NVIDIA's spelling; None: the uncut device."""
    share_pct: float = 100.0

    @property
    def place(self) -> str:
        """`3g.20gb`, `whole`, `whole 30%`."""
        where = self.profile or "whole"
        return where if self.share_pct >= 100 else f"{where} {self.share_pct:g}%"


@dataclass(frozen=True, slots=True)
class Arrangement:
    """All copies that run at the same time on one device, in the order of their seats."""

    way: Way
    seats: tuple[Seat, ...]

    @property
    def alone(self) -> bool:
        return len(self.seats) == 1

    @property
    def name(self) -> str:
        """`1g.5gb`, `7 x 1g.5gb`, `2 x whole 50%`, `3 x whole together`; of several workloads also whose each is."""
        several = len({seat.workload for seat in self.seats}) > 1
        texts = [f"{seat.place} ({seat.workload})" if several else seat.place for seat in self.seats]
        counted = {text: texts.count(text) for text in texts}
        parts = [text if count == 1 else f"{count} x {text}" for text, count in counted.items()]
        return " + ".join(parts) + (" together" if self.way is Way.TOGETHER else "")
