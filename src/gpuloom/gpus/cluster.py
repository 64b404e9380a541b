"""The GPUs there are: which node each sits in, and a cheap index of the idle ones."""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from gpuloom.gpus.model import GpuModel


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
    """The GPUs that nobody is planned on, indexed so that taking from the emptiest node stays cheap with thousands of nodes."""

    __slots__ = ("_by_count", "_by_node", "total")

    def __init__(self, cluster: Cluster, gpus: Iterable[int] = ()) -> None:
        self._by_node: dict[int, tuple[int, ...]] = dict.fromkeys(cluster.nodes, ())
        self._by_count: dict[int, set[int]] = {0: set(cluster.nodes)}
        self.total = 0
        for gpu in gpus:
            self.add(cluster.node_of[gpu], gpu)

    def _set(self, node: int, idle: tuple[int, ...]) -> None:
        before = len(self._by_node[node])
        self._by_count[before].discard(node)
        self._by_count.setdefault(len(idle), set()).add(node)
        self._by_node[node] = idle
        self.total += len(idle) - before

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
        twin._by_count = {count: nodes.copy() for count, nodes in self._by_count.items() if nodes}
        twin.total = self.total
        return twin

    def take(self, count: int) -> tuple[int, ...] | None:
        """`count` GPUs from the node with the most idle ones first (ties: the lowest node), or None if there are too few."""
        if count > self.total:
            return None
        taken: tuple[int, ...] = ()
        while len(taken) < count:
            fullest = max(idle for idle, nodes in self._by_count.items() if nodes)
            node = min(self._by_count[fullest])
            part = self._by_node[node][: count - len(taken)]
            self._set(node, self._by_node[node][len(part) :])
            taken += part
        return taken
