"""A small model of known laws, measured on a small grid: what the tests of elastic jobs run on."""

import pytest

from gpuloom.perf.goodput.tables import ElasticTables
from gpuloom.work.measured.elastic_profiles import ElasticProfile, EpochRow, PlacementRow, ScalabilityRow

LOCAL_BATCHES = (8, 16, 32, 64)
PLACEMENTS = ((1,), (2,), (3,), (4,), (1, 1), (1, 2), (2, 2), (1, 3), (2, 4), (4, 4))
EPOCHS = 4


def true_times(nodes: int, replicas: int, local_batch: int) -> tuple[float, float]:
    """Step and sync seconds: compute and network add up."""
    compute_s = 0.05 + 0.002 * local_batch
    if replicas == 1:
        return compute_s + 0.0005, 0.0005
    sync_s = 0.01 + 0.001 * (replicas - 2) if nodes == 1 else 0.04 + 0.004 * (replicas - 2)
    return compute_s + sync_s, sync_s


def small_profile(model: str = "toy") -> ElasticProfile:
    placements = tuple(
        PlacementRow(placement, batch, *true_times(len(placement), sum(placement), batch))
        for placement in PLACEMENTS
        for batch in LOCAL_BATCHES
    )
    scalability = tuple(
        ScalabilityRow(nodes, replicas, batch, *true_times(nodes, replicas, batch))
        for nodes, replicas in ((3, 3), (3, 12), (4, 4), (4, 16))
        for batch in LOCAL_BATCHES
    )
    validation = {
        batch: tuple(
            EpochRow(
                (100.0 + batch / 64) * (epoch + 1),
                6400.0 / batch * (epoch + 1),
                0.5 + 0.1 * epoch,
                2.0,
                4.0 * (epoch + 1),
            )
            for epoch in range(EPOCHS)
        )
        for batch in (64, 256, 1024)
    }
    return ElasticProfile(model, placements, scalability, validation)


@pytest.fixture(scope="session")
def profile() -> ElasticProfile:
    return small_profile()


@pytest.fixture(scope="session")
def tables(profile: ElasticProfile) -> ElasticTables:
    return ElasticTables(profile)
