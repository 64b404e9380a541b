"""Where on its GPU each segment of a timeline is drawn: slices at their memory units, MPS shares stacked.

Knows geometry only: fractions of a GPU's height for the report, whole numbers of lanes for a trace viewer.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from gpuloom.gpus.cluster import Cluster
from gpuloom.gpus.grant import Device, Grant
from gpuloom.gpus.model import GpuModel
from gpuloom.sim.timeline import Segment

EPSILON = 1e-6
"""Of a device: three shares of a third fill it, whatever rounding says."""


class Band(NamedTuple):
    """A part of a GPU's height, from its first memory unit downwards, both as fractions of the whole."""

    top: float
    height: float


class Stay(NamedTuple):
    """One job on one device without a break: its segments there (by their place in the list) follow each other."""

    begin_s: float
    end_s: float
    grant: Grant
    segments: tuple[int, ...]


WHOLE = Band(0.0, 1.0)


def bands(segments: Sequence[Segment], cluster: Cluster) -> list[tuple[Band, ...]]:
    """What each segment covers. Segments that share a device never overlap; a share may be drawn in several pieces."""
    out: list[tuple[Band, ...]] = [
        (place(cluster.gpus[segment.grant.gpu].model, segment.grant),) for segment in segments
    ]
    for stays in _shared(segments).values():
        whole = out[stays[0].segments[0]][0]
        busy: list[tuple[float, tuple[Band, ...]]] = []
        for stay in stays:
            busy = [(end_s, held) for end_s, held in busy if end_s > stay.begin_s]
            taken = _fill(sorted(band for _, held in busy for band in held), stay.grant.share_pct / 100)
            busy.append((stay.end_s, taken))
            within = tuple(Band(whole.top + band.top * whole.height, band.height * whole.height) for band in taken)
            for index in stay.segments:
                out[index] = within
    return out


def slots(segments: Sequence[Segment]) -> list[int]:
    """A lane number for each segment, 0 unless it shares its device: then the lowest that is free during its stay."""
    out = [0] * len(segments)
    for stays in _shared(segments).values():
        free_from_s: list[float] = []
        for stay in stays:
            slot = next((lane for lane, end_s in enumerate(free_from_s) if end_s <= stay.begin_s), len(free_from_s))
            free_from_s[slot : slot + 1] = [stay.end_s]
            for index in stay.segments:
                out[index] = slot
    return out


def place(model: GpuModel, grant: Grant) -> Band:
    """The device of a grant on its GPU."""
    if grant.instance is None:
        return WHOLE
    return Band(grant.instance.start / model.units, model.by_name[grant.instance.profile].size / model.units)


def _shared(segments: Sequence[Segment]) -> dict[Device, list[Stay]]:
    """The stays on shares of devices, by device, in order of time."""
    of_job: dict[tuple[str, Grant], list[int]] = {}
    for index, segment in enumerate(segments):
        if segment.grant.share_pct < 100:
            of_job.setdefault((segment.job_id, segment.grant), []).append(index)
    devices: dict[Device, list[Stay]] = {}
    for (_, grant), indices in of_job.items():
        devices.setdefault(grant.device, []).extend(_stays(segments, grant, indices))
    return {device: sorted(stays, key=lambda stay: (stay.begin_s, stay.segments)) for device, stays in devices.items()}


def _stays(segments: Sequence[Segment], grant: Grant, indices: list[int]) -> Iterator[Stay]:
    indices.sort(key=lambda index: segments[index].begin_s)
    first = 0
    for count, (index, following) in enumerate(pairwise([*indices, None]), 1):
        assert index is not None
        if following is None or segments[following].begin_s > segments[index].end_s:
            run = indices[first:count]
            yield Stay(segments[run[0]].begin_s, segments[index].end_s, grant, tuple(run))
            first = count


def _fill(busy: Sequence[Band], share: float) -> tuple[Band, ...]:
    """The first gap of the device that has room for a share; if none has, as many gaps as it takes."""
    gaps: list[Band] = []
    top = 0.0
    for band in [*busy, Band(1.0, 0.0)]:
        if band.top - top > EPSILON:
            gaps.append(Band(top, band.top - top))
        top = band.top + band.height
    for gap in gaps:
        if gap.height >= share - EPSILON:
            return (Band(gap.top, min(share, gap.height)),)
    taken: list[Band] = []
    for gap in gaps:
        if share > EPSILON:
            taken.append(Band(gap.top, min(share, gap.height)))
            share -= gap.height
    return tuple(taken)
