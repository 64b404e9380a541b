"""The 12 workloads of iGniter's experiment, GPUs with the shipped figures, and a second type, with MIG."""

import pytest

from gpuloom.provision.offer import Offer
from gpuloom.provision.shipped import shipped_offer
from gpuloom.provision.supply import MigGpus, SharedGpus, Supply
from gpuloom.work.model import Service
from tests.provision.drawn import MODELS
from tests.provision.mig.made_up import A100, points

SLO_MS = (10, 15, 20, 20, 30, 40, 20, 30, 40, 25, 40, 55)
RATE_RPS = (1200, 400, 800, 400, 600, 200, 300, 400, 200, 150, 50, 300)


@pytest.fixture(scope="session")
def offer() -> Offer:
    return shipped_offer("V100")


@pytest.fixture(scope="session")
def twelve() -> tuple[Service, ...]:
    return tuple(
        Service(f"W{number + 1}", MODELS[number // 3], float(rate), float(slo))
        for number, (slo, rate) in enumerate(zip(SLO_MS, RATE_RPS, strict=True))
    )


@pytest.fixture(scope="session")
def types(offer: Offer) -> list[Supply]:
    """Shares of V100s, instances of A100s: vgg19 and ssd are known on the first only, bert on the second only."""
    measured = {"resnet50": points(1.0), "bert": points(0.5), "alexnet": points(3.0)}
    return [SharedGpus(offer), MigGpus(A100, measured, 4.5)]
