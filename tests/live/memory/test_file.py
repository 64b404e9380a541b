"""The file: several add to it at once and nothing is lost; what is not ours is neither used nor touched."""

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuloom.gpus.host.files import Lock, open_lock, try_lock
from gpuloom.live.memory import file as memory_file
from gpuloom.live.memory.file import NoMemoryError, add_to_memory, read_memory, usual_memory
from gpuloom.perf.slices.earlier import Rate, Row

STRANGER = 65534


def row(source: str, at_unix_s: float = 1.0, workload: str = "w") -> Row:
    return Row(workload, "A100-40GB", source, at_unix_s, rates={"3g.20gb": Rate(2.0, 3)})


def test_it_is_kept_where_the_other_state_is() -> None:
    assert usual_memory({"GPULOOM_STATE_DIR": "/x"}) == Path("/x/memory/memory.json")


def test_what_was_added_is_there_and_nobody_else_can_look(folder: Path) -> None:
    path = folder / "new" / "memory.json"
    assert read_memory(path) == ()
    add_to_memory(path, [row("run 1")])
    add_to_memory(path, [row("run 2")])
    assert read_memory(path) == (row("run 1"), row("run 2"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    before = path.stat()
    add_to_memory(path, [row("run 1")])
    assert path.stat().st_ino == before.st_ino, "nothing new, nothing written"


def test_what_could_not_be_read_back_is_left_out(folder: Path) -> None:
    path = folder / "memory.json"
    add_to_memory(path, [row("run 1"), row("run 1", workload="w" * 5000), row("run 1", workload="\ud800")])
    assert read_memory(path) == (row("run 1"),)


ADDING = """
import sys
from pathlib import Path
from gpuloom.live.memory.file import add_to_memory
from gpuloom.perf.slices.earlier import Rate, Row

for at in range(20):
    add_to_memory(Path(sys.argv[1]), [Row(f"w{at}", "A30", f"run {sys.argv[2]}", 1.0, rates={"1g.6gb": Rate(1.0, 1)})])
"""


def test_who_adds_at_the_same_time_loses_nothing(folder: Path) -> None:
    path = folder / "memory.json"
    adding = [subprocess.Popen([sys.executable, "-c", ADDING, str(path), str(who)]) for who in range(3)]
    assert [one.wait(60) for one in adding] == [0, 0, 0]
    assert {(one.workload, one.source) for one in read_memory(path)} == {
        (f"w{at}", f"run {who}") for at in range(20) for who in range(3)
    }


def a_link(path: Path) -> None:
    target = path.with_name("target")
    target.write_text("theirs")
    path.symlink_to(target)


def a_strangers(path: Path) -> None:
    path.write_text("theirs")
    os.chown(path, STRANGER, STRANGER)


def a_huge_one(path: Path) -> None:
    path.touch()
    os.truncate(path, memory_file.MOST_BYTES + 1)


@pytest.mark.parametrize(
    ("put", "says"),
    [
        (lambda path: path.write_text(""), "is damaged, or no JSON: expected a memory that gpuloom wrote"),
        (lambda path: path.write_bytes(b"\xff\xfe"), "is no text: expected a memory that gpuloom wrote"),
        (lambda path: path.write_text('{"jobs": []}'), "is something else: expected a memory that gpuloom wrote"),
        (a_huge_one, "File too large"),
        (a_link, "is not a plain file of gpuloom's: look who put it there, then remove it"),
        (os.mkfifo, "is not a plain file of gpuloom's: look who put it there, then remove it"),
        (Path.mkdir, "is not a plain file of gpuloom's"),
        (a_strangers, "belongs to user 65534: look who put it there, then remove it"),
    ],
)
def test_what_is_not_ours_is_told_in_one_sentence_and_left(
    folder: Path, put: Callable[[Path], object], says: str
) -> None:
    if put is a_strangers and os.geteuid() != 0:
        pytest.skip("needs root, to have a file of somebody else")
    path = folder / "memory.json"
    put(path)
    before = os.lstat(path)
    with pytest.raises(NoMemoryError, match=says):
        read_memory(path)
    with pytest.raises(NoMemoryError, match=says):
        add_to_memory(path, [row("run 1")])
    after = os.lstat(path)
    assert (after.st_ino, after.st_size, after.st_mtime_ns) == (before.st_ino, before.st_size, before.st_mtime_ns)


def test_a_folder_that_cannot_be_made(folder: Path) -> None:
    (folder / "file").write_text("")
    with pytest.raises(NoMemoryError, match="file"):
        add_to_memory(folder / "file" / "memory.json", [row("run 1")])


def test_nobody_waits_for_ever_for_the_lock(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_file, "PATIENCE_S", 0.01)
    path = folder / "memory.json"
    lock = open_lock(folder / "memory.json.lock")
    try:
        assert try_lock(lock, Lock.ALONE)
        with pytest.raises(NoMemoryError, match="somebody else has held its lock"):
            add_to_memory(path, [row("run 1")])
    finally:
        os.close(lock)
    assert not path.exists()
