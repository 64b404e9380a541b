"""Several workloads on one kind of device: the best layout for the set, against what was measured of it without a cut.

Speeds are relative to each workload's own on the whole device or, where that was not measured, in its fastest place.
On instances they are those of one copy alone: that neighbours there change nothing is the verdict of `interference`,
not an assumption of this file's reader. Shares and plain co-location are offered only where exactly this set was
measured so, in one run, as nobody predicts them here. How sure all this is, is not known here, nor what is as good.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp

from gpuloom.gpus.catalogue import base_profiles
from gpuloom.gpus.layouts import written
from gpuloom.gpus.model import GpuModel
from gpuloom.measure.arrangement import Way
from gpuloom.measure.explore.belief import Belief
from gpuloom.measure.explore.set_runs import cautious_speeds, relative_speeds
from gpuloom.measure.figures import Figure, LogMean, alone
from gpuloom.measure.options import options
from gpuloom.measure.sets import Objective, Seating, seat_on
from gpuloom.measure.verdicts import whole


@dataclass(frozen=True, slots=True)
class SetAnswer:
    workloads: tuple[str, ...]
    objective: Objective
    seating: Seating | None
    """Layouts for `gpuloom layout apply`, and who sits where; None if no layout seats everybody."""
    uncut: tuple[tuple[str, float], ...]
    """Measured arrangements of the set without a cut, with the same score, best first."""
    says: str


def best_for_set(
    found: Sequence[Figure],
    model: GpuModel,
    workloads: Sequence[str],
    devices: int = 1,
    objective: Objective = Objective.SUM,
    limits_ms: Mapping[str, float] | None = None,
    beliefs: Mapping[str, Belief] | None = None,
) -> SetAnswer:
    """`workloads` may name one several times. `limits_ms`: who has to be surely so fast. `beliefs`: about whoever was
    not run on every slice; limits are not theirs."""
    limits, known = limits_ms or {}, beliefs or {}
    speeds = [
        _believed(known[name]) if name in known else _speeds(found, model, name, limits.get(name)) for name in workloads
    ]
    seating = seat_on(model, devices, speeds, objective)
    if seating is not None:
        seating = _as_expected(seating, workloads, known, objective)
    uncut = _uncut(found, model, workloads, objective, limits) if devices == 1 else ()
    said = (_says(workloads, seating, uncut, objective), _guessed(found, workloads, seating, known))
    says = "".join(said) + _not_considered(found, model, workloads, known) + _bases(found, model, workloads, known)
    return SetAnswer(tuple(workloads), objective, seating, uncut, says)


def _believed(belief: Belief) -> dict[str, float]:
    """What to seat by: less where it may not fit."""
    speeds = zip(belief.places, cautious_speeds(belief).tolist(), strict=True)
    return {place.name: speed for at, (place, speed) in enumerate(speeds) if belief.chance_to_fit(at) > 0}


def _as_expected(
    seating: Seating, workloads: Sequence[str], known: Mapping[str, Belief], objective: Objective
) -> Seating:
    """The same seats, with the speeds that are expected there."""
    expected = {
        name: dict(zip((place.name for place in belief.places), relative_speeds(belief).tolist(), strict=True))
        for name, belief in known.items()
    }
    speeds = tuple(
        expected[name][seat.profile] if name in expected else speed
        for name, (_, seat), speed in zip(workloads, seating.seats, seating.speeds, strict=True)
    )
    return replace(seating, speeds=speeds, score=sum(speeds) if objective is Objective.SUM else min(speeds))


def _guessed(
    found: Sequence[Figure], workloads: Sequence[str], seating: Seating | None, known: Mapping[str, Belief]
) -> str:
    """Who sits where he was not run."""
    if seating is None:
        return ""
    seats = [(name, seat.profile) for name, (_, seat) in zip(workloads, seating.seats, strict=True) if name in known]
    names = dict.fromkeys(f"{name} on {profile}" for name, profile in seats if profile not in alone(found, name))
    return f"; predicted, not measured: {', '.join(names)}" if names else ""


def _speeds(found: Sequence[Figure], model: GpuModel, name: str, limit_ms: float | None) -> dict[str, float]:
    """By profile, of those on which it ran and surely keeps its limit."""
    base = _base(found, model, name)
    if base is None or base.step is None:
        return {}
    single = [o for o in options(found, model, name) if o.copies == 1 and o.way is Way.CUT]
    return {o.place: exp(base.step.mean - o.step.mean) for o in single if _keeps(o.step, limit_ms)}


def _base(found: Sequence[Figure], model: GpuModel, name: str) -> Figure | None:
    """What its speeds are relative to; None if it ran nowhere alone."""
    by_place = alone(found, name)
    ran = [(figure.step.mean, figure) for figure in by_place.values() if figure.step is not None]
    return whole(by_place, model) or min(ran, key=lambda one: one[0], default=(0.0, None))[1]


def _bases(found: Sequence[Figure], model: GpuModel, workloads: Sequence[str], known: Mapping[str, Belief]) -> str:
    """Of whom the whole device is not what the speeds are relative to."""
    said = []
    for name in dict.fromkeys(name for name in workloads if name not in known):
        base = _base(found, model, name)
        if base is not None and whole(alone(found, name), model) is None:
            said.append(f"{name}'s speed is relative to {base.seat.place}, as the whole device was not measured")
    return "".join(f"; {one}" for one in said)


def _not_considered(
    found: Sequence[Figure], model: GpuModel, workloads: Sequence[str], known: Mapping[str, Belief]
) -> str:
    """On which instances nobody knows how fast they are."""
    missing = {
        name: [profile.name for profile in base_profiles(model) if profile.name not in alone(found, name)]
        for name in workloads
        if name not in known
    }
    said = [f"{name} on {', '.join(profiles)}" for name, profiles in missing.items() if profiles]
    return f"; not considered, as it was not measured alone: {'; '.join(said)}" if said else ""


def _keeps(step: LogMean, limit_ms: float | None) -> bool:
    """By the slow end; measured once, there is none, and the figure itself has to do."""
    slow = step.interval.high
    return limit_ms is None or (step.interval.value if slow is None else slow) <= limit_ms


def _uncut(
    found: Sequence[Figure],
    model: GpuModel,
    workloads: Sequence[str],
    objective: Objective,
    limits: Mapping[str, float],
) -> tuple[tuple[str, float], ...]:
    scored = []
    for figures in _runs(found):
        seated = sorted(figure.seat.workload for figure in figures for _ in range(figure.seats))
        speeds = [_relative(figure, found, model, limits) for figure in figures for _ in range(figure.seats)]
        if seated == sorted(workloads) and None not in speeds:
            known = [speed for speed in speeds if speed is not None]
            scored.append((figures[0].arrangement, sum(known) if objective is Objective.SUM else min(known)))
    return tuple(sorted(scored, key=lambda row: -row[1]))


def _runs(found: Sequence[Figure]) -> list[list[Figure]]:
    """Without a cut: the figures of those that ran at the same time. An arrangement's name does not say whose copies
    they are where all are of one workload, so two such workloads have arrangements of one name."""
    named: dict[str, list[Figure]] = {}
    for figure in found:
        if figure.way in (Way.SHARED, Way.TOGETHER):
            named.setdefault(figure.arrangement, []).append(figure)
    runs: list[list[Figure]] = []
    for figures in named.values():
        of_one: dict[str, list[Figure]] = {}
        for figure in figures:
            of_one.setdefault(figure.seat.workload, []).append(figure)
        full = [own for own in of_one.values() if _everybody(own)]
        runs += full or ([figures] if _everybody(figures) else [])
    return runs


def _everybody(figures: Sequence[Figure]) -> bool:
    """These are all copies of their run."""
    return sum(figure.seats for figure in figures) == figures[0].copies


def _relative(figure: Figure, found: Sequence[Figure], model: GpuModel, limits: Mapping[str, float]) -> float | None:
    workload = figure.seat.workload
    base = _base(found, model, workload)
    if base is None or base.step is None or figure.step is None or not _keeps(figure.step, limits.get(workload)):
        return None
    return exp(base.step.mean - figure.step.mean)


def _says(
    workloads: Sequence[str], seating: Seating | None, uncut: Sequence[tuple[str, float]], objective: Objective
) -> str:
    beside = "; sharing without a cut: not measured"
    if uncut:
        more = ", which is more" if seating is not None and uncut[0][1] > seating.score else ""
        beside = f"; without a cut, {uncut[0][0]}: {uncut[0][1]:.2f}{more}"
    if seating is None:
        return f"no layout has an instance for each of {', '.join(workloads)}{beside}"
    who = ", ".join(
        f"{name} on {instance}" + (f" of device {device}" if len(seating.layouts) > 1 else "")
        for name, (device, instance) in zip(workloads, seating.seats, strict=True)
    )
    cuts = " | ".join(written(layout) for layout in seating.layouts)
    return f"{cuts}: {objective} {seating.score:.2f} ({who}){beside}"
