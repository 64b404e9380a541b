"""Pollux's world against the authors' own figures: mean JCT of 160 jobs on 16 nodes of 4 GPUs, to the digit."""

from pathlib import Path

import pytest

from gpuloom.sim.inputs import Inputs, load
from gpuloom.sim.run import simulate

PUBLISHED_S = {
    "tiresias": (2473.65, 5144.9625, 3876.25625, 3280.2625),
    "optimus": (4087.0625, 6913.875, 3944.00625, 5967.75),
}


def inputs(data_dir: Path, workload: int, jobs: int | None = None) -> Inputs:
    pollux = data_dir / "pollux"
    path = pollux / "workloads" / f"workload-{workload}.csv"
    return Inputs(path, "pollux", "16x4xV100-16GB", jobs, profiles=pollux)


@pytest.mark.parametrize("workload", [1, 2, 3, 4])
@pytest.mark.parametrize("policy", list(PUBLISHED_S))
def test_deterministic_policies_are_reproduced_exactly(data_dir: Path, policy: str, workload: int) -> None:
    summary = simulate(load(inputs(data_dir, workload), 0), policy).summary
    assert summary.avg_jct_s == PUBLISHED_S[policy][workload - 1]
    assert summary.plans_rejected == 0


def test_pollux_beats_the_tuned_jobs_on_a_short_workload(data_dir: Path) -> None:
    """The whole workloads take half a minute each and are in benchmarks/elastic_world.py."""
    scenario = load(inputs(data_dir, 3, jobs=12), 0)
    pollux, tiresias = simulate(scenario, "pollux", 1).summary, simulate(scenario, "tiresias").summary
    assert pollux.plans_rejected == 0
    assert pollux.completed == 12
    assert pollux.avg_jct_s is not None
    assert tiresias.avg_jct_s is not None
    assert pollux.avg_jct_s < tiresias.avg_jct_s
