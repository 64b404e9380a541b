"""Files that are written whole, and locks: between descriptors of one process, which the kernel treats as strangers."""

import os
import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.gpus.host.files import (
    Lock,
    NotOursError,
    alone,
    exposed_by,
    give_folder,
    is_locked,
    open_lock,
    open_own,
    own_folder,
    read_anyones,
    read_own,
    try_lock,
    write_whole,
)
from gpuloom.gpus.host.processes import ProcessId, born_ticks

STRANGER = 65534
"""A user of this host without any rights."""
STEPS = st.lists(st.tuples(st.integers(0, 2), st.sampled_from([Lock.ALONE, Lock.TOGETHER, None])), max_size=12)


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    write_whole(path, "before")
    seen = path.open(encoding="utf-8")
    write_whole(path, "after")
    with seen:
        assert seen.read() == "before"
    assert path.read_text(encoding="utf-8") == "after"
    assert [found.name for found in tmp_path.iterdir()] == ["record.json"]


def test_what_cannot_be_written_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    write_whole(path, "before")
    with pytest.raises(UnicodeEncodeError):
        write_whole(path, "half of it \ud800")
    assert path.read_text(encoding="utf-8") == "before"


def test_a_full_disk_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    write_whole(path, "before")
    program = (
        "import pathlib, resource, signal, sys\n"
        "from gpuloom.gpus.host.files import write_whole\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))\n"
        "write_whole(pathlib.Path(sys.argv[1]), 'after' * 100)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=False)
    assert "File too large" in done.stderr
    assert path.read_text(encoding="utf-8") == "before"
    assert [found.name for found in tmp_path.iterdir()] == ["record.json"]


def trap(path: Path, kind: str) -> None:
    """What somebody might put into the place of a file of ours."""
    match kind:
        case "link":
            path.symlink_to(path.with_name("treasure"))
        case "dangling link":
            path.symlink_to(path.with_name("nothing"))
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "socket":
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(str(path))


def read_some(path: Path) -> bytes:
    return read_anyones(path, 100)


@pytest.mark.parametrize("kind", ["link", "dangling link", "pipe", "folder", "socket"])
def test_a_trap_is_never_opened(tmp_path: Path, kind: str) -> None:
    """Nothing hangs, nothing is written or read through it, nothing is created behind it."""
    (tmp_path / "treasure").write_text("gold")
    trap(tmp_path / "file", kind)
    before = sorted(tmp_path.iterdir())
    for flags in (os.O_RDONLY, os.O_WRONLY | os.O_APPEND, os.O_RDWR | os.O_CREAT):
        with pytest.raises(OSError, match="file"):
            open_own(tmp_path / "file", flags)
    for read in (read_own, read_some, open_lock):
        with pytest.raises(OSError, match="file"):
            read(tmp_path / "file")
    assert sorted(tmp_path.iterdir()) == before
    assert (tmp_path / "treasure").read_text() == "gold"


@pytest.mark.parametrize("kind", ["link", "dangling link", "pipe", "socket"])
def test_a_trap_in_the_place_of_a_draft_is_removed(tmp_path: Path, kind: str) -> None:
    (tmp_path / "treasure").write_text("gold")
    trap(tmp_path / "file.draft", kind)
    write_whole(tmp_path / "file", "ours")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "treasure"]
    assert read_own(tmp_path / "file") == b"ours"
    assert (tmp_path / "treasure").read_text() == "gold"


def test_a_link_in_the_place_of_the_file_is_replaced_not_followed(tmp_path: Path) -> None:
    (tmp_path / "treasure").write_text("gold")
    trap(tmp_path / "file", "link")
    write_whole(tmp_path / "file", "ours")
    assert not (tmp_path / "file").is_symlink()
    assert (tmp_path / "treasure").read_text() == "gold"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@given(st.integers(0, 0o077))
def test_what_is_written_is_ours_alone_whatever_the_umask(tmp_path_factory: pytest.TempPathFactory, umask: int) -> None:
    folder = tmp_path_factory.mktemp("mine") / "new"
    before = os.umask(umask)
    try:
        own_folder(folder)
        write_whole(folder / "file", "x")
        os.close(open_lock(folder / "lock"))
    finally:
        os.umask(before)
    assert (mode(folder), mode(folder / "file"), mode(folder / "lock")) == (0o700, 0o600, 0o600)


@given(st.integers(0, 0o077).map(lambda others: 0o700 | others))
def test_a_folder_is_ours_alone_or_refused(tmp_path_factory: pytest.TempPathFactory, before: int) -> None:
    folder = tmp_path_factory.mktemp("mine") / "there"
    folder.mkdir()
    folder.chmod(before)
    if before & 0o022:
        with pytest.raises(NotOursError, match="can be written by others: name another folder"):
            own_folder(folder)
        assert mode(folder) == before
    else:
        own_folder(folder)
        assert mode(folder) == (0o711 if before == 0o711 else 0o700)


@pytest.mark.parametrize(("kind", "why"), [("link", "is a symbolic link"), ("pipe", "is not a folder")])
def test_what_is_no_folder_of_ours_is_refused(tmp_path: Path, kind: str, why: str) -> None:
    (tmp_path / "treasure").mkdir()
    trap(tmp_path / "state", kind)
    with pytest.raises(NotOursError, match=f"{why}: name a folder of your own"):
        own_folder(tmp_path / "state")


