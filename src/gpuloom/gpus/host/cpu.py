"""The CPU as a device: which part of this machine's time stands for a GPU, how people write that, what it is cut into.

A device is the time of some cores. It is cut in sevenths, with the placements of an A100, so that the same layouts and
policies apply: 3c is three sevenths of its time and half of its memory. Nothing is changed here; see `cpu_driver`.
"""

import os
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from gpuloom.errors import InputError
from gpuloom.gpus.host.cgroups import NO_LIMITS, Limits, Mounts, mounts_here, ranges
from gpuloom.gpus.model import GpuModel, Instance, Profile

FORMS = "cpu (all cores), cpu:0-3 (these), cpu=50% or cpu:0=50% (a part of their time), 2xcpu (dealt out to two)"
KEPT_CPUS = 0.1
"""Of a device's cores, if no part is named: for the runner and the kernel, while all instances are busy."""
KEPT_MEMORY = 0.1
SLICES = 7
_SHAPES = ((1, 1, (0, 1, 2, 3, 4, 5, 6)), (2, 2, (0, 2, 4)), (3, 4, (0, 4)), (4, 4, (0,)), (7, 8, (0,)))
"""Sevenths of the time, eighths of the memory, where it may start: an A100's."""
_FORM = re.compile(r"(?:([1-9][0-9]{0,2})x)?cpu(?::([0-9,-]+))?(?:=([0-9.]+)%)?")
THREADS = "OMP_NUM_THREADS"
LEAST_CPUS, LEAST_MIB = 0.05, 64
MOST_MIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Machine:
    cores: tuple[int, ...]
    """That this process may use."""
    cpus: float
    """So many of them at once: fewer than there are where a container has a quota."""
    mem_mib: int

    @property
    def of_a_core(self) -> float:
        """How much of each there is to be had."""
        return min(self.cpus / len(self.cores), 1.0)


@dataclass(frozen=True, slots=True)
class CpuDevice:
    uuid: str
    cores: tuple[int, ...]
    cpus: float
    """Its time, in cores."""
    part: float
    """Of what can be had of each of its cores."""
    pinned: bool
    """It has not all the cores of this machine, so its jobs are kept on those that it has."""
    model: GpuModel

    @property
    def name(self) -> str:
        return f"{self.cpus:g} of core{'s' if len(self.cores) > 1 else ''} {ranges(self.cores)}"

    def cpus_of(self, profile: str | None) -> float:
        """The time of an instance; None: of the whole."""
        return self.cpus if profile is None else self.cpus * self.model.by_name[profile].slices / SLICES

    def uuid_of(self, instance: Instance | None) -> str:
        return self.uuid if instance is None else f"{self.uuid}/{instance}"


@dataclass(frozen=True, slots=True)
class Reserved:
    """What somebody has of this machine's cores."""

    uuid: str
    cores: tuple[int, ...]
    part: float


@cache
def cpu_model(cpus: float, mem_mib: int) -> GpuModel:
    """What a device of so much time and memory can be cut into. An SM is a seventh here."""
    unit_mib = mem_mib // 8
    profiles = tuple(
        Profile(f"{slices}c", at, slices, size, starts, unit_mib * size, slices, limit=len(starts))
        for at, (slices, size, starts) in enumerate(_SHAPES)
    )
    return GpuModel(f"CPU-{cpus:g}", unit_mib * 8, SLICES, units=8, profiles=profiles)


def parse_devices(texts: Sequence[str], machine: Machine) -> tuple[CpuDevice, ...]:
    """The devices that these words name, in order; InputError if there is no such part of the machine."""
    wanted = [part for text in texts for part in _parts(text.strip().lower(), text, machine)]
    seen = Counter[str]()
    devices = []
    for cores, cpus, name in wanted:
        seen[name] += 1
        devices.append(_device(cores, cpus, f"CPU-{name}" + (f"-{seen[name]}" if seen[name] > 1 else ""), machine))
    for device in devices:
        reason = overload(device, [other for other in devices if other != device])
        if reason is not None:
            raise InputError(f"--device {' --device '.join(texts)}: {reason}")
    return tuple(devices)


def overload(device: CpuDevice | Reserved, others: Sequence[CpuDevice | Reserved]) -> str | None:
    """Why it cannot be beside these: they would be promised more of a core than there is."""
    for core in device.cores:
        taken = {other.uuid: other.part for other in others if core in other.cores}
        if device.part + sum(taken.values()) > 1 + 1e-9:
            names, theirs = ", ".join(taken), sum(taken.values())
            return f"{device.uuid} would have {device.part:.0%} of core {core}, of which {names} has {theirs:.0%}"
    return None


Part = tuple[tuple[int, ...], float, str]
"""Cores, how many of them at once, and a name."""


def _parts(text: str, written: str, machine: Machine) -> list[Part]:
    match = _FORM.fullmatch(text)
    if match is None:
        raise InputError(f"--device {written}: not a device; accepted are {FORMS}")
    number = int(match[1] or 1)
    cores = machine.cores if match[2] is None else _cores(match[2], written, machine)
    pct = None if match[3] is None else _percent(match[3], written)
    if pct is None and len(cores) % number == 0:
        each = len(cores) // number
        dealt = [cores[at * each : (at + 1) * each] for at in range(number)]
        return [(own, _time(own, None, machine), _name(own)) for own in dealt]
    whole = _time(cores, pct, machine)
    name = _name(cores) + ("" if pct is None else f"-{pct:g}pct") + (f"-{number}th" if number > 1 else "")
    return [(cores, whole / number, name)] * number


