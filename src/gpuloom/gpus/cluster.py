"""The GPUs there are: which node each sits in, a cheap index of the idle ones, and a cluster in words that a log keeps.

GPUs may join. One that leaves keeps its place: an index means the same GPU for ever.
"""

import re
from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

from gpuloom.errors import InputError
from gpuloom.gpus.catalogue import MODELS, find
from gpuloom.gpus.model import GpuModel, Profile

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
        """GPU indices by node, in order; nodes in the order in which they came."""
        found: dict[int, list[int]] = {}
        for gpu in self.gpus:
            found.setdefault(gpu.node, []).append(gpu.index)
        return {node: tuple(gpus) for node, gpus in found.items()}

    @cached_property
    def node_of(self) -> tuple[int, ...]:
        return tuple(gpu.node for gpu in self.gpus)

    @cached_property
    def least_mem_mib(self) -> int:
        """The memory of the GPU that has the least."""
        return min(gpu.model.mem_mib for gpu in self.gpus)

    def with_gpu(self, gpu: Gpu) -> "Cluster":
        """The same with one more, which takes the next index."""
        return Cluster((*self.gpus, gpu))


@dataclass(frozen=True, slots=True)
class DescribedModel:
    """What a driver says of its GPU, where the catalogue says something else or nothing."""

    mem_mib: int
    sms: int
    units: int
    profiles: tuple[Profile, ...]


@dataclass(frozen=True, slots=True)
class DescribedGpu:
    """One GPU in words, so that whoever reads them needs neither the machine nor its driver."""

    index: int
    node: int
    model: str
    uuid: str | None = None
    described: DescribedModel | None = None
    """None: it is as the catalogue has it."""


def describe(cluster: Cluster, uuids: Sequence[str] = ()) -> tuple[DescribedGpu, ...]:
    """Every GPU of a cluster in words; their UUIDs, where they have any, in the same order."""
    return tuple(describe_gpu(gpu, uuids[gpu.index] if uuids else None) for gpu in cluster.gpus)


def describe_gpu(gpu: Gpu, uuid: str | None = None) -> DescribedGpu:
    model = gpu.model
    described = None
    if MODELS.get(model.name) != model:
        described = DescribedModel(model.mem_mib, model.sms, model.units, model.profiles)
    return DescribedGpu(gpu.index, gpu.node, model.name, uuid, described)


def as_cluster(described: Sequence[DescribedGpu]) -> Cluster:
    """The cluster that was described. InputError if a model is not known, or if the indices are not 0, 1, 2…"""
    if not described or [gpu.index for gpu in described] != [*range(len(described))]:
        raise InputError("cluster: the indices of its GPUs are not 0, 1, 2… without a gap")
    return Cluster(tuple(map(as_gpu, described)))


def as_gpu(described: DescribedGpu) -> Gpu:
    return Gpu(described.index, described.node, _model(described.model, described.described))


@cache
def _model(name: str, described: DescribedModel | None) -> GpuModel:
    """One object for equal models: whoever remembers by model finds it quickly."""
    if described is None:
        return find(name)
    return GpuModel(name, described.mem_mib, described.sms, described.units, described.profiles)


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

    def join(self, node: int, gpu: int) -> None:
        """A GPU that was not there before, perhaps in a node that was not."""
        self._by_node.setdefault(node, ())
        self.add(node, gpu)

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
