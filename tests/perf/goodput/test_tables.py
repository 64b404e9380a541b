"""Measured points are returned as measured, between them lines, beyond them nothing new."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.perf.goodput.model import BatchLimits
from gpuloom.perf.goodput.tables import ElasticTables, packed, placement_of, rotated
from gpuloom.work.measured.elastic_profiles import ElasticProfile, PlacementRow, ScalabilityRow
from tests.perf.conftest import small_profile, true_times

TABLES = ElasticTables(small_profile())


def test_every_measured_point_is_returned_exactly(profile: ElasticProfile, tables: ElasticTables) -> None:
    for row in profile.placements:
        assert tables.step_sync_s(row.placement, row.local_batch) == (row.step_s, row.sync_s)


def test_between_two_local_batches_lies_a_line(tables: ElasticTables) -> None:
    low, high = tables.step_sync_s((2,), 16), tables.step_sync_s((2,), 32)
    middle = tables.step_sync_s((2,), 24)
    assert middle == pytest.approx(((low[0] + high[0]) / 2, (low[1] + high[1]) / 2))


@pytest.mark.parametrize(("outside", "end"), [(1, 8), (7, 8), (65, 64), (10_000, 64)])
def test_beyond_the_measured_batches_the_last_one_counts(tables: ElasticTables, outside: int, end: int) -> None:
    assert tables.step_sync_s((4,), outside) == tables.step_sync_s((4,), end)


@pytest.mark.parametrize("placement", [(2, 1), (3, 1), (4, 2)])
def test_where_the_ring_starts_does_not_matter(tables: ElasticTables, placement: tuple[int, ...]) -> None:
    assert tables.step_sync_s(placement, 20) == tables.step_sync_s(tuple(reversed(placement)), 20)


def test_an_unmeasured_placement_takes_the_measured_mean_of_its_size(profile: ElasticProfile) -> None:
    """(1, 1, 1) was measured by nodes and replicas only; (3, 1) only as its rotation (1, 3), like (2, 2) on 2 nodes."""
    tables = ElasticTables(profile)
    row = next(row for row in profile.scalability if row.nodes == 3)
    assert tables.step_sync_s((1, 1, 1), row.local_batch) == pytest.approx((row.step_s, row.sync_s))


@settings(deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=20), st.integers(1, 100))
def test_nothing_is_extrapolated(placement: list[int], local_batch: int) -> None:
    rows: list[PlacementRow | ScalabilityRow] = [*TABLES.profile.placements, *TABLES.profile.scalability]
    steps, syncs = [row.step_s for row in rows], [row.sync_s for row in rows]
    step_s, sync_s = TABLES.step_sync_s(tuple(placement), local_batch)
    assert min(steps) - 1e-9 <= step_s <= max(steps) + 1e-9
    assert min(syncs) - 1e-9 <= sync_s <= max(syncs) + 1e-9


def test_limits_and_epochs_come_from_the_measurements(profile: ElasticProfile, tables: ElasticTables) -> None:
    assert tables.limits == BatchLimits(init_batch=64, max_batch=1024, min_local=8, max_local=64)
    assert tables.epochs == 4
    assert tables.epoch_marks == tuple(101.0 * (epoch + 1) for epoch in range(4)), "the smallest over the batches"
    capped = ElasticProfile("toy", profile.placements, profile.scalability, profile.validation, max_local_batch=16)
    assert ElasticTables(capped).limits.max_local == 16


def test_statistics_between_two_validated_batches(tables: ElasticTables) -> None:
    low, high = tables.at_epoch(64, 1), tables.at_epoch(256, 1)
    middle = tables.at_epoch(160, 1)
    assert middle.iteration == pytest.approx((low.iteration + high.iteration) / 2)
    assert tables.at_epoch(256, 2) is tables.profile.validation[256][2]
    assert tables.at_epoch(1, 0) == tables.at_epoch(64, 0)
    assert tables.at_epoch(5000, 0) == tables.at_epoch(1024, 0)


@pytest.mark.parametrize(
    ("nodes", "placement"), [([], ()), ([7], (1,)), ([0, 0, 1], (2, 1)), ([3, 1, 1, 3], (1, 2, 1)), ([2] * 4, (4,))]
)
def test_a_placement_is_run_lengths(nodes: list[int], placement: tuple[int, ...]) -> None:
    assert placement_of(nodes) == placement


@settings(deadline=None)
@given(st.integers(1, 200), st.integers(1, 8))
def test_packed_uses_as_few_nodes_as_possible(replicas: int, node_size: int) -> None:
    placement = packed(replicas, node_size)
    assert sum(placement) == replicas
    assert len(placement) == -(-replicas // node_size)
    assert max(placement) <= node_size


@settings(deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=8), st.integers(0, 8))
def test_rotations_have_one_name(placement: list[int], by: int) -> None:
    turned = placement[by % len(placement) :] + placement[: by % len(placement)]
    assert rotated(tuple(turned)) == rotated(tuple(placement))


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(sorted({row.placement for row in TABLES.profile.placements})), st.integers(8, 64))
def test_of_a_measured_placement_a_larger_local_batch_takes_longer(placement: tuple[int, ...], batch: int) -> None:
    """As the made-up law has it; the network's part does not depend on the batch."""
    step_s, sync_s = TABLES.step_sync_s(placement, batch)
    expected = true_times(len(placement), sum(placement), batch)
    assert (step_s, sync_s) == pytest.approx(expected)
    assert TABLES.step_sync_s(placement, min(batch + 1, 64))[0] >= step_s


@settings(deadline=None, max_examples=60)
@given(st.integers(64, 1024), st.integers(0, 3))
def test_between_two_validated_batches_every_figure_lies_between_theirs(batch: int, epoch: int) -> None:
    row = TABLES.at_epoch(batch, epoch)
    low = max(known for known in TABLES.profile.validation if known <= batch)
    high = min(known for known in TABLES.profile.validation if known >= batch)
    for value, below, above in zip(row, TABLES.at_epoch(low, epoch), TABLES.at_epoch(high, epoch), strict=True):
        assert min(below, above) - 1e-9 <= value <= max(below, above) + 1e-9
    assert TABLES.at_epoch(batch, epoch) is row, "answers are remembered"


def test_more_nodes_than_were_measured_count_as_the_most(profile: ElasticProfile) -> None:
    wide = tuple(
        ScalabilityRow(nodes, replicas, batch, *true_times(nodes, replicas, batch))
        for nodes, replicas in ((16, 16), (16, 64))
        for batch in (8, 64)
    )
    tables = ElasticTables(replace(profile, scalability=(*profile.scalability, *wide)))
    assert tables.step_sync_s((2,) * 20, 32) == tables.step_sync_s((3,) * 8 + (2,) * 8, 32)
    assert tables.step_sync_s((2,) * 20, 32) == pytest.approx(true_times(16, 40, 32))
