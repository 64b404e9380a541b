"""What the benchmarks of elastic policies make of their runs, and that they print what they say on a few jobs."""

import json
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpuloom.policies.ones.tuning import LEVERS
from gpuloom.sim.inputs import Inputs

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def script() -> SimpleNamespace:
    return SimpleNamespace(**runpy.run_path(str(BENCHMARKS / "elastic_runs.py")))


def run_of(script: SimpleNamespace, seed: int, jct_s: dict[str, float], *, jitter: float = 0.0) -> Any:
    inputs = Inputs(Path("w.csv"), length_jitter=jitter)
    figures = {"avg_jct_s": sum(jct_s.values()) / len(jct_s), "jobs": 2, "completed": len(jct_s)}
    return script.Run(script.Case(inputs, "any", seed), figures, jct_s, {}, 0.0)


def test_commas_of_a_policy_are_its_own(script: SimpleNamespace) -> None:
    assert script.split_policies(["tiresias,ones:-name,-ranks,pollux", "ones:-start", "pollux"]) == [
        "tiresias",
        "ones:-name,-ranks",
        "pollux",
        "ones:-start",
    ]


def test_what_has_no_randomness_runs_once_unless_its_workload_has(script: SimpleNamespace) -> None:
    inputs = [Inputs(Path("a.csv")), Inputs(Path("b.csv"), length_jitter=0.5)]
    cases = script.cases_for(inputs, ["ones", "pollux"], [1, 2])
    found = [(case.policy, case.workload, case.seed) for case in cases]
    assert found == [
        *[("pollux", workload, seed) for workload in "ab" for seed in (1, 2)],
        ("ones", "a", 1),
        ("ones", "b", 1),
        ("ones", "b", 2),
    ]


def test_ratios_are_paired_by_seed_where_both_have_them(script: SimpleNamespace) -> None:
    ours = [run_of(script, seed, {"a": jct_s}) for seed, jct_s in ((1, 10.0), (2, 40.0))]
    theirs = [run_of(script, seed, {"a": jct_s}) for seed, jct_s in ((1, 20.0), (2, 40.0))]
    paired = script.ratio(ours, theirs, "avg_jct_s")
    assert (paired.value, paired.stderr) == (0.75, pytest.approx(0.25))
    once = script.ratio(ours[:1], theirs, "avg_jct_s")
    assert once.value == pytest.approx(10 / 30)
    assert once.stderr == pytest.approx(10 / 30 * (10 / 30)), "as sure as we are of theirs"
    assert script.ratio(ours, [], "avg_jct_s") is None


def test_the_mean_of_ratios_has_two_errors(script: SimpleNamespace) -> None:
    found = script.mean_ratio([script.Ratio(0.8, 0.03), script.Ratio(1.0, 0.04)])
    assert found == {
        "mean": pytest.approx(0.9),
        "stderr": pytest.approx(0.025),
        "stderr_over_workloads": pytest.approx(0.1),
    }


def test_the_worst_job_is_told_by_name(script: SimpleNamespace) -> None:
    theirs = [run_of(script, 1, {"a": 10.0, "b": 100.0}), run_of(script, 2, {"a": 30.0, "b": 100.0})]
    assert script.worst_against([run_of(script, 1, {"a": 30.0, "b": 120.0})], theirs) == (1.5, "a")
    assert script.worst_against([run_of(script, 1, {"c": 30.0})], theirs) is None
    apart = [run_of(script, run.case.seed, run.jct_s, jitter=0.5) for run in theirs]
    ours = run_of(script, 2, {"a": 30.0, "b": 120.0}, jitter=0.5)
    assert script.worst_against([ours], apart) == (1.2, "b"), "other lengths are other jobs"


def test_who_did_not_complete_is_told(script: SimpleNamespace) -> None:
    whole, part = run_of(script, 1, {"a": 1.0, "b": 1.0}), run_of(script, 2, {"a": 1.0})
    stuck = script.Run(script.Case(Inputs(), "any", 3), {}, {}, {}, 0.0, "policy any never places job x")
    assert script.without_end([whole]) == {}
    assert script.without_end([whole, part, stuck]) == {
        "did_not_end": {"seed 2": "1 jobs not completed", "seed 3": "policy any never places job x"}
    }


# ---- whole scripts on a few jobs ---------------------------------------------------------------------------------


