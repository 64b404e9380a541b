"""One GPU as its driver shows it now: what it can be cut into, its instances whole or half-made, who runs on it.

Nothing is changed here. An error is raised, not skipped over: on this view instances are created and destroyed.
"""

from ctypes import byref, c_uint
from dataclasses import replace
from typing import Any

from gpuloom.gpus.catalogue import guess
from gpuloom.gpus.host.driver import GpuState, Part, Process, process_name
from gpuloom.gpus.host.nvml import NOT_HERE, Code, as_text, ask, instances_of, mig_devices, profile_infos, profile_name
from gpuloom.gpus.model import GpuModel, Instance, Profile

WHOLE_GPU = 0xFFFFFFFF
"""The instance that NVML gives for a process that runs on no instance."""


_seen: dict[GpuModel, GpuModel] = {}
"""One object for equal models, as `layouts` remembers by object."""


def read_model(nvml: Any, handle: Any, silent: bool = False) -> tuple[GpuModel, bool]:
    """What this GPU can be cut into, and whether that is the driver's word. The catalogue's own model where both agree.

    `silent`: MIG is off, so an old driver may keep it to itself.
    """
    product = as_text(nvml.nvmlDeviceGetName(handle))
    known = guess(product)
    mem_mib = int(nvml.nvmlDeviceGetMemoryInfo(handle).total) // 2**20
    infos = list(profile_infos(nvml, handle))
    try:
        profiles = [_profile(nvml, handle, info, known) for info in infos]
    except nvml.NVMLError as error:
        if not silent or error.value != Code.NOT_SUPPORTED:
            raise
        profiles = []
    if silent and not profiles:
        return _by_catalogue(known, {info.id for info in infos}) or GpuModel(product, mem_mib, sms=0), False
    return _by_the_driver(product, known, mem_mib, profiles), True


def _by_catalogue(known: GpuModel | None, ids: set[int]) -> GpuModel | None:
    """The profiles that the driver names, if it names any, where the catalogue has placed them."""
    if known is None or not ids <= {profile.nvml_id for profile in known.profiles}:
        return None
    profiles = tuple(profile for profile in known.profiles if not ids or profile.nvml_id in ids)
    if profiles == known.profiles:
        return known
    model = replace(known, profiles=profiles)
    return _seen.setdefault(model, model)


def _by_the_driver(product: str, known: GpuModel | None, mem_mib: int, profiles: list[Profile]) -> GpuModel:
    if known is not None and set(profiles) == set(known.profiles):
        return known
    model = GpuModel(
        product if known is None else known.name,
        mem_mib,
        sms=known.sms if known is not None else max((profile.sms for profile in profiles), default=0),
        units=max((start + profile.size for profile in profiles for start in profile.starts), default=0),
        profiles=tuple(sorted(profiles, key=lambda profile: (profile.slices, profile.size, profile.name))),
    )
    return _seen.setdefault(model, model)


def _profile(nvml: Any, handle: Any, info: Any, known: GpuModel | None) -> Profile:
    count = c_uint(0)
    nvml.nvmlDeviceGetGpuInstancePossiblePlacements(handle, info.id, None, byref(count))
    places = (nvml.c_nvmlGpuInstancePlacement_t * count.value)()
    nvml.nvmlDeviceGetGpuInstancePossiblePlacements(handle, info.id, places, byref(count))
    found = places[: count.value]
    return Profile(
        profile_name(info, known) or f"profile-{info.id}",
        nvml_id=info.id,
        slices=info.sliceCount,
        size=max((place.size for place in found), default=0),
        starts=tuple(sorted(place.start for place in found)),
        mem_mib=int(info.memorySizeMB),
        sms=info.multiprocessorCount,
        limit=info.instanceCount,
    )


def look(nvml: Any, index: int, model: GpuModel | None = None) -> GpuState:
    """The GPU as it is now. `model` saves asking again what it can be cut into: that does not change."""
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    mode, told = _mig_mode(nvml, handle), True
    if model is None:
        model, told = read_model(nvml, handle, silent=mode is not None and not mode[0])
    parts = _parts(nvml, handle, model) if mode is not None and mode[0] else ()
    return GpuState(
        index,
        as_text(nvml.nvmlDeviceGetUUID(handle)),
        as_text(nvml.nvmlDeviceGetName(handle)),
        model,
        *(mode or (False, False)),
        parts,
        _processes(nvml, handle, {part.gi_id: part.instance for part in parts}),
        told,
        _board(nvml, handle),
    )


def _board(nvml: Any, handle: Any) -> str | None:
    found = ask(nvml, nvml.nvmlDeviceGetPciInfo, handle)
    return None if found is None else f"0x{found.pciDeviceId:08X}:0x{found.pciSubSystemId:08X}"


def _mig_mode(nvml: Any, handle: Any) -> tuple[bool, bool] | None:
    """Now, and after the next reset; None if this GPU has no MIG."""
    try:
        current, pending = nvml.nvmlDeviceGetMigMode(handle)
    except nvml.NVMLError as error:
        if error.value == Code.NOT_SUPPORTED:
            return None
        raise
    return bool(current), bool(pending)


def _parts(nvml: Any, handle: Any, model: GpuModel) -> tuple[Part, ...]:
    """With one compute instance over all of it each is what gpuloom makes; any other is not what its name says."""
    devices = mig_devices(nvml, handle)
    parts = []
    for profile in model.profiles:
        for found in instances_of(nvml, handle, profile.nvml_id, profile.limit, profile.name):
            inside = devices.get(found.id, [])
            uuid = inside[0].uuid if len(inside) == 1 and inside[0].spans else None
            parts.append(Part(found.id, Instance(found.start, profile.name), uuid))
    return tuple(sorted(parts, key=lambda part: part.instance))


def compute_profiles(nvml: Any, instance: Any) -> list[Any]:
    """What compute instances a GPU instance can hold. As with GPU instances, the id to use is in the answer."""
    found = []
    for number in range(nvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
        try:
            shared = nvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
            found.append(nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, number, shared, 1))
        except nvml.NVMLError as error:
            if error.value not in NOT_HERE:
                raise
    return found


def compute_instances(nvml: Any, instance: Any, info: Any) -> list[Any]:
    """Handles of the compute instances of one profile."""
    handles = (nvml.c_nvmlComputeInstance_t * info.instanceCount)()
    count = c_uint(0)
    nvml.nvmlGpuInstanceGetComputeInstances(instance, info.id, handles, byref(count))
    return list(handles[: count.value])


def _processes(nvml: Any, handle: Any, instances: dict[int, Instance]) -> tuple[Process, ...]:
    """Who computes or draws on this GPU; as root NVML tells it for all instances at once."""
    found: dict[int, Process] = {}
    for question in (nvml.nvmlDeviceGetComputeRunningProcesses_v3, nvml.nvmlDeviceGetGraphicsRunningProcesses_v3):
        try:
            running = question(handle)
        except nvml.NVMLError as error:
            if error.value not in NOT_HERE:
                raise
            continue
        for process in running:
            where = None if process.gpuInstanceId == WHOLE_GPU else instances.get(process.gpuInstanceId)
            found[process.pid] = Process(process.pid, process_name(process.pid), where)
    return tuple(sorted(found.values(), key=lambda process: process.pid))
