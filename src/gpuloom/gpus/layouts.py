"""The rules of cutting a GPU: which layouts are legal, all of them, what fits beside what, and how people write them.

A GPU's memory is a row of units. An instance takes `size` units from one of its profile's starts, and no two overlap.
All is exact and small (an A100 has 298 layouts of base profiles), so it is enumerated and remembered, never solved.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from gpuloom.errors import InputError
from gpuloom.gpus.catalogue import base_profiles
from gpuloom.gpus.model import GpuModel, Instance, Layout, Profile

P = ParamSpec("P")
R = TypeVar("R")
Slices = tuple[int, ...]

MOST_REMEMBERED = 200_000
"""Answers of one function; past that it starts afresh, so that a service that runs for months does not grow."""

_twins: dict[GpuModel, GpuModel] = {}
_known: dict[int, tuple[GpuModel, int]] = {}


def _token(model: GpuModel) -> int:
    """A small key for a model: hashing its profile table at each call would cost more than all the rest of a lookup.

    Equal models share a token; each model seen is kept, so that its id cannot pass to another.
    """
    known = _known.get(id(model))
    if known is None:
        known = _known[id(model)] = (model, id(_twins.setdefault(model, model)))
    return known[1]


def remembered(function: Callable[Concatenate[GpuModel, P], R]) -> Callable[Concatenate[GpuModel, P], R]:
    """Remember a pure function of a model and hashable arguments: these are asked at every event of a simulation."""
    answers: dict[tuple[object, ...], R] = {}

    @wraps(function)
    def ask(model: GpuModel, /, *args: P.args, **kwargs: P.kwargs) -> R:
        key = (_token(model), *args, *kwargs.items())
        try:
            return answers[key]
        except KeyError:
            if len(answers) >= MOST_REMEMBERED:
                answers.clear()
            answer = answers[key] = function(model, *args, **kwargs)
            return answer

    return ask


def total_slices(model: GpuModel) -> int:
    """Compute slices of the whole GPU (7 on an A100, although it has 8 memory units); 0 without MIG."""
    return max((profile.slices for profile in model.profiles), default=0)


def part_of(model: GpuModel, instance: Instance | None) -> float:
    """Of the GPU's compute; None is the whole, uncut GPU."""
    return 1.0 if instance is None else model.by_name[instance.profile].slices / total_slices(model)


def profile_of(model: GpuModel, name: str) -> Profile:
    """The profile with this name, as a user wrote it."""
    profile = model.by_name.get(name)
    if profile is None:
        accepted = ", ".join(model.by_name) or "none, as it has no MIG"
        raise InputError(f"{name!r} is not a profile of {model.name}; accepted: {accepted}")
    return profile


@remembered
def check(model: GpuModel, layout: Layout) -> str | None:
    """Why this layout is impossible on this model, or None if it is legal. Every part of a legal layout is legal."""
    previous, free_from = None, 0
    for instance in layout:
        profile = model.by_name.get(instance.profile)
        if profile is None:
            return f"{model.name} has no profile {instance.profile}" + ("" if model.mig else ", as it has no MIG")
        if instance.start not in profile.starts:
            return f"{instance.profile} cannot start at {instance.start}, only at {_join(profile.starts)}"
        if previous is not None and instance < previous:
            return f"{instance} must come before {previous}: a layout is in order of start"
        if instance.start < free_from:
            return f"{previous} and {instance} overlap"
        previous, free_from = instance, instance.start + profile.size
    if sum(slices_of(model, layout)) > total_slices(model):
        return f"more than {total_slices(model)} compute slices"
    for name, count in Counter(instance.profile for instance in layout).items():
        if count > model.by_name[name].limit:
            return f"{count} × {name}, but at most {model.by_name[name].limit} fit on one {model.name}"
    return _media_conflict(layout)


