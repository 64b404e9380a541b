"""Which batch a job is told: the best on what it has, and another one only where that pays."""

import json
from dataclasses import replace

import pytest

from gpuloom.contract.view import Phase, Report
from gpuloom.gpus.grant import Grant
from gpuloom.perf.goodput.goodput import best_batch, gain, goodput_with, split_batch, step_s
from gpuloom.perf.goodput.model import GoodputModel
from gpuloom.policies.ones.policy import Ones
from tests.policies.conftest import Desk, scales_well


def model_of(report: Report) -> GoodputModel:
    assert report.goodput is not None
    return report.goodput


def told(desk: Desk, noise: float, *, chooses: bool = False, in_place: bool = True, batch: int | None = None) -> int:
    """The whole batch that a job on four GPUs, with this noise of its gradient, is told; 0: none."""
    desk.arrive("a", in_place=in_place, max_gpus=4)
    desk.put("a", 0, 1, 2, 3)
    job = desk.state.jobs["a"]
    desk.state.put(job._replace(phase=Phase.RUNNING))
    if batch is not None:
        desk.state.plan_grants("a", tuple(Grant(gpu, batch=batch // 4) for gpu in range(4)))
    report = scales_well(4, max_replicas=4)
    model = replace(model_of(report), grad_var=noise, chooses_batch=chooses)
    desk.report("a", replace(report, progress=1e5, goodput=model))
    grants = Ones(desk.cluster).decide(desk.view(600.0)).grants.get("a", ())
    assert {grant.gpu for grant in grants} in (set(), {0, 1, 2, 3}), "it keeps its GPUs"
    return sum(grant.batch or 0 for grant in grants)


def test_the_noisier_the_gradient_the_larger_the_batch() -> None:
    small, large = told(Desk(), 1.0), told(Desk(), 1e4)
    assert 64 <= small < large <= 8192
    assert small == best_batch(replace(model_of(scales_well(4, 4)), grad_var=1.0), False, 4).total(4)


def test_who_has_about_the_best_batch_keeps_it_and_who_has_not_does_not() -> None:
    best = told(Desk(), 1e4)
    assert told(Desk(), 1e4, batch=best) == 0
    assert told(Desk(), 1e4, batch=best // 2 * 2) == 0
    assert told(Desk(), 1e4, batch=64) == best


def test_who_chooses_itself_or_would_have_to_start_again_is_told_none() -> None:
    assert told(Desk(), 1e4, chooses=True) == 0
    assert told(Desk(), 1e4, in_place=False) == 0


def test_who_has_not_reported_is_told_none_whatever_others_of_its_name_have() -> None:
    """Their limits need not be its own. And what was remembered makes no difference to that."""
    desk, policy = Desk(), Ones(Desk().cluster)
    desk.arrive("other", workload="net", max_gpus=4)
    desk.put("other", 0, 1, 2, 3)
    desk.report("other", replace(scales_well(4, max_replicas=4), progress=1e5))
    desk.ask(policy, 60.0)
    desk.arrive("new", workload="net", in_place=True, max_gpus=4)
    heir = Ones(desk.cluster)
    heir.restore(json.loads(json.dumps(policy.remember())))
    plans = [one.decide(desk.view(120.0)) for one in (policy, heir)]
    assert plans[0].grants["new"]
    assert {grant.batch for plan in plans for grant in plan.grants["new"]} == {None}
    assert plans[0] == plans[1]


@pytest.mark.parametrize(
    ("replicas", "across", "batch"), [(1, False, 64), (1, False, 640), (4, False, 256), (8, True, 8192)]
)
def test_goodput_is_what_a_step_is_worth_over_how_long_it_takes(replicas: int, across: bool, batch: int) -> None:
    model = model_of(scales_well(8))
    local = split_batch(batch, replicas, model.limits)
    seconds = step_s(model.times, across, replicas, local.samples)
    seconds += local.accumulation * (model.times.a_c + model.times.b_c * local.samples)
    worth = gain(model.grad_sqr, model.grad_var, local.total(replicas) / model.limits.init_batch)
    assert goodput_with(model, across, replicas, local) == pytest.approx(worth / seconds)
