"""From measured rows to profiles: latencies by batch and share, pairs, and points on slices. Pure.

The first two are what `gpuloom provision --profile` reads (`work.measured.latency_profiles`), the last what `--mig`
reads (`work.measured.mig_services`). A figure's interval is of 90 %, over repetitions (`measure.figures`).
"""

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from statistics import fmean

from gpuloom.gpus.catalogue import base_profiles
from gpuloom.gpus.model import GpuModel
from gpuloom.measure.arrangement import Way
from gpuloom.measure.figures import Figure, figures
from gpuloom.measure.results import Copy, Outcome

Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class Point:
    """One model at one batch in one seat of one arrangement."""

    model: str
    batch: int
    place: str
    figure: Figure
    neighbour: tuple[str, int, float] | None
    """The other of two, with its batch and its share in per cent."""
    copies: int
    requests: int
    p95_ms: float | None
    p99_ms: float | None

    @property
    def numbers(self) -> Json:
        step = self.figure.step_ms
        assert step is not None
        told: Json = {"latency_ms": _round(step.value)}
        if self.p95_ms is not None:
            told["p95_ms"] = _round(self.p95_ms)
        if self.p99_ms is not None:
            told["p99_ms"] = _round(self.p99_ms)
        if step.low is not None and step.high is not None:
            told |= {"low_ms": _round(step.low), "high_ms": _round(step.high)}
        return told | {"requests": self.requests, "runs": self.figure.repetitions}


def _round(value: float) -> float:
    return float(f"{value:.6g}")


def points(rows: Iterable[Copy]) -> list[Point]:
    """Of all that was fine, in the order in which it was first run.

    All servers of a run have to have been fine at these batches, and nobody ever out of memory there.
    """
    asked: dict[tuple[int, str], list[Copy]] = {}
    for row in rows:
        if row.batches is not None:
            asked.setdefault((row.run, row.batches), []).append(row)
    groups: dict[object, list[Copy]] = {}
    short: set[object] = set()
    for copies in asked.values():
        # An arrangement's name does not say whose it is where there is one model.
        who = copies[0].arrangement, copies[0].batches, tuple(copy.seat.workload for copy in copies)
        if any(copy.outcome is Outcome.OUT_OF_MEMORY for copy in copies):
            short.add(who)
        if all(copy.outcome is Outcome.OK for copy in copies):  # beside one that did nothing is not beside it
            groups.setdefault(who, []).extend(copies)
    return [point for who, group in groups.items() if who not in short for point in _points(group)]


def _points(group: Sequence[Copy]) -> Iterable[Point]:
    """Of one arrangement at its batches: one for each kind of copy. A kind is a seat and a batch."""
    names = {row.copy: f"{row.seat.workload}\n{row.batch}" for row in group}  # two seats may differ in batch alone
    apart = [replace(row, seat=replace(row.seat, workload=names[row.copy])) for row in group]
    for figure in figures(apart):
        if figure.step is None:
            continue
        own = [row for row in apart if row.seat == figure.seat]
        fine = [row for row in own if row.outcome is Outcome.OK]
        others = {row.copy: row for row in group if row.copy != own[0].copy}
        other = next(iter(others.values())) if len(others) == 1 else None
        yield Point(
            model=figure.seat.workload.partition("\n")[0],
            batch=own[0].batch or 1,
            place=figure.seat.place,
            figure=figure,
            neighbour=None if other is None else (other.seat.workload, other.batch or 1, other.seat.share_pct),
            copies=figure.copies,
            requests=sum(row.steps or 0 for row in fine),
            p95_ms=_mean([row.step_p95_ms for row in fine]),
            p99_ms=_mean([row.step_p99_ms for row in fine]),
        )


def _mean(values: Sequence[float | None]) -> float | None:
    """None if one is not known."""
    known = [value for value in values if value is not None]
    return fmean(known) if known and len(known) == len(values) else None


def models_of(found: Iterable[Point]) -> dict[str, list[Json]]:
    """Alone on shares of the whole device: `models` of a latency profile."""
    models: dict[str, list[Json]] = {}
    for point in found:
        seat = point.figure.seat
        if point.copies == 1 and seat.profile is None:
            told = {"batch": point.batch, "share_pct": seat.share_pct, **point.numbers}
            models.setdefault(point.model, []).append(told)
    for points_of_model in models.values():
        points_of_model.sort(key=lambda told: (told["batch"], told["share_pct"]))
    return models


