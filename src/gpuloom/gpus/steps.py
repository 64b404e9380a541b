"""From one layout to another in the fewest steps, touching no busy instance that the target keeps.

Why nothing smaller exists: the driver can only destroy one instance or create one (nothing is moved or resized), so a
step changes the set of instances by exactly one. Every instance that is there and not wanted needs its own destroy,
every one that is wanted and not there its own create, and `plan_steps` contains those and no others. Why an order
always exists: after the last destroy what is there is a part of the target, every create keeps it one, and a part of a
legal layout is legal.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from gpuloom.gpus.layouts import (
    Slices,
    add,
    as_multiset,
    base_instances,
    check,
    layouts_from,
    remembered,
    remove,
    room,
    slices_of,
)
from gpuloom.gpus.model import GpuModel, Instance, Layout


@dataclass(frozen=True, slots=True)
class Destroy:
    instance: Instance

    def __str__(self) -> str:
        return f"destroy {self.instance}"


@dataclass(frozen=True, slots=True)
class Create:
    """Create at the exact start: left to itself the driver may put a small instance where it blocks a large one."""

    instance: Instance

    def __str__(self) -> str:
        return f"create {self.instance}"


Step = Destroy | Create


@dataclass(frozen=True, slots=True)
class StepPlan:
    steps: tuple[Step, ...]
    must_stop: tuple[Instance, ...]
    """Busy instances that the target does not keep: their work has to be checkpointed and stopped before they go."""


@remembered
def plan_steps(model: GpuModel, current: Layout, target: Layout, busy: frozenset[Instance] = frozenset()) -> StepPlan:
    """The fewest steps from `current` to `target`.

    Idle instances go first, and what fits is created before the next busy one goes: its work may run on until then.
    """
    for name, layout in (("current", current), ("target", target)):
        reason = check(model, layout)
        if reason is not None:
            raise ValueError(f"the {name} layout is illegal: {reason}")
    if not busy <= set(current):
        raise ValueError(f"busy but not there: {', '.join(map(str, sorted(busy - set(current))))}")
    going = sorted(set(current) - set(target), key=lambda instance: (instance in busy, instance))
    coming = [instance for instance in target if instance not in current]
    layout, steps = current, list[Step]()
    for instance in going:
        if instance in busy:
            layout = _create_what_fits(model, layout, coming, steps)
        steps.append(Destroy(instance))
        layout = remove(layout, instance)
    _create_what_fits(model, layout, coming, steps)
    return StepPlan(tuple(steps), tuple(sorted(instance for instance in going if instance in busy)))


def _create_what_fits(model: GpuModel, layout: Layout, coming: list[Instance], steps: list[Step]) -> Layout:
    """Move from `coming` to `steps` all that fits now."""
    for instance in tuple(coming):
        larger = add(layout, instance)
        if check(model, larger) is None:
            steps.append(Create(instance))
            coming.remove(instance)
            layout = larger
    return layout


def apply_step(model: GpuModel, layout: Layout, step: Step) -> Layout:
    """The layout after one step; ValueError if the driver would refuse it."""
    if isinstance(step, Destroy):
        if step.instance not in layout:
            raise ValueError(f"cannot {step}: it is not there")
        return remove(layout, step.instance)
    larger = add(layout, step.instance)
    reason = check(model, larger)
    if reason is not None:
        raise ValueError(f"cannot {step}: {reason}")
    return larger


@remembered
def nearest(model: GpuModel, current: Layout, slices: Slices, busy: frozenset[Instance] = frozenset()) -> Layout | None:
    """The `easiest` exact layout with these compute slices, or None if there is none.

    New instances are of base profiles, but one of another profile that is there may be kept.
    """
    kinds = _by_slices(model, tuple(sorted({*base_instances(model), *current})))
    return easiest(model, current, kinds.get(as_multiset(slices), ()), busy)


def easiest(
    model: GpuModel, current: Layout, targets: Iterable[Layout], busy: frozenset[Instance] = frozenset()
) -> Layout | None:
    """The target that keeps the most busy instances; of those, the one with the fewest steps; then the best room left;
    then the lowest starts. None if there is no target.
    """
    there = set(current)

    def cost(layout: Layout) -> tuple[int, int, Slices, Layout]:
        kept = there.intersection(layout)
        steps = len(current) + len(layout) - 2 * len(kept)
        # The closing 0 makes a longer room better than the same one cut short.
        return (-len(kept & busy), steps, (*(-left for left in room(model, layout)), 0), layout)

    return min(targets, key=cost, default=None)


@remembered
def _by_slices(model: GpuModel, pool: tuple[Instance, ...]) -> dict[Slices, tuple[Layout, ...]]:
    found: dict[Slices, list[Layout]] = {}
    for layout in layouts_from(model, pool):
        found.setdefault(as_multiset(slices_of(model, layout)), []).append(layout)
    return {slices: tuple(layouts) for slices, layouts in found.items()}
