"""The core under the address, undefined behaviour and thread sanitizers, with many streams, threads and processes."""

import shutil
import subprocess
from pathlib import Path

import pytest

from .csrc_core import CORE, CSRC, FLAGS, PROGRAMS, sanitized


def build(into: Path, sanitizer: str) -> Path:
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    program = into / "stress"
    sources = [*map(str, CORE), str(PROGRAMS / "stress.c")]
    subprocess.run(["gcc", *FLAGS, *sanitized(sanitizer), f"-I{CSRC}", *sources, "-o", str(program), "-lm"], check=True)
    return program


@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
@pytest.mark.parametrize(("processes", "threads"), [(1, 6), (4, 3)])
def test_nothing_is_lost_and_the_sanitizers_are_silent(
    tmp_path: Path, sanitizer: str, processes: int, threads: int
) -> None:
    program = build(tmp_path, sanitizer)
    command = [str(program), str(tmp_path / "region"), str(processes), str(threads), "1500"]
    if sanitizer == "thread":
        command = ["setarch", "-R", *command]  # this sanitizer wants fixed addresses
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "Sanitizer" not in ended.stderr
    assert "0 slots left, 0 failed, file gone" in ended.stdout
