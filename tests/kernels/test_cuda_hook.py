"""The CUDA front end (native/cuda_hook.c, cuda_streams.c) under programs that run on the stand-in driver.

The tests look at the shared memory while a program pauses at a named stage. What they say holds for the
stand-in: nothing here has run on an NVIDIA driver.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpuloom.kernels.native import U32, U64, Policy, Region, Slot

ROOT = Path(__file__).parents[2]
NATIVE = ROOT / "src/gpuloom/kernels/native"
STANDIN = ROOT / "tests/standin/cuda"
PROGRAMS = Path(__file__).parent / "cuda"
SOURCES = ("gate", "learn", "region_file", "runtime", "cuda_streams", "cuda_hook")
STRICT = ("-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror")
LIBRARY = ("-fvisibility=hidden", "-fPIC", "-shared")
GUARD_S = 20  # only so that a test that would hang fails
SCENARIOS = ("results", "come_and_go", "two_priorities", "three", "failing", "fault")


def compile_c(out: Path, sources: list[Path], *flags: str) -> Path:
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("needs gcc")
    command = [
        gcc,
        *flags,
        f"-I{NATIVE}",
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
    return compile_c(out, [NATIVE / f"{name}.c" for name in SOURCES], "-O2", *STRICT, *LIBRARY, *flags)


def compile_standin(folder: Path, *flags: str) -> Path:
    name = "libcuda.so.1"
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


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Tools:
    folder = tmp_path_factory.mktemp("cuda")
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


@pytest.fixture
def world(tools: Tools, tmp_path: Path) -> Iterator[World]:
    why = ctypes.create_string_buffer(512)
    pointer = tools.core.loom_region_open(str(tmp_path / "region").encode(), why, len(why))
    assert pointer, why.value
    uuid = bytes(byte | 0x80 for byte in b"standin-gpu-0000")
    slot = tools.core.loom_claim(pointer, tools.core.loom_kernel_id(uuid, 1, (U64 * 1)(0), None), 9, b"test")
    region: Region = pointer.contents
    region.head.policy = Policy.STRICT
    world = World(tools, tmp_path, region, [])
    yield world
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


def has_waited(slot: Slot) -> bool:
    return bool(slot.waiting_since or slot.waited_ns)


def in_order_of_priority(slots: list[Slot]) -> list[Slot]:
    return sorted(slots, key=lambda slot: slot.priority)


BOTH = pytest.mark.parametrize("program", ["linked", "loaded"])


@BOTH
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_program_does_the_same_with_and_without_the_hook(world: World, program: str, scenario: str) -> None:
    alone = world.run(program, scenario, None)
    hooked = world.run(program, scenario, world.tools.hook, GPULOOM_KERNELS_PRIORITY="0,5")
    assert (alone.returncode, alone.stderr) == (0, "")
    assert (hooked.returncode, hooked.stdout, hooked.stderr) == (0, alone.stdout, "")


@BOTH
def test_every_way_to_launch_is_counted_once_on_its_stream(world: World, program: str) -> None:
    running = world.start(program, "results")
    lines = running.lines_until("done")
    assert lines[0] == "nodes 3"  # nothing of ours got into the graph, and capturing it counted as no launch
    slots = world.slots(running)
    # Two created streams (10 kernels and 2 graphs; 5 kernels), the legacy one (5), and the main thread's own (a graph).
    assert sorted(slot.launches for slot in slots) == [1, 5, 5, 12]
    assert [slot.in_flight for slot in slots] == [0, 0, 0, 0]
    assert len({slot.device for _, slot in world.region.taken()}) == 1
    running.go()
    running.rest()


@BOTH
def test_slots_come_and_go_with_their_streams(world: World, program: str) -> None:
    running = world.start(program, "come_and_go")
    seen: dict[str, list[int]] = {}
    stages = (
        "default streams",
        "threads ended",
        "created",
        "destroyed",
        "context destroyed",
        "primary used",
        "primary released",
    )
    for stage in stages:
        running.lines_until(stage)
        seen[stage] = sorted(slot.launches for slot in world.slots(running))
        running.go()
    running.rest()
    assert seen == {
        "default streams": [2, 2, 2],  # NULL and CU_STREAM_LEGACY are one; each thread has its own
        "threads ended": [2],
        "created": [1, 2],
        "destroyed": [2],
        "context destroyed": [],
        "primary used": [1],  # released by one of two users
        "primary released": [],
    }


@BOTH
def test_low_priority_waits_for_high(world: World, program: str) -> None:
    running = world.start(program, "two_priorities", GPULOOM_KERNELS_PRIORITY="0,5")
    running.lines_until("held")
    high, low = in_order_of_priority(world.slots(running))
    assert (high.priority, high.in_flight, low.priority) == (0, 1, 5)
    wait_until(lambda: has_waited(low), running)
    running.go()
    assert running.lines_until("done") == [f"{3 * 31 + 1} {4 * 31 + 5}"]
    assert low.waited_ns > 0
    assert high.waited_ns == 0
    assert (high.launches, low.launches) == (2, 2)
    assert (high.in_flight, low.in_flight) == (0, 0)


def test_a_launch_that_fails_is_not_in_flight(world: World) -> None:
    running = world.start("linked", "failing")
    invalid_value = "1"
    assert running.lines_until("done") == [invalid_value, invalid_value, str(5 * 31 + 7)]
    assert [slot.in_flight for slot in world.slots(running)] == [0]


def test_a_context_that_died_of_a_fault_holds_nobody_up(world: World) -> None:
    running = world.start("linked", "fault")
    launch_failed = "719"
    assert running.lines_until("faulted") == [launch_failed]
    [slot] = world.slots(running)
    assert slot.in_flight >= 1  # no host function is called in a dead context
    running.go()
    assert running.lines_until("told") == [launch_failed]
    assert world.slots(running) == []


def test_a_process_that_is_killed_holds_nobody_up(world: World) -> None:
    high = world.start("linked", "hold", GPULOOM_KERNELS_PRIORITY="0")
    high.lines_until("held")
    low = world.start("loaded", "three", GPULOOM_KERNELS_PRIORITY="7")
    wait_until(lambda: any(has_waited(slot) for slot in world.slots(low)), high, low)
    high.process.send_signal(signal.SIGKILL)
    assert low.rest() == f"{((0 * 31 + 1) * 31 + 2) * 31 + 3}\n"


@BOTH
def test_measuring_writes_every_kernel_with_its_name(world: World, program: str) -> None:
    record = world.folder / "record"
    done = world.run(program, "results", world.tools.hook, GPULOOM_KERNELS_RECORD=str(record))
    assert done.stdout == world.run(program, "results", None).stdout
    [file] = world.folder.glob("record.*")
    rows = [line.split("\t") for line in file.read_text().splitlines()]
    kernels = Counter((row[8], row[6], row[7]) for row in rows)
    small = ("1x1x1", "1x1x1")
    assert kernels == {
        ("add", "4x2x1", "32x1x1"): 10,
        ("add_as_kernel", "4x2x1", "32x1x1"): 5,  # was launched by a CUkernel
        ("spin_50us", "4x2x1", "32x1x1"): 5,
        ("spin_50us", "2x1x1", "1x1x1"): 5,
        ("add", "3x1x1", "8x1x1"): 5,
        ("spin_50us", "3x1x1", "8x1x1"): 5,
        ("add", *small): 10,
        ("spin_50us", *small): 5,
        ("(graph)", "0x1x1", "1x1x1"): 3,
    }
    for row in rows:
        launched_ns, ended_ns, ran_ns = map(int, row[2:5])
        assert 0 < ran_ns <= ended_ns - launched_ns


def test_a_record_knows_what_came_after_waiting(world: World) -> None:
    world.run("linked", "three", world.tools.hook, GPULOOM_KERNELS_RECORD=str(world.folder / "record"))
    [file] = world.folder.glob("record.*")
    assert [line.split("\t")[5] for line in file.read_text().splitlines()] == ["0", "0", "1"]


def test_other_libraries_that_stand_in_between_keep_working(world: World) -> None:
    """They ask for the next function after their own, and the answer depends on who seems to ask."""
    between = compile_c(world.folder / "between.so", [PROGRAMS / "between.c"], "-O1", *LIBRARY)
    done = world.run("linked", "three", None, LD_PRELOAD=f"{world.tools.hook}:{between}")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["init", "launch", "launch", "launch", str((1 * 31 + 2) * 31 + 3)]


@pytest.mark.parametrize("hooked", [False, True])
def test_where_there_is_no_driver_none_is_seen(world: World, hooked: bool) -> None:
    done = world.run("loaded", "without_driver", world.tools.hook if hooked else None)
    assert (done.returncode, done.stdout) == (0, "0\n")


def test_without_settings_nothing_happens(world: World) -> None:
    done = world.run("linked", "results", world.tools.hook, GPULOOM_KERNELS_REGION="")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == world.run("linked", "results", None).stdout


def test_a_region_that_cannot_be_trusted_is_left_alone_and_that_is_said_once(world: World) -> None:
    open_to_all = world.folder / "open"
    open_to_all.write_bytes(b"")
    open_to_all.chmod(0o666)
    done = world.run("linked", "results", world.tools.hook, GPULOOM_KERNELS_REGION=str(open_to_all))
    assert done.stdout == world.run("linked", "results", None).stdout
    [said] = done.stderr.splitlines()
    assert said.startswith("gpuloom: kernels run ungated: ")


def test_it_compiles_against_cudas_own_header(tmp_path: Path) -> None:
    """With it the compiler compares every signature of ours."""
    places = [os.environ.get("CUDA_HOME"), "/usr/local/cuda", "/usr"]
    found = [Path(place) / "include" for place in places if place and (Path(place) / "include/cuda.h").is_file()]
    if not found:
        pytest.skip("there is no cuda.h here (set CUDA_HOME)")
    compile_hook(tmp_path / "libgpuloom_cuda.so", "-isystem", str(found[0]))
    compile_standin(tmp_path, "-isystem", str(found[0]))


@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_sanitizers_find_nothing(world: World, sanitizer: str) -> None:
    flags = (f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all")
    hook = compile_hook(world.folder / "libhook.so", *flags)
    standin = compile_standin(world.folder, *flags)
    sources = [PROGRAMS / "scenarios.c", hook, standin]
    program = compile_c(
        world.folder / "checked", sources, "-std=c11", "-O1", "-DLINKED", f"-Wl,-rpath,{world.folder}", *flags
    )
    ignore = world.folder / "ignore"
    ignore.write_text("leak:libcuda.so.1\n")  # the stand-in frees nothing of a context that is gone
    options = {
        "LSAN_OPTIONS": f"suppressions={ignore}:print_suppressions=0",
        "LD_LIBRARY_PATH": str(world.folder),
        "GPULOOM_KERNELS_PRIORITY": "0,5",
    }
    for scenario in SCENARIOS:
        done = world.run(str(program), scenario, None, **options)
        assert (done.returncode, done.stderr) == (0, ""), scenario
        assert done.stdout == world.run("linked", scenario, None).stdout
