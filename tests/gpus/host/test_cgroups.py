"""Control groups of this machine's kernel: membership that cannot be given up, one stroke that ends all, limits."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuloom.gpus.host.cgroups import Group, Home, Limits, Mounts, NoCgroups, home_below, read_mounts
from gpuloom.gpus.host.homes import find_home, key_of, leave_home
from tests.live.shop import until

UNIFIED = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n"
HYBRID = (
    "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n"
    "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\n"
    "cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n"
    "cgroup /sys/fs/cgroup/freezer cgroup rw,freezer 0 0\n"
    "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n"
)


def test_the_two_mounts() -> None:
    assert read_mounts(UNIFIED, "0::/user.slice\n") == Mounts(Path("/sys/fs/cgroup"), {}, {"": "/user.slice"})
    mounts = read_mounts(HYBRID, "5:memory:/a\n2:cpu,cpuacct:/\n0::/b:c\n")
    assert mounts.unified == Path("/sys/fs/cgroup/unified")
    assert mounts.version_1 == {
        "cpu": Path("/sys/fs/cgroup/cpu,cpuacct"),
        "memory": Path("/sys/fs/cgroup/memory"),
    }
    assert mounts.own == {"memory": "/a", "cpu": "/", "cpuacct": "/", "": "/b:c"}


def test_without_version_2_it_says_what_would_help() -> None:
    with pytest.raises(NoCgroups, match="cgroup version 2 is not mounted; mount it"):
        home_below(read_mounts(HYBRID.replace("cgroup2", "tmpfs"), "0::/\n"), "/", "x")


def test_what_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "gpuloom").write_text("in the way")
    with pytest.raises(NoCgroups, match="cannot be made"):
        home_below(Mounts(tmp_path), "/", "gpuloom/x")


@given(st.floats(0.01, 512), st.integers(1, 1 << 20), st.integers(1, 1 << 20))
def test_limits_name_their_controllers(cpus: float, mem_mib: int, pids: int) -> None:
    assert Limits(cpus, mem_mib, pids).controllers == ("cpu", "memory", "pids")
    assert Limits(mem_mib=mem_mib).controllers == ("memory",)


BOMB = """
import os, signal
try:
    for _ in range(50):
        if os.fork() == 0:
            signal.pause()
except BlockingIOError:
    pass
"""

# ---- on this kernel ----------------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    try:
        home = find_home(key_of(tmp_path))
    except NoCgroups as reason:
        pytest.skip(f"needs cgroups: {reason}")
    yield home
    for group in home.groups():
        assert group.end(10)
    leave_home(home)
    assert not home.unified.exists()


def inside(group: Group, *command: str) -> "subprocess.Popen[bytes]":
    """A process that enters before it becomes the command."""
    enter = "import os, sys; [open(door, 'w').write('0') for door in sys.argv[1].split(':')]"
    enter += "; os.execvp(sys.argv[2], sys.argv[2:])"
    doors = ":".join(map(str, group.doors()))
    process = subprocess.Popen([sys.executable, "-c", enter, doors, *command], stderr=subprocess.PIPE)
    until(lambda: process.pid in group.processes() or process.poll() is not None, "it is in")
    return process


ESCAPES = {
    "another session": "setsid sleep 60 & wait",
    "no environment": "env -i sleep 60 & wait",
    "orphans": "(sleep 60 &) ; (setsid sh -c 'sleep 60 & sleep 60' &) ; sleep 60",
    "deaf": "trap '' TERM INT HUP; sleep 60 & wait",
}


@pytest.mark.parametrize("way", ESCAPES)
def test_nobody_gets_out(home: Home, way: str) -> None:
    group = home.group("g")
    group.create()
    with inside(group, "sh", "-c", ESCAPES[way]) as process:
        until(lambda: len(group.processes()) >= 2, "it has children")
        assert group.populated()
        assert not group.remove()
        assert group.end(10)
        assert process.wait(10) == -signal.SIGKILL
    assert not group.populated()
    assert not group.exists


def test_a_group_that_is_gone_cannot_be_entered(home: Home) -> None:
    """The door that somebody holds open leads nowhere: whoever was about to enter never runs."""
    group = home.group("g")
    group.create()
    door = os.open(group.doors()[0], os.O_WRONLY)
    assert group.remove()
    with pytest.raises(OSError, match="No such device"):
        os.write(door, b"0")
    os.close(door)


def test_what_processes_made_inside_goes_too(home: Home) -> None:
    group = home.group("g")
    group.create()
    (group.path / "a" / "b").mkdir(parents=True)
    with inside(Group(group.path / "a" / "b"), "sleep", "60") as process:
        assert group.populated()
        assert process.pid in group.processes()
        assert group.end(10)


def test_out_of_memory_is_told(home: Home) -> None:
    limits = Limits(mem_mib=64)
    if home.why_no_limit(limits) is not None:
        pytest.skip(str(home.why_no_limit(limits)))
    group = home.group("g")
    group.create(limits)
    with inside(group, sys.executable, "-c", "held = b'x' * (1 << 28)") as process:
        assert process.wait(30) == -signal.SIGKILL
    assert group.oom_kills() >= 1


def test_a_cpuset_that_was_half_made_is_finished(home: Home) -> None:
    """Of version 1: whoever made it was killed after it had set the cores, and before the memory."""
    twin = home.version_1.get("cpuset")
    if twin is None:
        pytest.skip("cpuset is not in version 1 here")
    cores = tuple(os.sched_getaffinity(0))[:1]
    twin.mkdir(parents=True)
    for folder in (twin.parent, twin):
        (folder / "cpuset.cpus").write_text((folder.parent / "cpuset.cpus").read_text())
    group = home.group("g")
    group.create(Limits(cores=cores))
    with inside(group, sys.executable, "-c", "import os; print(os.sched_getaffinity(0))") as process:
        assert process.wait(10) == 0
    assert group.holds(Limits(cores=cores))


def test_processes_and_cpus_are_limited(home: Home) -> None:
    limits = Limits(cpus=0.5, pids=8)
    if home.why_no_limit(limits) is not None:
        pytest.skip(str(home.why_no_limit(limits)))
    group = home.group("g")
    group.create(limits)
    with inside(group, sys.executable, "-c", BOMB) as process:
        assert process.wait(30) == 0
        assert len(group.processes()) <= 8
        assert group.end(10)


def test_a_limit_that_cannot_be_had_is_named(tmp_path: Path) -> None:
    (tmp_path / "cgroup.subtree_control").write_text("cpu\n")
    home = Home(tmp_path)
    assert home.why_no_limit(Limits(cpus=1)) is None
    assert "need the memory and pids controller" in str(home.why_no_limit(Limits(cpus=1, mem_mib=1, pids=1)))


def test_what_cannot_be_seen_is_not_gone(tmp_path: Path) -> None:
    """In another mount namespace, say: nothing there is no proof."""
    assert not Group(tmp_path / "gpuloom" / "k" / "g").remove()


def test_a_group_that_was_removed_is_gone(home: Home) -> None:
    group = home.group("g")
    group.create()
    assert group.remove()
    assert group.remove()
