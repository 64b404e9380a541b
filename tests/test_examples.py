"""The examples that the documentation shows do what it says."""

from pathlib import Path

from gpuloom.sim.inputs import Inputs, load
from gpuloom.sim.run import simulate

ROOT = Path(__file__).resolve().parents[1]
POLICY = ROOT / "examples" / "my_policy.py"


def test_the_example_policy_is_short_and_runs_without_a_refused_plan() -> None:
    assert len(POLICY.read_text().splitlines()) < 60
    inputs = Inputs(ROOT / "examples" / "jobs.yaml", gpus="4xA100-40GB")
    summary = simulate(load(inputs, 1), f"{POLICY}:Urgent", 1).summary
    assert summary.completed == summary.jobs > 0
    assert summary.plans_rejected == 0
