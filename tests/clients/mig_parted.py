"""What nvidia-mig-parted does with NVML for `apply`, call by call: its own go-nvml calls the same functions.

It is run as a program on the stand-in: `mig_parted.py '{"1g.5gb": 2, "3g.20gb": 1}' 0000:10:00.0 …`, with the PCI
addresses that mig-parted reads from sysfs, and prints the configuration that it then finds on each GPU. Like the real
one it leaves placements to the driver, and where that leads into a dead end it clears the GPU and tries another order.
Its own code is not here; which functions it calls, in which order, is from its published source.
"""

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import permutations
from typing import Any

import pynvml as nvml

PROFILES = range(nvml.NVML_GPU_INSTANCE_PROFILE_COUNT)
COMPUTE_PROFILES = range(nvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT)
SHARED = nvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
SUFFIXES = {"+me": (0x7, 0x8), "+gfx": (0xA, 0xB, 0xC), "-me": (0xD, 0xE), "+me.all": (0xF, 0x10)}
"""Of profiles, by NVML's number: mig-parted does not ask the driver for names."""
GIB = 2**30

Config = Counter[str]


def name_of(device: Any, number: int, info: Any, compute: Any) -> str:
    """The size in a name is eighths of the board's memory, rounded up; halves of the result as well."""
    total = nvml.nvmlDeviceGetMemoryInfo(device).total
    eighths = -(-8 * info.memorySizeMB * 2**20 // total)
    size = int(eighths / 8 * -(-total // GIB) + 0.5)
    suffix = next((suffix for suffix, numbers in SUFFIXES.items() if number in numbers), "")
    part = "" if compute.sliceCount == info.sliceCount else f"{compute.sliceCount}c."
    return f"{part}{info.sliceCount}g.{size}gb{suffix}"


def session(work: Callable[[], Any]) -> Any:
    """It opens NVML anew for each thing that it does, also while it is open already."""
    nvml.nvmlInit()
    try:
        return work()
    finally:
        nvml.nvmlShutdown()


def known(question: Callable[..., Any], *arguments: Any) -> Any:
    """A profile, or None where the driver does not have it."""
    try:
        return question(*arguments, 1)
    except (nvml.NVMLError_NotSupported, nvml.NVMLError_InvalidArgument):
        return None


def instances(device: Any) -> Iterator[tuple[Any, int, Any]]:
    for number in PROFILES:
        info = known(nvml.nvmlDeviceGetGpuInstanceProfileInfo, device, number)
        if info is not None:
            found = (nvml.c_nvmlGpuInstance_t * info.instanceCount)()
            count = nvml.c_uint(info.instanceCount)
            nvml.nvmlDeviceGetGpuInstances(device, info.id, found, nvml.byref(count))
            yield from ((found[i], number, info) for i in range(count.value))


def computes(instance: Any) -> Iterator[tuple[Any, Any]]:
    for number in COMPUTE_PROFILES:
        info = known(nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo, instance, number, SHARED)
        if info is not None:
            found = (nvml.c_nvmlComputeInstance_t * info.instanceCount)()
            count = nvml.c_uint(info.instanceCount)
            nvml.nvmlGpuInstanceGetComputeInstances(instance, info.id, found, nvml.byref(count))
            yield from ((found[i], info) for i in range(count.value))


def get_config(gpu: int) -> Config:
    def work() -> Config:
        device = nvml.nvmlDeviceGetHandleByIndex(gpu)
        assert nvml.nvmlDeviceGetMigMode(device)[0] == nvml.NVML_DEVICE_MIG_ENABLE
        return Counter(
            name_of(device, number, info, compute)
            for instance, number, info in instances(device)
            for _, compute in computes(instance)
        )

    config: Config = session(work)
    return config


def clear(gpu: int) -> None:
    def work() -> None:
        device = nvml.nvmlDeviceGetHandleByIndex(gpu)
        for instance, _, _ in instances(device):
            for compute, _ in computes(instance):
                nvml.nvmlComputeInstanceDestroy(compute)
            nvml.nvmlGpuInstanceDestroy(instance)

    session(work)


def numbers_by_name(gpu: int) -> dict[str, tuple[int, int]]:
    """Of each profile that it can be asked for: the number of the GPU instance's and of the compute instance's."""
    device, found = nvml.nvmlDeviceGetHandleByIndex(gpu), {}
    by_slices = {1: 0, 2: 1, 3: 2, 4: 3, 7: 4}
    for number in PROFILES:
        info = known(nvml.nvmlDeviceGetGpuInstanceProfileInfo, device, number)
        if info is not None:
            found[name_of(device, number, info, info)] = (number, by_slices[info.sliceCount])
    return found


def create(gpu: int, names: tuple[str, ...]) -> None:
    device, numbers = nvml.nvmlDeviceGetHandleByIndex(gpu), numbers_by_name(gpu)
    for name in names:
        number, compute_number = numbers[name]
        info = nvml.nvmlDeviceGetGpuInstanceProfileInfo(device, number, 1)
        instance = nvml.nvmlDeviceCreateGpuInstance(device, info.id)
        compute = nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, compute_number, SHARED, 1)
        nvml.nvmlGpuInstanceCreateComputeInstance(instance, compute.id)


def set_config(gpu: int, wanted: Config) -> None:
    def work() -> None:
        for order in sorted({*permutations(wanted.elements())}):
            if get_config(gpu):
                clear(gpu)
            try:
                return create(gpu, order)
            except nvml.NVMLError_InsufficientResources:
                continue
        clear(gpu)
        raise SystemExit("all orderings failed")

    session(work)


def set_mode(gpu: int, enabled: bool) -> None:
    def capable() -> bool:
        try:
            nvml.nvmlDeviceGetMigMode(nvml.nvmlDeviceGetHandleByIndex(gpu))
        except nvml.NVMLError_NotSupported:
            return False
        return True

    def work() -> None:
        device = nvml.nvmlDeviceGetHandleByIndex(gpu)
        if nvml.nvmlDeviceGetMigMode(device)[0] == nvml.NVML_DEVICE_MIG_ENABLE:
            clear(gpu)
        nvml.nvmlDeviceSetMigMode(device, int(enabled))
        current, pending = nvml.nvmlDeviceGetMigMode(device)
        if current != pending:
            raise SystemExit(f"GPU {gpu} needs a reset")

    if session(capable):
        session(work)


def index_at(address: str) -> int:
    device = nvml.nvmlDeviceGetHandleByPciBusId(address)
    assert nvml.nvmlDeviceGetPciInfo(device).busId.lower().endswith(address.lower())
    index: int = nvml.nvmlDeviceGetIndex(device)
    return index


def main() -> None:
    wanted, addresses = Counter[str](json.loads(sys.argv[1])), sys.argv[2:]
    if int(session(nvml.nvmlSystemGetNVMLVersion).split(".")[0]) < 11:
        raise SystemExit("NVML is too old")
    gpus: list[int] = session(lambda: [index_at(address) for address in addresses])
    for gpu in gpus:
        set_mode(gpu, bool(wanted))
        if wanted and get_config(gpu) != wanted:
            set_config(gpu, wanted)
    print(json.dumps([get_config(gpu) if wanted else {} for gpu in gpus]))


main()
