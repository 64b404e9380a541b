"""What gpuloom can do on this host, what keeps it from the rest, and which limits are real here.

It only looks. A limit is enforced where the hardware or the driver holds it against a process that does not cooperate,
and advisory where a process could simply ignore it.
"""

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from gpuloom.gpus.host.around import told
from gpuloom.gpus.host.around.holders import holders, way_to_reset
from gpuloom.gpus.host.around.modes import Modes, Virtual, modes_of
from gpuloom.gpus.host.cgroups import NoCgroups
from gpuloom.gpus.host.cutter import Cutter
from gpuloom.gpus.host.dcgm.engine import NoEngine, find_engine
from gpuloom.gpus.host.homes import find_home, leave_home
from gpuloom.gpus.host.mps.daemon import available, running
from gpuloom.gpus.host.noise import Noise
from gpuloom.gpus.host.nvml import Host, HostGpu, NoDriver, ask, discover, opened
from gpuloom.gpus.host.ownership import state_dir

CAP_SYS_ADMIN = 21
MIG_CONFIG = Path("/dev/nvidia-caps/nvidia-cap1")
"""The device that lets a user who is not root create instances, where an administrator has opened it."""

FIRST_WITH_MEMORY_LIMIT = 495
"""The driver branch that came with CUDA 11.5."""

ENOUGH_MIB = 64
"""Of free space in the state folder: what is kept there is small, but a record that cannot be written stops a cut."""

Row = dict[str, object]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    can_cut: bool
    can_share: bool
    checks: list[Row]
    """What was looked at, whether it is as it should be, and what was seen."""
    sharing: list[Row]
    """What stands behind each kind of share here."""
    noise: dict[str, Noise] = field(default_factory=dict)
    """Of CPU devices, how steady each is."""


def examine() -> Diagnosis:
    """This host, as it is now. Nothing is changed."""
    host, tool = discover(), available()
    modes, permission, folder = _modes(host), _may_cut(host), state_folder_row()
    ours = _verdicts(host, modes, may_switch=permission["detail"] == MAY_ALL)
    return Diagnosis(
        can_cut=permission["state"] == folder["state"] == "ok" and None in ours.values(),
        can_share=bool(host.gpus) and tool is not None,
        checks=[
            _driver(host),
            *_gpus(host, ours),
            *(row(f"GPU {gpu} modes", *told.of_modes(gpu, found)) for gpu, found in modes.items()),
            row("holders", *told.of_holders()),
            row("other managers", *told.of_managers()),
            permission,
            folder,
            _mps(tool),
            cgroups_row(),
            _dcgm(),
        ],
        sharing=_sharing(host, tool is not None),
    )


def row(check: str, state: str, detail: str) -> Row:
    return {"check": check, "state": state, "detail": detail}


def _driver(host: Host) -> Row:
    if host.reason is not None:
        return row("driver", "no", host.reason)
    count = len(host.gpus)
    return row("driver", "ok", f"NVIDIA {host.driver or 'of unknown version'}, {count} GPU{'s' if count > 1 else ''}")


def _modes(host: Host) -> dict[int, Modes]:
    """Of each GPU that answers."""
    found: dict[int, Modes] = {}
    if host.gpus:
        try:
            with opened() as nvml:
                for gpu in host.gpus:
                    handle = ask(nvml, nvml.nvmlDeviceGetHandleByIndex, gpu.index)
                    found |= {} if handle is None else {gpu.index: modes_of(nvml, handle)}
        except NoDriver:  # it was there a moment ago
            pass
    return found


def _verdicts(host: Host, modes: dict[int, Modes], may_switch: bool) -> dict[int, str | None]:
    """For each GPU why it could not be cut; None if it could."""
    if not host.gpus:
        return {}
    try:
        with Cutter() as cutter:
            managed = {gpu.index: cutter.managed(gpu.index) for gpu in host.gpus}
    except NoDriver as reason:  # it was there a moment ago
        return {gpu.index: str(reason) for gpu in host.gpus}
    return {gpu.index: managed[gpu.index] or _off(gpu, modes.get(gpu.index), may_switch) for gpu in host.gpus}


def _off(gpu: HostGpu, modes: Modes | None, may_switch: bool) -> str | None:
    """Why its MIG mode keeps it from being cut, if so. Whether a switch needs a reset is told only when it is tried."""
    if gpu.mig_current:
        return None
    if not may_switch:
        return "MIG is off, and this user may not switch it on"
    if not gpu.mig_pending:
        return None
    persistent, virtual = bool(modes and modes.persistent), modes is not None and modes.virtual == Virtual.GIVEN_THE_GPU
    return (
        f"its MIG mode waits for a reset: {way_to_reset(gpu.index, holders(), persistent=persistent, virtual=virtual)}"
    )