def printed(script: str, *arguments: object) -> Any:
    command = [sys.executable, str(BENCHMARKS / script), *map(str, arguments)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def few_jobs(data_dir: Path, folder: Path, *workloads: int) -> list[object]:
    """The first jobs of some workloads."""
    paths = []
    for number in workloads:
        lines = (data_dir / "pollux" / "workloads" / f"workload-{number}.csv").read_text().splitlines()
        paths.append(folder / f"few-{number}.csv")
        paths[-1].write_text("\n".join(lines[:6]) + "\n")
    return ["--profiles", data_dir / "pollux", "--workloads", *paths, "--workers", 1]


def test_the_world_tells_each_policy_on_each_workload_and_over_all(data_dir: Path, tmp_path: Path) -> None:
    jobs = few_jobs(data_dir, tmp_path, 1, 3)
    named = ["--policies", "tiresias,pollux", "--policies", "ones:-name,-ranks", "--seeds", "1-2"]
    found = printed("elastic_world.py", *jobs, *named, "--rescale-s", 1)
    assert list(found["policies"]) == ["tiresias", "pollux", "ones:-name,-ranks"]
    row = found["policies"]["ones:-name,-ranks"]["few-1"]
    assert (row["runs"], found["policies"]["pollux"]["few-1"]["runs"]) == (1, 2)
    assert row["ratio_to_pollux"] > 0
    assert row["rescales"] > 0
    assert "published_s" not in row
    assert row["fairness"]["max"] >= row["fairness"]["mean"] > 0
    total = found["over_workloads"]["ones:-name,-ranks"]
    assert total["avg_jct_to_pollux"]["mean"] == pytest.approx(
        sum(found["policies"]["ones:-name,-ranks"][name]["ratio_to_pollux"] for name in ("few-1", "few-3")) / 2
    )
    assert total["worst_job_to_pollux"]["ratio"] > 0
    assert found["over_workloads"]["pollux"]["avg_jct_to_pollux"]["mean"] == 1.0


def test_every_lever_is_told_in_both_worlds(data_dir: Path, tmp_path: Path) -> None:
    found = printed("ones_levers.py", *few_jobs(data_dir, tmp_path, 3))
    for world in ("restarted_30_s", "resized_1_s"):
        assert {row["lever"] for row in found[world]} == {*LEVERS, "costs"} - {"slices"}
        assert all(row["ratio"] > 0 for row in found[world])


def test_slices_are_held_against_whole_gpus_and_against_fixed_divisions(data_dir: Path, tmp_path: Path) -> None:
    few = ["--keep", 1, "--gap-s", 2400, "--divisions", 1, 4, "--seeds", "1-2", "--miso", data_dir / "miso"]
    found = printed("ones_slices.py", *few_jobs(data_dir, tmp_path, 1), *few)["gap_2400_s"]
    assert found["jobs"] == 5 + 12
    names = ["ones", "ones:-slices", *(f"{k} GPUs for slices, {16 - k} for elastic jobs" for k in (1, 4))]
    assert [row["policy"] for row in found["rows"]] == names
    best = min(found["rows"][2:], key=lambda row: float(row["all_jct_s"]))
    assert found["best_division"] == best["policy"]
    assert found["rows"][0]["all_ratio"] == 1.0
    assert found["rows"][1]["elastic_jct_s"] > found["rows"][1]["sliced_jct_s"] > 0


def test_rounds_are_timed_at_both_sizes() -> None:
    found = printed("ones_scale.py", "--rounds", 1)
    assert [(row["jobs"], row["gpus"]) for row in found["sizes"]] == [(64, "16x4xV100-16GB"), (512, "256x4xV100-16GB")]


def test_searches_are_held_against_the_exact_counts_alone(data_dir: Path, tmp_path: Path) -> None:
    found = printed("ones_search.py", *few_jobs(data_dir, tmp_path, 1), "--seeds", "1")
    for world in ("restarted_30_s", "resized_1_s"):
        for names in ("with names", "without names"):
            assert {*found[world][names]} == {"Evolved", "RolledOut"}
            assert all(row["ratio"] > 0 for row in found[world][names].values())


def test_what_is_believed_to_be_left_is_held_against_the_truth(data_dir: Path, tmp_path: Path) -> None:
    found = printed("remaining_work.py", *few_jobs(data_dir, tmp_path, 1, 3), "--seeds", "1")
    kinds = {**found["with names"], **found["without names"]}
    assert {"the furthest of its name", "the work done"} <= {*kinds}
    for row in kinds.values():
        assert 0 <= row["below_10_pct"] <= row["below_50_pct"] <= row["below_90_pct"] <= 1


def test_every_load_and_every_size_is_held_against_both_peers(data_dir: Path, tmp_path: Path) -> None:
    found = printed("elastic_axes.py", *few_jobs(data_dir, tmp_path, 1), "--loads", 2, "--nodes", 1, "--seeds", "1")
    assert {*found["settings"]} == {"load 2", "4 GPUs"}
    for name, row in found["settings"].items():
        for key in ("ones to tiresias", "ones to pollux", "ones:-name to tiresias", "ones:-name to pollux"):
            assert (row[key] is not None and row[key] > 1) == (f"{key}, {name}" in found["worse"])
        assert row["ones to pollux"] > 0
