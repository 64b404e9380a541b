"""This host's GPUs, read through NVML and never changed. What the driver does not tell is None, never 0.

It needs the NVIDIA driver's library. Without it, `discover` says why in one sentence instead of failing. `opened` and
the small readers below are what `mig_read` and `mig` build on; those look closer, and change.
"""

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import byref, c_uint
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, TypeVar

from gpuloom.gpus.catalogue import guess
from gpuloom.gpus.model import GpuModel

R = TypeVar("R")


class Code(IntEnum):
    """Answers of NVML that are treated apart. The numbers are part of its interface and do not change."""

    INVALID_ARGUMENT = 2
    NOT_SUPPORTED = 3
    NO_PERMISSION = 4
    NOT_FOUND = 6
    DRIVER_NOT_LOADED = 9
    LIBRARY_NOT_FOUND = 12
    FUNCTION_NOT_FOUND = 13
    GPU_IS_LOST = 15
    RESET_REQUIRED = 16
    IN_USE = 19
    INSUFFICIENT_RESOURCES = 23
    VERSION_MISMATCH = 25


NOT_HERE = (Code.INVALID_ARGUMENT, Code.NOT_SUPPORTED, Code.FUNCTION_NOT_FOUND, Code.VERSION_MISMATCH)
"""How a driver says that it, or this GPU, does not have what was asked for."""


class NoDriver(Exception):  # noqa: N818 (it is a reason, not a fault)
    """There is nobody to talk to (no NVIDIA driver; for CPU devices, no cgroups); the text says why."""


@dataclass(frozen=True, slots=True)
class HostInstance:
    """A GPU instance that exists."""

    id: int
    profile: str | None
    start: int
    size: int
    computes: tuple[int, ...] | None = None
    """The compute slices of each of its compute instances; None: it has one over all of it, or that is not told."""

    def __str__(self) -> str:
        name = f"{self.profile or '?'}@{self.start}"
        if self.computes is None:
            return name
        return f"{name} ({', '.join(f'{slices}c' for slices in self.computes) or 'no compute instance'})"


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


@contextmanager
def opened(nvml: Any = None) -> Iterator[Any]:
    """pynvml, or a module with its functions, between init and shutdown. NoDriver if there is nothing to open."""
    if nvml is None:
        try:
            nvml = importlib.import_module("pynvml")
        except ImportError:
            raise NoDriver("the Python package nvidia-ml-py is not installed") from None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise NoDriver(_why_not(error)) from None
    try:
        yield nvml
    finally:
        nvml.nvmlShutdown()


def discover(nvml: Any = None) -> Host:
    """The GPUs of this host. `nvml` is a module with pynvml's functions; pynvml itself unless told."""
    try:
        with opened(nvml) as driver:
            return _host(driver)
    except NoDriver as reason:
        return Host(reason=str(reason))


def _host(nvml: Any) -> Host:
    try:
        driver = ask(nvml, nvml.nvmlSystemGetDriverVersion)
        gpus = tuple(_gpu(nvml, index) for index in range(nvml.nvmlDeviceGetCount()))
    except nvml.NVMLError as error:
        return Host(reason=_why_not(error))
    reason = None if gpus else "the NVIDIA driver is loaded but sees no GPU"
    return Host(gpus, None if driver is None else as_text(driver), reason)


def _why_not(error: Any) -> str:
    known = {
        Code.LIBRARY_NOT_FOUND: "the NVIDIA driver is not installed (no libnvidia-ml.so.1 was found)",
        Code.DRIVER_NOT_LOADED: "the NVIDIA driver is installed but not loaded",
        Code.NO_PERMISSION: "this user may not talk to the NVIDIA driver",
    }
    return known.get(error.value, f"the NVIDIA driver does not answer: {error}")


def ask(nvml: Any, question: Callable[..., R], *args: object) -> R | None:
    """The driver's answer, or None if it has none for this GPU, this user or this version."""
    try:
        return question(*args)
    except nvml.NVMLError:
        return None