def _gpus(host: Host, ours: dict[int, str | None]) -> list[Row]:
    rows = []
    for gpu in host.gpus:
        if gpu.uuid is None:
            rows.append(
                row(f"GPU {gpu.index}", "no", f"does not answer: {ours[gpu.index] or 'it is lost, or hidden from us'}")
            )
            continue
        mode = "no MIG" if gpu.mig_current is None else f"MIG {'on' if gpu.mig_current else 'off'}"
        if gpu.mig_current != gpu.mig_pending:
            mode += f", {'on' if gpu.mig_pending else 'off'} after the next reset"
        if gpu.instances:
            mode += f" ({', '.join(map(str, gpu.instances))})"
        if gpu.model is None:
            mode += ", not in the catalogue"
        reason = ours[gpu.index]
        verdict = "can be cut" if reason is None else f"not to be cut: {reason}"
        state = "ok" if reason is None else "no"
        rows.append(row(f"GPU {gpu.index}", state, f"{gpu.name or 'of unknown name'}: {mode}; {verdict}"))
    return rows


def _may_cut(host: Host) -> Row:
    if not host.gpus:
        return row("permission", "-", "without a driver that shows a GPU nobody can tell what this user may do")
    return _permission(os.geteuid(), _has_sys_admin(), os.access(MIG_CONFIG, os.R_OK))


MAY_ALL = "root: may switch MIG mode and cut"


def _permission(uid: int, sys_admin: bool, mig_config: bool) -> Row:
    if uid == 0 and sys_admin:
        return row("permission", "ok", MAY_ALL)
    if uid == 0:
        return row("permission", "no", "root without CAP_SYS_ADMIN (in a container?): the driver will not let it cut")
    if mig_config:
        return row("permission", "ok", f"user {uid} may cut ({MIG_CONFIG} is open), but not switch MIG mode")
    return row("permission", "no", f"user {uid} may only look: cutting needs root")


def _has_sys_admin() -> bool:
    try:
        status = Path("/proc/self/status").read_text(encoding="utf-8")
    except OSError:
        return False
    effective = next((line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")), "0")
    return bool(int(effective, 16) >> CAP_SYS_ADMIN & 1)


def state_folder_row() -> Row:
    folder = state_dir()
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if not os.access(existing, os.W_OK | os.X_OK):
        return row("state folder", "no", f"{folder} cannot be written; set GPULOOM_STATE_DIR to a folder that can")
    free_mib = shutil.disk_usage(existing).free // 2**20
    about = f"{folder}: remembers which GPUs gpuloom has taken, and how it found them; {free_mib:,} MiB are free there"
    return row("state folder", "ok" if free_mib >= ENOUGH_MIB else "no", about)


def _mps(tool: str | None) -> Row:
    if tool is None:
        return row("MPS", "no", "nvidia-cuda-mps-control is not in the PATH, so shares of a device are not possible")
    return row("MPS", *told.of_daemons(tool, running()))


def _dcgm() -> Row:
    """Nobody needs one: it only adds figures to `gpuloom measure`."""
    try:
        engine = find_engine()
    except NoEngine as reason:
        return row("DCGM", "-", f"{reason}; GPUs before Hopper are measured without activity counters")
    count = len(engine.gpus)
    gpus = f"{count} GPU{'' if count == 1 else 's'}"
    return row("DCGM", "ok", f"the host engine at {engine.address} answers and knows {gpus}: it counts activity there")


def cgroups_row() -> Row:
    """Makes a home for launches and removes it again: whether that works cannot be seen otherwise."""
    try:
        home = find_home(f"doctor-{os.getpid()}")
    except NoCgroups as reason:
        without = "a job whose keeper is killed cannot be run again, and limits for jobs are refused"
        return row("cgroups", "no", f"{reason}; without them {without}")
    limits = ", ".join(sorted(home.limitable())) or "none"
    leave_home(home)
    return row("cgroups", "ok", f"launches live below {home.unified.parent}; limits that can be set: {limits}")


def _sharing(host: Host, mps: bool) -> list[Row]:
    """What stands behind each kind of share here: nothing is promised that only the process's good will keeps."""
    able = any(gpu.mig_current is not None for gpu in host.gpus)
    return [
        share(
            "MIG slice: SMs and memory",
            "enforced" if able else "not here",
            "the hardware: memory, caches and SMs are apart" if able else "no GPU of this host has MIG",
        ),
        share(
            "MPS share of SMs",
            "enforced for MPS clients" if mps and host.gpus else "not here",
            "the MPS server, as an upper bound; caches and bandwidth are shared, and a process that is started without "
            "the pipe directory is not bound",
        ),
        share(
            "MPS memory limit",
            "enforced for MPS clients" if mps and _major(host.driver) >= FIRST_WITH_MEMORY_LIMIT else "not here",
            f"the MPS server, from driver R{FIRST_WITH_MEMORY_LIMIT} on",
        ),
        share(
            "whole GPU or slice of a job",
            "advisory" if host.gpus else "not here",
            "CUDA_VISIBLE_DEVICES: a process can change it, unless a container or cgroup hides the other devices",
        ),
    ]


def _major(driver: str | None) -> int:
    digits = (driver or "").partition(".")[0]
    return int(digits) if digits.isascii() and digits.isdigit() else 0


def share(share: str, here: str, by: str) -> Row:
    return {"share": share, "here": here, "by": by}
