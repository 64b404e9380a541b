"""A run as Chrome Trace Event JSON, which Perfetto (ui.perfetto.dev) and chrome://tracing open.

A process for each GPU, a thread for each device on it in order of placement, a slice for each stretch of a job, and
counters for the queue and the utilisation. Written line by line; the same run gives the same bytes.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from gpuloom.gpus.cluster import Cluster
from gpuloom.sim.lanes import place, slots
from gpuloom.sim.metrics import QUEUE, USE
from gpuloom.sim.run import Result
from gpuloom.sim.timeline import Segment

CLUSTER_PID = 1
"""The counters' process. GPU n is process n + 2: some viewers take 0 for an idle process."""


class Track(NamedTuple):
    """A thread of the trace: a device, and which of the lanes of those who share it."""

    gpu: int
    top: float
    height: float
    slot: int
    name: str


def write_trace(path: Path, result: Result) -> None:
    """Write the trace of a run that was simulated with `timeline=True`."""
    timeline, curves = result.timeline, result.curves
    if timeline is None:
        raise ValueError("the run kept no timeline: simulate it with timeline=True")
    queue, utilisation = (curves.points(QUEUE), curves.points(USE)) if curves else ([], [])
    with path.open("w", encoding="utf-8", newline="\n") as out:
        about = json.dumps({"generator": "gpuloom", "policy": result.policy, "seed": result.seed})
        out.write(f'{{"displayTimeUnit":"ms","otherData":{about},"traceEvents":[')
        separator = "\n"
        for event in events(timeline.segments, timeline.cluster, queue, utilisation, result.policy):
            out.write(separator + json.dumps(event, separators=(",", ":"), allow_nan=False))
            separator = ",\n"
        out.write("\n]}\n")


def events(
    segments: Sequence[Segment],
    cluster: Cluster,
    queue: Sequence[tuple[float, float]],
    utilisation: Sequence[tuple[float, float]],
    policy: str,
) -> Iterator[dict[str, object]]:
    """The events of a trace. `queue` and `utilisation` are curves: (time in seconds, value)."""
    tracks = [_track(segment, slot, cluster) for segment, slot in zip(segments, slots(segments), strict=True)]
    # Thread ids are unique in the whole trace: not every viewer keeps those of different processes apart.
    tids = {track: tid for tid, track in enumerate(sorted(set(tracks)), 1)}
    yield from _names(tids, cluster, policy)
    yield from _counter("jobs waiting", "jobs", queue)
    yield from _counter("utilisation", "percent", [(at_s, value * 100) for at_s, value in utilisation])
    on_track = [(segment, tids[track]) for segment, track in zip(segments, tracks, strict=True)]
    for segment, tid in sorted(on_track, key=lambda pair: (pair[0].begin_s, pair[1], pair[0].end_s)):
        yield _slice(segment, tid)


def _track(segment: Segment, slot: int, cluster: Cluster) -> Track:
    grant = segment.grant
    if not segment.job_id:
        return Track(grant.gpu, -1.0, 0.0, 0, "cuts")
    band = place(cluster.gpus[grant.gpu].model, grant)
    device = "whole GPU" if grant.instance is None else str(grant.instance)
    name = f"{device}, share {slot + 1}" if grant.share_pct < 100 else device
    return Track(grant.gpu, band.top, -band.height, slot, name)


def _names(tids: dict[Track, int], cluster: Cluster, policy: str) -> Iterator[dict[str, object]]:
    yield from _name("process", CLUSTER_PID, 0, f"cluster under {policy}", 0)
    for gpu in sorted({track.gpu for track in tids}):
        yield from _name("process", _pid(gpu), 0, f"GPU {gpu} ({cluster.gpus[gpu].model.name})", gpu + 1)
    for track, tid in tids.items():
        yield from _name("thread", _pid(track.gpu), tid, track.name, tid)


def _name(kind: str, pid: int, tid: int, name: str, order: int) -> Iterator[dict[str, object]]:
    where: dict[str, object] = {"ph": "M", "pid": pid, "tid": tid}
    yield {**where, "name": f"{kind}_name", "args": {"name": name}}
    yield {**where, "name": f"{kind}_sort_index", "args": {"sort_index": order}}


def _pid(gpu: int) -> int:
    return gpu + CLUSTER_PID + 1


def _slice(segment: Segment, tid: int) -> dict[str, object]:
    # Both ends are rounded, not the length: what touches in the run touches in the trace.
    begin_us, end_us = _us(segment.begin_s), _us(segment.end_s)
    words = [segment.phase] if segment.phase != "running" or not segment.job_id else []
    return {
        "ph": "X",
        "pid": _pid(segment.grant.gpu),
        "tid": tid,
        "ts": begin_us,
        "dur": end_us - begin_us,
        "name": " ".join([*words, segment.job_id]).strip(),
        "cat": segment.phase,
        "args": {
            "job": segment.job_id or None,
            "phase": segment.phase,
            "device": str(segment.grant),
            "share_pct": round(segment.grant.share_pct, 6),
        },
    }


def _counter(name: str, unit: str, points: Sequence[tuple[float, float]]) -> Iterator[dict[str, object]]:
    """A counter holds its value until the next event, so only changes are written."""
    before: float | None = None
    for at_s, value in points:
        shown = round(value, 6)
        if shown != before:
            yield {"ph": "C", "pid": CLUSTER_PID, "tid": 0, "ts": _us(at_s), "name": name, "args": {unit: shown}}
        before = shown


def _us(seconds: float) -> int:
    return round(seconds * 1e6)
