"""This host's GPUs, read through NVML and never changed. What the driver does not tell is None, never 0.

It needs the NVIDIA driver's library. Without it, `discover` says why in one sentence instead of failing.
"""

import importlib
from collections.abc import Callable, Iterator
from ctypes import byref, c_uint
from dataclasses import dataclass
from typing import Any, TypeVar

from gpuloom.gpus.catalogue import guess
from gpuloom.gpus.model import GpuModel

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class HostInstance:
    """A GPU instance that exists."""

    id: int
    profile: str | None
    start: int
    size: int

    def __str__(self) -> str:
        return f"{self.profile or '?'}@{self.start}"


@dataclass(frozen=True, slots=True)
class HostGpu:
    index: int
    uuid: str | None
    name: str | None
    model: GpuModel | None
    """The catalogue's model with this product name."""
    mem_mib: int | None
    mig_current: bool | None
    """Whether MIG is on; None for a GPU that cannot."""
    mig_pending: bool | None
    """Whether it will be on after the next reset."""
    instances: tuple[HostInstance, ...] | None
    """In order of start; None if MIG is off or the driver does not let this user look."""


@dataclass(frozen=True, slots=True)
class Host:
    gpus: tuple[HostGpu, ...] = ()
    driver: str | None = None
    reason: str | None = None
    """Why there are no GPUs to show."""


def discover(nvml: Any = None) -> Host:
    """The GPUs of this host. `nvml` is a module with pynvml's functions; pynvml itself unless told."""
    if nvml is None:
        try:
            nvml = importlib.import_module("pynvml")
        except ImportError:
            return Host(reason="the Python package nvidia-ml-py is not installed")
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return Host(reason=_why_not(nvml, error))
    try:
        driver = _ask(nvml, nvml.nvmlSystemGetDriverVersion)
        gpus = tuple(_gpu(nvml, index) for index in range(nvml.nvmlDeviceGetCount()))
        reason = None if gpus else "the NVIDIA driver is loaded but sees no GPU"
        return Host(gpus, None if driver is None else _text(driver), reason)
    except nvml.NVMLError as error:
        return Host(reason=_why_not(nvml, error))
    finally:
        nvml.nvmlShutdown()


def _why_not(nvml: Any, error: Any) -> str:
    known = {
        nvml.NVML_ERROR_LIBRARY_NOT_FOUND: "the NVIDIA driver is not installed (no libnvidia-ml.so.1 was found)",
        nvml.NVML_ERROR_DRIVER_NOT_LOADED: "the NVIDIA driver is installed but not loaded",
        nvml.NVML_ERROR_NO_PERMISSION: "this user may not talk to the NVIDIA driver",
    }
    return known.get(error.value, f"the NVIDIA driver does not answer: {error}")


def _ask(nvml: Any, question: Callable[..., R], *args: object) -> R | None:
    """The driver's answer, or None if it has none for this GPU, this user or this version."""
    try:
        return question(*args)
    except nvml.NVMLError:
        return None


def _text(value: bytes | str) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _gpu(nvml: Any, index: int) -> HostGpu:
    handle = _ask(nvml, nvml.nvmlDeviceGetHandleByIndex, index)
    if handle is None:  # lost, or hidden from this user: still there, so still listed
        return HostGpu(index, None, None, None, None, None, None, None)
    uuid, product = _ask(nvml, nvml.nvmlDeviceGetUUID, handle), _ask(nvml, nvml.nvmlDeviceGetName, handle)
    memory = _ask(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
    mode = _ask(nvml, nvml.nvmlDeviceGetMigMode, handle)
    current, pending = (None, None) if mode is None else (bool(mode[0]), bool(mode[1]))
    model = None if product is None else guess(_text(product))
    return HostGpu(
        index,
        None if uuid is None else _text(uuid),
        None if product is None else _text(product),
        model,
        None if memory is None else int(memory.total) // 2**20,
        current,
        pending,
        _instances(nvml, handle, model) if current else None,
    )


def _instances(nvml: Any, handle: Any, model: GpuModel | None) -> tuple[HostInstance, ...] | None:
    """All GPU instances, asked profile by profile, as NVML wants it. Looking may need root: then None."""
    try:
        found = [
            instance for profile in _profiles(nvml, handle) for instance in _of_profile(nvml, handle, profile, model)
        ]
    except nvml.NVMLError:
        return None
    return tuple(sorted(found, key=lambda instance: instance.start))


def _profiles(nvml: Any, handle: Any) -> Iterator[Any]:
    """What this GPU can be cut into. The loop's number is NVML's own enumeration; the id to use is in the answer."""
    for number in range(nvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        # Version 2 has the name; drivers before R470 only know version 1.
        profile = _ask(nvml, nvml.nvmlDeviceGetGpuInstanceProfileInfo, handle, number, 2)
        if profile is None:
            profile = _ask(nvml, nvml.nvmlDeviceGetGpuInstanceProfileInfo, handle, number, 1)
        if profile is not None:
            yield profile


def _of_profile(nvml: Any, handle: Any, profile: Any, model: GpuModel | None) -> Iterator[HostInstance]:
    name = _text(getattr(profile, "name", b"")).removeprefix("MIG ") or _name_by_id(model, profile.id)
    handles = (nvml.c_nvmlGpuInstance_t * profile.instanceCount)()
    count = c_uint(0)
    nvml.nvmlDeviceGetGpuInstances(handle, profile.id, handles, byref(count))
    for position in range(count.value):
        info = nvml.nvmlGpuInstanceGetInfo(handles[position])
        yield HostInstance(info.id, name, info.placement.start, info.placement.size)


def _name_by_id(model: GpuModel | None, nvml_id: int) -> str | None:
    profiles = () if model is None else model.profiles
    return next((profile.name for profile in profiles if profile.nvml_id == nvml_id), None)
