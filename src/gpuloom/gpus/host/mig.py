"""Changing a GPU through NVML, one thing at a time: its MIG mode, one instance more, one instance less.

The order that NVML wants: MIG mode, GPU instance at an exact placement, compute instance over all of it; and back:
compute instances, GPU instance, MIG mode. What may stop half-way cleans up behind itself as far as it can. What to do
when it cannot is for `cutter` to decide, which looks at the hardware again after every failure.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ctypes import byref
from functools import partial
from pathlib import Path
from typing import Any

from gpuloom.gpus.host.driver import GpuState, Part, StepFailed
from gpuloom.gpus.host.health import Health, kernel_log, read_health
from gpuloom.gpus.host.mig_read import compute_instances, compute_profiles, look
from gpuloom.gpus.host.nvml import Code, as_text, opened
from gpuloom.gpus.host.ownership import other_manager
from gpuloom.gpus.model import GpuModel, Instance, Profile

_MEANINGS = {
    Code.NO_PERMISSION: "the driver allows it only to root with CAP_SYS_ADMIN",
    Code.GPU_IS_LOST: "the GPU is lost: it no longer answers",
    Code.RESET_REQUIRED: "the GPU has to be reset first",
    Code.IN_USE: "it is in use",
    Code.INSUFFICIENT_RESOURCES: "the driver finds no room for it there",
    Code.NOT_SUPPORTED: "the driver does not support it on this GPU",
}


@contextmanager
def nvml_driver(nvml: Any = None, root: Path = Path("/")) -> "Iterator[NvmlDriver]":
    """A `driver.Driver`, between init and shutdown; NoDriver if there is none."""
    with opened(nvml) as module:
        yield NvmlDriver(module, root)


class NvmlDriver:
    """This host's GPUs, by NVML's numbers."""

    mends_in_place = False
    lingers = True

    def __init__(self, nvml: Any, root: Path) -> None:
        self._nvml, self._root = nvml, root

    def count(self) -> int:
        with doing(self._nvml, "count the GPUs"):
            return int(self._nvml.nvmlDeviceGetCount())

    def uuid(self, gpu: int) -> str:
        with doing(self._nvml, f"look at GPU {gpu}"):
            return as_text(self._nvml.nvmlDeviceGetUUID(self._nvml.nvmlDeviceGetHandleByIndex(gpu)))

    def look(self, gpu: int, model: GpuModel | None = None) -> GpuState:
        with doing(self._nvml, f"look at GPU {gpu}"):
            return look(self._nvml, gpu, model)

    def health(self, gpu: int) -> Health:
        with doing(self._nvml, f"look at GPU {gpu}"):
            handle = self._nvml.nvmlDeviceGetHandleByIndex(gpu)
            self._nvml.nvmlDeviceGetUUID(handle)  # a handle can be had of one that does not answer
            return read_health(self._nvml, handle, partial(kernel_log, self._root))

    def why_not_ours(self, gpu: int) -> str | None:  # noqa: ARG002 (whoever manages one manages all)
        return other_manager(self._root)

    def reserve(self, gpu: int) -> None:
        """Other managers have no common register."""

    def release(self, gpu: int) -> None:
        pass

    def set_mode(self, state: GpuState, on: bool) -> None:
        set_mode(self._nvml, state, on)

    def create(self, state: GpuState, instance: Instance) -> None:
        create(self._nvml, state.index, state.model, instance)

    def mend(self, state: GpuState, part: Part) -> None:
        mend(self._nvml, state.index, state.model, part)

    def destroy(self, state: GpuState, part: Part) -> None:
        destroy(self._nvml, state.index, part)


@contextmanager
def doing(nvml: Any, what: str) -> Iterator[None]:
    """NVML's errors as sentences that begin with what was being done."""
    try:
        yield
    except nvml.NVMLError as error:
        reason = _MEANINGS.get(error.value, f"the driver answers {str(error).rstrip('.')!r}")
        raise StepFailed(f"{what}: {reason}", error.value) from error


def set_mode(nvml: Any, state: GpuState, on: bool) -> None:
    """Switch MIG on or off, and insist that it is in force: the call succeeds even where the mode only is noted."""
    if (state.mig, state.mig_pending) == (on, on):
        return
    what = f"switch MIG mode {'on' if on else 'off'}"
    with doing(nvml, what):
        handle = nvml.nvmlDeviceGetHandleByIndex(state.index)
        status = nvml.nvmlDeviceSetMigMode(handle, int(on))
        current = bool(nvml.nvmlDeviceGetMigMode(handle)[0])
    if current == on:
        return
    if status == Code.IN_USE:
        raise StepFailed(f"{what}: the GPU is in use; stop what uses it (monitoring too) and try again", status)
    reset = f"nvidia-smi --gpu-reset -i {state.index}"
    raise StepFailed(f"{what}: it takes effect at a GPU reset; run `{reset}` and apply again", Code.RESET_REQUIRED)


def create(nvml: Any, index: int, model: GpuModel, instance: Instance) -> None:
    """Create an instance and make it usable. If its second half fails, the first is taken back."""
    profile = model.by_name[instance.profile]
    with doing(nvml, f"create {instance}"):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        place = nvml.c_nvmlGpuInstancePlacement_t(instance.start, profile.size)
        made = nvml.nvmlDeviceCreateGpuInstanceWithPlacement(handle, profile.nvml_id, byref(place))
        try:
            _span(nvml, made, profile)
        except (nvml.NVMLError, StepFailed):
            with suppress(nvml.NVMLError):  # the caller will see what is left
                _empty(nvml, made)
                nvml.nvmlGpuInstanceDestroy(made)
            raise


def mend(nvml: Any, index: int, model: GpuModel, part: Part) -> None:
    """Make a half-made instance usable: one compute instance over all of it, in place of whatever is there."""
    with doing(nvml, f"complete {part.instance}"):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        instance = nvml.nvmlDeviceGetGpuInstanceById(handle, part.gi_id)
        _empty(nvml, instance)
        _span(nvml, instance, model.by_name[part.instance.profile])


def destroy(nvml: Any, index: int, part: Part) -> None:
    """Destroy an instance, whole or half-made. One that is gone already is as good as destroyed."""
    with doing(nvml, f"destroy {part.instance}"):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        try:
            instance = nvml.nvmlDeviceGetGpuInstanceById(handle, part.gi_id)
        except nvml.NVMLError as error:
            if error.value == Code.NOT_FOUND:
                return
            raise
        _empty(nvml, instance)
        nvml.nvmlGpuInstanceDestroy(instance)


def _span(nvml: Any, instance: Any, profile: Profile) -> None:
    for info in compute_profiles(nvml, instance):
        if info.sliceCount == profile.slices:
            nvml.nvmlGpuInstanceCreateComputeInstance(instance, info.id)
            return
    raise StepFailed(f"the driver has no compute instance that spans {profile.name}")


def _empty(nvml: Any, instance: Any) -> None:
    for info in compute_profiles(nvml, instance):
        for compute in compute_instances(nvml, instance, info):
            nvml.nvmlComputeInstanceDestroy(compute)
