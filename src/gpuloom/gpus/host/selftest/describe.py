"""Parts that only ask: versions, the board, what it can be cut into, with MIG off and with MIG on."""

import importlib.metadata
import platform
from ctypes import byref, c_uint
from typing import Any

from gpuloom.gpus.catalogue import guess
from gpuloom.gpus.host.nvml import as_text, profile_name
from gpuloom.gpus.host.selftest.recording import answer_or_code
from gpuloom.gpus.host.selftest.session import NotHere, Session
from gpuloom.gpus.host.selftest.transcript import Finding, Verdict
from gpuloom.gpus.model import GpuModel, Profile

SYSTEM = {
    "driver": "nvmlSystemGetDriverVersion",
    "nvml": "nvmlSystemGetNVMLVersion",
    "cuda": "nvmlSystemGetCudaDriverVersion_v2",
}
BOARD = {
    "compute_mode": "nvmlDeviceGetComputeMode",
    "persistence_mode": "nvmlDeviceGetPersistenceMode",
    "virtualization_mode": "nvmlDeviceGetVirtualizationMode",
    "mig_mode": "nvmlDeviceGetMigMode",
    "most_mig_devices": "nvmlDeviceGetMaxMigDeviceCount",
}
ASKED_ONLY = (
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetGraphicsRunningProcesses_v3",
)
"""Their answers are in the calls, and no fact of the board."""


def versions(session: Session) -> Finding:
    with session.asking() as (nvml, device):
        facts: dict[str, Any] = {"kernel": platform.release()}
        facts["nvidia_ml_py"] = importlib.metadata.version("nvidia-ml-py")
        facts |= {name: _told(nvml, question) for name, question in SYSTEM.items()}
        facts["gpus"] = _told(nvml, "nvmlDeviceGetCount")
        facts["product"] = _told(nvml, "nvmlDeviceGetName", device)
        pci, _ = answer_or_code(nvml, "nvmlDeviceGetPciInfo_v3", device)
        facts["pci_device_id"] = None if pci is None else f"0x{pci.pciDeviceId:08X}"
        memory, _ = answer_or_code(nvml, "nvmlDeviceGetMemoryInfo", device)
        facts["mem_mib"] = None if memory is None else memory.total // 2**20
        facts |= {name: _told(nvml, question, device) for name, question in BOARD.items()}
        for question in ASKED_ONLY:
            answer_or_code(nvml, question, device)
    facts["model"] = None if (model := guess(str(facts["product"]))) is None else model.name
    detail = f"{facts['product']}, driver {facts['driver']}"
    if model is None:
        return Finding(Verdict.DIFFERS, f"{detail}: not in the catalogue", facts)
    return Finding(Verdict.OK, detail, facts)


def _told(nvml: Any, question: str, *args: object) -> object:
    answer, _ = answer_or_code(nvml, question, *args)
    return as_text(answer) if isinstance(answer, bytes) else answer


def profiles_without_mig(session: Session) -> Finding:
    """Older drivers may not say where instances would go while MIG is off."""
    if session.see_mig().mig:
        raise NotHere("MIG is on")
    return _profiles(session)


def profiles_with_mig(session: Session) -> Finding:
    if not session.look().mig:
        raise NotHere("MIG is off")
    return _profiles(session)


def _profiles(session: Session) -> Finding:
    with session.asking() as (nvml, device):
        known = guess(as_text(nvml.nvmlDeviceGetName(device)))
        numbers = range(nvml.NVML_GPU_INSTANCE_PROFILE_COUNT)
        found = [row for number in numbers if (row := _profile(nvml, device, number, known)) is not None]
    facts: dict[str, object] = {"profiles": found}
    silent = [row["name"] for row in found if not row["placements"]]
    if not found:
        return Finding(Verdict.DIFFERS, "the driver names none", facts)
    if silent:
        detail = f"{len(found)} profiles, but the driver does not say where: {', '.join(map(str, silent))}"
        return Finding(Verdict.DIFFERS, detail, facts)
    wrong = () if known is None else tuple(_differences(found, known))
    if wrong:
        return Finding(Verdict.DIFFERS, f"other than the catalogue says of {known and known.name}: {wrong[0]}", facts)
    compared = "nothing to compare them with" if known is None else "as the catalogue says"
    return Finding(Verdict.OK, f"{len(found)} profiles, {compared}", facts)


def _profile(nvml: Any, device: Any, number: int, known: GpuModel | None) -> dict[str, Any] | None:
    question = "nvmlDeviceGetGpuInstanceProfileInfo"
    old, _ = answer_or_code(nvml, question, device, number, 1)
    info, _ = answer_or_code(nvml, question, device, number, 2)
    info = info or old
    if info is None:
        return None
    capacity, _ = answer_or_code(nvml, "nvmlDeviceGetGpuInstanceRemainingCapacity", device, info.id)
    places, code = _placements(nvml, device, info.id)
    return {
        "name": profile_name(info, known) or f"profile-{info.id}",
        "number": number,
        "id": info.id,
        "slices": info.sliceCount,
        "limit": info.instanceCount,
        "mem_mib": info.memorySizeMB,
        "sms": info.multiprocessorCount,
        "placements": places,
        "placements_code": code,
        "capacity": capacity,
    }


def _placements(nvml: Any, device: Any, profile: int) -> tuple[list[list[int]] | None, int]:
    """Start and size of each, or why they are not told."""
    question, count = "nvmlDeviceGetGpuInstancePossiblePlacements", c_uint(0)
    _, code = answer_or_code(nvml, question, device, profile, None, byref(count))
    if code:
        return None, code
    places = (nvml.c_nvmlGpuInstancePlacement_t * count.value)()
    _, code = answer_or_code(nvml, question, device, profile, places, byref(count))
    return [[place.start, place.size] for place in places[: count.value]], code


def _differences(found: list[dict[str, Any]], known: GpuModel) -> list[str]:
    """What the driver says otherwise than the catalogue, in sentences."""
    rows = {row["name"]: row for row in found}
    wrong = [
        f"{name} is only {'with the driver' if name in rows else 'in the catalogue'}"
        for name in sorted(rows.keys() ^ known.by_name.keys())
    ]
    for name in (name for name in rows if name in known.by_name):
        row, ours = rows[name] | {"placements": sorted(rows[name]["placements"])}, _row(known.by_name[name])
        wrong += [f"{name} has {key} {row[key]}, not {ours[key]}" for key in ours if row[key] != ours[key]]
    return wrong


def _row(profile: Profile) -> dict[str, object]:
    """As the driver's rows are written."""
    return {
        "id": profile.nvml_id,
        "slices": profile.slices,
        "limit": profile.limit,
        "mem_mib": profile.mem_mib,
        "sms": profile.sms,
        "placements": [[start, profile.size] for start in profile.starts],
    }
