"""What there is to measure on a device: whose copies sit where, one arrangement after the other. Pure.

Knows which arrangements a plan leads to on a GPU model, and how people write one. When they run is `campaign.order`'s.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from gpuloom.errors import InputError
from gpuloom.gpus.catalogue import base_profiles
from gpuloom.gpus.grant import MOST_SHARERS
from gpuloom.gpus.layouts import best, placements, profile_of
from gpuloom.gpus.model import GpuModel, Instance
from gpuloom.measure.arrangement import Arrangement, Seat, Way
from gpuloom.measure.explore.wanted import Exploring

WITHOUT_MIG = (2, 4)
"""So many copies beside each other where no cut says how many there could be."""
LEAST_SHARE_PCT = 1.0
_PART = re.compile(r"(?:(\d{1,3})\s*x\s+)?(\S+)(?:\s+([\d.]+)\s*%)?(?:\s+\((.*)\))?")


class Ways(StrEnum):
    """Which arrangements there are, as a plan names them."""

    ALONE = "alone"
    """One copy: on the whole device, and on each profile."""
    PARALLEL = "parallel"
    """As many instances of one profile as fit, a copy on each."""
    SHARES = "shares"
    """A copy with a share, and as many with such shares as there are in a hundred per cent."""
    TOGETHER = "together"
    """Several copies on the uncut device, and nothing between them."""


class Telling(StrEnum):
    """How a command tells its steps."""

    REPORT = "report"
    """`gpuloom.train.report`, or the same file written by other means."""
    OUTPUT = "output"
    """Lines of its output that match a regular expression."""
    FILE = "file"
    """A progress file of its own."""


@dataclass(frozen=True, slots=True)
class Served:
    """A model behind a Triton server. It tells no steps: it is asked, and an answer is a step."""

    source: str
    """A folder as Triton wants it, a Python model (.py) or an ONNX file."""
    batches: tuple[int, ...]
    """So many items are in a request. Rising."""
    body: str | None = None
    """A file with the JSON of a request of one item; None: made up from what the model says that it takes."""
    digest: str = ""
    """Of the model's files and the body, as they were when measuring began."""
    server: str = ""
    """The Triton that serves it."""


@dataclass(frozen=True, slots=True)
class Workload:
    name: str
    command: tuple[str, ...]
    mem_mib: int | None = None
    """Of the device, for one copy; None if unknown: then what does not fit is found out by running it."""
    telling: Telling = Telling.REPORT
    where: str = ""
    """The expression, or the file: below the folder for checkpoints, which each copy has its own of."""
    environment: tuple[tuple[str, str], ...] = ()
    served: Served | None = None
    """None: it is the command that is measured."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of one run. Whichever comes first ends it."""

    steps: int = 100
    """Of every copy, after all have warmed up."""
    seconds: float = 30.0
    """From when all copies have done their first step."""
    patience_s: float = 120.0
    """For the first step of every copy."""
    grace_s: float = 10.0
    """From SIGTERM to SIGKILL."""


@dataclass(frozen=True, slots=True)
class Repeats:
    least: int = 2
    most: int = 8
    within_pct: float = 3.0
    """Until the 90 % interval of an arrangement's throughput is no wider than this to either side."""


