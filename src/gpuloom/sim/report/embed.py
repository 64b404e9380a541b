"""The data that the charts of a page draw: bounded in size and compact.

A large run is cut down to its first GPUs and, if even one GPU has too much to show, to the beginning of its time. What
was left out is said in words that the page prints.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from zlib import crc32

from gpuloom.gpus.cluster import parse_cluster
from gpuloom.pages.chart import COLOURS
from gpuloom.sim.lanes import bands
from gpuloom.sim.report.data import Points, RunData
from gpuloom.sim.timeline import Segment

MOST_RUNS = 24
MOST_GPUS = 64
MOST_SEGMENTS = 60_000
"""Of all runs together: about 3 MB of page, and still drawn in one frame."""
MOST_POINTS = 512
PHASES = ("running", "starting", "stopping", "cutting")


@dataclass(frozen=True, slots=True)
class Embedded:
    data: dict[str, object]
    """As the scripts read it."""
    left_out: tuple[str, ...]
    """Sentences about what the charts do not show."""


def embed(runs: Sequence[RunData], colours: Sequence[str]) -> Embedded:
    """`colours` are the classes of the runs' policies."""
    left_out: list[str] = []
    if len(runs) > MOST_RUNS:
        left_out.append(f"The charts show the first {MOST_RUNS} of {len(runs):,} runs.")
        runs = runs[:MOST_RUNS]
    most = MOST_SEGMENTS // max(len(runs), 1)
    gpus = min((_gpus_within(run.segments, most) for run in runs), default=MOST_GPUS)
    largest = max((len(parse_cluster(run.gpus)) for run in runs), default=0)
    if gpus < largest:
        left_out.append(f"The Gantt chart shows GPU 0 to {gpus - 1} of {largest:,}; all figures are of the whole run.")
    charts = []
    for run, style in zip(runs, colours, strict=False):
        kept = [segment for segment in run.segments if segment.grant.gpu < gpus]
        kept.sort(key=lambda segment: (segment.begin_s, segment.grant.gpu, segment.end_s))
        if len(kept) > most:
            left_out.append(
                f"{run.policy}, seed {run.seed}: the Gantt chart ends early, at {kept[most].begin_s:,.0f} s."
            )
            kept = kept[:most]
        charts.append(_chart(run, kept, gpus, style))
    return Embedded({"phases": PHASES, "runs": charts}, tuple(left_out))


def _gpus_within(segments: Sequence[Segment], most: int) -> int:
    """How many GPUs, from the first on, have no more segments than `most` together; at least one."""
    on = Counter(segment.grant.gpu for segment in segments)
    totals = accumulate(on[gpu] for gpu in range(MOST_GPUS))
    return max(sum(total <= most for total in totals), 1)


def _chart(run: RunData, segments: Sequence[Segment], gpus: int, style: str) -> dict[str, object]:
    cluster = parse_cluster(run.gpus)
    jobs = {job_id: at for at, job_id in enumerate(dict.fromkeys(s.job_id for s in segments if s.job_id))}
    devices = {name: at for at, name in enumerate(dict.fromkeys(str(segment.grant) for segment in segments))}
    rows = [
        [
            segment.grant.gpu,
            _number(band.top, 4),
            _number(band.height, 4),
            jobs.get(segment.job_id, -1),
            PHASES.index(segment.phase),
            _number(segment.begin_s),
            _number(segment.end_s),
            devices[str(segment.grant)],
        ]
        for segment, pieces in zip(segments, bands(segments, cluster), strict=True)
        for band in pieces
    ]
    return {
        "policy": run.policy,
        "seed": run.seed,
        "colour": style,
        "end_s": _number(run.end_s),
        "models": [gpu.model.name for gpu in cluster.gpus[:gpus]],
        "jobs": list(jobs),
        "colours": [crc32(job_id.encode("utf-8", "surrogatepass")) % COLOURS for job_id in jobs],
        "devices": list(devices),
        "segments": rows,
        "curves": [_curve(points) for points in (run.queue, run.utilisation, run.fragmentation)],
    }


def _curve(points: Points) -> dict[str, list[float]]:
    """Times and values; neighbours are averaged until there are few enough."""
    each = -(-len(points) // MOST_POINTS) or 1
    groups = [points[at : at + each] for at in range(0, len(points), each)]
    return {
        "at_s": [_number(group[0][0]) for group in groups],
        "values": [_number(sum(value for _, value in group) / len(group), 4) for group in groups],
    }


def _number(value: float, digits: int = 3) -> float:
    """Rounded, and without the `.0` of whole numbers."""
    rounded = round(value, digits)
    return int(rounded) if rounded == int(rounded) else rounded
