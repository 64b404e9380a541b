"""What a replica's grant is on this host: MIG's UUID and MPS's share, a part of the CPU's time, or nothing at all.

Nothing is cut here: a plan with instances needs them made first (`gpuloom layout apply`). GPUs are used as they are;
CPU devices are taken while they serve: no driver would tell others that they are in use.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from math import ceil
from pathlib import Path
from typing import Any, Protocol

from gpuloom.errors import InputError
from gpuloom.gpus.grant import Device, Grant
from gpuloom.gpus.host.cgroups import Group, Home, Limits
from gpuloom.gpus.host.cpu_driver import CpuDriver
from gpuloom.gpus.host.cutter import Cutter, cutter_of
from gpuloom.gpus.host.mig import StepFailed
from gpuloom.gpus.host.mig_read import GpuState, look
from gpuloom.gpus.host.mps import Daemon, MpsError, daemon_for
from gpuloom.gpus.host.noise import Noise
from gpuloom.gpus.host.nvml import NoDriver, opened
from gpuloom.gpus.host.ownership import Refused
from gpuloom.gpus.model import Instance
from gpuloom.serve.state import State

PATIENCE_S, LAST_PATIENCE_S = 1.0, 10.0
"""For what was killed to go: while others are served, and when nobody is."""
MEASURING = "noise"
"""The group in which a device's noise is measured, by whoever holds the device."""
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class DeviceError(Exception):
    """A device cannot be had, or not be given back; the text says why."""


class Kind(StrEnum):
    NONE = "none"
    GPU = "gpu"
    CPU = "cpu"


@dataclass(frozen=True, slots=True)
class Seat:
    """Where one server runs."""

    environment: Mapping[str, str]
    group: Group | None = None
    """That it has to enter; None: it stays where it was started."""
    oom_kills: int = 0
    """That were counted there before it came."""

    @property
    def doors(self) -> list[str]:
        return [] if self.group is None else [str(door) for door in self.group.doors()]

    def lacked_memory(self) -> bool:
        """Whether the kernel has killed one of its processes for want of memory."""
        return self.group is not None and self.group.oom_kills() > self.oom_kills

    def end(self) -> None:
        """Whoever the server has started is ended too. What stays is tried again when the device is given back."""
        if self.group is not None:
            self.group.end(PATIENCE_S)


class Devices(Protocol):
    @property
    def kind(self) -> Kind: ...
    @property
    def noise(self) -> Noise | None:
        """How steady they are, measured before anything ran there; None where nobody can tell."""

    def seat(self, grant: Grant, name: str) -> Seat:
        """For a server with this grant and name. May start an MPS daemon, and wait for it; DeviceError if it fails."""
        ...


class NoDevices:
    """A machine without a GPU: the share is told for the record only."""

    kind, noise = Kind.NONE, None

    def seat(self, grant: Grant, name: str) -> Seat:  # noqa: ARG002
        return Seat({"CUDA_VISIBLE_DEVICES": "", "GPULOOM_GRANT": str(grant)})


@contextmanager
def devices_of(
    names: Sequence[str], grants: Sequence[Grant], state: State, say: Callable[[str], None] = lambda _: None
) -> Iterator[Devices]:
    """For servers with these grants: the devices that are named, else this host's GPUs, or none without a driver.

    All that was started or taken for them is given back at the end, when the servers and all threads have ended.
    """
    if names:
        with _cpus(names, grants, state, say) as cpus:
            yield cpus
        return
    try:
        with opened():
            pass
    except NoDriver:
        yield NoDevices()
        return
    host = HostDevices(state.mps_dir)
    host.find(grants)
    try:
        yield host
    finally:
        host.release()


def end_left(state: State) -> None:
    """End what a deployment has left that was killed: MPS daemons, groups on CPU devices. DeviceError if that fails."""
    stop_daemons(state.mps_dir)
    names = state.devices()
    if not names:
        return
    with _asking(), cutter_of(names) as cutter:
        ours = [gpu for gpu in range(cutter.count()) if _is_free(cutter, gpu)]
        _give_back(cutter, ours, state)
        if len(ours) == cutter.count():
            state.forget_devices()


# ---- GPUs ----------------------------------------------------------------------------------------------------------


