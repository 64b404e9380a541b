"""Reading a host through NVML, on a stand-in for the driver's library: a test machine need not have a GPU."""
# ruff: noqa: N802, N815 (the names are NVML's)

from ctypes import Structure, c_void_p
from types import SimpleNamespace
from typing import Any

import pytest

from gpuloom.gpus.catalogue import MODELS
from gpuloom.gpus.host.nvml import Host, HostInstance, discover


class NvmlError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"error {value}")
        self.value = value


NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND, UNKNOWN = 3, 4, 6, 9, 12, 999


class Handle(Structure):
    _fields_ = (("number", c_void_p),)


class Driver:
    """The part of pynvml that `discover` uses, with GPUs given as dictionaries. A missing answer is `not supported`."""

    NVMLError = NvmlError
    NVML_ERROR_LIBRARY_NOT_FOUND = LIBRARY_NOT_FOUND
    NVML_ERROR_DRIVER_NOT_LOADED = DRIVER_NOT_LOADED
    NVML_ERROR_NO_PERMISSION = NO_PERMISSION
    NVML_GPU_INSTANCE_PROFILE_COUNT = 10
    c_nvmlGpuInstance_t = Handle

    def __init__(self, gpus: list[dict[str, Any]], fails_with: int | None = None) -> None:
        self.gpus, self.fails_with, self.open = gpus, fails_with, False

    def nvmlInit(self) -> None:
        if self.fails_with is not None:
            raise NvmlError(self.fails_with)
        self.open = True

    def nvmlShutdown(self) -> None:
        self.open = False

    def nvmlSystemGetDriverVersion(self) -> bytes:
        return b"580.65.06"

    def nvmlDeviceGetCount(self) -> int:
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> dict[str, Any]:
        if "lost" in self.gpus[index]:
            raise NvmlError(UNKNOWN)
        return self.gpus[index]

    @staticmethod
    def _answer(gpu: Any, key: str) -> Any:
        if isinstance(gpu, tuple):
            return f"MIG-{gpu}"
        if key not in gpu:
            raise NvmlError(NOT_SUPPORTED)
        return gpu[key]

    def nvmlDeviceGetUUID(self, gpu: dict[str, Any]) -> Any:
        return self._answer(gpu, "uuid")

    def nvmlDeviceGetName(self, gpu: dict[str, Any]) -> Any:
        return self._answer(gpu, "name")

    def nvmlDeviceGetMemoryInfo(self, gpu: dict[str, Any]) -> Any:
        return SimpleNamespace(total=self._answer(gpu, "memory"))

    def nvmlDeviceGetMigMode(self, gpu: dict[str, Any]) -> Any:
        return self._answer(gpu, "mig")

    def nvmlDeviceGetGpuInstanceProfileInfo(self, gpu: dict[str, Any], number: int, version: int) -> Any:
        profiles = MODELS["A100-40GB"].profiles
        if number >= len(profiles) or version > gpu.get("info_version", 2):
            raise NvmlError(NOT_SUPPORTED)
        profile = profiles[number]
        named = {"name": f"MIG {profile.name}".encode()} if version == 2 else {}
        return SimpleNamespace(id=profile.nvml_id, instanceCount=profile.limit, **named)

    def nvmlDeviceGetGpuInstances(self, gpu: dict[str, Any], profile_id: int, handles: Any, count: Any) -> None:
        if gpu.get("secret"):
            raise NvmlError(NO_PERMISSION)
        found = [number for number, (_, of, _) in enumerate(gpu["instances"]) if of == profile_id]
        for position, number in enumerate(found):
            handles[position].number = number + 1
        count._obj.value = len(found)
        self.asked = gpu

    def nvmlGpuInstanceGetInfo(self, handle: Handle) -> Any:
        number, profile_id, (start, size) = self.asked["instances"][handle.number - 1]
        return SimpleNamespace(id=number, profileId=profile_id, placement=SimpleNamespace(start=start, size=size))

    def nvmlDeviceGetMaxMigDeviceCount(self, gpu: dict[str, Any]) -> int:  # noqa: ARG002
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, gpu: dict[str, Any], index: int) -> tuple[int, int, int]:
        """GPU instance, its slices, those of a compute instance: one over all of it, unless the GPU says otherwise."""
        slices = {19: 1, 9: 3}
        whole = {number: (slices[profile],) for number, profile, _ in gpu["instances"]}
        sizes = {number: slices[profile] for number, profile, _ in gpu["instances"]}
        split = [
            (number, sizes[number], one) for number, all_ in (whole | gpu.get("split", {})).items() for one in all_
        ]
        if index >= len(split):
            raise NvmlError(NOT_FOUND)
        return split[index]

    def nvmlDeviceGetAttributes_v2(self, device: tuple[int, int, int]) -> Any:
        return SimpleNamespace(gpuInstanceSliceCount=device[1], computeInstanceSliceCount=device[2])

    def nvmlDeviceGetGpuInstanceId(self, device: tuple[int, int, int]) -> int:
        return device[0]