def _time(cores: tuple[int, ...], pct: float | None, machine: Machine) -> float:
    """In cores: a part of what these are, where a container has only a part of them."""
    there = len(cores) * machine.of_a_core
    return round(there - KEPT_CPUS if pct is None else there * pct / 100, 6)


def _name(cores: tuple[int, ...]) -> str:
    return ranges(cores).replace(",", "_")


def _cores(text: str, written: str, machine: Machine) -> tuple[int, ...]:
    cores: set[int] = set()
    for item in text.split(","):
        first, dash, last = item.partition("-")
        if not (first.isdecimal() and len(first) < 6 and (not dash or (last.isdecimal() and len(last) < 6))):
            raise InputError(f"--device {written}: {item!r} is no core; accepted are numbers and ranges such as 0-3,8")
        cores |= {*range(int(first), int(last or first) + 1)}
    missing = cores - {*machine.cores}
    if missing or not cores:
        which = f"no core {ranges([*missing])}" if missing else "no core in that range"
        raise InputError(f"--device {written}: this machine has {which}; accepted are {ranges(machine.cores)}")
    return tuple(sorted(cores))


def _percent(text: str, written: str) -> float:
    with suppress(ValueError):
        if 0 < (pct := float(text)) <= 100:
            return pct
    raise InputError(f"--device {written}: {text}% is no part of a core's time; accepted are more than 0 up to 100")


def _device(cores: tuple[int, ...], cpus: float, uuid: str, machine: Machine) -> CpuDevice:
    part = cpus / len(cores) / machine.of_a_core
    mem_mib = int(machine.mem_mib * (1 - KEPT_MEMORY) * part * len(cores) / len(machine.cores)) // 8 * 8
    if cpus < LEAST_CPUS or mem_mib // 8 < LEAST_MIB:
        raise InputError(
            f"--device: {uuid} would be {cpus:.2g} cores and {mem_mib:,} MiB: too little to be cut into sevenths"
        )
    return CpuDevice(uuid, cores, cpus, part, cores != machine.cores, cpu_model(cpus, mem_mib))


def this_machine() -> Machine:
    """As this process sees it, with the limits of a container that it may be in."""
    cores, mounts = tuple(sorted(os.sched_getaffinity(0))), mounts_here()
    total_mib = int(Path("/proc/meminfo").read_text(encoding="ascii").split()[1]) // 1024
    limits = [_mib(folder) for folder in _own_groups(mounts, "memory")]
    quotas = [_quota(folder) for folder in _own_groups(mounts, "cpu")]
    return Machine(cores, min([len(cores), *filter(None, quotas)]), min([total_mib, *filter(None, limits)]))


def environment_on(device: CpuDevice, instance: Instance | None, cpus: float) -> dict[str, str]:
    """What a process there is told. `cpus`: so much time its threads will have for good."""
    # More threads than that only wait for each other, and spend the quota on it.
    return {
        "CUDA_VISIBLE_DEVICES": "",
        "GPULOOM_DEVICE": device.uuid_of(instance),
        "GPULOOM_PROFILE": "whole" if instance is None else instance.profile,
        THREADS: os.environ.get(THREADS) or str(max(1, round(cpus))),
    }


def limits_on(there_cpus: float, share_pct: float, mem_mib: int | None, own: Limits = NO_LIMITS) -> Limits:
    """Of a group with a share of so much time; `own`: those that it has anyway."""
    limits = own.within(there_cpus * share_pct / 100, mem_mib)
    # What is no less than there is needs no limit, and version 1 would refuse one.
    return replace(limits, cpus=None) if (limits.cpus or there_cpus) >= there_cpus else limits


def _own_groups(mounts: Mounts, controller: str) -> list[Path]:
    """This process's group and those that it is in, where limits of this kind may be set."""
    top, name = mounts.version_1.get(controller), controller
    if top is None:
        top, name = mounts.unified, ""
    if top is None:
        return []
    own = top / mounts.own.get(name, "/").lstrip("/")
    return [folder for folder in (own, *own.parents) if folder.is_relative_to(top)]


def _mib(folder: Path) -> int | None:
    for name in ("memory.max", "memory.limit_in_bytes"):
        with suppress(OSError, ValueError):
            mib = int((folder / name).read_text(encoding="ascii")) >> 20
            return mib if mib < MOST_MIB else None
    return None


def _quota(folder: Path) -> float | None:
    with suppress(OSError, ValueError):
        quota, period = (folder / "cpu.max").read_text(encoding="ascii").split()
        return int(quota) / int(period)
    with suppress(OSError, ValueError):
        quota, period = ((folder / f"cpu.cfs_{name}_us").read_text(encoding="ascii") for name in ("quota", "period"))
        return int(quota) / int(period) if int(quota) > 0 else None
    return None
