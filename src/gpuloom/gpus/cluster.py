"""The GPUs there are: which node each sits in, and a cheap index of the idle ones."""

import re
from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from gpuloom.errors import InputError
from gpuloom.gpus.catalogue import find
from gpuloom.gpus.model import GpuModel

MOST_GPUS = 1_000_000


@dataclass(frozen=True, slots=True)
class Gpu:
    index: int
    node: int
    model: GpuModel


@dataclass(frozen=True)
class Cluster:
    gpus: tuple[Gpu, ...]

    def __len__(self) -> int:
        return len(self.gpus)

    @cached_property
    def nodes(self) -> dict[int, tuple[int, ...]]:
        """GPU indices by node, in order."""
        return {node: tuple(gpu.index for gpu in gpus) for node, gpus in groupby(self.gpus, key=lambda gpu: gpu.node)}

    @cached_property
    def node_of(self) -> tuple[int, ...]:
        return tuple(gpu.node for gpu in self.gpus)


class IdleGpus:
    """The GPUs that nobody is planned on, indexed so that taking from the emptiest of thousands of nodes is cheap."""

    __slots__ = ("_by_count", "_by_node", "total")

    def __init__(self, cluster: Cluster, gpus: Iterable[int] = ()) -> None:
        self._by_node: dict[int, tuple[int, ...]] = dict.fromkeys(cluster.nodes, ())
        self._by_count: dict[int, list[int]] = {}
        """Nodes with so many idle GPUs, in order. Lists: copying one is a block copy, and the lowest comes first."""
        self.total = 0
        by_node: dict[int, list[int]] = {}
        for gpu in sorted(gpus):
            by_node.setdefault(cluster.node_of[gpu], []).append(gpu)
        for node, idle in sorted(by_node.items()):
            self._set(node, tuple(idle))

    def _set(self, node: int, idle: tuple[int, ...]) -> None:
        before, after, by_count = len(self._by_node[node]), len(idle), self._by_count
        if before:
            peers = by_count[before]
            del peers[bisect_left(peers, node)]
            if not peers:
                del by_count[before]
        if after:
            insort(by_count.setdefault(after, []), node)
        self._by_node[node] = idle
        self.total += after - before

    def add(self, node: int, gpu: int) -> None:
        idle = self._by_node[node]
        at = bisect_left(idle, gpu)
        self._set(node, (*idle[:at], gpu, *idle[at:]))

    def remove(self, node: int, gpu: int) -> None:
        idle = self._by_node[node]
        at = idle.index(gpu)
        self._set(node, idle[:at] + idle[at + 1 :])

    def on(self, node: int) -> tuple[int, ...]:
        """The idle GPUs of one node, in order."""
        return self._by_node[node]

    def copy(self) -> "IdleGpus":
        """A scratch copy that a policy may take from while it plans."""
        twin = object.__new__(IdleGpus)
        twin._by_node = self._by_node.copy()
        twin._by_count = {count: nodes.copy() for count, nodes in self._by_count.items()}
        twin.total = self.total
        return twin

    def first(self, count: int) -> tuple[int, ...] | None:
        """What `take` would give, without taking it."""
        if 0 < count <= self.total:
            idle = self._by_node[self._by_count[max(self._by_count)][0]]
            if count <= len(idle):
                return idle[:count]
        return self.copy().take(count)

    def take(self, count: int) -> tuple[int, ...] | None:
        """`count` GPUs, from the node with the most idle ones first (ties: the lowest); None if there are too few."""
        if count > self.total:
            return None
        taken: tuple[int, ...] = ()
        while len(taken) < count:
            node = self._by_count[max(self._by_count)][0]
            idle = self._by_node[node]
            part = idle[: count - len(taken)]
            self._set(node, idle[len(part) :])
            taken += part
        return taken


def parse_cluster(text: str) -> Cluster:
    """A cluster as people write it: `8xA100-40GB` is one node of 8, `16x4xV100` 16 nodes of 4; commas join several."""
    written = text if len(text) <= 60 else f"{text[:57]}..."
    kinds = [_kind(part.strip(), written) for part in text.split(",")]
    if sum(nodes * each for nodes, each, _ in kinds) > MOST_GPUS:
        raise InputError(f"cluster {written!r} has too many GPUs; accepted are up to {MOST_GPUS:,}")
    gpus: list[Gpu] = []
    nodes = [(each, model) for count, each, model in kinds for _ in range(count)]
    for node, (each, model) in enumerate(nodes):
        gpus.extend(Gpu(index, node, model) for index in range(len(gpus), len(gpus) + each))
    return Cluster(tuple(gpus))


def _kind(part: str, written: str) -> tuple[int, int, GpuModel]:
    """Nodes, GPUs of each, and their model."""
    match = re.fullmatch(r"(?:([0-9]+)\s*[xX]\s*)??(?:([0-9]+)\s*[xX]\s*)?([A-Za-z].*)", part)
    if match is None:
        forms = "8xA100-40GB, 16x4xV100-16GB (nodes x GPUs) or A100-40GB"
        raise InputError(f"cluster {written!r}: {part[:60]!r} is not understood; accepted are forms such as {forms}")
    # Ten digits are past the limit already, and Python refuses to read thousands of them.
    nodes, each = (1 if digits is None else int(digits.lstrip("0")[:10] or 0) for digits in match.groups()[:2])
    if not nodes or not each:
        raise InputError(f"cluster {written!r}: {part!r} has no GPU; accepted are counts from 1")
    return nodes, each, find(match[3])
