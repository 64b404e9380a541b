"""Under a real systemd, booted for the test in namespaces of its own: jobs outlive the unit that the runner was in."""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuloom.gpus.host.cgroups import mounts_here
from tests.live.shop import Shop, until

pytestmark = pytest.mark.xdist_group("mps")
SYSTEMD = Path("/lib/systemd/systemd")
BOOT = """
set -e
mount --make-rprivate /
mount -t proc proc /proc
mount -t tmpfs -o mode=755 tmpfs /run
umount -l /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t tmpfs tmpfs /etc/systemd/system
mount --bind /bin/true /usr/bin/systemd-tmpfiles
printf '[Unit]\\nDefaultDependencies=no\\n' > /etc/systemd/system/nothing.target
export container=docker
exec /lib/systemd/systemd --system --unit=nothing.target --log-level=err --show-status=0
"""
"""Nothing is started but itself; the mounts are seen by nobody else."""


class Booted:
    def __init__(self, pid: int) -> None:
        self.pid = pid

    def run(self, *command: str) -> "subprocess.CompletedProcess[str]":
        inside = ["nsenter", "-t", str(self.pid), "-a", *command]
        return subprocess.run(inside, capture_output=True, text=True, timeout=60, check=False)

    def units(self) -> str:
        return self.run("systemctl", "list-units", "--no-pager", "--no-legend", "--type=scope", "gpuloom*").stdout


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[Booted]:
    root = mounts_here().unified
    if os.geteuid() != 0 or not SYSTEMD.exists() or root is None:
        pytest.skip("needs root, systemd and cgroups")
    group = root / f"gpuloom-test-systemd-{os.getpid()}"
    group.mkdir()
    enter = f"echo $$ > {shlex.quote(str(group / 'cgroup.procs'))}"
    unshare = f"exec unshare --fork --pid --mount --cgroup --uts --ipc bash -c {shlex.quote(BOOT)}"
    with (tmp_path / "systemd.log").open("w") as log:
        outer = subprocess.Popen(
            ["bash", "-c", f"{enter} && {unshare}"], stdout=log, stderr=log, start_new_session=True
        )
    try:
        until(lambda: bool(_child(outer.pid)) or outer.poll() is not None, "it boots")
        booted = Booted(_child(outer.pid))
        if outer.poll() is None:
            until(lambda: "running" in booted.run("systemctl", "is-system-running").stdout, "it is up")
        else:
            pytest.skip(f"systemd does not boot here: {(tmp_path / 'systemd.log').read_text()[-200:]}")
        yield booted
    finally:
        if _child(outer.pid):
            os.kill(_child(outer.pid), signal.SIGKILL)  # and with it all that it had
        outer.wait(20)
        for folder, _, _ in os.walk(group, topdown=False):
            until(lambda: _removed(Path(folder)), "its groups are gone")  # noqa: B023


def _child(pid: int) -> int:
    """The first process of the namespace that `unshare` has made, once that is systemd."""
    try:
        (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return int(child) if Path(f"/proc/{child}/exe").readlink().name == "systemd" else 0
    except (OSError, ValueError):
        return 0


def _removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def test_jobs_outlive_the_runners_unit(shop: Shop, systemd: Booted) -> None:
    shop.hardware.install("A100-40GB+resets")
    shop.job("a", steps=400)
    command = shop.command_line("whole-fifo")
    told = ("LD_LIBRARY_PATH", "PATH", "GPULOOM_STANDIN_STATE", "GPULOOM_STATE_DIR")
    given = [f"--setenv={name}={shop.hardware.environment[name]}" for name in told]

    def begin(unit: str) -> None:
        begun = systemd.run("systemd-run", "--quiet", "--collect", f"--unit={unit}", *given, *command)
        assert (begun.returncode, begun.stderr) == (0, "")

    begin("first")
    until(lambda: len(shop.steps("a")) > 20, "it works")
    assert "gpuloom-" in systemd.units()
    systemd.run("systemctl", "kill", "--signal=KILL", "--kill-whom=all", "first.service")
    done = len(shop.steps("a"))
    until(lambda: len(shop.steps("a")) > done, "it goes on without its runner")
    begin("second")
    until(lambda: "inactive" in systemd.run("systemctl", "is-active", "second.service").stdout, "all is done")
    assert len(list(shop.store.job_dir("a").glob("launches/*"))) == 1
    shop.check_jobs()
    assert systemd.units() == ""


def test_the_home_is_found_again_and_left(systemd: Booted) -> None:
    program = (
        "from gpuloom.gpus.host.homes import find_home, leave_home\n"
        "home = find_home('k')\n"
        "assert 'gpuloom.slice/gpuloom-k.scope' in str(home.unified), home\n"
        "assert find_home('k') == home\n"
        "group = home.group('g'); group.create(); leave_home(home)\n"
        "assert not home.unified.exists()\n"
    )
    done = systemd.run(sys.executable, "-c", program)
    assert (done.returncode, done.stderr) == (0, "")
    until(lambda: systemd.units() == "", "its scope has gone")
