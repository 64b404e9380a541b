"""The CUDA front end among other libraries of the same kind, and how it is built."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from .csrc_core import CSRC
from .cuda_world import (
    LIBRARY,
    PROGRAMS,
    ROOT,
    World,
    compile_c,
    compile_hook,
    compile_standin,
)

BEHIND = "libcuda_behind.so"


def build(folder: Path, *settings: str) -> Path:
    if shutil.which("cmake") is None:
        pytest.skip("needs cmake")
    for command in (["cmake", "-S", str(ROOT), "-B", str(folder), *settings], ["cmake", "--build", str(folder)]):
        subprocess.run(command, check=True, capture_output=True)
    return folder


@pytest.mark.parametrize("kind", ["usual", "Debug"])
def test_other_libraries_that_stand_in_between_keep_working(world: World, kind: str) -> None:
    """They ask for the next function after their own, and the answer depends on who seems to ask: so our dlsym must not
    seem to, however it was built."""
    hook = world.tools.hook
    if kind == "Debug":
        hook = build(world.folder / "built", "-DCMAKE_BUILD_TYPE=Debug") / "libgpuloom_cuda.so"
    between = compile_c(world.folder / "between.so", [PROGRAMS / "between.c"], "-O1", *LIBRARY)
    done = world.run("linked", "three", None, LD_PRELOAD=f"{hook}:{between}")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["init", "launch", "launch", "launch", str((1 * 31 + 2) * 31 + 3)]


@pytest.mark.parametrize("hooked", [False, True])
def test_where_there_is_no_driver_none_is_seen(world: World, hooked: bool) -> None:
    done = world.run("loaded", "without_driver", world.tools.hook if hooked else None)
    assert (done.returncode, done.stdout) == (0, "0\n")


@pytest.mark.parametrize("program", ["linked", "loaded"])
@pytest.mark.parametrize("lazy", ["-DLAZY", "-DEAGER"])
@pytest.mark.parametrize("binding", ["-Wl,-Bsymbolic", "-Wl,-Bdynamic"])
def test_a_libcuda_in_front_of_the_real_one_is_passed_once(world: World, program: str, lazy: str, binding: str) -> None:
    """Both have the same names, and the first looks up those of the second: a chain, not a circle."""
    behind = compile_standin(world.folder, name=BEHIND)
    flags = ("-O1", *LIBRARY, "-Wl,-soname,libcuda.so.1", "-Wl,--no-as-needed", lazy, binding)
    compile_c(world.folder / "libcuda.so.1", [PROGRAMS / "wrapper.c", behind], *flags)
    more = {
        "LD_LIBRARY_PATH": str(world.folder),
        "WRAPPED_CUDA": str(behind),
        "GPULOOM_KERNELS_RECORD": str(world.folder / "record"),
    }
    alone = world.run(program, "three", None, **more)
    hooked = world.run(program, "three", world.tools.hook, **more)
    assert alone.stdout.splitlines() == ["launch"] * 3 + [str((1 * 31 + 2) * 31 + 3)]
    assert (hooked.returncode, hooked.stdout, hooked.stderr) == (0, alone.stdout, "")
    [record] = world.folder.glob("record.*")
    assert len(record.read_text().splitlines()) == 3


def test_another_tool_with_a_dlsym_of_its_own_keeps_working(world: World) -> None:
    other = compile_c(world.folder / "other.so", [PROGRAMS / "other_dlsym.c"], "-O1", *LIBRARY)
    record = {"GPULOOM_KERNELS_RECORD": str(world.folder / "record")}
    alone = world.run("loaded", "three", None, LD_PRELOAD=str(other))
    both = world.run("loaded", "three", None, LD_PRELOAD=f"{world.tools.hook}:{other}", **record)
    assert {"cuGetProcAddress", "cuLaunchKernel", "cuMemAlloc"} <= set(alone.stdout.splitlines())
    assert (both.returncode, both.stdout, both.stderr) == (0, alone.stdout, "")
    [file] = world.folder.glob("record.*")
    assert len(file.read_text().splitlines()) == 3  # and they are ours to gate as well


def headers() -> Path:
    """CUDA's own, of the version that the tests are to use."""
    places = [os.environ.get("CUDA_HOME"), "/usr/local/cuda", "/usr"]
    found = [Path(place) / "include" for place in places if place and (Path(place) / "include/cuda.h").is_file()]
    if not found:
        pytest.skip("there is no cuda.h here (set CUDA_HOME)")
    return found[0]


def test_it_compiles_against_cudas_own_header(tmp_path: Path) -> None:
    flags = ("-DWITH_CUDA_HEADER", "-isystem", str(headers()))
    compile_hook(tmp_path / "libgpuloom_cuda.so", *flags)
    compile_standin(tmp_path, *flags)


def test_cudas_own_header_finds_a_wrong_declaration(tmp_path: Path) -> None:
    flags = ("-fsyntax-only", "-Wall", "-Werror", "-DWITH_CUDA_HEADER", "-isystem", str(headers()))
    right = (CSRC / "cuda_api.h").read_text()
    wrong = right.replace("cuStreamGetCtx(CUstream stream, CUcontext *context)", "cuStreamGetCtx(CUstream stream)")
    assert wrong != right
    errors = []
    for text in (right, wrong):
        (tmp_path / "only.c").write_text(text)
        done = subprocess.run(["gcc", *flags, str(tmp_path / "only.c")], capture_output=True, text=True, check=False)
        errors.append(done.stderr)
    assert errors[0] == ""
    assert "conflicting types for" in errors[1]


def test_where_libc_has_no_dlvsym_the_rest_is_built(tmp_path: Path) -> None:
    folder = build(tmp_path, "-DHAVE_DLVSYM=0")
    assert [path.name for path in folder.glob("*.so")] == ["libgpuloom_kernels.so"]
