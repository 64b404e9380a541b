"""What the host and the device counted while a run was measured. What nobody counts is None, never 0.

Each counter is looked at every now and then and asked for a stretch of time afterwards, since it is known only at the
end which part of a run counts. Totals (CPU time, energy) are interpolated between looks.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any

import numpy as np

from gpuloom.gpus.host.cgroups import Group
from gpuloom.gpus.host.nvml import ask
from gpuloom.measure.campaign.gpm import Gpm
from gpuloom.measure.steps import Window

EVERY_S = 0.25
"""Between two looks."""
MIB = 1 << 20


class Total:
    """Something that only grows, as it was at each look."""

    def __init__(self, read: Callable[[], float | None]) -> None:
        self._read = read
        self._at: list[float] = []
        self._values: list[float] = []

    def look(self, now_s: float) -> None:
        value = self._read()
        if value is not None:
            self._at.append(now_s)
            self._values.append(value)

    def grown(self, within: Window) -> float | None:
        """Meanwhile; None unless it was looked at before and after."""
        if len(self._at) < 2 or self._at[0] > within.begin_s + EVERY_S or self._at[-1] < within.end_s - 2 * EVERY_S:
            return None
        first, last = np.interp((within.begin_s, within.end_s), self._at, self._values)
        return float(last - first)


class OfCopy:
    """One copy: what its control group and its device say of it."""

    def __init__(self, group: Group | None, device_mib: Callable[[], float | None] | None) -> None:
        """`device_mib`: of the device, now; None: its memory is the host's, as on a CPU device."""
        self._group, self._device_mib = group, device_mib
        self._cpu_s = Total(lambda: None if group is None else group.cpu_s())
        self._host_mib: float | None = None
        self._peak_mib: float | None = None

    def look(self, now_s: float) -> None:
        self._cpu_s.look(now_s)
        if self._group is not None:
            # Not every kernel keeps the peak; then it is the most that was seen.
            kept = self._group.memory_mib(peak=True)
            self._host_mib = _most(self._host_mib, self._group.memory_mib(peak=False) if kept is None else kept)
        self._peak_mib = _most(self._peak_mib, self._host_mib if self._device_mib is None else self._device_mib())

    def figures(self, within: Window | None) -> dict[str, float | None]:
        used_s = None if within is None else self._cpu_s.grown(within)
        return {
            "host_cpus": None if used_s is None or within is None else used_s / (within.end_s - within.begin_s),
            "host_mem_peak_mib": self._host_mib,
            "mem_peak_mib": self._peak_mib or None,  # 0: it was not seen to use any
        }


def _most(one: float | None, other: float | None) -> float | None:
    return max((value for value in (one, other) if value is not None), default=None)


@dataclass(frozen=True, slots=True)
class Counted:
    """Of the whole device in a stretch of time."""

    power_w: float | None = None
    energy_j: float | None = None


class OfGpu:
    """One GPU through NVML: power and energy of all of it, memory by device or by process."""

    def __init__(self, nvml: Any, uuid: str) -> None:
        self._nvml, self.uuid = nvml, uuid
        self._handle = ask(nvml, nvml.nvmlDeviceGetHandleByUUID, uuid)
        self._energy_mj = Total(partial(self._number, nvml.nvmlDeviceGetTotalEnergyConsumption))
        self._watts: list[tuple[float, float]] = []

    def look(self, now_s: float) -> None:
        self._energy_mj.look(now_s)
        milliwatts = self._number(self._nvml.nvmlDeviceGetPowerUsage)
        if milliwatts is not None:
            self._watts.append((now_s, milliwatts / 1e3))

    def figures(self, within: Window | None) -> Counted:
        """Energy by its own counter, else power times time; power by that energy, else the mean of what was seen."""
        if within is None:
            return Counted()
        seconds, used_mj = within.end_s - within.begin_s, self._energy_mj.grown(within)
        if used_mj is not None:
            return Counted(used_mj / 1e3 / seconds, used_mj / 1e3)
        seen = [watts for at_s, watts in self._watts if within.begin_s <= at_s <= within.end_s]
        return Counted(fmean(seen), fmean(seen) * seconds) if seen else Counted()

    def _number(self, question: Callable[[Any], Any]) -> float | None:
        value = None if self._handle is None else ask(self._nvml, question, self._handle)
        return None if value is None else float(value)

    def used_mib(self, uuid: str) -> float | None:
        """Of a device that one copy has for itself, by its UUID: all that is used there."""
        handle = ask(self._nvml, self._nvml.nvmlDeviceGetHandleByUUID, uuid)
        memory = None if handle is None else ask(self._nvml, self._nvml.nvmlDeviceGetMemoryInfo, handle)
        return None if memory is None else int(memory.used) / MIB

    def used_by_mib(self, processes: Callable[[], Sequence[int]]) -> float | None:
        """Of a GPU that several share: of these processes, where the driver tells them apart."""
        there = None if self._handle is None else ask(
            self._nvml, self._nvml.nvmlDeviceGetComputeRunningProcesses, self._handle
        )  # fmt: skip
        ours = {*processes()}
        used = [process.usedGpuMemory for process in there or () if process.pid in ours]
        return None if not used or None in used else sum(used) / MIB

    def activity(self, instance_id: int | None) -> Gpm:
        """Of the whole, or of an instance by its number."""
        return Gpm(self._nvml, self._handle, instance_id)
