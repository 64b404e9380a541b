"""What CPU devices can do on this host, how steady they are, and which of their limits are real.

It measures: the same work again and again on each device that nobody uses, which takes some seconds.
"""

from collections.abc import Callable, Sequence

from gpuloom.gpus.host.cgroups import PERIOD_US, Mounts, bandwidth_us, mounts_here
from gpuloom.gpus.host.cpu import CpuDevice, parse_devices, this_machine
from gpuloom.gpus.host.cpu_driver import CpuDriver
from gpuloom.gpus.host.cutter import Cutter, cutter_of
from gpuloom.gpus.host.doctor import Diagnosis, Row, cgroups_row, row, share, state_folder_row
from gpuloom.gpus.host.driver import StepFailed
from gpuloom.gpus.host.noise import Noise
from gpuloom.gpus.host.nvml import NoDriver
from gpuloom.gpus.host.ownership import Refused

PIECES = 100
STEADY_PCT = 10.0
"""Beyond, differences between figures from this machine mean little."""


def examine_cpu(names: Sequence[str], on_device: Callable[[str], None] = lambda _: None) -> Diagnosis:
    """Of these devices, as the command line names them. `on_device` hears which is measured now."""
    devices = parse_devices(names, this_machine())
    checks = [_kind(mounts_here()), cgroups_row(), state_folder_row()]
    noise: dict[str, Noise] = {}
    try:
        with cutter_of(names) as cutter:
            assert isinstance(cutter.driver, CpuDriver)
            for index, device in enumerate(devices):
                on_device(device.uuid)
                checks += _examined(cutter, cutter.driver, index, device, noise)
        able = True
    except (NoDriver, Refused, StepFailed) as reason:
        checks.append(row("CPU devices", "no", str(reason)))
        able = False
    return Diagnosis(able, able, checks, _sharing(devices, able), noise)


def _kind(mounts: Mounts) -> Row:
    if mounts.unified is None:
        return row("kernel", "no", "cgroup version 2 is not mounted")
    old = ", ".join(sorted(mounts.version_1))
    return row("kernel", "ok", "cgroups version 2" + (f", and version 1 with {old}" if old else ""))


def _examined(cutter: Cutter, driver: CpuDriver, index: int, device: CpuDevice, noise: dict[str, Noise]) -> list[Row]:
    state = cutter.look(index)
    least = bandwidth_us(device.cpus_of(device.model.profiles[0].name))[1]
    cut = ", ".join(str(part.instance) for part in state.parts) or "not cut"
    about = f"{device.name}, {device.model.mem_mib:,} MiB, {cut}; 1c is given its time every {least / 1000:g} ms"
    reason = cutter.managed(index)
    rows = [row(device.uuid, "ok" if reason is None else "no", about if reason is None else f"{about}; {reason}")]
    if reason is not None or state.processes:
        return [*rows, row("noise floor", "-", f"not measured: {device.uuid} is in use")]
    found = noise[device.uuid] = _measured(cutter, driver, index)
    verdict = "ok" if found.spread_pct <= STEADY_PCT else "noisy"
    return [*rows, row("noise floor", verdict, str(found))]


def _measured(cutter: Cutter, driver: CpuDriver, index: int) -> Noise:
    """With the device in our hands meanwhile. One that was ours before stays so."""
    ours = cutter.found(index) is not None
    cutter.take(index)
    try:
        return driver.noise(index, PIECES)
    finally:
        if not ours:
            cutter.leave(index)


def _sharing(devices: Sequence[CpuDevice], able: bool) -> list[Row]:
    here = "enforced" if able else "not here"
    pinned = any(device.pinned for device in devices)
    return [
        share(
            "instance: CPU time", here, f"the kernel: a quota in every {PERIOD_US / 1000:g} ms or more: a duty cycle"
        ),
        share("instance: memory", here, "the kernel: who needs more is killed, and nobody else"),
        share("share of a device", here, "the kernel: a quota as an upper bound, which can change while a job runs"),
        share("cores", here if pinned else "not asked for", "the kernel (cpuset), where a device has not all of them"),
        share("caches and memory bandwidth", "shared", "nobody: neighbours slow each other down there"),
    ]
