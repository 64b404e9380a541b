"""In which modes a GPU is that others have set, as far as they decide what can be done with it."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from gpuloom.gpus.host.nvml import ask


class ComputeMode(IntEnum):
    """How many processes may compute on it. NVML's numbers."""

    DEFAULT = 0
    EXCLUSIVE_THREAD = 1
    PROHIBITED = 2
    EXCLUSIVE_PROCESS = 3


class Virtual(IntEnum):
    """Where this machine stands between the GPU and others. NVML's numbers."""

    NO = 0
    GIVEN_THE_GPU = 1
    VGPU_GUEST = 2
    VGPU_HOST = 3
    VSGA_HOST = 4


@dataclass(frozen=True, slots=True)
class Modes:
    """None: not told."""

    persistent: bool | None
    """The driver keeps the GPU ready while nobody uses it."""
    compute: int | None
    virtual: int | None


def modes_of(nvml: Any, handle: Any) -> Modes:
    persistent = ask(nvml, nvml.nvmlDeviceGetPersistenceMode, handle)
    return Modes(
        None if persistent is None else bool(persistent),
        ask(nvml, nvml.nvmlDeviceGetComputeMode, handle),
        ask(nvml, nvml.nvmlDeviceGetVirtualizationMode, handle),
    )
