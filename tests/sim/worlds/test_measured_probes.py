"""The simulated probe: it draws what was measured, the same for the same seed, and asks who has never seen the job."""

from functools import lru_cache
from random import Random

import pytest

from gpuloom.perf.slices.predictor import SlicePredictor
from gpuloom.perf.slices.training import train_trend
from gpuloom.perf.speed import Estimate
from gpuloom.sim.worlds.measured_probes import MeasuredMixes, MeasuredProbe, never_saw
from gpuloom.sim.worlds.probes import Prober
from gpuloom.work.measured.figures import Figures
from gpuloom.work.model import Job, TraceJob
from tests.perf.slices.made_up_mixes import FIGURES, WORKLOADS, made_up_mixes

MIXES = made_up_mixes(300)
FIGURES_OF_ALL = Figures("A100-40GB", "made up", FIGURES)


@lru_cache
def held_out(family: str) -> SlicePredictor:
    return train_trend(MIXES, FIGURES, without_family=family)


def entry(workload: str | None) -> TraceJob:
    return TraceJob(Job("j", workload=workload), 60.0)


@pytest.mark.parametrize("jobs", [1, 2, 5, 7])
def test_draws_measured_mixes_of_the_same_size(jobs: int) -> None:
    mixes = MeasuredMixes(MIXES)
    workloads = WORKLOADS[:jobs]
    for workload, drawn in zip(workloads, mixes.draw(workloads, Random(1)), strict=True):
        assert drawn is not None
        assert drawn.mix in MIXES
        assert len(drawn.mix.jobs) == jobs
        assert drawn.mix.jobs[drawn.seat].workload == workload
    assert mixes.draw(workloads, Random(1)) == mixes.draw(workloads, Random(1))
    draws = {drawn.mix.id for seed in range(20) for drawn in mixes.draw(workloads, Random(seed)) if drawn}
    assert len(draws) > jobs


def test_the_nearest_size_if_none_was_measured() -> None:
    mixes = MeasuredMixes([mix for mix in MIXES if len(mix.jobs) in (1, 3)])
    (drawn, *_) = mixes.draw([WORKLOADS[0]] * 6, Random(0))
    assert drawn is not None
    assert len(drawn.mix.jobs) == 3
    (drawn, *_) = mixes.draw([WORKLOADS[0]] * 2, Random(0))
    assert drawn is not None
    assert len(drawn.mix.jobs) == 3
    assert mixes.draw(["nobody's 1"], Random(0)) == [None]


def test_a_probe_asks_weights_that_never_saw_the_family() -> None:
    asked: list[str] = []

    def predictor_for(family: str) -> SlicePredictor:
        asked.append(family)
        return held_out(family)

    prober: Prober = MeasuredProbe(MeasuredMixes(MIXES), FIGURES_OF_ALL, predictor_for, seed=3)
    workloads = ["ant 1", "dog 4", "ant 2"]
    truth = [FIGURES[workload].speeds for workload in workloads]
    estimates = prober.predict([entry(workload) for workload in workloads], truth)
    assert sorted(asked) == ["ant", "dog"]  # each once
    assert [set(found) for found in estimates] == [set(speeds) for speeds in truth]
    for found, speeds in zip(estimates, truth, strict=True):
        assert found["7g.40gb"] == Estimate(1.0, 1.0, 1.0)
        assert found["3g.20gb"].speed == pytest.approx(speeds["3g.20gb"], abs=0.15)
    again = MeasuredProbe(MeasuredMixes(MIXES), FIGURES_OF_ALL, held_out, seed=3)
    assert again.predict([entry(workload) for workload in workloads], truth) == estimates


def test_a_workload_in_no_mix_is_probed_as_the_most_similar() -> None:
    prober = MeasuredProbe(MeasuredMixes(MIXES), FIGURES_OF_ALL, held_out, seed=0)
    truth = {profile: speed + 0.01 for profile, speed in FIGURES["cat 2"].speeds.items()}
    for workload in (None, "nobody's 1"):
        (found,) = prober.predict([entry(workload)], [truth])
        assert set(found) == set(truth)
        assert found["3g.20gb"].speed == pytest.approx(truth["3g.20gb"], abs=0.05)


def test_shipped_weights_that_never_saw_a_family() -> None:
    assert "bert" not in never_saw("bert").families
    assert "resnet" in never_saw("bert").families
    assert len(never_saw("nobody's").families) == 8
