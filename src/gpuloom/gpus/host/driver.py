"""What lies between `cutter` and whoever cuts: NVML for GPUs (`mig`), the kernel for CPU devices (`cpu_driver`).

Devices are numbered from 0. StepFailed if something cannot be seen or changed; a driver tries nothing twice.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gpuloom.gpus.host.health import Health
from gpuloom.gpus.host.nvml import Code
from gpuloom.gpus.model import GpuModel, Instance, Layout


class StepFailed(Exception):  # noqa: N818 (a cut that fails is an answer, not a fault of the program)
    """One change did not happen; the text says which and why."""

    def __init__(self, reason: str, code: int | None = None, remedy: str | None = None) -> None:
        super().__init__(reason)
        self.code = code
        self.remedy = remedy
        """What somebody has to do before it can work, as an order; None: nothing that is known."""

    @property
    def worth_repeating(self) -> bool:
        """Whether the same could succeed a moment later with nothing else changed. In doubt it could."""
        return self.code not in (Code.NO_PERMISSION, Code.GPU_IS_LOST, Code.RESET_REQUIRED, Code.NOT_SUPPORTED)


@dataclass(frozen=True, slots=True)
class Part:
    """A GPU instance that exists."""

    gi_id: int
    instance: Instance
    uuid: str | None
    """Of its MIG device; None if no compute instance spans it, so that nobody can use it as what it is."""


@dataclass(frozen=True, slots=True)
class Process:
    pid: int
    name: str | None
    instance: Instance | None
    """Where it runs; None: on the whole GPU."""

    def __str__(self) -> str:
        return f"process {self.pid}" + ("" if self.name is None else f" ({self.name})")


@dataclass(frozen=True, slots=True)
class GpuState:
    index: int
    uuid: str
    product: str
    model: GpuModel
    """As the driver describes it. Without MIG: no profiles."""
    mig: bool
    mig_pending: bool
    parts: tuple[Part, ...]
    """In order of start."""
    processes: tuple[Process, ...]
    told: bool = True
    """Whether `model` is the driver's own word. Before NVML 12.4 it gives that only while MIG is on: until then it is
    the catalogue's, or without profiles if that does not know the board."""
    board: str | None = None
    """The PCI ids of its board and subsystem, as mig-parted writes them; None if there are none, or not told."""

    @property
    def layout(self) -> Layout:
        """The instances that can be used."""
        return tuple(part.instance for part in self.parts if part.uuid is not None)

    @property
    def occupied(self) -> Layout:
        """Every instance that takes up room, half-made ones included."""
        return tuple(part.instance for part in self.parts)

    @property
    def uuids(self) -> dict[Instance, str]:
        return {part.instance: part.uuid for part in self.parts if part.uuid is not None}

    @property
    def busy(self) -> frozenset[Instance]:
        return frozenset(process.instance for process in self.processes if process.instance is not None)


def process_name(pid: int) -> str | None:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip() or None
    except OSError:
        return None


class Driver(Protocol):
    @property
    def mends_in_place(self) -> bool:
        """Whether `mend` disturbs nobody who works on the instance."""

    @property
    def lingers(self) -> bool:
        """Whether it says "in use" for a while after whoever used it has gone."""

    def awake(self) -> AbstractContextManager[object]:
        """For several questions and changes in a row; alone, each holds the devices only while it is answered."""

    def count(self) -> int: ...
    def uuid(self, gpu: int) -> str: ...
    def look(self, gpu: int, model: GpuModel | None = None) -> GpuState:
        """As it is now. `model` saves asking again what it can be cut into: that does not change."""

    def health(self, gpu: int) -> Health:
        """What it says of itself; StepFailed if it does not answer."""

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