def pairs_of(found: Iterable[Point]) -> list[Json]:
    """Two beside each other: `pairs` of a latency profile, a row for each side."""
    rows: list[Json] = []
    for point in found:
        seat = point.figure.seat
        if point.neighbour is None or point.figure.way is not Way.SHARED or seat.profile is not None:
            continue
        name, batch, share_pct = point.neighbour
        rows.append(
            {
                "model": point.model,
                "batch": point.batch,
                "share_pct": seat.share_pct,
                "neighbour": name,
                "neighbour_batch": batch,
                "neighbour_share_pct": share_pct,
                **point.numbers,
            }
        )
    return rows


MIG_COLUMNS = (
    *("model", "mig_gpcs", "batch", "processes", "throughput_per_s", "latency_s"),
    *("throughput_low_per_s", "throughput_high_per_s", "p95_s", "profile"),
)
"""The last four are for people: `--mig` does not read them."""
_POINT = MIG_COLUMNS[:4]


def mig_csv(rows: Sequence[Copy], model: GpuModel) -> str | None:
    """Points on slices; zeros where the memory did not suffice. None if nobody was measured on one."""
    slices = {profile.name: profile.slices for profile in model.profiles}
    base = {profile.name for profile in base_profiles(model)}
    lines = _too_large(rows, slices)  # what ran out of memory once does not fit
    for point in points(rows):
        seat, step = point.figure.seat, point.figure.step_ms
        if seat.profile is None or step is None:
            continue
        rates = [None if ms is None else _round(1000 * point.batch / ms) for ms in (step.value, step.high, step.low)]
        lines.append(
            {
                "model": point.model,
                "mig_gpcs": slices[seat.profile],
                "batch": point.batch,
                "processes": point.copies,
                "throughput_per_s": rates[0],
                "latency_s": _round(step.value / 1000),
                "throughput_low_per_s": rates[1],
                "throughput_high_per_s": rates[2],
                "p95_s": None if point.p95_ms is None else _round(point.p95_ms / 1000),
                "profile": seat.profile,
            }
        )
    if not lines:
        return None
    lines.sort(key=lambda line: line["profile"] not in base)
    once: dict[tuple[object, ...], Json] = {}
    for line in lines:  # of profiles with as many slices the usual one counts
        once.setdefault(tuple(line[name] for name in _POINT), line)
    lines = [once[key] for key in sorted(once, key=lambda key: (str(key[0]), *map(_whole, key[1:])))]
    text = StringIO()
    writer = csv.DictWriter(text, MIG_COLUMNS, lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows({name: "" if value is None else value for name, value in line.items()} for line in lines)
    return text.getvalue()


def _whole(value: object) -> int:
    assert isinstance(value, int)
    return value


def _too_large(rows: Sequence[Copy], slices: dict[str, int]) -> list[Json]:
    found = dict.fromkeys(
        (row.seat.workload, slices[row.seat.profile], row.batch or 1, row.copies, row.seat.profile)
        for row in rows
        if row.outcome is Outcome.OUT_OF_MEMORY and row.seat.profile is not None and row.batches is not None
    )
    names = ("model", "mig_gpcs", "batch", "processes", "profile")
    return [dict(zip(names, one, strict=True)) | {"throughput_per_s": 0, "latency_s": 0} for one in found]


def by_batch(rows: Iterable[Copy]) -> list[Copy]:
    """As rows of commands are read: a model at a batch is a workload of its own, and a request is a step.

    Shares of slices are left out, which are no slice and no share of the device.
    """
    return [
        row if row.batches is None else _as_workload(row)
        for row in rows
        if row.batches is None or row.seat.profile is None or row.way is not Way.SHARED
    ]


def _as_workload(row: Copy) -> Copy:
    seat = replace(row.seat, workload=f"{row.seat.workload} batch {row.batch}")
    uniform = len({*(row.batches or "").split(",")}) == 1
    return replace(row, seat=seat, arrangement=row.arrangement if uniform else f"{row.arrangement} at {row.batches}")
