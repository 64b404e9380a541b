"""A core for each test (shared memory in plain memory, time as an argument), CUDA's stand-in, OpenCL runtimes."""

import ctypes
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from gpuloom.kernels.core import U64, Policy, Region, Slot, load

from .cuda_world import Tools, World, make_tools, open_world

MS = 1_000_000
"""In nanoseconds."""


class Core:
    """The decision core with slots in a private region; queues by slot number."""

    def __init__(self, policy: Policy, priorities: Sequence[int], devices: Sequence[int] | None = None) -> None:
        self._core = load()
        self.region = Region()
        self._core.loom_region_init(ctypes.byref(self.region))
        self.region.head.policy = policy
        self._queues = []
        for index, priority in enumerate(priorities):
            device = devices[index] if devices else 1
            assert self._core.loom_take(ctypes.byref(self.region), index, index + 1, 0, device, priority, b"test")
            self._queues.append(self._core.loom_queue_new(ctypes.byref(self.region), index))
        self.again_ns = 0

    def close(self) -> None:
        for queue in self._queues:
            self._core.loom_queue_free(queue)

    def slot(self, index: int) -> Slot:
        return self.region.slot(index)

    def ask(self, queue: int, kernel: int, now_ns: int) -> bool:
        again = U64()
        answer = bool(self._core.loom_ask(self._queues[queue], kernel, now_ns, ctypes.byref(again)))
        self.again_ns = again.value
        return answer

    def ended(self, queue: int, kernel: int, ran_ns: int, now_ns: int) -> None:
        self._core.loom_ended(self._queues[queue], kernel, ran_ns, now_ns)

    def missed(self, queue: int) -> None:
        self._core.loom_missed(self._queues[queue])

    def failed(self, queue: int, now_ns: int) -> None:
        self._core.loom_failed(self._queues[queue], now_ns)

    def expect(self, queue: int, kernel: int, mean_ns: int, gap_ns: int) -> None:
        self._core.loom_expect(self._queues[queue], kernel, mean_ns, gap_ns)

    def run(self, queue: int, kernel: int, at_ns: int, ran_ns: int) -> int:
        """A kernel that starts at once; when it ended."""
        assert self.ask(queue, kernel, at_ns)
        self.ended(queue, kernel, ran_ns, at_ns + ran_ns)
        return at_ns + ran_ns

    def teach(self, queue: int, kernel: int, ran_ns: int, gap_ns: int, times: int, at_ns: int) -> int:
        """The same kernel again and again with the same gap; the end of the last one."""
        for _ in range(times):
            at_ns = self.run(queue, kernel, at_ns + gap_ns, ran_ns)
        return at_ns


@pytest.fixture
def core_of() -> Iterator[object]:
    made: list[Core] = []

    def make(policy: Policy, *priorities: int, devices: Sequence[int] | None = None) -> Core:
        made.append(Core(policy, priorities, devices))
        return made[-1]

    yield make
    for core in made:
        core.close()


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Tools:
    return make_tools(tmp_path_factory.mktemp("cuda"))


@pytest.fixture
def world(tools: Tools, tmp_path: Path) -> Iterator[World]:
    with open_world(tools, tmp_path) as world:
        yield world


@pytest.fixture(params=["pocl", "intel"])
def opencl(request: pytest.FixtureRequest) -> dict[str, str]:
    """The environment for a program on an OpenCL runtime, or a skip that says what is missing."""
    kind = request.param
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("OPENCL_", "GPULOOM_", "OCL_"))
    }
    environment |= {"POCL_MAX_PTHREAD_COUNT": "1", "POCL_CACHE_DIR": str(Path.home() / ".cache" / "gpuloom-pocl")}
    if kind == "pocl":
        if not any(Path("/etc/OpenCL/vendors").glob("pocl*.icd")):
            pytest.skip("needs PoCL: apt-get install pocl-opencl-icd ocl-icd-libopencl1")
        return environment | {"GPULOOM_OPENCL_PLATFORM": "Portable"}
    root = os.environ.get("GPULOOM_TEST_INTEL_OPENCL", "")
    library = Path(root) / "lib" / "libOpenCL.so.1"
    if not root or not library.exists():
        pytest.skip("needs Intel's OpenCL: make intel-opencl, and GPULOOM_TEST_INTEL_OPENCL=the folder that it names")
    return environment | {
        "GPULOOM_OPENCL": str(library),
        "GPULOOM_OPENCL_PLATFORM": "Intel",
        "OCL_ICD_FILENAMES": str(Path(root) / "lib" / "libintelocl.so"),
        "LD_LIBRARY_PATH": f"{root}/lib",
        "DPCPP_CPU_NUM_CUS": "1",
    }
