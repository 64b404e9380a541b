"""What is counted: interpolated in the stretch that counts, and None where nobody counts.

NVML is played by an object with its functions: the stand-in has no counters, as an A100's driver has no GPM.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpuloom.gpus.host.cgroups import Group
from gpuloom.measure.campaign.activity import Activity
from gpuloom.measure.campaign.counters import OfCopy, OfGpu, Total
from gpuloom.measure.campaign.counting import Counting
from gpuloom.measure.campaign.gpm import METRICS, Gpm
from gpuloom.measure.steps import Window


class NVMLError(Exception):
    def __init__(self, value: int = 3) -> None:
        super().__init__(value)
        self.value = value


class Nvml:
    """A Hopper, at 300 W, whose counters say `at` of themselves."""

    NVMLError = NVMLError
    NVML_GPM_METRICS_GET_VERSION = 1

    def __init__(self, *, counts: bool = True) -> None:
        self.now_s, self.counts, self.samples = 0.0, counts, 0

    def _or_not(self, value: Any) -> Any:
        if not self.counts:
            raise NVMLError
        return value

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802
        return uuid

    def nvmlDeviceGetTotalEnergyConsumption(self, _: str) -> int:  # noqa: N802
        return int(self._or_not(300_000 * self.now_s))

    def nvmlDeviceGetPowerUsage(self, _: str) -> int:  # noqa: N802
        return 280_000

    def nvmlDeviceGetMemoryInfo(self, uuid: str) -> Any:  # noqa: N802
        return SimpleNamespace(used=(5 if uuid.startswith("MIG") else 7) << 30)

    def nvmlDeviceGetComputeRunningProcesses(self, _: str) -> Any:  # noqa: N802
        return [SimpleNamespace(pid=pid, usedGpuMemory=pid << 20) for pid in (10, 20, 30)]

    def nvmlGpmQueryDeviceSupport(self, _: str) -> Any:  # noqa: N802
        return SimpleNamespace(isSupportedDevice=int(self.counts))

    def nvmlGpmSampleAlloc(self) -> list[float]:  # noqa: N802
        self.samples += 1
        return []

    def nvmlGpmSampleFree(self, _: list[float]) -> None:  # noqa: N802
        self.samples -= 1

    def nvmlGpmSampleGet(self, _: str, sample: list[float]) -> None:  # noqa: N802
        sample.append(self.now_s)

    def nvmlGpmMigSampleGet(self, _: str, instance: int, sample: list[float]) -> None:  # noqa: N802
        sample.append(self.now_s + instance)

    def c_nvmlGpmMetricsGet_t(self) -> Any:  # noqa: N802
        metrics = [SimpleNamespace(metricId=0, nvmlReturn=0, value=0.0) for _ in range(200)]
        return SimpleNamespace(version=0, numMetrics=0, sample1=None, sample2=None, metrics=metrics)

    def nvmlGpmMetricsGet(self, wish: Any) -> None:  # noqa: N802
        assert wish.sample2[0] > wish.sample1[0]
        for metric in wish.metrics[: wish.numMetrics]:
            metric.value = 10.0 * metric.metricId - 5
            metric.nvmlReturn = 3 if metric.metricId == METRICS["smocc"] else 0


def test_totals_are_interpolated() -> None:
    values = iter([10.0, 20.0, None, 40.0])
    total = Total(lambda: next(values))
    for now_s in (0.0, 1.0, 2.0, 3.0):
        total.look(now_s)
    assert total.grown(Window(0.5, 2.0)) == pytest.approx(15.0)
    assert total.grown(Window(0.5, 9.0)) is None, "nobody has looked then"
    assert Total(lambda: None).grown(Window(0, 1)) is None


@pytest.mark.parametrize(("counts", "energy_j"), [(True, 600.0), (False, 560.0)])
def test_energy_by_its_counter_or_by_power(counts: bool, energy_j: float) -> None:
    nvml = Nvml(counts=counts)
    gpu = OfGpu(nvml, "GPU-1")
    for at in range(17):
        nvml.now_s = at / 4
        gpu.look(nvml.now_s)
    counted = gpu.figures(Window(1.0, 3.0))
    assert counted.energy_j == pytest.approx(energy_j)
    assert counted.power_w == pytest.approx(energy_j / 2)
    assert gpu.figures(None).energy_j is None


def test_memory_of_a_device_or_of_processes() -> None:
    counting = Counting(OfGpu(Nvml(), "GPU-1"), lambda _: 3)
    alone = counting.watch(None, "MIG-1", None, sole=True)
    alone.look(0.0)
    assert alone.figures(None)["mem_peak_mib"] == 5 * 1024
    gpu = OfGpu(Nvml(), "GPU-1")
    assert gpu.used_by_mib(lambda: [10, 30, 99]) == 40
    assert gpu.used_by_mib(lambda: [99]) is None


def test_activity_is_of_the_seconds_that_count() -> None:
    nvml = Nvml()
    gpm = Gpm(nvml, "GPU-1", 4)
    for at in range(20):
        nvml.now_s = at / 2
        gpm.look(nvml.now_s)
    assert gpm.figures(Window(2.0, 6.0)) == Activity(gract=0.05, smact=0.15, smocc=None, drama=0.95)
    assert gpm.figures(Window(2.0, 2.5)) == Activity()
    assert gpm.figures(None) == Activity()
    gpm.close()
    assert nvml.samples == 0


def test_what_is_let_go_is_still_told() -> None:
    """Also of a run that is interrupted, whose figures nobody asks for."""
    nvml = Nvml()
    counting = Counting(OfGpu(nvml, "GPU-1"))
    copy = counting.watch(None, "GPU-1", None, sole=True)
    for now_s in (0.0, 1.0, 2.0):
        nvml.now_s = now_s
        copy.look(now_s)
    assert nvml.samples > 0
    counting.let_go()
    assert nvml.samples == 0
    assert copy.figures(Window(0.0, 2.0))["gract"] == pytest.approx(0.05)


def test_a_gpu_without_counters_has_none() -> None:
    gpm = Gpm(Nvml(counts=False), "GPU-1", None)
    gpm.look(0.0)
    assert gpm.figures(Window(0, 9)) == Activity()
    gpm.close()


def test_the_hosts_part(tmp_path: Path) -> None:
    group = Group(tmp_path)
    copy = OfCopy(group, None)
    for at in range(9):
        (tmp_path / "cpu.stat").write_text(f"usage_usec {1_500_000 * at}\nuser_usec 7\n")
        (tmp_path / "memory.current").write_text(f"{(100 - at) << 20}\n")
        copy.look(float(at))
    found = copy.figures(Window(2.0, 6.0))
    assert found["host_cpus"] == pytest.approx(1.5)
    assert found["mem_peak_mib"] == found["host_mem_peak_mib"] == 100
    (tmp_path / "memory.peak").write_text(f"{300 << 20}\n")
    copy.look(9.0)
    assert copy.figures(None)["host_mem_peak_mib"] == 300
    nothing = OfCopy(None, lambda: None)
    nothing.look(0.0)
    assert nothing.figures(Window(0, 1)) == {"host_cpus": None, "host_mem_peak_mib": None, "mem_peak_mib": None}