def _media_conflict(layout: Layout) -> str | None:
    """The engines beside the SMs: +me takes the one optical-flow unit, +me.all every video engine; -me takes none.

    Derived from the engine counts of the MIG user guide: limits of single profiles do not say that two +me of different
    size cannot coexist, nor that +me.all leaves room for -me alone.
    """
    media = [instance for instance in layout if "+me" in instance.profile]
    if len(media) > 1:
        return f"{media[0]} and {media[1]} both need the GPU's one set of media extensions"
    if media and media[0].profile.endswith("+me.all"):
        others = [instance for instance in layout if instance != media[0] and not instance.profile.endswith("-me")]
        if others:
            return f"{media[0]} takes every media engine, so {others[0]} must be a -me profile"
    return None


def _join(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))


def slices_of(model: GpuModel, layout: Layout) -> Slices:
    """The compute slices of each instance, in order of placement."""
    return tuple(model.by_name[instance.profile].slices for instance in layout)


def add(layout: Layout, instance: Instance) -> Layout:
    """The layout with one more instance, in order. Whether that is legal is for `check` to say."""
    return tuple(sorted((*layout, instance)))


def remove(layout: Layout, instance: Instance) -> Layout:
    """The layout without this instance."""
    return tuple(other for other in layout if other != instance)


@remembered
def places_beside(model: GpuModel, layout: Layout, profile_name: str) -> tuple[Instance, ...]:
    """Where one instance of this profile could be added beside what is there, lowest start first; () if nowhere."""
    candidates = (Instance(start, profile_name) for start in profile_of(model, profile_name).starts)
    return tuple(instance for instance in candidates if check(model, add(layout, instance)) is None)


@remembered
def room(model: GpuModel, layout: Layout) -> Slices:
    """What could still be added in base profiles, as compute slices: the largest possible first, and so on.

    Beside 1g@6 of an A100 that is (4, 2); beside 1g@0 only (3, 2, 1).
    """
    for profile in sorted(base_profiles(model), key=lambda profile: -profile.slices):
        places = places_beside(model, layout, profile.name)
        if places:
            return (profile.slices, *max(room(model, add(layout, place)) for place in places))
    return ()


def base_instances(model: GpuModel) -> tuple[Instance, ...]:
    """Every base profile at every start."""
    return tuple(sorted(Instance(start, profile.name) for profile in base_profiles(model) for start in profile.starts))


@remembered
def layouts_from(model: GpuModel, pool: tuple[Instance, ...]) -> tuple[Layout, ...]:
    """Every legal layout whose instances are all in this pool, the empty one included."""

    def grow(layout: Layout, rest: tuple[Instance, ...]) -> Iterator[Layout]:
        yield layout
        for index, instance in enumerate(rest):
            larger = (*layout, instance)
            if check(model, larger) is None:
                yield from grow(larger, rest[index + 1 :])

    return tuple(grow((), tuple(sorted(pool))))


def every(model: GpuModel) -> tuple[Layout, ...]:
    """Every legal layout of base profiles, partial ones and the empty one included: with it, an A100 has 298."""
    return layouts_from(model, base_instances(model))


@remembered
def maximal(model: GpuModel) -> tuple[Layout, ...]:
    """The layouts of base profiles beside which no further base profile fits, large ones first. Without MIG: none."""
    full = [layout for layout in every(model) if layout and not room(model, layout)]
    return tuple(sorted(full, key=lambda layout: (tuple(-slices for slices in slices_of(model, layout)), layout)))


def as_multiset(slices: Iterable[int]) -> Slices:
    """The same slices in the one order that stands for all orders: largest first."""
    return tuple(sorted(slices, reverse=True))


@remembered
def multisets(model: GpuModel, layouts: tuple[Layout, ...] | None = None) -> tuple[Slices, ...]:
    """The different multisets of compute slices among these layouts (the maximal ones unless told), largest first."""
    chosen = maximal(model) if layouts is None else layouts
    return tuple(sorted({as_multiset(slices_of(model, layout)) for layout in chosen}, reverse=True))


