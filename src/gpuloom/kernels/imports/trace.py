"""What every kernel trace holds, whoever wrote it, work on the device and the host's calls; and the profile they make.

Columns of numbers instead of an object for each event: a trace of a long run has millions of them.

The ids are those of the data plane, from name, grid and block. Most traces have the demangled name of a kernel, while
the driver, and so the data plane, has the mangled one. An imported profile therefore serves for reading and for replay.
Gating launches by it (policy `fikit`) works only for kernels whose two names are the same (`extern "C"`, Triton), or
whose mangled name is in the trace, as it is in recent Nsight Systems exports.
"""

import ctypes
import re
from array import array
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpuloom.errors import InputError
from gpuloom.kernels.core import U64, load
from gpuloom.kernels.profile import Kernel, Launch, Profile, Run

COPY, FILL = "(copy)", "(fill)"
"""As the data plane calls them; their only dimension is the number of bytes."""
MOST_NS = 9 * 10**18
NO_CALL = -1

Numbers = NDArray[np.int64]


class Shape(NamedTuple):
    """What makes a kernel that kernel."""

    name: str
    """For people."""
    symbol: str
    """For its id: as the driver calls it, where the trace tells."""
    grid: tuple[int, ...]
    """Empty: not known."""
    block: tuple[int, ...]


class Queue(NamedTuple):
    process: int
    device: object
    stream: object


class Trace:
    """Takes events in any order."""

    def __init__(self) -> None:
        self._shapes: dict[Shape, int] = {}
        self._queues: dict[Queue, int] = {}
        self._work: tuple[array[int], ...] = tuple(array("q") for _ in range(5))
        self._calls: tuple[array[int], ...] = tuple(array("q") for _ in range(3))
        self._waits: dict[int, array[int]] = {}
        self.without_times = 0

    def add_work(self, shape: Shape, queue: Queue, start_ns: int, end_ns: int, correlation: object) -> None:
        """`correlation` is the number that it has in common with the call that launched it."""
        # CUPTI writes 0 for both times where it could not collect them.
        if not -MOST_NS < start_ns <= end_ns < MOST_NS or start_ns == end_ns == 0:
            self.without_times += 1
            return
        number = self._shapes.setdefault(shape, len(self._shapes))
        place = self._queues.setdefault(queue, len(self._queues))
        for column, value in zip(
            self._work, (number, place, start_ns, end_ns, _key(queue.process, correlation)), strict=True
        ):
            column.append(value)

    def add_call(self, process: int, name: str, start_ns: int, end_ns: int, correlation: object) -> None:
        if not -MOST_NS < start_ns <= end_ns < MOST_NS:
            return
        is_graph, waits = _meaning(name)
        if waits:
            self._waits.setdefault(process, array("q")).append(end_ns)
        if (key := _key(process, correlation)) != NO_CALL:
            for column, value in zip(self._calls, (key, start_ns, is_graph), strict=True):
                column.append(value)

    def devices(self) -> set[object]:
        return {queue.device for queue in self._queues}

    def profile(self, source: str, device: str, notes: tuple[str, ...]) -> Profile:
        """InputError if no work was seen."""
        if not self._work[0]:
            why = (
                f"none of its {self.without_times} GPU kernels has times"
                if self.without_times
                else "has no GPU kernels"
            )
            raise InputError(
                f"{source}: {why}: expected a trace of a program that used the GPU, with GPU activity recorded"
            )
        kernel, queue, start, end, key = (np.frombuffer(column, np.int64) for column in self._work)
        launched, is_graph, known = self._launched(key, start)
        kernel, queue, start, end, launched = self._one_per_graph(kernel, queue, start, end, launched, key, is_graph)
        runs, labels = [], []
        places = list(self._queues)
        device_ends = self._ends_by_device(queue, end)
        order = np.lexsort((start, queue))
        parts = np.split(order, np.flatnonzero(np.diff(queue[order])) + 1)
        shapes = list(self._shapes)
        ids = np.array([_id(shape) for shape in shapes], np.uint64)
        for part in sorted(parts, key=lambda part: int(start[part[0]])):
            place = places[queue[part[0]]]
            waits = np.sort(np.frombuffer(self._waits.get(place.process, array("q")), np.int64))
            figures = _figures(start[part], end[part], launched[part], waits, device_ends[place.device])
            columns = (column.tolist() for column in (ids[kernel[part]], *figures))
            runs.append(Run(tuple(map(Launch, *columns))))
            labels.append(f"device {place.device} stream {place.stream}")
        used = [shapes[number] for number in dict.fromkeys(kernel.tolist())]
        told = self._told(labels, used, int(np.count_nonzero(~known)), len(known))
        return Profile(source, {_id(shape): _kernel(shape) for shape in used}, tuple(runs), device, (*notes, *told))

    def _launched(self, key: Numbers, start: Numbers) -> tuple[Numbers, NDArray[np.bool_], NDArray[np.bool_]]:
        """When the host launched each; work whose call is not in the trace is taken to be launched when it started."""
        keys, begun, graph = (np.frombuffer(column, np.int64) for column in self._calls)
        if not len(keys):
            nothing = np.zeros(len(key), bool)
            return start, nothing, nothing
        order = np.lexsort((begun, keys))
        at = np.minimum(np.searchsorted(keys[order], key), len(keys) - 1)
        call = order[at]
        known = keys[call] == key
        launched = np.where(known, np.minimum(begun[call], start), start)
        return launched, known & (graph[call] == 1), known

    def _one_per_graph(
        self, kernel: Numbers, queue: Numbers, start: Numbers, end: Numbers, launched: Numbers, key: Numbers,
        is_graph: NDArray[np.bool_],
    ) -> tuple[Numbers, ...]:  # fmt: skip
        """A CUDA graph is one launch, and nothing can come between its kernels: here too it counts as one kernel."""
        inside = np.flatnonzero(is_graph)
        if not len(inside):
            return kernel, queue, start, end, launched
        inside = inside[np.lexsort((start[inside], key[inside]))]
        heads = np.flatnonzero(np.diff(key[inside], prepend=NO_CALL))
        first, sizes = inside[heads], np.diff(np.append(heads, len(inside)))
        shapes = list(self._shapes)
        graphs = []
        for one, size in zip(kernel[first].tolist(), sizes.tolist(), strict=True):
            shape = Shape(f"(graph) {shapes[one].name}", f"(graph) {shapes[one].symbol}", (size,), ())
            graphs.append(self._shapes.setdefault(shape, len(self._shapes)))
        rest = np.flatnonzero(~is_graph)
        columns = (
            np.array(graphs, np.int64),
            queue[first],
            start[first],
            np.maximum.reduceat(end[inside], heads),
            launched[first],
        )
        return tuple(
            np.concatenate((column[rest], of_graphs))
            for column, of_graphs in zip((kernel, queue, start, end, launched), columns, strict=True)
        )

    def _ends_by_device(self, queue: Numbers, end: Numbers) -> dict[object, Numbers]:
        devices = list(dict.fromkeys(one.device for one in self._queues))
        of_queue = np.array([devices.index(one.device) for one in self._queues])
        return {device: np.sort(end[of_queue[queue] == number]) for number, device in enumerate(devices)}

    def _told(self, labels: list[str], used: list[Shape], alone: int, events: int) -> list[str]:
        shown = "; ".join(labels[:8]) + ("; …" if len(labels) > 8 else "")
        told = [f"runs: {shown}"]
        if alone:
            told.append(
                f"the calls that launched {alone} of {events} kernels are not in the trace: launch taken as start"
            )
        if demangled := sum(re.match(r"[^(].*[^\w.$]", shape.symbol) is not None for shape in used):
            told.append(f"{demangled} of {len(used)} kernels have demangled names only: for replay, not for gating")
        if self.without_times:
            told.append(f"{self.without_times} kernels without sensible times were left out")
        return told


