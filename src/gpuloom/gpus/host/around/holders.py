"""Who has the GPUs' device files open: nobody can reset a GPU meanwhile, the driver itself included.

Not who computes there, which NVML tells: monitors, the persistence daemon and this very process hold them as well.
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gpuloom.gpus.host.around.root import host_root
from gpuloom.gpus.host.processes import text_of

_DEVICE = re.compile(r"/dev/nvidia([0-9]+|ctl|-uvm|-modeset)( \(deleted\))?")
_KERNEL_KEEPS = 15
PERSISTENCED, HOST_ENGINE, DRM = "nvidia-persistenced", "nv-hostengine", "nvidia_drm"


@dataclass(frozen=True, slots=True)
class Holder:
    name: str
    pid: int | None = None
    """None: it is a part of the kernel."""
    ours: bool = False
    """It is this process, which lets go when it ends."""

    def __str__(self) -> str:
        if self.pid is None:
            return f"the kernel's {self.name}"
        who = "DCGM's nv-hostengine" if self.name == HOST_ENGINE else self.name
        return f"{who} (process {self.pid})"


def holders(root: Path | None = None) -> tuple[Holder, ...]:
    """All that we may look at: only root sees those of others. Processes in order, then the kernel."""
    root = root or host_root()
    found = sorted(_processes(root), key=lambda holder: holder.pid or 0)
    module = root / "sys/module" / DRM
    if text_of(module / "parameters/modeset").strip() == "Y" or text_of(module / "refcnt").strip() not in ("", "0"):
        found.append(Holder(DRM))
    return tuple(found)


def _processes(root: Path) -> Iterator[Holder]:
    for folder in root.glob("proc/[0-9]*"):
        with suppress(OSError):
            if any(map(_holds, (folder / "fd").iterdir())):
                name = text_of(folder / "comm").strip()
                whole = PERSISTENCED if name == PERSISTENCED[:_KERNEL_KEEPS] else name
                yield Holder(whole or "a process", int(folder.name), int(folder.name) == os.getpid())


def _holds(file: Path) -> bool:
    try:
        return _DEVICE.fullmatch(str(file.readlink())) is not None
    except OSError:
        return False


def others(found: tuple[Holder, ...]) -> tuple[Holder, ...]:
    return tuple(holder for holder in found if not holder.ours)


def way_to_reset(gpu: int, found: tuple[Holder, ...], *, persistent: bool, virtual: bool) -> str:
    """What somebody has to do so that a GPU is reset, as an order. `persistent`: it is in persistence mode; `virtual`:
    this is a virtual machine that was given the GPU, and cannot reset it.
    """
    if virtual:
        return "restart this virtual machine, which cannot reset the GPU that it was given"
    steps = [f"run `nvidia-smi -i {gpu} -pm 0`"] if persistent else []
    steps += [_stop(holder) for holder in others(found) if holder.name != PERSISTENCED or not persistent]
    return ", then ".join([*steps, f"run `nvidia-smi --gpu-reset -i {gpu}`"])


def _stop(holder: Holder) -> str:
    if holder.name == PERSISTENCED:
        return f"run `systemctl stop {PERSISTENCED}`"
    if holder.name == HOST_ENGINE:
        return f"stop {holder} with `systemctl stop nvidia-dcgm`"
    if holder.pid is None:
        return f"run `modprobe -r {holder.name}`"
    return f"stop {holder}"