@remembered
def placements(model: GpuModel, profiles: tuple[str, ...], beside: Layout = ()) -> tuple[Layout, ...]:
    """Every layout that adds exactly these profiles to what is there; () if they do not all fit."""

    # Large ones first, as they have the fewest places and dead ends show early; equal ones only in order of start.
    names = sorted(profiles, key=lambda name: (-profile_of(model, name).size, name))

    def put(layout: Layout, index: int, after: int) -> Iterator[Layout]:
        if index == len(names):
            yield layout
            return
        same_again = names[index + 1 : index + 2] == [names[index]]
        for instance in places_beside(model, layout, names[index]):
            if instance.start > after:
                yield from put(add(layout, instance), index + 1, instance.start if same_again else -1)

    return tuple(sorted(put(beside, 0, -1)))


def best(model: GpuModel, layouts: Iterable[Layout]) -> Layout | None:
    """The layout that leaves the best `room`; of those, the one with the lowest starts. None if there is none."""
    return max(sorted(layouts), key=lambda layout: room(model, layout), default=None)


@remembered
def with_slices(model: GpuModel, slices: Slices) -> Layout | None:
    """The layout of base profiles with these compute slices, in any order, that is `best`; None if there is none."""
    names = {profile.slices: profile.name for profile in base_profiles(model)}
    if any(count not in names for count in slices):
        return None
    return best(model, placements(model, tuple(names[count] for count in as_multiset(slices))))


def parse(model: GpuModel, text: str) -> Layout:
    """A layout as people write it: `3,2,2`, `3g.20gb,2g.10gb,2g.10gb` or, exact, `3g.20gb@4,1g.5gb@0`.

    Exact instances are kept where they are, the others are placed around them as is `best`. `none` is an uncut GPU.
    """
    layout = best(model, meanings(model, text))
    assert layout is not None  # meanings has complained
    return layout


def meanings(model: GpuModel, text: str) -> tuple[Layout, ...]:
    """Every exact layout that a written one could mean: at least one, or InputError."""
    if text.strip().lower() in ("", "none"):
        return ((),)
    exact: list[Instance] = []
    loose: list[str] = []
    for item in text.split(","):
        name, at, start = (part.strip() for part in item.partition("@"))
        profile = _profile_written(model, name, text)
        if not at:
            loose.append(profile.name)
        elif start.isascii() and start.isdigit() and len(start) < 5:
            exact.append(Instance(int(start), profile.name))
        else:
            raise InputError(f"layout {text!r}: {item.strip()!r} needs a number after @, such as {profile.name}@0")
    fixed = tuple(sorted(exact))
    reason = check(model, fixed)
    if reason is not None:
        raise InputError(f"layout {text!r} is impossible on {model.name}: {reason}")
    found = placements(model, tuple(sorted(loose)), fixed)
    if not found:
        raise InputError(f"layout {text!r} does not fit on one {model.name}; `gpuloom layout list` shows what does")
    return found


def _profile_written(model: GpuModel, name: str, text: str) -> Profile:
    """A profile by its name, or a base profile by its compute slices: `3` or `3g`."""
    wanted = name.lower()
    for profile in base_profiles(model):
        if wanted in (str(profile.slices), f"{profile.slices}g"):
            return profile
    if wanted not in model.by_name:
        sizes = ", ".join(str(profile.slices) for profile in base_profiles(model))
        accepted = (
            f"compute slices ({sizes}) or profiles ({', '.join(model.by_name)})" if model.mig else "only `none`: no MIG"
        )
        raise InputError(f"layout {text!r}: {name!r} is not a size of {model.name}; accepted are {accepted}")
    return model.by_name[wanted]


def draw(model: GpuModel, layout: Layout) -> str:
    """A layout as a bar of memory units: `|4444|22|1|·` is 4g at 0, 2g at 4, 1g at 6, and unit 7 free."""
    bar, unit = "|", 0
    for instance in layout:
        profile = model.by_name[instance.profile]
        bar += "·" * (instance.start - unit) + ("|" if instance.start > unit else "")
        bar += str(profile.slices) * profile.size + "|"
        unit = instance.start + profile.size
    return bar + ("·" * (model.units - unit) + "|" if unit < model.units else "")


def written(layout: Layout) -> str:
    """As `parse` reads it."""
    return ",".join(map(str, layout)) or "none"
