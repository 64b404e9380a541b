"""The Perfetto trace: valid, complete, one thing at a time on each track."""

import json
from itertools import pairwise
from pathlib import Path

import pytest

from gpuloom.sim.perfetto import CLUSTER_PID, write_trace
from gpuloom.sim.run import Result, Scenario, simulate
from gpuloom.work.traces import read_trace

GPUS = "2xA100-40GB"


def run(policy: str) -> Result:
    jobs = read_trace(Path(), "synthetic", seed=5, jobs=30, gap_s=20.0)
    return simulate(Scenario(jobs, GPUS), policy, 5, timeline=True)


@pytest.fixture(scope="module", params=["whole-fifo", "static:3,2,2", "oracle", "mps-only:3"])
def result(request: pytest.FixtureRequest) -> Result:
    return run(request.param)


def written(result: Result, folder: Path) -> list[dict]:
    write_trace(folder / "out.json", result)
    return json.loads((folder / "out.json").read_text(encoding="utf-8"))["traceEvents"]


def test_every_segment_is_a_slice(result: Result, tmp_path: Path) -> None:
    slices = [event for event in written(result, tmp_path) if event["ph"] == "X"]
    seen = sorted((e["args"]["job"] or "", e["args"]["device"], e["cat"], e["ts"], e["ts"] + e["dur"]) for e in slices)
    kept = sorted(
        (s.job_id, str(s.grant), s.phase, round(s.begin_s * 1e6), round(s.end_s * 1e6))
        for s in result.timeline.segments
    )
    assert seen == kept
    assert all(isinstance(event["ts"], int) and event["dur"] >= 0 for event in slices)


def test_one_thing_at_a_time_on_each_track(result: Result, tmp_path: Path) -> None:
    tracks: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for event in written(result, tmp_path):
        if event["ph"] == "X":
            tracks.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
    for stretches in tracks.values():
        assert all(before[1] <= after[0] for before, after in pairwise(sorted(stretches)))
    if result.policy == "mps-only:3":
        assert len(tracks) == 6


def test_processes_are_gpus_and_threads_are_devices_in_order_of_placement(result: Result, tmp_path: Path) -> None:
    events = written(result, tmp_path)
    names = {(e["name"], e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"].endswith("_name")}
    used = {(e["pid"], e["tid"]) for e in events if e["ph"] == "X"}
    assert all(("thread_name", pid, tid) in names for pid, tid in used)
    assert len({tid for _, tid in used}) == len(used)
    assert names["process_name", CLUSTER_PID, 0] == f"cluster under {result.policy}"
    assert names["process_name", CLUSTER_PID + 1, 0] == "GPU 0 (A100-40GB)"
    if result.policy == "static:3,2,2":
        order = [names["thread_name", pid, tid] for pid, tid in sorted(used) if pid == CLUSTER_PID + 1]
        assert order == ["cuts", "2g.10gb@0", "2g.10gb@2", "3g.20gb@4"]


def test_the_counters_follow_the_curves(result: Result, tmp_path: Path) -> None:
    counters: dict[str, list[float]] = {}
    for event in written(result, tmp_path):
        if event["ph"] == "C":
            counters.setdefault(event["name"], []).extend(event["args"].values())
    assert set(counters) == {"jobs waiting", "utilisation"}
    assert max(counters["utilisation"]) <= 100.001
    assert max(counters["jobs waiting"]) == pytest.approx(max(v for _, v in result.curves.points(0)), abs=1e-5)


def test_the_same_run_gives_the_same_bytes(result: Result, tmp_path: Path) -> None:
    write_trace(tmp_path / "one.json", result)
    write_trace(tmp_path / "two.json", run(result.policy))
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()


def test_a_run_without_a_timeline_is_refused(tmp_path: Path) -> None:
    jobs = read_trace(Path(), "synthetic", seed=5, jobs=2)
    with pytest.raises(ValueError, match="timeline"):
        write_trace(tmp_path / "out.json", simulate(Scenario(jobs, GPUS), "whole-fifo"))
