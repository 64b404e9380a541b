"""Measured mixes as columns: one row for each job, means of each workload, and what leaving a family out leaves."""

import numpy as np
import pytest

from gpuloom.perf.slices.intervals import SLICES
from gpuloom.perf.slices.mix import ridge_inputs
from gpuloom.perf.slices.table import Table, mix_of, probe_of, true_speeds
from gpuloom.work.measured.mps_mixes import MeasuredJob
from tests.perf.slices.made_up_mixes import FAMILIES, FIGURES, WORKLOADS, made_up_mixes

MIXES = made_up_mixes(120)
TABLE = Table.of(MIXES, FIGURES)


def test_a_row_for_each_job_mix_after_mix() -> None:
    rows = sum(len(mix.jobs) for mix in MIXES)
    assert len(TABLE.jobs) == len(TABLE.sizes) == len(TABLE.inputs) == len(TABLE.workload) == len(TABLE.speeds) == rows
    parts = np.split(TABLE.inputs, TABLE.ends)
    assert [len(part) for part in parts] == [len(mix.jobs) for mix in MIXES]
    for part, mix in zip(parts, TABLE.mixes, strict=True):
        if mix.size > 1:
            expected = ridge_inputs(mix)
            assert part[:, : expected.shape[1]] == pytest.approx(expected)
        else:
            assert np.isnan(part[:, 2:8]).all()
        assert np.isnan(part[:, -2:]).all() == mix.bare


def test_numbers_name_workloads_and_families() -> None:
    assert TABLE.workloads == sorted(WORKLOADS)
    assert TABLE.families == sorted(FAMILIES)
    for row, job in enumerate(TABLE.jobs):
        assert TABLE.workloads[TABLE.workload[row]] == job.workload
        assert TABLE.families[TABLE.family[row]] == job.family
    assert [TABLE.families[family] for family in TABLE.family_of_workload] == [
        name.split()[0] for name in TABLE.workloads
    ]


@pytest.mark.parametrize("family", range(len(FAMILIES)))
def test_without_a_family_no_mix_is_left_that_has_it(family: int) -> None:
    kept = np.split(TABLE.without(family), TABLE.ends)
    for rows, mix in zip(kept, MIXES, strict=True):
        assert rows.tolist() == [TABLE.families[family] not in mix.families] * len(mix.jobs)


def test_means_are_of_each_workload() -> None:
    means = TABLE.means
    assert np.isfinite(means.solo).all(), "each was measured alone"
    for number, name in enumerate(TABLE.workloads):
        rows = [row for row, job in enumerate(TABLE.jobs) if job.workload == name]
        assert means.speeds[number] == pytest.approx(TABLE.speeds[rows].mean(axis=0), nan_ok=True)
        assert means.latencies[number] == pytest.approx(TABLE.latencies[rows].mean(axis=0))
        alone = [TABLE.inputs[row, 0] for row in rows if TABLE.sizes[row] == 1]
        assert means.solo[number] == pytest.approx(np.mean(alone))
    crowded = Table.of([mix for mix in MIXES if len(mix.jobs) > 1], FIGURES)
    assert np.isnan(crowded.means.solo).all(), "who was never alone shows no solo slowdown"


def test_true_speeds_are_measured_or_unknown() -> None:
    job = MeasuredJob("cat 2", (0.5, 0.6, 1.0), (0.6, 0.75, 1.0))
    assert true_speeds(job, FIGURES) == pytest.approx(
        (0.8, 0.6, FIGURES["cat 2"].speeds["2g.10gb"], FIGURES["cat 2"].speeds["1g.5gb"])
    )
    nobody = true_speeds(MeasuredJob("fox 1", (0.5, 0.6, 1.0), (0.6, 0.75, 1.0)), FIGURES)
    assert nobody[:2] == pytest.approx((0.8, 0.6))
    assert np.isnan(nobody[2:]).all()
    large = next(name for name in WORKLOADS if "1g.5gb" not in FIGURES[name].speeds)
    assert np.isnan(true_speeds(MeasuredJob(large, (0.5, 0.6, 1.0), (0.6, 0.75, 1.0)), FIGURES)[SLICES.index(1)])


def test_a_probe_tells_the_family_only_if_asked_to() -> None:
    job = MIXES[0].jobs[0]
    assert probe_of(job, 4000).family == job.family
    assert probe_of(job, 4000).mem_mib == 4000
    assert probe_of(job, tell_family=False).family is None
    assert mix_of(MIXES[0]).size == len(MIXES[0].jobs)
    full = next(mix for mix in MIXES if len(mix.jobs) == 7)
    assert mix_of(full).bare