def test_a_lock_that_everybody_could_read_is_shut(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    (tmp_path / "lock").chmod(0o644)
    os.close(open_lock(tmp_path / "lock"))
    assert mode(tmp_path / "lock") == 0o600


def test_what_is_too_large_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        file.truncate(10 << 30)
    for read in (read_own, read_anyones):
        with pytest.raises(OSError, match="File too large"):
            read(tmp_path / "file", 1 << 16)


def test_the_parent_in_which_others_could_swap_it_is_named(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert exposed_by(tmp_path / "a" / "b" / "state") is None
    (tmp_path / "a").chmod(0o777)
    assert exposed_by(tmp_path / "a" / "b" / "state") == tmp_path / "a"
    (tmp_path / "a").chmod(0o1777)  # sticky: nobody can rename what is somebody else's
    assert exposed_by(tmp_path / "a" / "b" / "state") is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_what_belongs_to_another_user_is_refused(tmp_path: Path) -> None:
    path, folder = tmp_path / "file", tmp_path / "folder"
    path.write_text("planted")
    folder.mkdir()
    for found in (path, folder):
        os.chown(found, STRANGER, STRANGER)
    for refused in (read_own, open_lock, is_locked):
        with pytest.raises(NotOursError, match=f"belongs to user {STRANGER}"):
            refused(path)
    with pytest.raises(NotOursError, match=f"belongs to user {STRANGER}: name a folder of your own"):
        own_folder(folder)
    assert exposed_by(folder / "state") == folder
    with pytest.raises(NotOursError, match=f"belongs to user {STRANGER}, not to user 1"):
        give_folder(folder, 1, 1)
    assert read_anyones(path, 100) == b"planted"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_a_folder_is_given_once_and_stays_given(tmp_path: Path) -> None:
    for _ in range(2):
        give_folder(tmp_path / "theirs", STRANGER, STRANGER)
        status = (tmp_path / "theirs").stat()
        assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (STRANGER, STRANGER, 0o700)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_a_stranger_cannot_hold_a_lock_of_ours() -> None:
    """Who can read a file can lock it, and all others wait."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        path = Path(name) / "lock"
        path.touch(mode=0o644)  # as an earlier version left it
        os.close(open_lock(path))
        # A shell, because a stranger may not be allowed to run this Python.
        command = ["sh", "-c", 'exec 9< "$1" && echo opened', "sh", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, user=STRANGER)
        assert (done.returncode != 0, done.stdout) == (True, "")


@settings(deadline=None, max_examples=60)
@given(STEPS)
def test_locks_keep_their_word_whoever_asks_in_whatever_order(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, Lock | None]]
) -> None:
    """Three who lock and let go at random, against a model: one alone, or any number together."""
    path = tmp_path_factory.mktemp("locks") / "lock"
    descriptors: dict[int, int] = {}
    held: dict[int, Lock] = {}
    for who, lock in steps:
        if lock is None:
            if who in descriptors:
                os.close(descriptors.pop(who))
                held.pop(who, None)
            continue
        others = [other for name, other in held.items() if name != who]
        free = not others if lock is Lock.ALONE else Lock.ALONE not in others
        if who not in descriptors:
            descriptors[who] = open_lock(path)
        got = try_lock(descriptors[who], lock)
        assert got == free
        # The kernel gives up a lock before it takes another: who asks for more than there is may lose what it had.
        held.pop(who, None)
        if got:
            held[who] = lock
        elif who in descriptors:
            os.close(descriptors.pop(who))
    assert is_locked(path) == bool(held)
    for descriptor in descriptors.values():
        os.close(descriptor)
    assert not is_locked(path)


def test_a_lock_goes_with_its_holder(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    program = (
        "import fcntl, sys\n"
        "file = open(sys.argv[1], 'w')\n"
        "fcntl.flock(file, fcntl.LOCK_EX)\n"
        "print('held', flush=True)\n"
        "sys.stdin.read()\n"
    )
    holder = subprocess.Popen([sys.executable, "-c", program, str(path)], stdin=-1, stdout=-1, text=True)
    assert holder.stdout is not None
    with holder:
        assert holder.stdout.readline() == "held\n"
        assert is_locked(path)
        holder.kill()
    assert not is_locked(path)


def test_looking_at_a_lock_that_nobody_ever_took_creates_nothing(tmp_path: Path) -> None:
    assert not is_locked(tmp_path / "lock")
    assert not list(tmp_path.iterdir())


def test_alone_is_alone(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with alone(path):
        assert is_locked(path)
    assert not is_locked(path)


def test_a_process_is_told_apart_from_the_next_with_its_number() -> None:
    ticks = born_ticks(os.getpid())
    assert ticks is not None
    assert ProcessId(os.getpid(), ticks).lives
    assert not ProcessId(os.getpid(), ticks + 1).lives


def test_what_is_left_of_a_process_does_not_live() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert born_ticks(child.pid) is None
    child.wait()
    assert born_ticks(child.pid) is None