def as_text(value: bytes | str) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _gpu(nvml: Any, index: int) -> HostGpu:
    handle = ask(nvml, nvml.nvmlDeviceGetHandleByIndex, index)
    if handle is None:  # lost, or hidden from this user: still there, so still listed
        return HostGpu(index, None, None, None, None, None, None, None)
    uuid, product = ask(nvml, nvml.nvmlDeviceGetUUID, handle), ask(nvml, nvml.nvmlDeviceGetName, handle)
    memory = ask(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
    mode = ask(nvml, nvml.nvmlDeviceGetMigMode, handle)
    current, pending = (None, None) if mode is None else (bool(mode[0]), bool(mode[1]))
    model = None if product is None else guess(as_text(product))
    return HostGpu(
        index,
        None if uuid is None else as_text(uuid),
        None if product is None else as_text(product),
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
            instance
            for info in profile_infos(nvml, handle)
            for instance in instances_of(nvml, handle, info.id, info.instanceCount, profile_name(info, model))
        ]
    except nvml.NVMLError:
        return None
    devices = ask(nvml, mig_devices, nvml, handle)
    if devices is not None:
        found = [replace(instance, computes=_split(devices.get(instance.id, []))) for instance in found]
    return tuple(sorted(found, key=lambda instance: instance.start))


def _split(devices: "list[MigDevice]") -> tuple[int, ...] | None:
    if len(devices) == 1 and devices[0].spans:
        return None
    return tuple(device.slices for device in devices)


@dataclass(frozen=True, slots=True)
class MigDevice:
    """What a process sees of a compute instance."""

    uuid: str
    slices: int
    spans: bool
    """Whether it has all of its GPU instance."""


def mig_devices(nvml: Any, handle: Any) -> dict[int, list[MigDevice]]:
    """By GPU instance."""
    found: dict[int, list[MigDevice]] = {}
    for position in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            device = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, position)
        except nvml.NVMLError as error:
            if error.value == Code.NOT_FOUND:  # there are gaps, so go on
                continue
            raise
        size = nvml.nvmlDeviceGetAttributes_v2(device)
        spans = size.computeInstanceSliceCount == size.gpuInstanceSliceCount
        seen = MigDevice(as_text(nvml.nvmlDeviceGetUUID(device)), size.computeInstanceSliceCount, spans)
        found.setdefault(nvml.nvmlDeviceGetGpuInstanceId(device), []).append(seen)
    return found


def profile_infos(nvml: Any, handle: Any) -> Iterator[Any]:
    """What this GPU can be cut into. The loop's number is NVML's own enumeration; the id to use is in the answer.

    Profiles that the GPU does not have are skipped. Any other error is raised: a profile that seems to be missing would
    hide the instances of it.
    """
    for number in range(nvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        # Version 2 has the name; drivers before R470 only know version 1.
        info = _profile_info(nvml, handle, number, 2) or _profile_info(nvml, handle, number, 1)
        if info is not None:
            yield info


def _profile_info(nvml: Any, handle: Any, number: int, version: int) -> Any:
    try:
        return nvml.nvmlDeviceGetGpuInstanceProfileInfo(handle, number, version)
    except nvml.NVMLError as error:
        if error.value not in NOT_HERE:
            raise
        return None


def profile_name(info: Any, model: GpuModel | None) -> str | None:
    """The profile's name in NVIDIA's spelling; from an old driver, what the catalogue calls this id."""
    named = as_text(getattr(info, "name", b"")).removeprefix("MIG ")
    profiles = () if model is None else model.profiles
    return named or next((profile.name for profile in profiles if profile.nvml_id == info.id), None)


def instances_of(nvml: Any, handle: Any, profile_id: int, most: int, name: str | None) -> Iterator[HostInstance]:
    """The GPU instances that exist of one profile, of which a GPU can hold so many at most."""
    handles = (nvml.c_nvmlGpuInstance_t * most)()
    count = c_uint(0)
    nvml.nvmlDeviceGetGpuInstances(handle, profile_id, handles, byref(count))
    for position in range(count.value):
        found = nvml.nvmlGpuInstanceGetInfo(handles[position])
        yield HostInstance(found.id, name, found.placement.start, found.placement.size)
