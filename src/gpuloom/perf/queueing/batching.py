"""How Triton's dynamic batcher decides, and how long a batch takes: what the queueing modules agree on.

The rule, read in triton-inference-server/core, `src/dynamic_batch_scheduler.cc` (`GetDynamicBatch`, commit 01ea7d9) and
the user guide's page "Batchers". Requests are taken in the order of arrival, each of batch size 1:

1. A delay is set and the oldest request has waited that long: all that is queued, up to the max batch. Preferred sizes
   no longer count.
2. Otherwise, if as many as a preferred size are queued: the largest such size, at once; the rest stays.
3. Otherwise, without a delay: all that is queued, at once.
4. Otherwise it waits, for the smallest preferred size to fill or for the oldest request to reach the delay.

Without preferred sizes the max batch is the one preferred size (`NormalizeModelConfig`). Triton decides up to two
batches ahead (`RateLimiter::PayloadSlotAvailable`), but one that is not full keeps growing until it is executed. With
the max batch as the preferred size that is the same as deciding when the instance is free, which is what is modelled;
with smaller ones Triton may also fix a batch of a preferred size earlier, which is not.

One instance. It is occupied for `busy_ms`, answers after `latency_ms`: iGniter's loading of the inputs overlaps the
execution of the batch before, so it counts for the latency only.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

import numpy as np
from numpy.typing import ArrayLike

from gpuloom.errors import InputError
from gpuloom.perf.arrays import Floats


@dataclass(frozen=True, slots=True)
class Batching:
    """The settings of the dynamic batcher."""

    max_batch: int
    delay_ms: float = 0.0
    preferred: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.max_batch < 1:
            raise InputError(f"the max batch is {self.max_batch}: it must be at least 1")
        if not (isfinite(self.delay_ms) and self.delay_ms >= 0):
            raise InputError(f"the queue delay is {self.delay_ms} ms: it must be 0 or a positive number")
        if any(not 1 <= size <= self.max_batch for size in self.preferred):
            raise InputError(f"preferred batch sizes must lie between 1 and the max batch {self.max_batch}")

    @property
    def sizes(self) -> tuple[int, ...]:
        """The preferred sizes in force, ascending."""
        return tuple(sorted(set(self.preferred))) or (self.max_batch,)

    @property
    def prefers_full(self) -> bool:
        """Whether only a full batch is sent ahead of its time."""
        return self.sizes == (self.max_batch,)

    @property
    def size_under_load(self) -> int:
        """Of the batches that a long queue is served in: old requests overrule the preferred sizes (rule 1)."""
        return self.max_batch if self.delay_ms > 0 else self.sizes[-1]


@dataclass(frozen=True, slots=True)
class BatchTimes:
    """Time by batch size: entry 0 is for a batch of 1."""

    busy_ms: Floats
    latency_ms: Floats

    @classmethod
    def of(cls, busy_ms: ArrayLike, latency_ms: ArrayLike | None = None) -> "BatchTimes":
        """Without `latency_ms` a batch is answered when the instance is free again."""
        busy = _checked("busy_ms", busy_ms)
        latency = busy if latency_ms is None else _checked("latency_ms", latency_ms)
        if len(busy) != len(latency):
            raise InputError(f"busy_ms has {len(busy)} batch sizes and latency_ms {len(latency)}: give both the same")
        if (latency < busy).any():
            raise InputError(f"latency_ms must not be below busy_ms (batch {int(np.argmax(latency < busy)) + 1})")
        return cls(busy, latency)

    def up_to(self, batching: Batching) -> "BatchTimes":
        """For the batch sizes that can occur."""
        if batching.max_batch > len(self.busy_ms):
            raise InputError(
                f"the max batch is {batching.max_batch}, but times are known up to {len(self.busy_ms)} only"
            )
        return BatchTimes(self.busy_ms[: batching.max_batch], self.latency_ms[: batching.max_batch])

    def capacity_per_s(self, batching: Batching) -> float:
        """The rate at which a long queue is served."""
        size = batching.size_under_load
        return 1000.0 * size / float(self.up_to(batching).busy_ms[size - 1])


def check_percent(percent: float) -> float:
    if not 0 < percent < 100:
        raise InputError(f"the percentile is {percent}: it must lie between 0 and 100")
    return percent


def _checked(name: str, values: ArrayLike | Sequence[float]) -> Floats:
    times = np.array(values, dtype=float)
    if times.ndim != 1 or not len(times):
        raise InputError(f"{name} must be a list of times, one for each batch size from 1 on")
    if not (np.isfinite(times).all() and (times > 0).all()):
        raise InputError(f"{name} must hold positive numbers of milliseconds only")
    if (np.diff(times) < 0).any():
        size = int(np.argmax(np.diff(times) < 0)) + 2
        raise InputError(f"{name} must not fall with the batch size, but does at batch {size}")
    return times