@dataclass(frozen=True, slots=True)
class Plan:
    workloads: tuple[Workload, ...]
    ways: tuple[Ways, ...] = tuple(Ways)
    profiles: tuple[str, ...] | None = None
    """None: all base profiles of the device. The same holds for the next two."""
    shares_pct: tuple[float, ...] | None = None
    together: tuple[int, ...] | None = None
    """How many copies."""
    layouts: tuple[str, ...] = ()
    """Further arrangements, as `parse` reads them."""
    bounds: Bounds = Bounds()
    repeats: Repeats = Repeats()
    seed: int = 0
    budget_s: float | None = None
    exploring: Exploring | None = None
    """None: every arrangement is run."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """An arrangement that is not run since it cannot work."""

    workload: str
    arrangement: str
    why: str


def arrangements(plan: Plan, model: GpuModel) -> tuple[tuple[Arrangement, ...], tuple[LeftOut, ...]]:
    """All that this plan measures on this model, and what it leaves out; InputError for what there is not."""
    if plan.profiles is not None:
        for name in plan.profiles:
            profile_of(model, name)
    wanted, out = dict[Arrangement, None](), list[LeftOut]()
    for workload in plan.workloads:
        for arrangement in _of(workload.name, plan, model):
            why = _too_little(workload, arrangement, model)
            if why is None:
                wanted[arrangement] = None
            else:
                out.append(LeftOut(workload.name, arrangement.name, why))
    names = tuple(workload.name for workload in plan.workloads)
    for text in plan.layouts:  # asked for by name: run whatever the memory
        wanted[parse(text, names, model)] = None
    return tuple(wanted), tuple(out)


def _of(name: str, plan: Plan, model: GpuModel) -> Iterator[Arrangement]:
    profiles = plan.profiles or tuple(profile.name for profile in base_profiles(model))
    if Ways.ALONE in plan.ways:
        yield Arrangement(Way.WHOLE, (Seat(name),))
        yield from (Arrangement(Way.CUT, (Seat(name, profile),)) for profile in profiles)
    if Ways.PARALLEL in plan.ways:
        for profile in profiles:
            if (copies := most_of(model, profile)) > 1:
                yield Arrangement(Way.CUT, (Seat(name, profile),) * copies)
    if Ways.SHARES in plan.ways:
        for share_pct in plan.shares_pct or tuple(float(100 // copies) for copies in usual_copies(model)):
            yield Arrangement(Way.SHARED, (Seat(name, share_pct=share_pct),))
            if (copies := min(int(100 // share_pct), MOST_SHARERS)) > 1:
                yield Arrangement(Way.SHARED, (Seat(name, share_pct=share_pct),) * copies)
    if Ways.TOGETHER in plan.ways:
        for copies in plan.together or usual_copies(model):
            yield Arrangement(Way.TOGETHER, (Seat(name),) * copies)


def most_of(model: GpuModel, profile: str) -> int:
    """How many instances of one profile fit on the device."""
    limit = profile_of(model, profile).limit
    return next((count for count in range(limit, 0, -1) if placements(model, (profile,) * count)), 0)


def usual_copies(model: GpuModel) -> tuple[int, ...]:
    """As many side by side as equal instances would be, so that the ways can be compared."""
    counts = {most_of(model, profile.name) for profile in base_profiles(model)}
    return tuple(sorted(counts - {0, 1})) or WITHOUT_MIG


def _too_little(workload: Workload, arrangement: Arrangement, model: GpuModel) -> str | None:
    """Why its memory cannot do, by what its owner says; None if it can, or nobody says."""
    if workload.mem_mib is None:
        return None
    if arrangement.way is Way.CUT:
        there_mib = min(model.by_name[seat.profile or ""].mem_mib for seat in arrangement.seats)
    else:
        there_mib = model.mem_mib // len(arrangement.seats)
    if workload.mem_mib <= there_mib:
        return None
    return f"a copy needs {workload.mem_mib:,} MiB and would have {there_mib:,} MiB"


# ---- as people write them --------------------------------------------------------------------------------------------


def parse(text: str, workloads: Sequence[str], model: GpuModel) -> Arrangement:
    """As its name is written: `3g.20gb (big) + 2 x 2g.10gb (small)`, `whole 70% + whole 30%`, `2 x 3g.20gb 50%`.

    The workload may be left out where there is one. Who has shares of slices shares one slice.
    """
    seats = [seat for part in text.removesuffix(" together").split(" + ") for seat in _seats(part, text, workloads)]
    if any(seat.profile for seat in seats) and not all(seat.profile for seat in seats):
        raise InputError(f"layout {text!r}: expected instances only, or the whole device only: it is cut or it is not")
    shared = [seat for seat in seats if seat.share_pct < 100]
    if shared and len(shared) < len(seats):
        raise InputError(f"layout {text!r}: expected a share such as 50% for every copy, or for none")
    if sum(seat.share_pct for seat in shared) > 100 + 1e-6:
        raise InputError(f"layout {text!r}: the shares are {sum(seat.share_pct for seat in shared):g}%: at most 100%")
    if seats[0].profile is not None:
        arrangement = Arrangement(Way.SHARED if shared else Way.CUT, tuple(seats))
        place(arrangement, model)
        return arrangement
    way = Way.SHARED if shared else Way.TOGETHER if len(seats) > 1 else Way.WHOLE
    return Arrangement(way, tuple(seats))


def _seats(part: str, text: str, workloads: Sequence[str]) -> tuple[Seat, ...]:
    match = _PART.fullmatch(part.strip())
    if match is None:
        raise InputError(
            f"layout {text!r}: {part.strip()!r} is not a place; accepted are 3g.20gb, 2 x 1g.5gb, whole and whole 30%, "
            "each with (WORKLOAD) where there are several, with ' + ' between them"
        )
    count, place_name, share, workload = match[1], match[2], match[3], match[4]
    if workload is None and len(workloads) > 1:
        raise InputError(f"layout {text!r}: {part.strip()!r} does not say whose it is; accepted: {_list(workloads)}")
    name = workloads[0] if workload is None else workload
    if name not in workloads:
        raise InputError(f"layout {text!r}: {name!r} is not a workload of this plan; accepted: {_list(workloads)}")
    profile = None if place_name == "whole" else place_name
    share_pct = 100.0 if share is None else check_share(share, f"layout {text!r}: {share}%")
    copies = int(count or 1)
    if not 1 <= copies <= MOST_SHARERS:
        raise InputError(f"layout {text!r}: {copies} copies; accepted are 1 to {MOST_SHARERS}")
    return (Seat(name, profile, share_pct),) * copies


def check_share(text: str | float, where: str) -> float:
    try:
        share_pct = float(text)
    except ValueError:
        share_pct = 0.0
    if not LEAST_SHARE_PCT <= share_pct < 100:
        raise InputError(f"{where} is no share; accepted are {LEAST_SHARE_PCT:g} up to, but not, 100 per cent")
    return share_pct


def _list(names: Sequence[str]) -> str:
    return ", ".join(f"({name})" for name in names)


def place(arrangement: Arrangement, model: GpuModel) -> tuple[Instance | None, ...]:
    """For each seat, in order, its instance; all None on an uncut device. InputError if there is no such cut.

    Who has a share of an instance shares it with all others who do.
    """
    if arrangement.seats[0].profile is None:
        return (None,) * len(arrangement.seats)
    profiles = tuple(seat.profile or "" for seat in arrangement.seats)
    for profile in profiles:
        profile_of(model, profile)
    if arrangement.way is Way.SHARED:
        if len(set(profiles)) > 1:
            raise InputError(f"layout {arrangement.name!r}: shares are of one instance: expected one profile")
        return place(Arrangement(Way.CUT, arrangement.seats[:1]), model) * len(profiles)
    layout = best(model, placements(model, tuple(sorted(profiles))))
    if layout is None:
        raise InputError(f"layout {arrangement.name!r} does not fit on one {model.name}; see `gpuloom layout list`")
    free = list(layout)
    found = []
    for profile in profiles:
        instance = next(instance for instance in free if instance.profile == profile)
        free.remove(instance)
        found.append(instance)
    return tuple(found)


def _told_of(one: Workload, other: Workload) -> str:
    if one.served is None or other.served is None:
        return " ".join(one.command)
    if one.served.server != other.served.server:
        return f"served by {one.served.server}"
    changed = one.served.source == other.served.source and one.served.digest != other.served.digest
    return f"{one.served.source}, whose files or body were other ones" if changed else one.served.source


def differs(before: Plan, after: Plan) -> str | None:
    """What keeps two plans' measurements from being put together; None if they are of the same things.

    How often, how long and what for may change from one time to the next: `repeats`, `budget_s` and `exploring`.
    """
    for one, other in zip(before.workloads, after.workloads, strict=False):
        if one != other:
            return f"workload {one.name!r} ({_told_of(one, other)})"
    for name in ("workloads", "ways", "profiles", "shares_pct", "together", "layouts", "bounds", "seed"):
        if getattr(before, name) != getattr(after, name):
            return f"other {name}" if name != "seed" else f"seed {before.seed}"
    return None
