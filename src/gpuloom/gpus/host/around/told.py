"""What `gpuloom doctor` tells of what is around the GPUs: a verdict, and why; - is for what only has to be known."""

import os
import re
from pathlib import Path

from gpuloom.gpus.host.around.holders import holders, others
from gpuloom.gpus.host.around.managers import VARIABLE, managers, other_manager
from gpuloom.gpus.host.around.modes import ComputeMode, Modes, Virtual

Told = tuple[str, str]


def of_managers() -> Told:
    reason = other_manager()
    if reason is not None:
        return "no", reason
    overridden = [found.why for found in managers()]
    if overridden:
        return "-", f"overridden by {VARIABLE}: {'; '.join(overridden)}"
    return "ok", "no other manager of GPUs has left a trace"


def of_holders() -> Told:
    found = others(holders())
    limit = "" if os.geteuid() == 0 else ", as far as this user may see"
    if not found:
        return "ok", f"nobody has the GPUs' device files open{limit}"
    return "-", f"{', '.join(map(str, found))}{limit}: as long as they have the GPUs open, no GPU can be reset"


def of_modes(gpu: int, modes: Modes) -> Told:
    told = [part for part in (_virtual(modes.virtual), _compute(gpu, modes.compute), _persistence(modes)) if part]
    states = {state for state, _ in told}
    state = next((state for state in ("no", "-") if state in states), "ok")
    return state, "; ".join(detail for _, detail in told) or "not told"


def _virtual(mode: int | None) -> Told | None:
    match mode:
        case Virtual.GIVEN_THE_GPU:
            return "-", "given to this virtual machine as a whole: a reset takes a restart of the machine"
        case Virtual.VGPU_GUEST:
            return "no", "a part of a GPU, given to this virtual machine: only the host can cut it"
        case Virtual.VGPU_HOST | Virtual.VSGA_HOST:
            return "-", "this host gives parts of it to virtual machines: its vGPU manager may cut it too"
    return None


def _compute(gpu: int, mode: int | None) -> Told | None:
    match mode:
        case ComputeMode.PROHIBITED:
            return "no", f"compute mode prohibited: nothing can run there before `nvidia-smi -i {gpu} -c 0`"
        case ComputeMode.EXCLUSIVE_PROCESS | ComputeMode.EXCLUSIVE_THREAD:
            return "-", (
                "compute mode exclusive: one process at a time, so a job of several fails there; jobs that share it are"
                f" one, the MPS server; `nvidia-smi -i {gpu} -c 0` ends it"
            )
        case ComputeMode.DEFAULT:
            return "ok", "compute mode default"
    return None


def _persistence(modes: Modes) -> Told | None:
    if modes.persistent is None:
        return None
    if modes.persistent:
        return "ok", "persistence mode on"
    return "ok", "persistence mode off: the driver sets the GPU up anew for whoever comes first"


_OURS = re.compile(r"(gpu|mig)-[0-9a-f]{12}")
"""How `mps.daemon_for` calls folders."""


def of_daemons(tool: str, pipes: tuple[Path, ...]) -> Told:
    """Of MPS, where the control tool is there. `pipes`: the folders of those that run."""
    foreign = [path for path in pipes if not _OURS.fullmatch(path.parent.name)]
    ours = [path for path in pipes if path not in foreign]
    told = [f"daemons of gpuloom's run in {', '.join(map(str, ours))}"] if ours else []
    told += [f"daemons of others run in {', '.join(map(str, foreign))}: they may hold a GPU"] if foreign else []
    return "-" if foreign else "ok", f"{tool}; {'; '.join(told) or 'no daemon runs'}"
