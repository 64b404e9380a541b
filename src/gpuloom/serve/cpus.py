"""Parts of this machine's CPU time for servers: each has a control group with a quota, inside that of its instance.

They are taken while they serve: no driver would tell others that they are in use. Nothing is cut here.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from gpuloom.errors import InputError
from gpuloom.gpus.grant import Device, Grant
from gpuloom.gpus.host.cgroups import Home
from gpuloom.gpus.host.cpu import environment_on, limits_on, parse_devices, this_machine
from gpuloom.gpus.host.cpu_driver import CpuDriver
from gpuloom.gpus.host.cutter import Cutter, cutter_of
from gpuloom.gpus.host.driver import GpuState, StepFailed
from gpuloom.gpus.host.noise import GROUP as NOISE
from gpuloom.gpus.host.noise import Noise
from gpuloom.gpus.host.nvml import NoDriver
from gpuloom.gpus.host.ownership import Refused
from gpuloom.gpus.model import Instance
from gpuloom.serve.seats import DeviceError, Kind, Seat
from gpuloom.serve.state import State

PATIENCE_S = 10.0
"""For what was killed to go, when nobody is served any more."""


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
        there = device.cpus_of(None if instance is None else instance.profile)
        try:
            group.create(limits_on(there, grant.share_pct, grant.mem_mib))
        except OSError as error:
            raise DeviceError(f"{group.path}: the kernel refuses a group ({error.strerror})") from error
        told = environment_on(device, instance, there * grant.share_pct / 100)
        return Seat(told | {"GPULOOM_GRANT": str(grant)}, group, group.oom_kills())


def cpu_instance(instance: Instance | None) -> Instance | None:
    """The part of a CPU device with as many sevenths at the same start: 3c@4 for 3g.20gb@4."""
    if instance is None:
        return None
    return Instance(instance.start, f"{re.split('[cg]', instance.profile, maxsplit=1)[0]}c")


def check_made_for(gpu_type: str, names: Sequence[str]) -> None:
    """InputError if a plan is for another CPU device: its shares are of that one's time."""
    if not gpu_type.startswith("CPU-"):
        return
    if not names:
        raise InputError(f"the plan is for {gpu_type}: expected --device and --models, as it was measured")
    other = next((one for one in parse_devices(names, this_machine()) if one.model.name != gpu_type), None)
    if other is not None:
        raise InputError(
            f"the plan is for {gpu_type}, but --device names {other.model.name}: expected that one, or a plan for this"
        )


@contextmanager
def cpus_of(
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


def _end_groups(cutter: Cutter, gpu: int, prefix: str, patience_s: float) -> list[str]:
    """Those whose names begin with this; the paths of those that do not end."""
    driver = cutter.driver
    assert isinstance(driver, CpuDriver)
    groups = [group for home in driver.homes(gpu) for group in home.groups() if group.path.name.startswith(prefix)]
    return [str(group.path) for group in groups if not group.end(patience_s)]


def _leave(cutter: Cutter, gpu: int, prefix: str) -> str | None:
    """End the groups with this prefix; the device stays cut as it is, and is given up if that is how it was found."""
    stay = [*_end_groups(cutter, gpu, prefix, PATIENCE_S), *_end_groups(cutter, gpu, NOISE, PATIENCE_S)]
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


def end_left_on_cpus(state: State) -> None:
    """Groups of a deployment that was killed; DeviceError if one does not end."""
    names = state.devices()
    if not names:
        return
    with _asking(), cutter_of(names) as cutter:
        for gpu in range(cutter.count()):  # these are ours, whoever has the device by now
            _end_groups(cutter, gpu, state.shm_prefix, PATIENCE_S)
        ours = [gpu for gpu in range(cutter.count()) if _is_free(cutter, gpu)]
        _give_back(cutter, ours, state)
        if len(ours) == cutter.count():
            state.forget_devices()
