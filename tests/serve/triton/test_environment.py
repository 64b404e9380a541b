"""The environment of the server: made once, whole or not at all."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpuloom.serve.triton.environment import PLACE, SetupError, ensure, place

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


class Installer:
    """In place of the processes that make an environment: leaves the files that they would."""

    def __init__(self) -> None:
        self.commands: list[str] = []
        self.fails: str | None = None
        self.stub = PYTHON

    def run(self, command: list[str], **_: Any) -> "subprocess.CompletedProcess[str]":
        self.commands.append("venv" if "venv" in command else "pip")
        if self.commands[-1] == "venv":
            folder = Path(command[-1])
            folder.mkdir(parents=True)
            (folder / "pyvenv.cfg").touch()
        elif self.fails is not None:
            return subprocess.CompletedProcess(command, 1, "", self.fails)
        else:
            server = (
                Path(command[0]).parents[1] / "lib" / f"python{PYTHON}" / "site-packages" / "pytriton" / "tritonserver"
            )
            stub = server / "python_backend_stubs" / self.stub / "triton_python_backend_stub"
            for file in (stub, server / "bin" / "tritonserver", server / "backends" / "python" / "libtriton_python.so"):
                file.parent.mkdir(parents=True)
                file.touch()
        return subprocess.CompletedProcess(command, 0, "", "")


@pytest.fixture
def installer(monkeypatch: pytest.MonkeyPatch) -> Installer:
    installer = Installer()
    monkeypatch.setattr(subprocess, "run", installer.run)
    return installer


def test_it_is_made_once(tmp_path: Path, installer: Installer) -> None:
    said: list[str] = []
    first = ensure(said.append, tmp_path / "e")
    assert ensure(said.append, tmp_path / "e") == first
    assert installer.commands == ["venv", "pip"]
    assert len(said) == 2
    assert first.backends is not None
    assert (first.backends / "python" / "triton_python_backend_stub").stat().st_mode & 0o111
    assert first.binary.stat().st_mode & 0o111


def test_what_pip_says_is_passed_on_and_the_next_call_tries_again(tmp_path: Path, installer: Installer) -> None:
    installer.fails = "WARNING: slow\nERROR: No matching distribution found for nvidia-pytriton==0.7.0\n\n"
    with pytest.raises(
        SetupError, match=r"pip cannot install nvidia-pytriton==0\.7\.0: ERROR: No matching distribution"
    ):
        ensure(folder=tmp_path / "e")
    installer.fails = None
    assert ensure(folder=tmp_path / "e").binary.exists()
    assert installer.commands == ["venv", "pip"] * 2


def test_a_python_without_a_stub_is_told_which_have_one(tmp_path: Path, installer: Installer) -> None:
    installer.stub = "3.99"
    with pytest.raises(SetupError, match=rf"no stub for Python {PYTHON}: run gpuloom on one of 3\.99"):
        ensure(folder=tmp_path / "e")


def test_somebody_elses_folder_is_left_alone(tmp_path: Path, installer: Installer) -> None:
    (tmp_path / "precious").touch()
    with pytest.raises(SetupError, match="holds something else"):
        ensure(folder=tmp_path)
    assert (tmp_path / "precious").exists()
    assert not installer.commands


def test_where_it_is() -> None:
    assert place({PLACE: "/a/b"}) == Path("/a/b")
    assert place({"XDG_CACHE_HOME": "/c"}) == Path(f"/c/gpuloom/triton-0.7.0-py{PYTHON}")
