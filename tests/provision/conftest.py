"""The 12 workloads of iGniter's experiment, and GPUs with the shipped figures."""

import pytest

from gpuloom.provision.demand import Offer, shipped_offer
from gpuloom.work.model import Service

SLO_MS = (10, 15, 20, 20, 30, 40, 20, 30, 40, 25, 40, 55)
RATE_RPS = (1200, 400, 800, 400, 600, 200, 300, 400, 200, 150, 50, 300)
MODELS = ("alexnet", "resnet50", "vgg19", "ssd")


@pytest.fixture(scope="session")
def offer() -> Offer:
    return shipped_offer("V100")


@pytest.fixture(scope="session")
def twelve() -> tuple[Service, ...]:
    return tuple(
        Service(f"W{at + 1}", MODELS[at // 3], float(rate), float(slo))
        for at, (slo, rate) in enumerate(zip(SLO_MS, RATE_RPS, strict=True))
    )
