"""NVIDIA's own cuda-bindings, as they are on PyPI, on the stand-in for CUDA's driver: through the hook and without it.

They ask cuGetProcAddress for every function, and in the mode with a default stream for each thread for the functions of
that. No CUDA runtime (libcudart) is involved.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuloom.kernels.record import read_records
from tests.clients.conftest import HERE
from tests.kernels.cuda_world import Program, Tools, World, open_world

PER_THREAD = "CUDA_PYTHON_CUDA_PER_THREAD_DEFAULT_STREAM"
MODES = pytest.mark.parametrize("mode", [{}, {PER_THREAD: "1"}], ids=["one default stream", "one for each thread"])


@pytest.fixture
def world(tools: Tools, tmp_path: Path) -> Iterator[World]:
    with open_world(tools, tmp_path) as world:
        yield world


def start(world: World, clients: Path, hook: Path | None, **more: str) -> Program:
    command = [str(clients / "python"), str(HERE / "cuda_launch.py")]
    world.started.append(Program(command, world.environment(hook, **more)))
    return world.started[-1]


@MODES
def test_every_launch_is_gated_and_nothing_else_changes(clients: Path, world: World, mode: dict[str, str]) -> None:
    alone = start(world, clients, None, **mode).lines_until("done")
    hooked = start(world, clients, world.tools.hook, **mode)
    value = 0
    for operand in range(1, 7):
        value = 31 * value + operand
    assert hooked.lines_until("done") == alone == [f"13000 {value}"]
    # Three kernels and a graph on the stream that it made, two kernels on the default stream.
    assert sorted(slot.launches for slot in world.slots(hooked)) == [2, 4]
    hooked.go()
    hooked.rest()


def test_what_it_launches_can_be_measured(clients: Path, world: World) -> None:
    program = start(world, clients, world.tools.hook, GPULOOM_KERNELS_RECORD=str(world.folder / "record"))
    program.lines_until("done")
    program.go()
    program.rest()
    [file] = world.folder.glob("record.*")
    launched = Counter((record.kernel.name, record.kernel.grid, record.kernel.block) for record in read_records(file))
    assert launched == {("add", "4x2x1", "32x1x1"): 5, ("(graph)", "0x1x1", "1x1x1"): 1}
