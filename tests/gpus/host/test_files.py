"""Files that are written whole, and locks: between descriptors of one process, which the kernel treats as strangers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.gpus.host.files import Lock, alone, is_locked, open_lock, try_lock, write_whole
from gpuloom.gpus.host.processes import ProcessId, born_ticks

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
    (tmp_path / "record.json.draft").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        write_whole(path, "after")
    assert path.read_text(encoding="utf-8") == "before"


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