CUT = {
    "uuid": "GPU-1",
    "name": b"NVIDIA A100-SXM4-40GB",
    "memory": 40960 * 2**20,
    "mig": [1, 1],
    "instances": [(7, 9, (4, 4)), (9, 19, (0, 1)), (10, 19, (1, 1))],
}


def test_a_cut_gpu_beside_one_without_mig() -> None:
    driver = Driver([CUT, {"uuid": "GPU-2", "name": "Tesla T4", "memory": 15360 * 2**20}])
    host = discover(driver)
    assert (host.reason, host.driver, driver.open) == (None, "580.65.06", False)
    cut, plain = host.gpus
    assert (cut.index, cut.uuid, cut.name, cut.mem_mib) == (0, "GPU-1", "NVIDIA A100-SXM4-40GB", 40960)
    assert cut.model is MODELS["A100-40GB"]
    assert (cut.mig_current, cut.mig_pending) == (True, True)
    assert cut.instances == (
        HostInstance(9, "1g.5gb", 0, 1),
        HostInstance(10, "1g.5gb", 1, 1),
        HostInstance(7, "3g.20gb", 4, 4),
    )
    assert [str(instance) for instance in cut.instances] == ["1g.5gb@0", "1g.5gb@1", "3g.20gb@4"]
    assert plain.model is MODELS["T4-16GB"]
    assert (plain.mig_current, plain.mig_pending, plain.instances) == (None, None, None)


def test_an_instance_that_is_split_is_shown_as_what_it_is() -> None:
    (gpu,) = discover(Driver([CUT | {"split": {7: (1, 2), 9: ()}}])).gpus
    assert gpu.instances is not None
    shown = [str(instance) for instance in gpu.instances]
    assert shown == ["1g.5gb@0 (no compute instance)", "1g.5gb@1", "3g.20gb@4 (1c, 2c)"]


def test_an_old_driver_does_not_name_its_profiles() -> None:
    (gpu,) = discover(Driver([CUT | {"info_version": 1}])).gpus
    assert gpu.instances is not None
    assert [str(instance) for instance in gpu.instances] == ["1g.5gb@0", "1g.5gb@1", "3g.20gb@4"]
    (gpu,) = discover(Driver([CUT | {"info_version": 1, "name": "NVIDIA B900"}])).gpus
    assert gpu.model is None
    assert gpu.instances is not None
    assert str(gpu.instances[0]) == "?@0"


def test_what_the_driver_does_not_tell_is_none() -> None:
    secret, bare, lost = discover(Driver([CUT | {"secret": True}, {}, {"lost": True}])).gpus
    assert secret.mig_current is True
    assert secret.instances is None
    for gpu in (bare, lost):
        assert (gpu.uuid, gpu.name, gpu.model, gpu.mem_mib, gpu.mig_current, gpu.instances) == (None,) * 6


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (LIBRARY_NOT_FOUND, "not installed"),
        (DRIVER_NOT_LOADED, "not loaded"),
        (NO_PERMISSION, "may not"),
        (UNKNOWN, "error 999"),
    ],
)
def test_no_driver_is_a_reason_and_not_an_exception(error: int, reason: str) -> None:
    host = discover(Driver([], fails_with=error))
    assert host.gpus == ()
    assert reason in (host.reason or "")


def test_a_driver_without_gpus() -> None:
    assert discover(Driver([])) == Host(driver="580.65.06", reason="the NVIDIA driver is loaded but sees no GPU")


def test_this_machine_answers_or_says_why_not() -> None:
    host = discover()
    assert bool(host.gpus) == (host.reason is None)
