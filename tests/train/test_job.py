"""The job's side: silent outside gpuloom, the contract's files and variables inside."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpuloom import train


def test_outside_gpuloom_nothing_happens(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("GPULOOM_PROGRESS", "GPULOOM_RESUME", "GPULOOM_CHECKPOINT_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    train.report(3)
    assert list(tmp_path.iterdir()) == []
    assert not train.resuming()
    assert train.checkpoint_dir() == Path()


def test_the_last_report_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GPULOOM_PROGRESS", str(tmp_path / "progress"))
    train.report(1)
    train.report(2, loss=0.5)
    (path,) = tmp_path.iterdir()
    told = json.loads(path.read_text())
    assert (told["step"], told["loss"]) == (2, 0.5)
    assert told["at_unix_s"] > 0


def test_a_report_is_written_over_the_last(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A file that replaces another may have to go to disk first, which takes longer than a step of some."""
    path = tmp_path / "progress"
    monkeypatch.setenv("GPULOOM_PROGRESS", str(path))
    train.report(1000, loss=0.123456789)
    first = path.stat()
    train.report(2)
    assert (path.stat().st_ino, path.stat().st_size) == (first.st_ino, first.st_size)
    assert json.loads(path.read_text())["step"] == 2
    train.report(3, **{f"of layer {layer}": 0.5 for layer in range(100)})
    assert path.stat().st_ino != first.st_ino, "there was no room for it"
    train.report(4)
    assert {key: value for key, value in json.loads(path.read_text()).items() if "at_" not in key}.keys() == {
        "step",
        "crc32",
    }


def test_whatever_is_in_its_place_is_replaced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path, other = tmp_path / "progress", tmp_path / "other"
    monkeypatch.setenv("GPULOOM_PROGRESS", str(path))
    other.write_text("x" * 256)
    for put in (
        lambda: path.write_text('{"step": 5}'),
        lambda: path.write_text("x" * 300),
        lambda: path.symlink_to(other),
        lambda: os.mkfifo(path),
    ):
        put()
        train.report(6)
        assert json.loads(path.read_text())["step"] == 6
        path.unlink()
    assert other.read_text() == "x" * 256


def test_processes_of_a_job_report_one_after_the_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "progress"
    monkeypatch.setenv("GPULOOM_PROGRESS", str(path))
    train.report(1)
    child = os.fork()
    if child == 0:
        train.report(2)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert json.loads(path.read_text())["step"] == 2
    path.unlink()
    train.report(3)
    assert json.loads(path.read_text())["step"] == 3


def test_a_report_that_cannot_be_written_costs_nothing_but_itself(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "progress" / "in the way").mkdir(parents=True)
    monkeypatch.setenv("GPULOOM_PROGRESS", str(tmp_path / "progress"))
    train.report(1)
    monkeypatch.setenv("GPULOOM_PROGRESS", str(tmp_path / "nowhere" / "progress"))
    train.report(2)
    assert [path.name for path in tmp_path.iterdir()] == ["progress"]


def test_resuming_and_where(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GPULOOM_RESUME", "1")
    monkeypatch.setenv("GPULOOM_CHECKPOINT_DIR", str(tmp_path))
    assert train.resuming()
    assert train.checkpoint_dir() == tmp_path


def test_the_callback_is_called_once() -> None:
    before = signal.getsignal(signal.SIGTERM)
    calls: list[int] = []
    try:
        train.on_stop(lambda: calls.append(1))
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert calls == [1]


def test_importing_it_loads_nothing_else_of_gpuloom() -> None:
    program = "import sys, gpuloom.train; print(sorted(m for m in sys.modules if m.startswith(('gpuloom.', 'numpy'))))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['gpuloom.train', 'gpuloom.train.job']"
