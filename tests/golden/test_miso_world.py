"""MISO's world: the published means (8 A100s, seeds 1-5) and the order of the schemes. Slow enough to be few."""

from pathlib import Path

import pytest

from gpuloom.sim.inputs import Inputs, load
from gpuloom.sim.run import simulate

PUBLISHED = {
    "whole-fifo": (2541.0, 0.03),
    "static:3,2,2": (1244.0, 0.04),
    "oracle": (1065.0, 0.04),
    "miso-paper": (1102.0, 0.05),
}


@pytest.mark.parametrize("policy", PUBLISHED)
def test_the_mean_completion_time_is_the_published_one(data_dir: Path, policy: str) -> None:
    inputs = Inputs(data_dir / "miso", "miso", probe="authors")
    means = [simulate(load(inputs, seed), policy, seed).summary.avg_jct_s for seed in range(1, 6)]
    published, tolerance = PUBLISHED[policy]
    assert sum(mean or 0 for mean in means) / 5 == pytest.approx(published, rel=tolerance)


def test_ours_is_ahead_of_the_oracle_with_real_prediction_errors(data_dir: Path) -> None:
    """The claim is 7 % over seeds 1-20, which the benchmark shows; these two take a second each."""
    inputs = Inputs(data_dir / "miso", "miso")
    for seed in (1, 2):
        ours, oracle = (simulate(load(inputs, seed), policy, seed).summary for policy in ("miso", "oracle"))
        assert (ours.avg_jct_s or 0) < 0.95 * (oracle.avg_jct_s or 0)
        assert (ours.max_slowdown or 0) < 4


def test_system_throughput_and_makespan_are_those_of_the_paper(data_dir: Path) -> None:
    inputs = Inputs(data_dir / "miso", "miso")
    runs = [simulate(load(inputs, seed), "whole-fifo", seed).summary for seed in range(1, 6)]
    assert sum(run.makespan_s for run in runs) / 5 == pytest.approx(11_989, rel=0.01)
    assert sum(run.stp_per_gpu for run in runs) / 5 == pytest.approx(0.796, rel=0.01)
