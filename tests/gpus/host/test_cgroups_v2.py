"""What is written where version 2 has all controllers, in plain folders: files and words, not what they do."""

from pathlib import Path

from gpuloom.gpus.host.cgroups import Group, Home, Limits, bandwidth_us, read_mounts
from gpuloom.gpus.host.cpu import Machine, _own_groups, _quota, parse_devices
from gpuloom.gpus.host.cpu_driver import limits
from gpuloom.gpus.layouts import parse

MACHINE = Machine((0, 1, 2, 3), 4.0, 16_000)


def words(path: Path) -> str:
    return path.read_text().strip()


def test_an_instance_and_a_launch_inside(tmp_path: Path) -> None:
    (device,) = parse_devices(["cpu:0-1"], MACHINE)
    home = Home(tmp_path)
    Group(home.unified).create(Limits(cores=device.cores))
    assert words(tmp_path / "cpuset.cpus") == "0-1"
    (instance,) = parse(device.model, "3c@4")
    group = home.group("cut").as_home().group(str(instance))
    group.create(limits(device, instance))
    quota, period = bandwidth_us(device.cpus * 3 / 7)
    assert words(group.path / "cpu.max") == f"{quota} {period}"
    assert words(group.path / "memory.max") == str(device.model.by_name["3c"].mem_mib << 20)
    assert group.holds(limits(device, instance))
    inner = group.as_home().group("job-1")
    inner.create(Limits(cpus=0.25))
    assert words(inner.path / "cpu.max") == "1750 7000"
    assert not (inner.path / "memory.max").exists()
    inner.lift_cpus()
    assert words(inner.path / "cpu.max") == "max"
    assert inner.doors() == [inner.path / "cgroup.procs"]
    group.limit(Limits(cpus=0.1))
    assert not group.holds(limits(device, instance))


def test_groups_inside_may_have_limits(tmp_path: Path) -> None:
    """A plain file keeps the last of what was written; who runs out of memory inside ends alone."""
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    Group(tmp_path).as_home()
    assert words(tmp_path / "cgroup.subtree_control") in {"+cpuset", "+cpu", "+memory", "+pids"}
    assert words(tmp_path / "memory.oom.group") == "0"
    Group(tmp_path / "launch").create()
    assert words(tmp_path / "launch" / "memory.oom.group") == "1"


def test_limits_of_a_container(tmp_path: Path) -> None:
    mounts = read_mounts(f"cgroup2 {tmp_path} cgroup2 rw 0 0\n", "0::/a/b\n")
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert _own_groups(mounts, "cpu") == [tmp_path / "a" / "b", tmp_path / "a", tmp_path]
    (tmp_path / "a" / "cpu.max").write_text("150000 100000\n")
    (tmp_path / "a" / "b" / "cpu.max").write_text("max 100000\n")
    assert [_quota(folder) for folder in _own_groups(mounts, "cpu")] == [None, 1.5, None]
