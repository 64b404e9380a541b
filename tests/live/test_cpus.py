"""Where a job is put on a CPU device, and how its share changes while it runs: quotas as the kernel shows them."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from gpuloom.gpus.grant import Grant
from gpuloom.gpus.host.cgroups import Group, Limits
from gpuloom.gpus.host.cpu import parse_devices, this_machine
from gpuloom.gpus.host.cpu_driver import CpuDriver, cpu_driver
from gpuloom.gpus.host.cutter import Cutter
from gpuloom.gpus.host.driver import StepFailed
from gpuloom.gpus.host.nvml import Code, NoDriver
from gpuloom.gpus.layouts import parse
from gpuloom.gpus.model import Instance
from gpuloom.live.cpus import CpuDevices
from gpuloom.live.devices import DeviceError

SEVEN = Instance(0, "7c")


@pytest.fixture
def devices(tmp_path: Path) -> Iterator[CpuDevices]:
    named = parse_devices(["cpu=70%"], this_machine())
    try:
        with Cutter(partial(cpu_driver, named, tmp_path), tmp_path) as cutter:
            assert isinstance(cutter.driver, CpuDriver)
            devices = CpuDevices(cutter, [0], cutter.driver)
            devices.take()
            yield devices
            assert devices.leave() == []
    except NoDriver as reason:
        pytest.skip(str(reason))
    assert list(tmp_path.glob("*.[cj]*")) == []


def cpus_of(group: Group) -> float | None:
    twin = group.twins.get("cpu")
    if twin is None:
        quota, period = (group.path / "cpu.max").read_text().split()
    else:
        quota, period = ((twin / f"cpu.cfs_{name}_us").read_text().strip() for name in ("quota", "period"))
    return None if quota in ("max", "-1") else int(quota) / int(period)


def launched(devices: CpuDevices, grant: Grant, own: Limits | None = None) -> Group:
    place = devices.place((grant,), own or Limits())
    assert place.home is not None
    group = place.home.group("a-1")
    group.create(place.limits)
    return group


@pytest.mark.parametrize("pct", [100.0, 50.0, 14.0, 33.3])
@pytest.mark.parametrize("own", [None, 0.05, 1000.0])
def test_shares_come_and_go(devices: CpuDevices, pct: float, own: float | None) -> None:
    """A level ends with the probe, and with the runner: whoever adopts the job gives it its grant."""
    there, limits = devices.cpus(0), Limits(cpus=own)
    devices.cut(0, (SEVEN,))
    grant = Grant(0, SEVEN, 40.0)
    granted = min(there * 0.4, own or 1e9)
    group = launched(devices, grant, limits)
    assert cpus_of(group) == pytest.approx(granted, rel=0.01)
    assert devices.reshare(group, limits, grant, pct)
    wanted = min(there * pct / 100, own or 1e9)
    assert cpus_of(group) == (None if wanted >= there else pytest.approx(wanted, rel=0.01))
    devices.adopt(grant, group, limits)
    assert cpus_of(group) == pytest.approx(granted, rel=0.01)
    assert group.remove()


def test_alone_it_has_all_that_its_instance_has(devices: CpuDevices) -> None:
    model = devices.take().gpus[0].model
    devices.cut(0, parse(model, "3c@4,1c@0"))
    for instance in parse(model, "3c@4,1c@0"):
        group = launched(devices, Grant(0, instance))
        assert cpus_of(group) is None
        assert group.path.parent.name == str(instance)
        assert group.remove()


def test_what_is_not_there_is_told(devices: CpuDevices) -> None:
    devices.cut(0, (Instance(4, "3c"),))
    with pytest.raises(DeviceError, match="device 0 has no 2c@0"):
        devices.place((Grant(0, Instance(0, "2c")),))


def test_a_whole_device_after_it_was_cut(devices: CpuDevices) -> None:
    devices.cut(0, (Instance(4, "3c"),))
    devices.cut(0, ())
    group = launched(devices, Grant(0))
    assert group.path.parent.name == "whole"
    assert devices.users(0) is None
    assert group.remove()


def test_a_device_is_found_by_what_it_is_and_not_by_its_number(tmp_path: Path) -> None:
    """A driver that is loaded anew may number devices anew, and leave one out."""
    named = parse_devices(["cpu=30%", "cpu=40%"], this_machine())
    try:
        with Cutter(partial(cpu_driver, named, tmp_path), tmp_path) as cutter:
            driver = cutter.driver
            assert isinstance(driver, CpuDriver)
            devices = CpuDevices(cutter, [0, 1], driver)
            devices.take()
            first, second = driver.devices
            driver.devices = (second, first)
            assert [devices.host(0), devices.host(1)] == [1, 0]
            assert devices.hosts == (1, 0)
            driver.devices = (second,)
            assert devices.host(1) == 0
            with pytest.raises(StepFailed, match="is not there any more") as gone:
                devices.host(0)
            assert gone.value.code == Code.GPU_IS_LOST
            trouble = devices.trouble(0)
            assert trouble is not None
            assert trouble.is_gone
            driver.devices = (first, second)
            assert devices.leave() == []
    except NoDriver as reason:
        pytest.skip(str(reason))
