"""What one elastic model truly does: step time by placement and local batch, statistics by global batch and epoch.

Measured points and straight lines between them, never beyond them (Pollux's simulator, OSDI'21, section 5.3). Knows no
files and no scheduler; answers are remembered, since a simulation asks the same few thousand questions again and again.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from gpuloom.perf.goodput.model import BatchLimits
from gpuloom.work.measured.elastic_profiles import ElasticProfile, EpochRow

if TYPE_CHECKING:
    from gpuloom.perf.goodput.surface import Surface

MAX_NODES = 16
"""Nothing was measured on more nodes: a placement on more is taken as one on so many."""
Placement = tuple[int, ...]
"""GPUs on each node, in the order of the job's ranks."""


def placement_of(nodes: Iterable[int]) -> Placement:
    """Run lengths of a list of nodes, one entry for each rank: a a b is (2, 1)."""
    runs: list[int] = []
    before: int | None = None
    for node in nodes:
        if node == before:
            runs[-1] += 1
        else:
            runs.append(1)
        before = node
    return tuple(runs)


def packed(replicas: int, node_size: int) -> Placement:
    """As few nodes as possible: full ones, then the rest."""
    full, rest = divmod(replicas, node_size)
    return (node_size,) * full + ((rest,) if rest else ())


def rotated(placement: Placement) -> Placement:
    """The smallest rotation: in a ring all-reduce it does not matter where the ring starts."""
    return min(placement[i:] + placement[:i] for i in range(len(placement)))


class ElasticTables:
    """One model's measurements as functions. Nothing changes after construction but the memory of answers."""

    def __init__(self, profile: ElasticProfile) -> None:
        self.profile = profile
        self.model = profile.model
        self._batches = tuple(profile.validation)
        locals_ = [row.local_batch for row in profile.placements]
        self.limits = BatchLimits(
            init_batch=self._batches[0],
            max_batch=self._batches[-1],
            min_local=min(locals_),
            max_local=profile.max_local_batch or max(locals_),
        )
        self.epochs = min(map(len, profile.validation.values()))
        self.epoch_marks = tuple(
            min(rows[epoch].progress for rows in profile.validation.values()) for epoch in range(self.epochs)
        )
        """Progress at which each epoch ends."""
        self._by_placement: dict[Placement, list[tuple[int, float, float]]] = defaultdict(list)
        for row in profile.placements:
            self._by_placement[row.placement].append(row[1:])
        for points in self._by_placement.values():
            points.sort()
        self._times: dict[tuple[Placement, int], tuple[float, float]] = {}
        self._rows: dict[tuple[int, int], EpochRow] = {}

    def step_sync_s(self, placement: Placement, local_batch: int) -> tuple[float, float]:
        """Seconds of one step, and of those the seconds of waiting for the network."""
        key = (placement, local_batch)
        if key not in self._times:
            points = self._by_placement.get(rotated(placement))
            self._times[key] = _on_line(points, local_batch) if points else self._between(placement, local_batch)
        return self._times[key]

    def at_epoch(self, batch: int, epoch: int) -> EpochRow:
        """The row of an epoch (counted from 0) at a global batch: straight between the nearest validated batches."""
        key = (batch, epoch)
        if key not in self._rows:
            self._rows[key] = self._epoch_row(batch, epoch)
        return self._rows[key]

    def _epoch_row(self, batch: int, epoch: int) -> EpochRow:
        batch = min(max(batch, self._batches[0]), self._batches[-1])
        place = bisect_left(self._batches, batch)
        high = self._batches[place]
        above = self.profile.validation[high][epoch]
        if high == batch:
            return above
        low = self._batches[place - 1]
        below = self.profile.validation[low][epoch]
        up, down, width = batch - low, high - batch, high - low
        return EpochRow(*((up * a + down * b) / width for a, b in zip(above, below, strict=True)))

    def _between(self, placement: Placement, local_batch: int) -> tuple[float, float]:
        """A placement that was not measured: between its neighbours in (nodes, replicas, local batch)."""
        step_s, sync_s = self._surface.at((min(len(placement), MAX_NODES), sum(placement), local_batch))
        return float(step_s), float(sync_s)

    @cached_property
    def _surface(self) -> "Surface":
        """Means of the measured placements by (nodes, replicas, local batch), and the runs on many nodes."""
        from gpuloom.perf.goodput.surface import Surface

        times: dict[tuple[int, int, int], list[tuple[float, float]]] = defaultdict(list)
        for placed in self.profile.placements:
            where = (len(placed.placement), sum(placed.placement), placed.local_batch)
            times[where].append((placed.step_s, placed.sync_s))
        # In this order, for the triangulation of points on a grid is not unique.
        points = [*sorted(times), *(row[:3] for row in self.profile.scalability)]
        means = [
            tuple(sum(column) / len(column) for column in zip(*times[where], strict=True)) for where in sorted(times)
        ]
        return Surface(points, [*means, *(row[3:] for row in self.profile.scalability)])


def _on_line(points: Sequence[tuple[int, float, float]], x: int) -> tuple[float, float]:
    """Straight lines through (x, y, z) points; beyond the ends, the end."""
    x = min(max(x, points[0][0]), points[-1][0])
    place = bisect_left(points, (x,))
    x1, y1, z1 = points[place]
    if x1 == x:
        return y1, z1
    x0, y0, z0 = points[place - 1]
    part = (x - x0) / (x1 - x0)
    return y0 + part * (y1 - y0), z0 + part * (z1 - z0)
