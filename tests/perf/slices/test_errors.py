"""How wrong a predictor is: judged on real jobs only, with the gauge or without, one family or all."""

import numpy as np
import pytest

from gpuloom.perf.slices.errors import judge, r2, small_slice_fit
from gpuloom.perf.slices.intervals import SLICES
from gpuloom.perf.slices.predictor import relative_latencies
from gpuloom.perf.slices.table import probe_of, true_speeds
from tests.perf.slices.made_up_mixes import FAMILIES, FIGURES, made_up_mixes
from tests.perf.slices.shipped_weights import shipped

MIXES = made_up_mixes(60)


def test_every_job_of_every_mix_is_judged() -> None:
    errors = judge(shipped(), MIXES, FIGURES)
    assert errors.workloads == tuple(job.workload for mix in MIXES for job in mix.jobs)
    assert errors.sizes == tuple(len(mix.jobs) for mix in MIXES for _ in mix.jobs)
    assert errors.predicted.shape == errors.truth.shape == errors.held.shape == (len(errors.workloads), len(SLICES))
    assert errors.mae == pytest.approx(errors.latency.mean())
    assert errors.coverage == pytest.approx(errors.held[:, :2].mean())
    assert np.array_equal(np.isnan(errors.held), np.isnan(errors.truth))


def test_a_family_alone_is_its_rows_of_all() -> None:
    everybody = judge(shipped(), MIXES, FIGURES)
    for family in FAMILIES:
        errors = judge(shipped(), MIXES, FIGURES, only_family=family)
        rows = [row for row, name in enumerate(everybody.workloads) if name.startswith(family)]
        assert errors.workloads == tuple(everybody.workloads[row] for row in rows)
        assert errors.latency == pytest.approx(everybody.latency[rows])
        assert errors.predicted == pytest.approx(everybody.predicted[rows])


def test_the_figures_are_those_of_the_predictor() -> None:
    mix = next(mix for mix in MIXES if len(mix.jobs) == 3)
    errors = judge(shipped(), [mix], FIGURES, use_gauges=False)
    answers = shipped().predict([probe_of(job) for job in mix.jobs])
    for row, (job, answer) in enumerate(zip(mix.jobs, answers, strict=True)):
        assert errors.predicted[row] == pytest.approx([answer[slices].speed for slices in SLICES])
        assert errors.truth[row] == pytest.approx(true_speeds(job, FIGURES), nan_ok=True)
        guess = relative_latencies(errors.predicted[[row]])[0]
        assert errors.latency[row] == pytest.approx(np.abs(guess - np.array(job.mig) / max(job.mig)))
        for column, slices in enumerate(SLICES):
            truth = errors.truth[row, column]
            if np.isfinite(truth):
                assert errors.held[row, column] == float(answer[slices].low <= truth <= answer[slices].high)
    assert not np.array_equal(errors.predicted, judge(shipped(), [mix], FIGURES).predicted), "a gauge says something"


def test_small_slices_of_made_up_lines_are_explained() -> None:
    fit = small_slice_fit(MIXES, FIGURES)
    assert set(fit) == {"2g", "1g"}
    for row in fit.values():
        assert row["r2"] > 0.98
        assert row["r2_family_out"] <= row["r2"] + 1e-9
        assert row["mae_family_out"] < 0.05


def test_what_is_explained_of_a_variance() -> None:
    truth = np.array([1.0, 2.0, 3.0, np.nan])
    assert r2(truth, truth) == 1.0
    assert r2(np.full(4, 2.0), truth) == 0.0
    assert r2(-truth, truth) < 0
    assert np.isnan(r2(np.ones(3), np.ones(3)))
