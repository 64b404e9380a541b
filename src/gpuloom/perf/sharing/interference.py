"""How long one batch takes on a shared GPU: the questions that a planner asks, whichever model answers them.

Three models answer: iGniter's (`igniter`), gpu-lets' (`gpulets`) and ours (`model`). Each is one
method over arrays, `latencies(crowd)`: a row for each candidate device, a column for each process on it. The functions
here ask it of one device and of a service alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

from gpuloom.errors import InputError
from gpuloom.perf.arrays import Bools, Floats, Ints

NOBODY = -1
"""The model of an empty seat."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a device has: a whole GPU, or a MIG instance of it."""

    compute: float = 1.0
    """Its part of the whole GPU's SMs."""
    memory: float = 1.0
    """Its part of the whole GPU's L2 cache and memory bandwidth."""
    beside_w: float = 0.0
    """Power that the GPU's other instances ask for: cache and memory are cut by MIG, the power cap is not."""

    def __post_init__(self) -> None:
        for name, part in (("compute", self.compute), ("memory", self.memory)):
            if not 0.0 < part <= 1.0:
                raise InputError(f"{name} of a device is {part}, but must be above 0 and at most 1 (the whole GPU)")


WHOLE = Capacity()


class Placed(NamedTuple):
    """One service on a device."""

    model: str
    batch: float
    share_pct: float
    """Of the device's SMs, for each process."""
    processes: int = 1


@dataclass(frozen=True, slots=True)
class Crowd:
    """Who is on each of many devices of one kind: a row for each device, a column for each seat."""

    model: Ints
    """Index into the model's `names`, or NOBODY."""
    batch: Floats
    share_pct: Floats
    device: Capacity = WHOLE

    def __post_init__(self) -> None:
        if not self.model.shape == self.batch.shape == self.share_pct.shape:
            raise InputError("the arrays of a crowd differ in shape: expected one model, batch and share for each seat")

    @property
    def here(self) -> Bools:
        return np.not_equal(self.model, NOBODY)


@dataclass(frozen=True, slots=True)
class Latencies:
    """Of one batch of each seat, in milliseconds, with the 90 % interval of their sum. An empty seat means nothing."""

    load_ms: Floats
    gpu_ms: Floats
    feedback_ms: Floats
    low_ms: Floats
    """Both ends are the total itself where a model states no error."""
    high_ms: Floats

    @property
    def total_ms(self) -> Floats:
        return self.load_ms + self.gpu_ms + self.feedback_ms


class Latency(NamedTuple):
    """The same for one service."""

    load_ms: float
    gpu_ms: float
    feedback_ms: float
    total_ms: float
    low_ms: float
    high_ms: float
    throughput_per_s: float
    """Of all its processes, when requests never run out; loading overlaps execution."""


class InterferenceModel(Protocol):
    @property
    def names(self) -> tuple[str, ...]:
        """The models (of services) that it knows."""

    def latencies(self, crowd: Crowd) -> Latencies: ...


def predict(model: InterferenceModel, residents: Sequence[Placed], device: Capacity = WHOLE) -> list[Latency]:
    """The latency of each service on one device, in their order."""
    if not residents:
        return []
    for resident in residents:
        if resident.processes < 1:
            raise InputError(f"{resident.model} has {resident.processes} processes, but must have 1 or more")
    seats = [resident for resident in residents for _ in range(resident.processes)]
    latencies = model.latencies(crowd_of(model, [seats], device))
    first_seats = accumulate((resident.processes for resident in residents[:-1]), initial=0)
    return [_latency(latencies, seat, resident) for seat, resident in zip(first_seats, residents, strict=True)]


def crowd_of(model: InterferenceModel, rows: Sequence[Sequence[Placed]], device: Capacity = WHOLE) -> Crowd:
    """One row for each device; `processes` are not unfolded, each `Placed` is one seat."""
    width = max((len(row) for row in rows), default=0)
    index = {name: number for number, name in enumerate(model.names)}
    models = np.full((len(rows), width), NOBODY)
    batch, share_pct = np.ones((len(rows), width)), np.full((len(rows), width), 100.0)
    for number, row in enumerate(rows):
        for column, placed in enumerate(row):
            _check(placed, index)
            seat = number, column
            models[seat], batch[seat], share_pct[seat] = index[placed.model], placed.batch, placed.share_pct
    return Crowd(models, batch, share_pct, device)


def solo_ms(
    model: InterferenceModel, name: str, batch: ArrayLike, share_pct: ArrayLike, device: Capacity = WHOLE
) -> Floats:
    """Latency with the device for oneself, for arrays of batches and shares that broadcast."""
    batches, shares = np.broadcast_arrays(np.asarray(batch, float), np.asarray(share_pct, float))
    if name not in model.names:
        raise unknown(name, model.names)
    indices = np.full((batches.size, 1), model.names.index(name))
    alone = Crowd(indices, batches.reshape(-1, 1), shares.reshape(-1, 1), device)
    return model.latencies(alone).total_ms.reshape(batches.shape)


def unknown(name: str, known: Sequence[str]) -> InputError:
    return InputError(f"there is no profile of the model {name!r}: expected one of {', '.join(sorted(known))}")


def _check(placed: Placed, index: dict[str, int]) -> None:
    model, batch, share_pct, _ = placed
    if model not in index:
        raise unknown(model, list(index))
    if not 1 <= batch < np.inf:
        raise InputError(f"the batch of {model} is {batch}, but must be a number from 1")
    if not 0.0 < share_pct <= 100.0:
        raise InputError(f"the share of {model} is {share_pct}, but must be above 0 and at most 100 per cent")


def _latency(row: Latencies, seat: int, resident: Placed) -> Latency:
    parts = row.load_ms, row.gpu_ms, row.feedback_ms, row.total_ms, row.low_ms, row.high_ms
    load, gpu, feedback, total, low, high = (float(part[0, seat]) for part in parts)
    throughput_per_s = 1000.0 * resident.batch * resident.processes / max(gpu + feedback, load)
    return Latency(load, gpu, feedback, total, low, high, throughput_per_s)
