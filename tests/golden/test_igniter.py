"""iGniter's published plans (TPDS'23), to the digit: 12 workloads, 3 workloads, and the baselines' numbers of GPUs."""

import pytest

from gpuloom.provision.demand import Problem
from gpuloom.provision.plan import ServicePlan
from gpuloom.provision.shipped import shipped_offer
from gpuloom.provision.strategies import strategy
from gpuloom.work.model import Service

TWELVE = tuple(
    Service(f"W{at + 1}", model, rate, slo)
    for at, (model, slo, rate) in enumerate(
        [
            *[("alexnet", 10, 1200), ("alexnet", 15, 400), ("alexnet", 20, 800)],
            *[("resnet50", 20, 400), ("resnet50", 30, 600), ("resnet50", 40, 200)],
            *[("vgg19", 20, 300), ("vgg19", 30, 400), ("vgg19", 40, 200)],
            *[("ssd", 25, 150), ("ssd", 40, 50), ("ssd", 55, 300)],
        ]
    )
)
BATCHES = (6, 3, 8, 4, 9, 4, 3, 6, 4, 2, 1, 8)


def plan(name: str, services: tuple[Service, ...] = TWELVE) -> ServicePlan:
    return strategy(name)(Problem(services, shipped_offer("V100")))


def gpus(found: ServicePlan) -> list[list[tuple[str, float]]]:
    return [
        [(one.service, one.grant.share_pct) for one in found.replicas if one.grant.gpu == gpu]
        for gpu in range(found.gpus)
    ]


def test_twelve_workloads() -> None:
    found = plan("igniter")
    assert gpus(found) == [
        [("W12", 92.5)],
        [("W8", 75.0), ("W6", 15.0)],
        [("W7", 60.0), ("W4", 32.5)],
        [("W10", 60.0), ("W9", 37.5)],
        [("W5", 45.0), ("W1", 20.0), ("W11", 15.0)],
        [("W3", 12.5), ("W2", 7.5)],
    ]
    assert (found.gpus, found.cost_per_hour) == (6, 18.36)
    assert tuple(found.of(one.id)[0].grant.batch for one in TWELVE) == BATCHES


def test_three_workloads() -> None:
    three = (Service("A", "alexnet", 500, 15), Service("R", "resnet50", 400, 40), Service("V", "vgg19", 200, 60))
    found = plan("igniter", three)
    assert found.gpus == 1
    assert {one.service: (one.grant.share_pct, one.grant.batch) for one in found.replicas} == {
        "A": (10.0, 4),
        "R": (30.0, 8),
        "V": (37.5, 6),
    }


def test_first_fit_needs_five_and_is_late_with_nine() -> None:
    found = plan("ffd")
    assert found.gpus == 5
    slo_ms = {one.id: one.slo_p99_ms for one in TWELVE}
    assert sum(one.predicted_p99_ms > slo_ms[one.service] for one in found.replicas) == 9


@pytest.mark.parametrize(("name", "count"), [("gpulets", 8), ("gslice", 6)])
def test_the_other_baselines(name: str, count: int) -> None:
    found = plan(name)
    assert found.gpus == count
    assert {one.service for one in found.replicas} == {one.id for one in TWELVE}


def test_too_large_for_a_gpu_is_split_over_whole_ones_first() -> None:
    found = plan("igniter", (Service("big", "vgg19", 5000, 40),))
    assert [one.grant.share_pct for one in found.replicas[:-1]] == [100.0] * 8
    assert sum(one.rate_rps for one in found.replicas) == pytest.approx(5000)
