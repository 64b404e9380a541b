"""The CUDA front end (csrc/cuda_hook.c, cuda_streams.c) under programs that run on the stand-in driver.

The tests look at the shared memory while a program pauses at a named stage. What they say holds for the
stand-in: nothing here has run on an NVIDIA driver.
"""

import signal
from collections import Counter

import pytest

from gpuloom.kernels.core import Slot
from gpuloom.kernels.profile import Profile, read_profile, write_profile
from gpuloom.kernels.record import read_records, runs_of

from .cuda_world import (
    GUARD_S,
    PROGRAMS,
    World,
    compile_c,
    compile_hook,
    compile_standin,
    wait_until,
)

SCENARIOS = (
    "results",
    "come_and_go",
    "two_priorities",
    "three",
    "failing",
    "fault",
    "fault_elsewhere",
    "fault_at_once",
    "capture",
    "entries",
    "versions",
    "long_names",
)


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


@pytest.mark.parametrize("scenario", ["fault", "fault_elsewhere"])
@pytest.mark.parametrize("error", ["220", "226", "719", "721", "810", "911"])
def test_a_context_that_died_of_a_fault_holds_nobody_up(world: World, scenario: str, error: str) -> None:
    """No host function is called in a dead context, so the ends of its kernels are never told."""
    high = world.start("linked", scenario, GPULOOM_KERNELS_PRIORITY="0", STANDIN_CUDA_FAULT=error)
    assert high.lines_until("faulted") == [error]
    assert world.slots(high) == []
    low = world.start("linked", "failing", GPULOOM_KERNELS_PRIORITY="5")
    low.lines_until("done")
    assert [(slot.launches > 0, slot.waited_ns) for slot in world.slots(low)] == [(True, 0)]
    high.go()
    assert high.lines_until("told") == [error]
    assert world.slots(high) == []


def test_a_context_that_dies_before_its_launch_returns_holds_nobody_up(world: World) -> None:
    running = world.start("linked", "fault_at_once")
    running.lines_until("faulted")
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


def test_a_thread_that_ends_spoils_no_capture_of_another(world: World) -> None:
    assert world.run("linked", "capture", world.tools.hook).stdout == "0\n"


def test_default_streams_are_those_of_the_current_context(world: World) -> None:
    running = world.start("linked", "come_and_go", STANDIN_CUDA_IS="green")
    running.lines_until("default streams")
    assert [slot.launches for slot in world.slots(running)] == [2, 2, 2]


def test_without_concurrent_managed_memory_nothing_is_gated_and_that_is_said_once(world: World) -> None:
    """Else our own stream might be busy when the program touches such memory, and that would be a crash."""
    running = world.start("linked", "results", STANDIN_CUDA_IS="unmanaged")
    running.lines_until("done")
    assert [slot.in_flight for slot in world.slots(running)] == []
    running.go()
    _, errors = running.process.communicate(timeout=GUARD_S)
    assert errors == "gpuloom: kernels run ungated: the device has no concurrent access to managed memory\n"


def test_what_the_driver_does_not_have_is_not_found(world: World) -> None:
    """It calls that a success. The hook has the function that is too new for the version."""
    expected = ["0 found 0", "0 none 2", "0 none 1", "1 - 0"]
    for hook in (None, world.tools.hook):
        assert world.run("loaded", "entries", hook).stdout.splitlines() == expected


@pytest.mark.parametrize(("driver", "launches"), [("", [3, 4]), ("eager", [2, 5])])
def test_what_the_driver_gave_is_what_is_reached(world: World, driver: str, launches: list[int]) -> None:
    """Asked for cuLaunchKernel with the per-thread flag as of CUDA 4.0, NVIDIA's rule gives the plain one, as the other
    is of 7.0. What a real driver gives is not known here, so both are tried."""
    alone = world.run("loaded", "versions", None, STANDIN_CUDA_IS=driver)
    running = world.start("loaded", "versions", STANDIN_CUDA_IS=driver)
    lines = running.lines_until("done")
    assert lines == alone.stdout.splitlines()[:-1]
    assert sorted(slot.launches for slot in world.slots(running)) == launches  # legacy stream, the thread's


def test_kernels_with_long_names_are_told_apart(world: World) -> None:
    world.run("linked", "long_names", world.tools.hook, GPULOOM_KERNELS_RECORD=str(world.folder / "record"))
    [file] = world.folder.glob("record.*")
    kernels, runs = runs_of(read_records(file))
    write_profile(Profile("test", kernels, tuple(runs)), world.folder / "profile")
    read = read_profile(world.folder / "profile").kernels.values()
    assert [(len(kernel.name), kernel.name[-1]) for kernel in read] == [(3000, "a"), (3000, "b")]


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