class HostDevices:
    """This host's GPUs: the plan's GPU 0 is the driver's GPU 0."""

    kind, noise = Kind.GPU, None

    def __init__(self, mps_dir: Path) -> None:
        self.mps_dir = mps_dir
        self._uuids: dict[Device, str] = {}
        self._daemons: dict[Device, Daemon] = {}

    def find(self, grants: Sequence[Grant]) -> None:
        """Look every device up; InputError if the plan needs one that is not there."""
        with opened() as nvml:
            count = nvml.nvmlDeviceGetCount()
            for grant in grants:
                if grant.gpu >= count:
                    raise InputError(f"the plan uses GPU {grant.gpu}, but this host has {count}: plan for that many")
                self._uuids[grant.device] = self._uuid(nvml, grant)

    def _uuid(self, nvml: Any, grant: Grant) -> str:
        try:
            state = look(nvml, grant.gpu)
        except nvml.NVMLError as reason:
            raise InputError(f"GPU {grant.gpu} does not answer: {reason}") from None
        if grant.instance is None:
            if state.mig:
                raise InputError(f"the plan uses GPU {grant.gpu} whole, but MIG is on: switch it off first")
            return state.uuid
        if grant.instance not in state.uuids:
            raise InputError(
                f"the plan uses {grant.instance} of GPU {grant.gpu}, which is not there: make it with layout apply"
            )
        return state.uuids[grant.instance]

    def seat(self, grant: Grant, name: str) -> Seat:  # noqa: ARG002
        told = {"GPULOOM_GRANT": str(grant)}
        uuid = self._uuids[grant.device]
        if grant.share_pct >= 100:
            return Seat(told | {"CUDA_VISIBLE_DEVICES": uuid})
        try:
            daemon = self._daemons.get(grant.device)
            if daemon is None:
                daemon = daemon_for(uuid, self.mps_dir)
                daemon.start()
                self._daemons[grant.device] = daemon
            return Seat(told | daemon.client_environment(grant.share_pct, grant.mem_mib))
        except MpsError as reason:
            raise DeviceError(str(reason)) from reason

    def release(self) -> None:
        for daemon in self._daemons.values():  # by their processes, even if somebody has removed the folder
            with suppress(MpsError):
                daemon.stop()
        self._daemons.clear()
        stop_daemons(self.mps_dir)


def stop_daemons(mps_dir: Path) -> None:
    """End the MPS daemons of a deployment, also of one that was killed."""
    for folder in sorted(mps_dir.glob("*-*")):
        if any(folder.glob("pipe/*")):
            with suppress(MpsError):
                Daemon("none", folder).stop()


# ---- CPU devices ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CpuDevices:
    """Parts of this machine's CPU time: the plan's GPU 0 is the first that was named. A share is a quota."""

    driver: CpuDriver
    prefix: str
    """What the names of its servers' groups begin with: whose they are, if they are left."""
    homes: Mapping[Device, Home]
    """Where the groups of each device's servers are. Made before the first is started: several threads start them."""
    noise: Noise
    kind: Kind = Kind.CPU

    def seat(self, grant: Grant, name: str) -> Seat:
        device, instance = self.driver.devices[grant.gpu], cpu_instance(grant.instance)
        group = self.homes[grant.device].group(f"{self.prefix}{name}")
        cpus = device.cpus_of(None if instance is None else instance.profile) * grant.share_pct / 100
        try:
            group.create(Limits(None if grant.share_pct >= 100 else cpus, grant.mem_mib))
        except OSError as error:
            raise DeviceError(f"{group.path}: the kernel refuses a group ({error.strerror})") from error
        # More threads than cores spend a quota in bursts. Our own command line has set the second for itself.
        threads = os.environ.get(THREADS[0]) or str(max(1, ceil(cpus - 0.01)))
        told = {
            "CUDA_VISIBLE_DEVICES": "",
            "GPULOOM_GRANT": str(grant),
            "GPULOOM_DEVICE": device.uuid if instance is None else f"{device.uuid}/{instance}",
            "GPULOOM_PROFILE": "whole" if instance is None else instance.profile,
        }
        return Seat(told | dict.fromkeys(THREADS, threads), group, group.oom_kills())


def cpu_instance(instance: Instance | None) -> Instance | None:
    """The part of a CPU device with as many sevenths at the same start: 3c@4 for 3g.20gb@4."""
    if instance is None:
        return None
    return Instance(instance.start, f"{re.split('[cg]', instance.profile, maxsplit=1)[0]}c")


