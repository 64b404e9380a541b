"""Properties of layouts, steps and fragmentation, over random legal layouts of all profiles of all models."""

from collections import deque
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.gpus import layouts
from gpuloom.gpus.catalogue import MODELS
from gpuloom.gpus.fragmentation import fragmentation, free_slices, largest_placeable, largest_suggested
from gpuloom.gpus.model import GpuModel, Instance, Layout
from gpuloom.gpus.steps import Create, Destroy, apply_step, nearest, plan_steps

A100 = MODELS["A100-40GB"]
A30 = MODELS["A30-24GB"]
WITH_MIG = [model for model in MODELS.values() if model.mig]

models = st.sampled_from(WITH_MIG)


@st.composite
def legal(draw: st.DrawFn, model: GpuModel) -> Layout:
    """Instances of any profile, added one by one wherever they fit."""
    layout: Layout = ()
    for _ in range(draw(st.integers(0, 7))):
        places = [place for name in model.by_name for place in layouts.places_beside(model, layout, name)]
        if not places:
            break
        layout = layouts.add(layout, draw(st.sampled_from(places)))
    return layout


Change = tuple[GpuModel, Layout, Layout, frozenset[Instance]]


@st.composite
def changes(draw: st.DrawFn) -> Change:
    """A model, what is there, what is wanted, and what is busy."""
    model = draw(models)
    current = draw(legal(model))
    busy = draw(st.sets(st.sampled_from(current))) if current else set()
    return model, current, draw(legal(model)), frozenset(busy)


def units(model: GpuModel, instance: Instance) -> set[int]:
    return set(range(instance.start, instance.start + model.by_name[instance.profile].size))


@settings(deadline=None)
@given(st.data())
def test_no_two_instances_of_a_legal_layout_overlap(data: st.DataObject) -> None:
    model = data.draw(models)
    layout = data.draw(legal(model))
    assert all(not units(model, a) & units(model, b) for a, b in combinations(layout, 2))
    assert all(units(model, instance) <= set(range(model.units)) for instance in layout)
    assert sum(layouts.slices_of(model, layout)) <= layouts.total_slices(model)


@settings(deadline=None)
@given(st.data())
def test_check_agrees_with_the_rules_said_differently(data: st.DataObject) -> None:
    model = data.draw(st.sampled_from([A100, MODELS["H100-SXM-80GB"]]))
    instances = st.builds(Instance, st.integers(-1, 8), st.sampled_from(list(model.by_name)))
    layout = tuple(sorted(data.draw(st.lists(instances, max_size=4))))
    names = [instance.profile for instance in layout]
    expected = (
        all(instance.start in model.by_name[instance.profile].starts for instance in layout)
        and sum(len(units(model, instance)) for instance in layout)
        == len(set().union(*(units(model, i) for i in layout)))
        and all(names.count(name) <= model.by_name[name].limit for name in names)
    )
    assert (layouts.check(model, layout) is None) == expected


@settings(deadline=None)
@given(st.data())
def test_every_part_of_a_legal_layout_is_legal(data: st.DataObject) -> None:
    model = data.draw(models)
    layout = data.draw(legal(model))
    for instance in layout:
        assert layouts.check(model, layouts.remove(layout, instance)) is None


@settings(deadline=None)
@given(st.data())
def test_what_is_written_is_read_back(data: st.DataObject) -> None:
    model = data.draw(models)
    layout = data.draw(legal(model))
    assert layouts.parse(model, ",".join(map(str, layout))) == layout


@settings(deadline=None)
@given(st.data())
def test_loose_profiles_keep_their_count(data: st.DataObject) -> None:
    model = data.draw(models)
    names = [instance.profile for instance in data.draw(legal(model))]
    placed = layouts.parse(model, ",".join(names))
    assert sorted(instance.profile for instance in placed) == sorted(names)
    assert layouts.check(model, placed) is None


