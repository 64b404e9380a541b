"""Where a server runs: what names its grant to it, and the control group that it has to enter, if there is one."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from gpuloom.gpus.grant import Grant
from gpuloom.gpus.host.cgroups import Group
from gpuloom.gpus.host.noise import Noise

PATIENCE_S = 1.0
"""For what was killed to go, while others are served."""


class DeviceError(Exception):
    """A device cannot be had, or not be given back; the text says why."""


class Kind(StrEnum):
    NONE = "none"
    GPU = "gpu"
    CPU = "cpu"


@dataclass(frozen=True, slots=True)
class Seat:
    """Where one server runs."""

    environment: Mapping[str, str]
    group: Group | None = None
    """That it has to enter; None: it stays where it was started."""
    oom_kills: int = 0
    """That were counted there before it came."""

    @property
    def doors(self) -> list[str]:
        return [] if self.group is None else [str(door) for door in self.group.doors()]

    def lacked_memory(self) -> bool:
        """Whether the kernel has killed one of its processes for want of memory."""
        return self.group is not None and self.group.oom_kills() > self.oom_kills

    def end(self) -> None:
        """Whoever the server has started is ended too. What stays is tried again when the device is given back."""
        if self.group is not None:
            self.group.end(PATIENCE_S)


class Devices(Protocol):
    @property
    def kind(self) -> Kind: ...
    @property
    def noise(self) -> Noise | None:
        """How steady they are, measured before anything ran there; None where nobody can tell."""

    def seat(self, grant: Grant, name: str) -> Seat:
        """For a server with this grant and name. May start an MPS daemon, and wait for it; DeviceError if it fails."""
        ...


class NoDevices:
    """A machine without a GPU: the share is told for the record only."""

    kind, noise = Kind.NONE, None

    def seat(self, grant: Grant, name: str) -> Seat:  # noqa: ARG002
        return Seat({"CUDA_VISIBLE_DEVICES": "", "GPULOOM_GRANT": str(grant)})