@contextmanager
def _cpus(
    names: Sequence[str], grants: Sequence[Grant], state: State, say: Callable[[str], None]
) -> Iterator[CpuDevices]:
    used = sorted({grant.gpu for grant in grants})
    with _asking(), cutter_of(names) as cutter:
        driver = cutter.driver
        assert isinstance(driver, CpuDriver)
        if used[-1] >= cutter.count():
            raise InputError(
                f"the plan uses {used[-1] + 1} GPUs, but --device names {cutter.count()}: name as many,"
                f" such as --device {used[-1] + 1}xcpu"
            )
        state.remember_devices(names)
        taken: list[int] = []
        try:
            for gpu in used:
                found = _take(cutter, gpu)
                taken.append(gpu)
                _check(found, [grant for grant in grants if grant.gpu == gpu], names)
            noise = driver.noise(used[0])
            say(f"on a CPU device: {noise}")
            homes = {grant.device: driver.home_for(grant.gpu, cpu_instance(grant.instance)) for grant in grants}
            yield CpuDevices(driver, state.shm_prefix, homes, noise)
        finally:
            _give_back(cutter, taken, state)
            state.forget_devices()


def _take(cutter: Cutter, gpu: int) -> GpuState:
    """Of a runner that was killed the jobs go on, although nobody holds the lock."""
    uuid = cutter.driver.uuid(gpu)
    try:
        state = cutter.take(gpu)
    except Refused as reason:
        raise DeviceError(f"{uuid} cannot be had: {reason}") from reason
    if state.processes:
        raise DeviceError(f"{uuid} is in use by {', '.join(map(str, state.processes))}")
    return state


def _check(state: GpuState, grants: Sequence[Grant], names: Sequence[str]) -> None:
    """InputError unless it is cut, or not cut, as the plan has it."""
    apply = f"gpuloom layout apply --device {' --device '.join(names)} --gpu {state.index}"
    wanted = {instance for grant in grants if (instance := cpu_instance(grant.instance)) is not None}
    if any(grant.instance is None for grant in grants) and state.mig:
        raise InputError(f"the plan uses GPU {state.index} whole, but {state.uuid} is cut: {apply} --to none")
    missing = sorted(wanted - {*state.layout})
    if missing:
        raise InputError(
            f"the plan uses {' and '.join(map(str, missing))} of {state.uuid}, which is not there:"
            f" {apply} --to {','.join(map(str, sorted(wanted)))}"
        )


def _is_free(cutter: Cutter, gpu: int) -> bool:
    """Take it, unless somebody else has it by now."""
    with suppress(Refused):
        cutter.take(gpu)
        return True
    return False


def _give_back(cutter: Cutter, gpus: Sequence[int], state: State) -> None:
    """All of these, which we hold; DeviceError, at the end, if one cannot be."""
    problems = [problem for gpu in gpus if (problem := _leave(cutter, gpu, state.shm_prefix)) is not None]
    if problems:
        raise DeviceError(f"{'; '.join(problems)}: try `gpuloom serve down` later")


def _leave(cutter: Cutter, gpu: int, prefix: str) -> str | None:
    """End the groups with this prefix; the device stays cut as it is, and is given up if that is how it was found."""
    driver = cutter.driver
    assert isinstance(driver, CpuDriver)
    groups = [group for home in driver.homes(gpu) for group in home.groups()]
    ours = [group for group in groups if group.path.name.startswith(prefix) or group.path.name == MEASURING]
    stay = [str(group.path) for group in ours if not group.end(LAST_PATIENCE_S)]
    if stay:
        return f"processes in {' and '.join(stay)} do not end"
    now, found = cutter.look(gpu), cutter.found(gpu)
    if now.processes:  # jobs of a runner that was killed: it will go on with them
        return None
    as_found = found is not None and (found.layout, found.mig) == (now.layout, now.mig)
    outcome = cutter.leave(gpu) if as_found else cutter.apply(gpu, now.layout, keep_mig=now.mig)
    return None if outcome.reason is None else f"{now.uuid} is not as it was found: {outcome.reason}"


@contextmanager
def _asking() -> Iterator[None]:
    try:
        yield
    except (NoDriver, Refused, StepFailed) as reason:
        raise DeviceError(str(reason)) from reason
