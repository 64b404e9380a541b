"""Cutting a CPU device: its instances are control groups with a quota of CPU time and a memory limit.

A device has a home of its own among the groups, which is there while it is cut or used. In it `cut` holds the instances
and `whole` stands for the device as it is; like a GPU's MIG mode, a device has one or the other. The kernel keeps what
was made, so another gpuloom finds it, by the record in the state folder that is there as long as the device is taken.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from gpuloom.gpus.host.cgroups import Group, Home, Limits, NoCgroups
from gpuloom.gpus.host.cpu import CpuDevice, Reserved, cpu_model, overload
from gpuloom.gpus.host.driver import GpuState, Part, Process, StepFailed, process_name
from gpuloom.gpus.host.files import Lock, NotOursError, open_lock, own_folder, read_own, try_lock, write_whole
from gpuloom.gpus.host.health import Health
from gpuloom.gpus.host.homes import find_home, key_of, leave_home
from gpuloom.gpus.host.noise import PIECES, Noise, measure
from gpuloom.gpus.host.nvml import Code, NoDriver
from gpuloom.gpus.host.ownership import Claims
from gpuloom.gpus.model import GpuModel, Instance

CUT, WHOLE = "cut", "whole"
SUFFIX = ".cpu"
_PATIENCE_S = 5.0


@dataclass(frozen=True, slots=True)
class Record:
    """What is kept of a device as long as it is taken."""

    cores: tuple[int, ...]
    part: float
    cpus: float
    mem_mib: int
    unified: Path | None
    """Its home; None: it has none yet."""
    version_1: Mapping[str, Path]
    beside: tuple[Path, ...] = ()
    """Groups elsewhere whose processes have it whole, of jobs with several devices."""


@contextmanager
def cpu_driver(devices: Sequence[CpuDevice], folder: Path) -> "Iterator[CpuDriver]":
    """A `driver.Driver`; NoDriver, with what would help, where the kernel does not let us make groups with limits."""
    driver = CpuDriver(devices, folder)
    if not all((folder / f"{device.uuid}{SUFFIX}").exists() for device in devices):
        _try_out(any(device.pinned for device in devices))
    yield driver


def _try_out(pinned: bool) -> None:
    """Whether it works cannot be seen otherwise."""
    try:
        home = find_home(f"try-{os.getpid()}")
    except NoCgroups as reason:
        raise NoDriver(f"CPU devices need cgroups: {reason}") from None
    lacking = home.why_no_limit(Limits(1.0, 1, cores=(0,) if pinned else None))
    leave_home(home)
    if lacking is not None:
        advice = "; without cpuset, name no cores: cpu=50% is a part of the time of all" if pinned else ""
        raise NoDriver(f"CPU devices: {lacking}: have it delegated, or boot with it{advice}")


class CpuDriver:
    mends_in_place = True
    lingers = False

    def __init__(self, devices: Sequence[CpuDevice], folder: Path) -> None:
        self._folder = folder
        self.devices = tuple(map(self._as_taken, devices))

    def _as_taken(self, device: CpuDevice) -> CpuDevice:
        """As long as it is ours it stays what it was, also for one who is allowed more or less of the machine."""
        try:
            told = self._told(device.uuid)
        except StepFailed:  # whoever looks at it will be told
            return device
        if told is None:
            return device
        return replace(device, cpus=told.cpus, model=cpu_model(told.cpus, told.mem_mib))

    # ---- looking -----------------------------------------------------------------------------------------------

    def awake(self) -> AbstractContextManager[object]:
        return nullcontext()  # the kernel always is

    def count(self) -> int:
        return len(self.devices)

    def uuid(self, gpu: int) -> str:
        return self.devices[gpu].uuid

    def home(self, device: CpuDevice) -> Home | None:
        """None: it is neither cut nor used."""
        told = self._told(device.uuid)
        home = None if told is None or told.unified is None else Home(told.unified, told.version_1)
        return None if home is None or not home.unified.is_dir() else home

    def look(self, gpu: int, model: GpuModel | None = None) -> GpuState:  # noqa: ARG002 (it is known)
        device = self.devices[gpu]
        home = self.home(device)
        cut = None if home is None else home.group(CUT)
        on = cut is not None and cut.exists
        groups = _instances(cut, device.model) if cut is not None else {}
        usable = {instance for instance in groups if home is not None and self._holds(device, home, instance)}
        parts = [
            Part(instance.start, instance, device.uuid_of(instance) if instance in usable else None)
            for instance in sorted(groups)
        ]
        users: dict[int, Instance | None] = {}
        for instance, group in groups.items():
            users |= dict.fromkeys(group.processes(), instance)
        if home is not None:
            users |= dict.fromkeys(home.group(WHOLE).processes())
        told = self._told(device.uuid)
        for path in () if told is None else told.beside:
            users |= dict.fromkeys(Group(path).processes())
        running = tuple(Process(pid, process_name(pid), users[pid]) for pid in sorted(users))
        return GpuState(gpu, device.uuid, device.name, device.model, on, on, tuple(parts), running)

    def _holds(self, device: CpuDevice, home: Home, instance: Instance) -> bool:
        """Whether all limits of this instance are as they should be."""
        group = Home(home.group(CUT).path, home.group(CUT).twins).group(str(instance))
        return group.holds(limits(device, instance)) and Group(home.unified, home.version_1).holds(_cores(device))

    # ---- whose it is -------------------------------------------------------------------------------------------

    def health(self, gpu: int) -> Health:  # noqa: ARG002
        return Health()

    def why_not_ours(self, gpu: int) -> str | None:
        """Another device of this machine's that is taken may have the same cores."""
        if self._told(self.devices[gpu].uuid) is not None:
            return None
        return overload(self.devices[gpu], self._others())

    def reserve(self, gpu: int) -> str | None:
        """Note that its cores are taken; why they cannot be, if so. One after the other, whoever asks."""
        device = self.devices[gpu]
        with _doing(f"reserve {device.uuid}"), self._alone():
            reason = self.why_not_ours(gpu)
            if reason is None:
                self._write(device, None)
            return reason

    def release(self, gpu: int) -> None:
        """Its cores are free again. A home that is still there is another's to find."""
        self._record(self.devices[gpu].uuid).unlink(missing_ok=True)

    def _others(self) -> list[Reserved]:
        """Who has something of this machine's cores. What was noted by one who died before taking it is void."""
        ours, found = {device.uuid for device in self.devices}, []
        with Claims(self._folder) as claims:
            for path in self._folder.glob(f"CPU-*{SUFFIX}"):
                uuid = path.name.removesuffix(SUFFIX)
                told = None if uuid in ours else self._told(uuid)
                if told is not None and (claims.found(uuid) is not None or claims.holder(uuid) is not None):
                    found.append(Reserved(uuid, told.cores, told.part))
        return found

    @contextmanager
    def _alone(self) -> Iterator[None]:
        own_folder(self._folder)
        lock = open_lock(self._folder / "cpu-devices.lock")
        try:
            if not try_lock(lock, Lock.ALONE, _PATIENCE_S):
                raise StepFailed(f"another gpuloom keeps {self._folder / 'cpu-devices.lock'}")
            yield
        finally:
            os.close(lock)

    def lend(self, gpu: int, group: Path, *, back: bool = False) -> None:
        """Note who has a device whole without being in its groups: a job with several. `back`: it has left it."""
        device = self.devices[gpu]
        with _doing(f"note who uses {device.uuid}"):
            told = self._told(device.uuid)
            before = () if told is None else told.beside
            if back == (group in before):
                there = [path for path in before if path.is_dir() and path != group]
                self._write(device, self.home(device), [*there, *([] if back else [group])])

    def _write(self, device: CpuDevice, home: Home | None, beside: Sequence[Path] | None = None) -> None:
        before = self._told(device.uuid) if beside is None else None
        told = {
            "cores": list(device.cores),
            "part": device.part,
            "cpus": device.cpus,
            "mem_mib": device.model.mem_mib,
            "unified": None if home is None else str(home.unified),
            "version_1": {} if home is None else {name: str(path) for name, path in home.version_1.items()},
            "beside": [str(path) for path in beside or (() if before is None else before.beside)],
        }
        write_whole(self._record(device.uuid), json.dumps(told))

    def _told(self, uuid: str) -> "Record | None":
        try:
            told = json.loads(read_own(self._record(uuid)))
            return Record(
                tuple(int(core) for core in told["cores"]),
                float(told["part"]),
                float(told["cpus"]),
                int(told["mem_mib"]),
                None if told["unified"] is None else Path(told["unified"]),
                {str(name): Path(path) for name, path in told["version_1"].items()},
                tuple(Path(path) for path in told.get("beside", ())),
            )
        except FileNotFoundError:
            return None
        except NotOursError as error:
            raise StepFailed(str(error)) from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StepFailed(f"{self._record(uuid)} cannot be understood; remove it if nobody uses {uuid}") from error

    def _record(self, uuid: str) -> Path:
        return self._folder / f"{uuid}{SUFFIX}"

    # ---- changing ----------------------------------------------------------------------------------------------

    def set_mode(self, state: GpuState, on: bool) -> None:
        device = self.devices[state.index]
        with _doing(f"make {device.uuid} {'one that is cut' if on else 'whole'}"):
            if on:
                home = self._make_home(device)
                if not home.group(WHOLE).remove():
                    raise StepFailed(f"{device.uuid} is in use as a whole", Code.IN_USE)
                home.group(CUT).create()
                home.group(CUT).as_home()
            elif (there := self.home(device)) is not None:
                cut = there.group(CUT)
                if _instances(cut, device.model) or not cut.remove():
                    raise StepFailed(f"{device.uuid} has instances, or is in use", Code.IN_USE)
                if not there.group(WHOLE).remove():
                    raise StepFailed(f"{device.uuid} is in use as a whole", Code.IN_USE)
                self._write(device, None)
                leave_home(there)

    def create(self, state: GpuState, instance: Instance) -> None:
        device = self.devices[state.index]
        with _doing(f"create {instance}"):
            group = self._make_home(device).group(CUT).as_home().group(str(instance))
            try:
                group.create(limits(device, instance))
            except OSError:
                group.remove()
                raise
            group.as_home()

    def mend(self, state: GpuState, part: Part) -> None:
        """Somebody has changed its limits, or we were killed before all were set."""
        device = self.devices[state.index]
        with _doing(f"complete {part.instance}"):
            group, home = self._group(state.index, part.instance), self.home(device)
            if home is not None and device.pinned:
                Group(home.unified, home.version_1).limit(_cores(device))
            group.create(limits(device, part.instance))
            group.as_home()

    def destroy(self, state: GpuState, part: Part) -> None:
        if not self._group(state.index, part.instance).remove():
            raise StepFailed(f"destroy {part.instance}: it is in use", Code.IN_USE)

    def _group(self, gpu: int, instance: Instance) -> Group:
        home = self.home(self.devices[gpu])
        if home is None:
            raise StepFailed(f"{self.devices[gpu].uuid} has no {instance}: its control groups are gone")
        return home.group(CUT).as_home().group(str(instance))

    def _make_home(self, device: CpuDevice) -> Home:
        home = self.home(device)
        if home is not None:
            return home
        try:
            home = find_home(f"cpu-{key_of(self._folder / device.uuid)}")
        except NoCgroups as reason:
            raise StepFailed(str(reason)) from None
        if device.pinned:
            group = Group(home.unified, home.version_1)
            group.create(_cores(device))
            group.as_home()
        self._write(device, home)
        return home

    # ---- for those who run there -------------------------------------------------------------------------------

    def home_for(self, gpu: int, instance: Instance | None) -> Home:
        """Where groups of those live who have this device, or this instance of it."""
        device = self.devices[gpu]
        if instance is not None:
            group, home = self._group(gpu, instance), self.home(device)
            if home is None or not group.exists:
                raise StepFailed(f"{device.uuid} has no {instance}")
            if not self._holds(device, home, instance):  # somebody has changed them
                self.mend(self.look(gpu), Part(instance.start, instance, None))
            return group.as_home()
        with _doing(f"use {device.uuid} whole"):
            group = self._make_home(device).group(WHOLE)
            group.create(limits(device, None))
            return group.as_home()

    def noise(self, gpu: int, pieces: int = PIECES) -> Noise:
        """Of a device that nobody uses."""
        device, before = self.devices[gpu], self.look(gpu)
        home = self.home_for(gpu, None)
        try:
            return measure(home, max(1, round(device.cpus)), pieces)
        finally:
            if before.mig:
                Group(home.unified, home.version_1).remove()
            else:
                self.set_mode(before, on=False)

    def homes(self, gpu: int) -> list[Home]:
        """Those that are there now."""
        home = self.home(self.devices[gpu])
        if home is None:
            return []
        whole, cut = home.group(WHOLE), home.group(CUT)
        there = [*([whole] if whole.exists else []), *_instances(cut, self.devices[gpu].model).values()]
        return [Home(group.path, group.twins) for group in there]


def limits(device: CpuDevice, instance: Instance | None) -> Limits:
    if instance is None:
        return Limits(device.cpus, device.model.mem_mib)
    return Limits(device.cpus_of(instance.profile), device.model.by_name[instance.profile].mem_mib)


def _cores(device: CpuDevice) -> Limits:
    """Of all of it, where it has not all of them."""
    return Limits(cores=device.cores if device.pinned else None)


def _instances(cut: Group, model: GpuModel) -> Mapping[Instance, Group]:
    """Those that are there, whole or half-made."""
    found = {}
    for group in Home(cut.path, cut.twins).groups():
        profile, _, start = group.path.name.partition("@")
        if profile in model.by_name and start.isdecimal():
            found[Instance(int(start), profile)] = group
    return found


@contextmanager
def _doing(what: str) -> Iterator[None]:
    try:
        yield
    except NotOursError as error:
        raise StepFailed(f"{what}: {error}") from error
    except OSError as error:
        raise StepFailed(f"{what}: the kernel refuses ({error.strerror}: {error.filename})") from error
