"""What the tests of the CUDA front end run: programs on the stand-in driver, and a view of the shared memory."""

import ctypes
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpuloom.kernels.core import U32, U64, Policy, Region, Slot

from .csrc_core import CORE, CSRC

ROOT = Path(__file__).parents[2]
STANDIN = ROOT / "tests/standin/cuda"
PROGRAMS = Path(__file__).parent / "cuda"
SOURCES = [*CORE, CSRC / "cuda_streams.c", CSRC / "cuda_hook.c"]
STRICT = ("-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror")
LIBRARY = ("-fvisibility=hidden", "-fPIC", "-shared")
GUARD_S = 20  # only so that a test that would hang fails


def compile_c(out: Path, sources: list[Path], *flags: str) -> Path:
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("needs gcc")
    command = [
        gcc,
        *flags,
        f"-I{CSRC}",
        f"-I{STANDIN}",
        "-g",
        "-o",
        str(out),
        *map(str, sources),
        "-pthread",
        "-lm",
        "-ldl",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out


def compile_hook(out: Path, *flags: str) -> Path:
    return compile_c(out, SOURCES, "-O2", *STRICT, *LIBRARY, *flags)


def compile_standin(folder: Path, *flags: str, name: str = "libcuda.so.1") -> Path:
    return compile_c(
        folder / name,
        [STANDIN / "libcuda.c", STANDIN / "streams.c"],
        "-O1",
        *STRICT,
        *LIBRARY,
        f"-Wl,-soname,{name}",
        "-Wl,-Bsymbolic",
        *flags,
    )


@dataclass(frozen=True, slots=True)
class Tools:
    folder: Path
    hook: Path
    core: ctypes.CDLL


def make_tools(folder: Path) -> Tools:
    standin = compile_standin(folder)
    program = PROGRAMS / "scenarios.c"
    compile_c(folder / "linked", [program, standin], "-std=c11", "-Wall", "-Wextra", "-Werror", "-DLINKED")
    compile_c(folder / "loaded", [program], "-std=c11", "-Wall", "-Wextra", "-Werror")
    hook = compile_hook(folder / "libgpuloom_cuda.so")
    core = ctypes.CDLL(str(hook))
    core.loom_region_open.restype = ctypes.POINTER(Region)
    core.loom_region_open.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t)
    core.loom_kernel_id.restype = U64
    core.loom_kernel_id.argtypes = (ctypes.c_char_p, U32, ctypes.POINTER(U64), ctypes.POINTER(U64))
    core.loom_claim.argtypes = (ctypes.POINTER(Region), U64, U32, ctypes.c_char_p)
    core.loom_unclaim.argtypes = (ctypes.POINTER(Region), ctypes.c_int)
    core.loom_region_leave.argtypes = (ctypes.POINTER(Region),)
    core.loom_region_bytes.restype = U64
    assert core.loom_region_bytes() == ctypes.sizeof(Region)
    return Tools(folder, hook, core)


class Program:
    """A scenario that runs, up to where the test lets it go."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment)
        self.pid = self.process.pid

    def lines_until(self, stage: str) -> list[str]:
        assert self.process.stdout
        lines: list[str] = []
        for line in self.process.stdout:
            if line.strip() == stage:
                return lines
            lines.append(line.strip())
        raise AssertionError(f"ended before {stage}: {lines} {self.process.communicate()[1]}")

    def go(self) -> None:
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def rest(self) -> str:
        out, errors = self.process.communicate(timeout=GUARD_S)
        assert self.process.returncode == 0, errors
        return out


@dataclass(slots=True)
class World:
    """A stand-in device, a region, and a slot of ours on the device: with nobody else there, nothing would be gated."""

    tools: Tools
    folder: Path
    region: Region
    started: list[Program]

    def environment(self, hook: Path | None, **more: str) -> dict[str, str]:
        own = {
            "LD_LIBRARY_PATH": str(self.tools.folder),
            "STANDIN_CUDA_DEVICE": str(self.folder / "device"),
            "GPULOOM_KERNELS_REGION": str(self.folder / "region"),
        }
        return {**os.environ, **own, **({"LD_PRELOAD": str(hook)} if hook else {}), **more}

    def run(self, program: str, scenario: str, hook: Path | None, **more: str) -> subprocess.CompletedProcess[str]:
        command = [str(self.tools.folder / program), scenario]
        environment = self.environment(hook, **more)
        return subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=GUARD_S,
            check=False,
        )

    def start(self, program: str, scenario: str, **more: str) -> Program:
        command = [str(self.tools.folder / program), scenario]
        self.started.append(Program(command, self.environment(self.tools.hook, **more)))
        return self.started[-1]

    def slots(self, program: Program) -> list[Slot]:
        return [slot for _, slot in self.region.taken() if slot.pid == program.pid]


@contextmanager
def open_world(tools: Tools, folder: Path) -> Iterator[World]:
    why = ctypes.create_string_buffer(512)
    pointer = tools.core.loom_region_open(str(folder / "region").encode(), why, len(why))
    assert pointer, why.value
    uuid = bytes(byte | 0x80 for byte in b"standin-gpu-0000")
    slot = tools.core.loom_claim(pointer, tools.core.loom_kernel_id(uuid, 1, (U64 * 1)(0), None), 9, b"test")
    region: Region = pointer.contents
    region.head.policy = Policy.STRICT
    world = World(tools, folder, region, [])
    try:
        yield world
    finally:
        for program in world.started:
            with suppress(ProcessLookupError):
                program.process.kill()
            program.process.communicate()
        tools.core.loom_unclaim(pointer, slot)
        tools.core.loom_region_leave(pointer)


def wait_until(condition: Callable[[], bool], *programs: Program) -> None:
    guard = time.monotonic() + GUARD_S
    while not condition():
        assert time.monotonic() < guard
        assert all(program.process.poll() is None for program in programs)
        os.sched_yield()
