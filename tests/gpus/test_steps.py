"""Steps between layouts: the cases that a reader would ask about."""

import pytest

from gpuloom.gpus import layouts
from gpuloom.gpus.catalogue import MODELS
from gpuloom.gpus.model import Instance, Layout
from gpuloom.gpus.steps import Create, Destroy, StepPlan, apply_step, nearest, plan_steps

A100 = MODELS["A100-40GB"]


def cut(text: str) -> Layout:
    return layouts.parse(A100, text)


def shown(plan: StepPlan) -> list[str]:
    return [str(step) for step in plan.steps]


def test_nothing_to_do() -> None:
    assert plan_steps(A100, cut("3,2,2"), cut("3,2,2")) == StepPlan((), ())


def test_a_busy_instance_that_stays_is_not_touched() -> None:
    busy = Instance(4, "3g.20gb")
    plan = plan_steps(A100, cut("3g.20gb@4,1g.5gb@0"), cut("3,2,2"), frozenset({busy}))
    assert shown(plan) == ["destroy 1g.5gb@0", "create 2g.10gb@0", "create 2g.10gb@2"]
    assert plan.must_stop == ()


def test_busy_instances_run_on_until_their_room_is_needed() -> None:
    current = cut("1g.5gb@0,3g.20gb@4")
    plan = plan_steps(A100, current, cut("4,2,1"), frozenset({Instance(4, "3g.20gb")}))
    assert shown(plan) == [
        "destroy 1g.5gb@0",
        "create 4g.20gb@0",
        "destroy 3g.20gb@4",
        "create 2g.10gb@4",
        "create 1g.5gb@6",
    ]
    assert plan.must_stop == (Instance(4, "3g.20gb"),)


def test_a_limit_can_order_steps_too() -> None:
    plan = plan_steps(A100, cut("1g.5gb+me@0"), cut("1g.5gb+me@5"))
    assert plan.steps == (Destroy(Instance(0, "1g.5gb+me")), Create(Instance(5, "1g.5gb+me")))


@pytest.mark.parametrize(
    ("current", "target", "busy"),
    [
        ((Instance(7, "1g.5gb"),), (), frozenset()),
        ((), (Instance(7, "1g.5gb"),), frozenset()),
        ((), (), frozenset({Instance(0, "1g.5gb")})),
    ],
)
def test_contradictions_are_refused(current: Layout, target: Layout, busy: frozenset[Instance]) -> None:
    with pytest.raises(ValueError, match=r"illegal|not there"):
        plan_steps(A100, current, target, busy)


def test_steps_that_the_driver_would_refuse() -> None:
    with pytest.raises(ValueError, match="not there"):
        apply_step(A100, (), Destroy(Instance(0, "1g.5gb")))
    with pytest.raises(ValueError, match="overlap"):
        apply_step(A100, cut("4"), Create(Instance(2, "2g.10gb")))
    with pytest.raises(ValueError, match="cannot start"):
        apply_step(A100, (), Create(Instance(3, "2g.10gb")))


def test_the_nearest_layout_follows_the_busy_instance() -> None:
    on_the_left = Instance(0, "3g.20gb")
    assert nearest(A100, (on_the_left,), (3, 3), frozenset({on_the_left})) == cut("3@0,3@4")
    assert nearest(A100, (on_the_left,), (3, 2, 1), frozenset({on_the_left})) == cut("3@0,2@4,1@6")
    # 3+2+2 exists with 3g at 4 only, so this one has to move.
    assert nearest(A100, (on_the_left,), (3, 2, 2), frozenset({on_the_left})) == cut("3@4,2@0,2@2")


def test_the_nearest_layout_prefers_busy_over_steps() -> None:
    current = cut("1@0,1@1,2@4")
    busy = frozenset({Instance(4, "2g.10gb")})
    assert nearest(A100, current, (2, 1, 1), busy) == current
    assert nearest(A100, current, (4, 2), busy) == cut("4@0,2@4")


def test_a_special_instance_that_is_there_may_be_kept() -> None:
    current = cut("1g.10gb@6,3g.20gb@0")
    assert nearest(A100, current, (3, 1), frozenset(current)) == current


def test_no_layout_has_these_slices() -> None:
    assert nearest(A100, (), (4, 4)) is None
    assert nearest(MODELS["T4-16GB"], (), (1,)) is None
    assert nearest(A100, cut("7"), ()) == ()
