"""What one MIG instance can do for one service: the best batch and number of processes inside, by instance size.

Two rules. `by_latency` is ParvaGPU's (SC'24): a batch must take less than a part of the SLO (0.45), the rest being for
filling it, and an instance then serves its whole throughput. `by_queue` asks for the percentile under Poisson arrivals:
an instance serves the highest rate at which its batching queues keep the SLO, each process being a queue of its own.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from gpuloom.gpus.catalogue import base_profiles
from gpuloom.gpus.model import GpuModel
from gpuloom.perf.queueing.latency import Batching, BatchTimes, Poisson, highest_rate_per_s, latency_of
from gpuloom.work.measured.mig_services import MigPoint
from gpuloom.work.model import Service

PART_OF_SLO = 0.45
"""ParvaGPU's rule."""
MOST_LOAD = 0.95
"""A queue is not planned to be busier: close to saturation a generous SLO holds on paper, and in no finite time."""


@dataclass(frozen=True, slots=True)
class Option:
    """One instance for one service."""

    slices: int
    batch: int
    processes: int
    rps: float
    """What all its processes serve together while the SLO holds."""
    p99_ms: Callable[[float], float]
    """Predicted, of a process that gets this many requests a second."""


Options = Mapping[int, Option]
"""By compute slices; a size that cannot keep the SLO is absent."""


def fitting(points: Sequence[MigPoint], service: Service, model: GpuModel) -> tuple[MigPoint, ...]:
    """On sizes that the GPU has, those that keep what the service states: its largest batch, memory a process."""
    room_mib = {profile.slices: profile.mem_mib for profile in base_profiles(model)}
    return tuple(
        point
        for point in points
        if point.batch <= (service.max_batch or point.batch)
        and point.slices in room_mib
        and point.processes * (service.mem_mib or 0) <= room_mib[point.slices]
    )


def by_latency(points: Sequence[MigPoint], slo_ms: float, part: float = PART_OF_SLO) -> Options:
    fits = [point for point in points if point.latency_ms < part * slo_ms]
    return _best(
        Option(point.slices, point.batch, point.processes, point.rps, partial(_doubled, point.latency_ms))
        for point in fits
    )


def _doubled(latency_ms: float, rate_rps: float) -> float:  # noqa: ARG001
    """As long to fill the batch as to run it."""
    return 2 * latency_ms


def by_queue(points: Sequence[MigPoint], slo_ms: float, percent: float = 99.0) -> Options:
    """The max batch is any that was measured; times between measured batches lie on straight lines.

    No queue serves more than it could with requests never running out, and none that is late at some rate serves a
    higher one: whoever could not beat the best is not asked for its highest. The likely best come first.
    """
    best: dict[int, Option] = {}
    times = {shape: batch_times(points, *shape) for shape in {(point.slices, point.processes) for point in points}}
    in_time = [point for point in points if point.latency_ms < slo_ms]
    for point in sorted(in_time, key=partial(_likely_best, slo_ms)):
        process, batching = times[point.slices, point.processes], Batching(point.batch)
        at_most_rps = process.capacity_per_s(batching) * point.processes
        if point.slices in best and MOST_LOAD * at_most_rps <= best[point.slices].rps:
            continue
        ask = partial(_percentile_ms, process.up_to(batching), batching, percent)
        if point.slices in best and ask(best[point.slices].rps / point.processes) > slo_ms:
            continue
        rps = min(highest_rate_per_s(process, batching, slo_ms, percent) * point.processes, MOST_LOAD * at_most_rps)
        if rps > 0 and (point.slices not in best or rps > best[point.slices].rps):
            best[point.slices] = Option(point.slices, point.batch, point.processes, rps, ask)
    return best


def _likely_best(slo_ms: float, point: MigPoint) -> tuple[bool, float, int, int]:
    return 2.0 * point.latency_ms > slo_ms, -point.rps, point.batch, point.processes


def _percentile_ms(times: BatchTimes, batching: Batching, percent: float, rate_rps: float) -> float:
    return latency_of(times, batching, Poisson(rate_rps)).percentile_ms(percent)


def batch_times(points: Sequence[MigPoint], slices: int, processes: int) -> BatchTimes:
    """Of one process, for batches from 1 to the largest that was measured; what falls with the batch is lifted.

    It is busy for as long as the throughput says, and answers after the latency, which may be written in whole ms only.
    """
    rows = sorted((p.batch, p.latency_ms, p.each_rps) for p in points if (p.slices, p.processes) == (slices, processes))
    batches, latency_ms, each_rps = (np.array(column) for column in zip(*rows, strict=True))
    busy_ms = np.maximum.accumulate(1000.0 * batches / each_rps)
    sizes = np.arange(1, batches[-1] + 1)
    answered_ms = np.maximum.accumulate(np.maximum(latency_ms, busy_ms))
    return BatchTimes.of(np.interp(sizes, batches, busy_ms), np.interp(sizes, batches, answered_ms))


def _best(options: Iterable[Option]) -> Options:
    """For each size the one that serves most; of equal ones the smaller batch, then fewer processes."""
    best: dict[int, Option] = {}
    for option in sorted(options, key=lambda option: (option.slices, -option.rps, option.batch, option.processes)):
        if option.rps > 0:
            best.setdefault(option.slices, option)
    return best
