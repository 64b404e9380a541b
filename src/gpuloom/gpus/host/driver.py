"""What `cutter` needs of whoever cuts: NVML for GPUs (`mig`), the kernel for CPU devices (`cpu_driver`).

Devices are numbered from 0. StepFailed if something cannot be seen or changed; nothing is tried twice here.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from gpuloom.gpus.host.mig_read import GpuState, Part
from gpuloom.gpus.model import GpuModel, Instance


class Driver(Protocol):
    @property
    def mends_in_place(self) -> bool:
        """Whether `mend` disturbs nobody who works on the instance."""

    def count(self) -> int: ...
    def uuid(self, gpu: int) -> str: ...
    def look(self, gpu: int, model: GpuModel | None = None) -> GpuState:
        """As it is now. `model` saves asking again what it can be cut into: that does not change."""

    def why_not_ours(self, gpu: int) -> str | None:
        """Who else has it, in a sentence; None if nobody has."""

    def reserve(self, gpu: int) -> str | None:
        """It is about to be ours: note what others have to know of it; why it cannot be, if so."""

    def release(self, gpu: int) -> None:
        """It is no longer ours."""

    def set_mode(self, state: GpuState, on: bool) -> None:
        """Whether it can be cut (on), or used whole. Twice is fine."""

    def create(self, state: GpuState, instance: Instance) -> None: ...
    def mend(self, state: GpuState, part: Part) -> None:
        """Make a half-made instance usable."""

    def destroy(self, state: GpuState, part: Part) -> None: ...


OpenDriver = Callable[[], AbstractContextManager[Driver]]
"""Opens one; NoDriver if there is none."""
