"""The one kind of share. Whole GPUs, MIG slices, MPS shares and shares inside a slice are all grants."""

from typing import NamedTuple

from gpuloom.gpus.model import Instance

MOST_SHARERS = 48
"""Processes that can share one device: what one MPS server can serve."""
Device = tuple[int, Instance | None]
"""What a process sees as a device: a GPU by its index, whole or one instance of it."""


class Grant(NamedTuple):
    """The right to use a part of one device; a job on several GPUs holds several. A tuple for Instance's reason."""

    gpu: int
    instance: Instance | None = None
    """None: the whole, uncut GPU."""
    share_pct: float = 100.0
    """Percentage of the device's SMs (the MPS thread percentage); 100 is the device for oneself."""
    mem_mib: int | None = None
    batch: int | None = None
    """Samples a step on this device; None leaves it to the job."""

    @property
    def device(self) -> Device:
        return (self.gpu, self.instance)

    def __str__(self) -> str:
        place = f"gpu{self.gpu}" if self.instance is None else f"gpu{self.gpu}/{self.instance}"
        return place if self.share_pct >= 100 else f"{place}:{self.share_pct:g}%"


Grants = tuple[Grant, ...]
