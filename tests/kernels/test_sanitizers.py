"""The core under the address, undefined behaviour and thread sanitizers, with many streams, threads and processes."""

import shutil
import subprocess
from pathlib import Path

import pytest

import gpuloom

NATIVE = Path(gpuloom.__file__).parent / "kernels" / "native"
HERE = Path(__file__).parent / "native"
CORE = ("gate.c", "learn.c", "region_file.c", "runtime.c")
FLAGS = ("-std=c11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-fno-omit-frame-pointer", "-pthread")


def build(into: Path, *flags: str) -> Path:
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    program = into / "stress"
    sources = [str(NATIVE / name) for name in CORE] + [str(HERE / "stress.c")]
    subprocess.run(["gcc", *FLAGS, *flags, f"-I{NATIVE}", *sources, "-o", str(program), "-lm"], check=True)
    return program


@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
@pytest.mark.parametrize(("processes", "threads"), [(1, 6), (4, 3)])
def test_nothing_is_lost_and_the_sanitizers_are_silent(
    tmp_path: Path, sanitizer: str, processes: int, threads: int
) -> None:
    program = build(tmp_path, f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all")
    command = [str(program), str(tmp_path / "region"), str(processes), str(threads), "1500"]
    if sanitizer == "thread":
        command = ["setarch", "-R", *command]  # this sanitizer wants fixed addresses
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "Sanitizer" not in ended.stderr
    assert "0 slots left, 0 failed, file gone" in ended.stdout
