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

from gpuloom.gpus.host.around.holders import holders, others, way_to_reset
from gpuloom.gpus.host.around.managers import other_manager
from gpuloom.gpus.host.around.modes import Virtual, modes_of
from gpuloom.gpus.host.around.root import host_root
from gpuloom.gpus.host.driver import GpuState, Part, StepFailed
from gpuloom.gpus.host.health import Health, kernel_log, read_health
from gpuloom.gpus.host.mig_read import compute_instances, compute_profiles, look
from gpuloom.gpus.host.nvml import Code, NoDriver, as_text, opened
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
def nvml_driver(nvml: Any = None, root: Path | None = None) -> "Iterator[NvmlDriver]":
    """A `driver.Driver`; NoDriver if there is none. `root`: where the host's files are, if not in their usual place."""
    with opened(nvml) as module:
        pass
    yield NvmlDriver(module, root or host_root())


class NvmlDriver:
    """This host's GPUs, by NVML's numbers.

    NVML is open only while something is asked or changed: a client that stays keeps everybody from resetting a GPU, and
    what it knows of one that was reset is dead.
    """

    mends_in_place = False
    lingers = True

    def __init__(self, nvml: Any, root: Path) -> None:
        self._nvml, self._root = nvml, root

    @contextmanager
    def awake(self) -> Iterator[None]:
        with self._asked("open the driver"):
            yield

    @contextmanager
    def _asked(self, what: str) -> Iterator[Any]:
        try:
            with opened(self._nvml) as nvml:
                yield nvml
        except NoDriver as reason:
            raise StepFailed(f"{what}: {reason}", Code.DRIVER_NOT_LOADED) from reason

    @contextmanager
    def _doing(self, what: str) -> Iterator[Any]:
        with self._asked(what) as nvml, doing(nvml, what):
            yield nvml

    def count(self) -> int:
        with self._doing("count the GPUs") as nvml:
            return int(nvml.nvmlDeviceGetCount())

    def uuid(self, gpu: int) -> str:
        with self._doing(f"look at GPU {gpu}") as nvml:
            return as_text(nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(gpu)))

    def look(self, gpu: int, model: GpuModel | None = None) -> GpuState:
        with self._doing(f"look at GPU {gpu}") as nvml:
            return look(nvml, gpu, model)

    def health(self, gpu: int) -> Health:
        with self._doing(f"look at GPU {gpu}") as nvml:
            handle = nvml.nvmlDeviceGetHandleByIndex(gpu)
            nvml.nvmlDeviceGetUUID(handle)  # a handle can be had of one that does not answer
            return read_health(nvml, handle, partial(kernel_log, self._root))

    def why_not_ours(self, gpu: int) -> str | None:
        manager = other_manager(self._root)  # whoever manages one manages all
        if manager is not None:
            return manager
        with self._doing(f"look at GPU {gpu}") as nvml:
            guest = modes_of(nvml, nvml.nvmlDeviceGetHandleByIndex(gpu)).virtual == Virtual.VGPU_GUEST
        return (
            "it is a part of a GPU that this virtual machine was given: only the host can cut that" if guest else None
        )

    def reserve(self, gpu: int) -> None:
        """Other managers have no common register."""

    def release(self, gpu: int) -> None:
        pass

    def set_mode(self, state: GpuState, on: bool) -> None:
        with self._changing(f"switch MIG mode {'on' if on else 'off'}") as nvml:
            set_mode(nvml, state, on, self._root)

    def create(self, state: GpuState, instance: Instance) -> None:
        with self._changing(f"create {instance}") as nvml:
            create(nvml, state.index, state.model, instance)

    def mend(self, state: GpuState, part: Part) -> None:
        with self._changing(f"complete {part.instance}") as nvml:
            mend(nvml, state.index, state.model, part)

    def destroy(self, state: GpuState, part: Part) -> None:
        with self._changing(f"destroy {part.instance}") as nvml:
            destroy(nvml, state.index, part)

    @contextmanager
    def _changing(self, what: str) -> Iterator[Any]:
        """Nothing is changed while another manager is at work, which may have come since the GPU was taken."""
        manager = other_manager(self._root)
        if manager is not None:
            raise StepFailed(f"{what}: {manager}")
        with self._asked(what) as nvml:
            yield nvml


@contextmanager
def doing(nvml: Any, what: str) -> Iterator[None]:
    """NVML's errors as sentences that begin with what was being done."""
    try:
        yield
    except nvml.NVMLError as error:
        reason = _MEANINGS.get(error.value, f"the driver answers {str(error).rstrip('.')!r}")
        raise StepFailed(f"{what}: {reason}", error.value) from error


def set_mode(nvml: Any, state: GpuState, on: bool, root: Path | None = None) -> None:
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
    found, modes = holders(root), modes_of(nvml, handle)
    if status == Code.IN_USE:
        held = f" (open in {', '.join(map(str, others(found)))})" if others(found) else ""
        raise StepFailed(f"{what}: the GPU is in use{held}; stop what uses it (monitoring too) and try again", status)
    way = way_to_reset(
        state.index, found, persistent=bool(modes.persistent), virtual=modes.virtual == Virtual.GIVEN_THE_GPU
    )
    raise StepFailed(f"{what}: it takes effect at a GPU reset; {way} and apply again", Code.RESET_REQUIRED, way)


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