@settings(deadline=None)
@given(changes())
def test_a_plans_steps_are_each_legal_and_lead_to_the_target(change: Change) -> None:
    model, current, target, busy = change
    layout = current
    for step in plan_steps(model, current, target, busy).steps:
        layout = apply_step(model, layout, step)
        assert layouts.check(model, layout) is None
    assert layout == target


@settings(deadline=None)
@given(changes())
def test_a_plan_touches_nothing_that_the_target_keeps_and_says_what_must_stop(change: Change) -> None:
    model, current, target, busy = change
    plan = plan_steps(model, current, target, busy)
    touched = [step.instance for step in plan.steps]
    assert len(touched) == len(set(touched)) == len(set(current) ^ set(target))
    assert not set(touched) & set(current) & set(target)
    assert plan.must_stop == tuple(sorted(busy - set(target)))


@settings(deadline=None)
@given(changes())
def test_no_busy_instance_is_destroyed_while_something_else_could_be_done(change: Change) -> None:
    model, current, target, busy = change
    steps = plan_steps(model, current, target, busy).steps
    layout = current
    for index, step in enumerate(steps):
        if isinstance(step, Destroy) and step.instance in busy:
            later = steps[index:]
            assert all(other.instance in busy for other in later if isinstance(other, Destroy))
            for other in later:
                if isinstance(other, Create):
                    assert layouts.check(model, layouts.add(layout, other.instance)) is not None
        layout = apply_step(model, layout, step)


def test_no_shorter_way_exists_between_any_two_layouts_of_an_a30() -> None:
    """Breadth first over every single step that the driver could take, variants included."""
    every = layouts.layouts_from(A30, tuple(Instance(s, p.name) for p in A30.profiles for s in p.starts))
    legal_ones = set(every)
    neighbours = {
        layout: {other for other in legal_ones if len(set(layout) ^ set(other)) == 1} for layout in legal_ones
    }
    for start in layouts.every(A30):
        distance = {start: 0}
        queue = deque([start])
        while queue:
            layout = queue.popleft()
            for other in neighbours[layout] - distance.keys():
                distance[other] = distance[layout] + 1
                queue.append(other)
        for target in layouts.every(A30):
            assert len(plan_steps(A30, start, target).steps) == distance[target]


@settings(deadline=None, max_examples=50)
@given(st.data())
def test_the_nearest_layout_is_the_best_of_all(data: st.DataObject) -> None:
    current = data.draw(st.sampled_from(layouts.every(A100)))
    busy = frozenset(data.draw(st.sets(st.sampled_from(current)))) if current else frozenset()
    slices = data.draw(st.sampled_from(layouts.multisets(A100, layouts.every(A100))))
    found = nearest(A100, current, slices, busy)
    assert found is not None

    def score(layout: Layout) -> tuple[int, int]:
        return len(busy & set(layout)), -len(plan_steps(A100, current, layout, busy).steps)

    same = [one for one in layouts.every(A100) if layouts.as_multiset(layouts.slices_of(A100, one)) == slices]
    assert found in same
    assert score(found) == max(map(score, same))


@settings(deadline=None)
@given(st.data())
def test_fragmentation_is_between_none_and_all(data: st.DataObject) -> None:
    model = data.draw(models)
    used = data.draw(legal(model))
    assert 0 <= fragmentation(model, used) <= 1
    assert largest_placeable(model, used) <= largest_suggested(model, used) <= free_slices(model, used)
    assert largest_placeable(model, used) == max(layouts.room(model, used), default=0)


def test_what_free_capacity_suggests_could_be_had_by_rearranging() -> None:
    """So fragmentation blames the placement only, never the mix of sizes."""
    for model in (A100, A30, MODELS["RTX-PRO-6000-96GB"]):
        for layout in layouts.every(model):
            rearranged = layouts.with_slices(model, layouts.slices_of(model, layout))
            assert rearranged is not None
            assert fragmentation(model, rearranged) == 0
