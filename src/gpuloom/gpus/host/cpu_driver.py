"""Cutting a CPU device: its instances are control groups with a quota of CPU time and a memory limit.

A device has a home of its own among the groups, which is there while it is cut or used. In it `cut` holds the instances
and `whole` stands for the device as it is; like a GPU's MIG mode, a device has one or the other. The kernel keeps what
was made, so another gpuloom finds it, by the record in the state folder that says where the home is.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gpuloom.gpus.host.cgroups import Group, Home, Limits, NoCgroups
from gpuloom.gpus.host.cpu import CpuDevice, overload
from gpuloom.gpus.host.files import NotOursError, own_folder, read_own, write_whole
from gpuloom.gpus.host.homes import find_home, key_of, leave_home
from gpuloom.gpus.host.mig import StepFailed
from gpuloom.gpus.host.mig_read import GpuState, Part, Process, process_name
from gpuloom.gpus.host.noise import PIECES, Noise, measure
from gpuloom.gpus.host.nvml import Code, NoDriver
from gpuloom.gpus.model import GpuModel, Instance

CUT, WHOLE = "cut", "whole"


@contextmanager
def cpu_driver(devices: Sequence[CpuDevice], folder: Path) -> "Iterator[CpuDriver]":
    """A `driver.Driver`; NoDriver, with what would help, where the kernel does not let us make groups with limits."""
    driver = CpuDriver(devices, folder)
    if any(driver.home(device) is None for device in devices):
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
    def __init__(self, devices: Sequence[CpuDevice], folder: Path) -> None:
        self.devices, self._folder = tuple(devices), folder

    # ---- looking -----------------------------------------------------------------------------------------------

    def count(self) -> int:
        return len(self.devices)

    def uuid(self, gpu: int) -> str:
        return self.devices[gpu].uuid

    def home(self, device: CpuDevice) -> Home | None:
        """None: it is neither cut nor used."""
        told = self._told(device.uuid)
        if told is None or not Path(told["unified"]).is_dir():
            return None
        return Home(Path(told["unified"]), {name: Path(path) for name, path in told["version_1"].items()})

    def look(self, gpu: int, model: GpuModel | None = None) -> GpuState:  # noqa: ARG002 (it is known)
        device = self.devices[gpu]
        home = self.home(device)
        cut = None if home is None else home.group(CUT)
        on = cut is not None and cut.exists
        groups = _instances(cut, device.model) if cut is not None else {}
        parts = [
            Part(
                instance.start, instance, f"{device.uuid}/{instance}" if group.holds(limits(device, instance)) else None
            )
            for instance, group in sorted(groups.items())
        ]
        users: dict[int, Instance | None] = {}
        for instance, group in groups.items():
            users |= dict.fromkeys(group.processes(), instance)
        if home is not None:
            users |= dict.fromkeys(home.group(WHOLE).processes())
        running = tuple(Process(pid, process_name(pid), users[pid]) for pid in sorted(users))
        return GpuState(gpu, device.uuid, device.name, device.model, on, on, tuple(parts), running)

    def why_not_ours(self, gpu: int) -> str | None:
        """Another device of this machine's that is in use may have the same cores."""
        ours = {device.uuid for device in self.devices}
        paths = [path for path in self._folder.glob("CPU-*.home") if path.stem not in ours]
        found = {path.stem: told for path in paths if (told := self._told(path.stem)) is not None}
        device = self.devices[gpu]
        others = [
            CpuDevice(uuid, tuple(told["cores"]), told["cpus"], pinned=False, model=device.model)
            for uuid, told in found.items()
            if Path(told["unified"]).is_dir()
        ]
        return overload(device, others)

    def _told(self, uuid: str) -> dict[str, Any] | None:
        try:
            told = json.loads(read_own(self._record(uuid)))
            return {
                "unified": str(told["unified"]),
                "version_1": {str(name): str(path) for name, path in told["version_1"].items()},
                "cores": [int(core) for core in told["cores"]],
                "cpus": float(told["cpus"]),
            }
        except FileNotFoundError:
            return None
        except NotOursError as error:
            raise StepFailed(str(error)) from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StepFailed(f"{self._record(uuid)} cannot be understood; remove it if nobody uses {uuid}") from error

    def _record(self, uuid: str) -> Path:
        return self._folder / f"{uuid}.home"

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
                if not there.group(CUT).remove():
                    raise StepFailed(f"{device.uuid} is in use, or has instances", Code.IN_USE)
                if there.group(WHOLE).remove():
                    leave_home(there)
                    self._record(device.uuid).unlink(missing_ok=True)

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
        with _doing(f"complete {part.instance}"):
            group = self._group(state.index, part.instance)
            group.create(limits(self.devices[state.index], part.instance))
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
            Group(home.unified, home.version_1).create(Limits(cores=device.cores))
        told = {
            "unified": str(home.unified),
            "version_1": {name: str(path) for name, path in home.version_1.items()},
            "cores": list(device.cores),
            "cpus": device.cpus,
        }
        own_folder(self._folder)
        write_whole(self._record(device.uuid), json.dumps(told))
        return home

    # ---- for those who run there -------------------------------------------------------------------------------

    def home_for(self, gpu: int, instance: Instance | None) -> Home:
        """Where groups of those live who have this device, or this instance of it."""
        device = self.devices[gpu]
        if instance is not None:
            group = self._group(gpu, instance)
            if not group.holds(limits(device, instance)):
                raise StepFailed(f"{device.uuid} has no {instance}")
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
