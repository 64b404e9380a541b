"""The shared memory file: who may use it, who has died, when it goes."""

import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpuloom.errors import InputError
from gpuloom.kernels.core import Policy, Region
from gpuloom.kernels.session import joined, switch
from gpuloom.kernels.watch import snapshot

MEMBER = """
import ctypes, os, sys
from gpuloom.kernels.core import load
core = load()
why = ctypes.create_string_buffer(500)
region = core.loom_region_open(sys.argv[1].encode(), why, 500)
if not region:
    print("refused:", why.value.decode(), flush=True)
    sys.exit(3)
core.loom_claim.argtypes = (ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_char_p)
slot = core.loom_claim(region, 1, int(sys.argv[2]), b"member")
queue = core.loom_queue_new(region, slot)
again = ctypes.c_uint64()
assert core.loom_ask(queue, 1, 1_000_000_000, ctypes.byref(again))
print(slot, flush=True)
exec(sys.argv[3]) if len(sys.argv) > 3 else None
sys.stdin.read()
"""


def member(path: Path, priority: int = 0, then: str = "") -> "subprocess.Popen[str]":
    """A process with a slot and a kernel in flight, that stays until its input ends."""
    command = [sys.executable, "-c", MEMBER, str(path), str(priority), then]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def first_line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def leave(process: "subprocess.Popen[str]") -> None:
    process.communicate("")


def test_the_last_one_removes_the_file(tmp_path: Path) -> None:
    path = tmp_path / "region"
    one, other = member(path), member(path)
    assert {first_line(one), first_line(other)} == {"0", "1"}
    leave(one)
    assert path.exists()
    leave(other)
    assert not path.exists()


def test_a_killed_one_is_found_and_its_kernel_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "region"
    with joined(path) as region:
        victim = member(path)
        first_line(victim)
        assert [(row["pid"], row["state"]) for row in snapshot(region)] == [(victim.pid, "runs")]
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        assert snapshot(region) == []
        leave(victim)
    assert not path.exists()


def test_a_forked_child_does_not_keep_its_dead_parent_alive(tmp_path: Path) -> None:
    path = tmp_path / "region"
    fork = "if os.fork() == 0:\n    print(os.getpid(), flush=True)\n    sys.stdin.read()\n    os._exit(0)"
    with joined(path) as region:
        parent = member(path, then=fork)
        first_line(parent)
        child = int(first_line(parent))
        parent.send_signal(signal.SIGKILL)
        os.waitpid(parent.pid, 0)
        os.kill(child, 0)
        assert snapshot(region) == []
        leave(parent)


def test_a_file_whose_users_all_died_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "region"
    victim = member(path)
    first_line(victim)
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    leave(victim)
    assert path.exists()
    with joined(path) as region:
        assert region.head.used == 0
    assert not path.exists()


MAGIC = 0x6D6F6F6C75706721.to_bytes(8, "little")


@pytest.mark.parametrize("content", [b"", bytes(ctypes.sizeof(Region)), MAGIC + b"\xff" * 30_000, MAGIC + b"cut"])
def test_a_broken_region_that_nobody_uses_is_made_anew(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "region"
    path.write_bytes(content)
    path.chmod(0o600)
    with joined(path) as region:
        assert snapshot(region) == []
    assert not path.exists()


@pytest.mark.parametrize("content", [b"x", b"my only notes", b"\xff" * ctypes.sizeof(Region), os.urandom(100_000)])
def test_a_file_that_is_no_region_is_refused_and_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(InputError, match="is no shared memory of gpuloom"), joined(path):
        pass
    assert path.read_bytes() == content


def test_who_ends_without_releasing_its_queue_leaves_no_slot(tmp_path: Path) -> None:
    path = tmp_path / "region"
    with joined(path) as region:
        user = member(path)
        first_line(user)
        assert len(region.taken()) == 1
        leave(user)
        assert region.taken() == []


def test_a_forked_child_that_joins_is_somebody_else(tmp_path: Path) -> None:
    """It must be able to find its parent dead."""
    path = tmp_path / "region"
    fork = (
        "if os.fork() == 0:\n"
        "    again = core.loom_region_open(sys.argv[1].encode(), why, 500)\n"
        "    other = core.loom_claim(again, 1, 5, b'child')\n"
        "    owners = [again.contents.slot(i).owner for i in (slot, other)]\n"
        "    print(len(set(owners)), flush=True)\n"
        "    os._exit(0)\n"
        "os.wait()"
    )
    with joined(path):
        parent = member(path, then=fork)
        first_line(parent)
        assert first_line(parent) == "2"
        leave(parent)


def test_another_version_in_use_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "region"
    user = member(path)
    first_line(user)
    with path.open("r+b") as file:
        file.seek(8)
        file.write((99).to_bytes(4, "little"))
    with pytest.raises(InputError, match="of another version or broken, and in use"), joined(path):
        pass
    newcomer = member(path)
    assert first_line(newcomer).startswith("refused:")
    leave(newcomer)
    leave(user)


def test_files_that_others_can_reach_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "region"
    path.touch()
    path.chmod(0o666)
    with pytest.raises(InputError, match="can be opened by other users"), joined(path):
        pass


def test_links_and_folders_are_refused(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("precious")
    (tmp_path / "link").symlink_to(target)
    with pytest.raises(InputError, match="shared memory"), joined(tmp_path / "link"):
        pass
    with pytest.raises(InputError, match="shared memory"), joined(tmp_path):
        pass
    assert target.read_text() == "precious"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a file of another user")
def test_another_users_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "region"
    path.touch(mode=0o600)
    os.chown(path, 12345, -1)
    with pytest.raises(InputError, match="belongs to another user"), joined(path):
        pass


def test_no_room_for_the_file(tmp_path: Path) -> None:
    """As on a full disk: the memory is claimed when the file is made, not when first touched, which would kill."""
    limit = (
        "import resource, signal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512))\n"
    )
    command = [sys.executable, "-c", limit + MEMBER, str(tmp_path / "region"), "0"]
    ended = subprocess.run(command, input="", capture_output=True, text=True)
    assert ended.returncode == 3
    assert "cannot be given memory" in ended.stdout
    assert not (tmp_path / "region").exists()


def test_slots_run_out_and_come_back(tmp_path: Path) -> None:
    path = tmp_path / "region"
    fill = "slots = [core.loom_claim(region, 1, 5, b'more') for _ in range(64)]\nprint(slots.count(-1), flush=True)"
    user = member(path, then=fill)
    first_line(user)
    assert first_line(user) == "1"
    leave(user)
    with joined(path) as region:
        assert snapshot(region) == []


def test_switching_the_policy_is_seen_by_others(tmp_path: Path) -> None:
    path = tmp_path / "region"
    with joined(path) as region:
        switch(region, Policy.STRICT)
        user = member(path, then="print(region.contents.head.policy, flush=True)")
        first_line(user)
        assert first_line(user) == str(int(Policy.STRICT))
        leave(user)