def _figures(
    start: Numbers, end: Numbers, launched: Numbers, waits: Numbers, device_ends: Numbers
) -> tuple[NDArray[np.int64] | NDArray[np.bool_], ...]:
    """Of one queue's work, by start: the columns of its launches, with the meaning that profile.py gives them."""
    ran = end - start
    ended = np.maximum.accumulate(end)
    before = np.concatenate((launched[:1], ended[:-1]))
    # Work that waits for another stream cannot start before that one ends: not before what ended last on the device.
    last = np.searchsorted(device_ends, start, side="right") - 1
    free_at = np.maximum(np.maximum(launched, before), np.where(last >= 0, device_ends[np.maximum(last, 0)], launched))
    held = np.maximum(end - free_at, ran)
    # A waiting call that returned between two launches means that the host waited; not, though, if this queue was still
    # busy then: the wait was for another. Replay repeats the run: before the first launch comes what follows the last.
    returned = np.searchsorted(waits, launched, side="right")
    waited = (np.diff(returned, prepend=0) > 0) & (launched >= before)
    waited[0] |= len(waits) > returned[-1]
    since = np.where(waited, before, np.concatenate((launched[:1], launched[:-1])))
    host = np.maximum(launched - since, 0)
    gap = np.maximum(np.concatenate((launched[1:], ended[-1:])) - ended, 0)
    return ran, held, host, waited, gap


def _key(process: int, correlation: object) -> int:
    """Correlation numbers have 32 bits, are unique in a process, and 0 is none."""
    return process << 32 | correlation if isinstance(correlation, int) and 0 < correlation < 1 << 32 else NO_CALL


@cache
def _meaning(call: str) -> tuple[bool, bool]:
    """Whether it launches a graph; whether it returns only when the device is done. Nsight adds versions to names."""
    waits = "Synchronize" in call or re.match(r"(cuda|cu|hip)Memcpy(?!.*Async)", call) is not None
    return "GraphLaunch" in call, waits


def _id(shape: Shape) -> int:
    dims = len(shape.grid)
    grid = (U64 * 3)(*shape.grid)
    block = (U64 * 3)(*shape.block) if shape.block else ctypes.POINTER(U64)()
    found: int = load().loom_kernel_id(shape.symbol.encode("utf-8", "replace"), dims, grid, block)
    return found


def _kernel(shape: Shape) -> Kernel:
    grid, block = ("x".join(map(str, size)) or "-" for size in (shape.grid, shape.block))
    return Kernel(_id(shape), shape.name.encode("utf-8", "replace").decode() or "-", grid, block)


def sizes(values: object) -> tuple[int, ...]:
    """Of a grid or block; empty if it is none."""
    if not isinstance(values, list | tuple) or not 0 < len(values) <= 3:
        return ()
    return tuple(values) if all(isinstance(one, int) and 0 <= one < 1 << 63 for one in values) else ()
