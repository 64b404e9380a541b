"""From the command to the answer: campaigns on the stand-in for an A100 with measured speeds and 3 % of noise.

What is right is computed here, from the measured times alone. Other tests have all 32 workloads, from made-up rows.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpuloom.work.measured.figures import figures_from_csv
from tests.measure.lab import Lab, program
from tests.measure.rows import COPIES, PROFILES

NOISE, TIE, NEAR = 0.03, 0.02, 0.95
WHOLE_MS = 5.0
"""A step on the whole device: the measured times are scaled to it."""


def measured_ms(data_dir: Path, name: str) -> dict[str, float]:
    """On the profiles on which it fits."""
    speeds = figures_from_csv(data_dir / "miso" / "mig_batch_latency.csv").workloads[name].speeds
    return {profile: WHOLE_MS / speed for profile, speed in speeds.items()}


def entry(name: str, step_ms: Mapping[str, float]) -> dict[str, Any]:
    times = json.dumps({**step_ms, "whole": step_ms["7g.40gb"]})
    return {"name": name, "command": program("measured", times, str(NOISE))}


def most_work(step_ms: Mapping[str, float]) -> set[str]:
    """Places that do as much as the best, or nearly."""
    rates = {profile: COPIES[profile] / ms for profile, ms in step_ms.items()}
    return {profile for profile, rate in rates.items() if rate >= max(rates.values()) * (1 - TIE)}


def one_copy(step_ms: Mapping[str, float]) -> str:
    return next(profile for profile in PROFILES if min(step_ms.values()) / step_ms.get(profile, 1e9) >= NEAR)


def answers(lab: Lab) -> dict[str, dict[str, dict[str, Any]]]:
    """By workload and goal, as `gpuloom recommend` says."""
    done = lab.hardware.gpuloom("recommend", str(lab.state), "--output", "json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)["workloads"]
    return {name: {answer["goal"]: answer for answer in of["answers"]} for name, of in told.items()}


def test_what_is_recommended_is_what_the_data_says(lab: Lab, data_dir: Path) -> None:
    """One that wants the smallest slices, one that runs out of memory on them."""
    times = {name: measured_ms(data_dir, name) for name in ("gnn 64", "deepspeech2 16")}
    plan = lab.plan(workloads=[entry(name, step_ms) for name, step_ms in times.items()], ways=["alone", "parallel"])
    rows = lab.measure(plan)["rows"]
    lab.check_left_as_found()
    found = answers(lab)
    for name, step_ms in times.items():
        (best,) = most_work(step_ms)
        work, single = found[name]["most work an hour"], found[name]["one copy"]
        count = f"{COPIES[best]} x " if COPIES[best] > 1 else ""
        assert (work["choice"], work["measured"]) == (f"{count}{best}", True), work["says"]
        smallest = one_copy(step_ms)
        assert single["choice"] in (smallest, "whole") or smallest in single["ties"], single["says"]
        out = {row["profile"] for row in rows if row["workload"] == name and row["outcome"] == "out of memory"}
        assert out == {*PROFILES} - {*step_ms}


def test_two_runs_of_five_are_enough_for_most_work(lab: Lab, data_dir: Path) -> None:
    name = "deepspeech2 16"
    step_ms = measured_ms(data_dir, name)
    measured = lab.measure(lab.plan(workloads=[entry(name, step_ms)]), "--for", "most-work")
    assert (measured["runs"], measured["stop"]) == (2, "as many runs as were wished for are made")
    assert len(measured["explored"]["not_run"]) == 3
    work = answers(lab)[name]["most work an hour"]
    (best,) = most_work(step_ms)
    assert work["choice"] == f"{COPIES[best]} x {best}"
    assert "predicted, not measured" in work["says"]
    lab.check_left_as_found()
