"""The Perfetto trace: valid, complete, one thing at a time on each track."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from gpuloom.gpus.cluster import parse_cluster
from gpuloom.sim.perfetto import CLUSTER_PID, events, write_trace
from gpuloom.sim.run import Result, simulate
from gpuloom.sim.scenario import Scenario
from gpuloom.work.traces import read_trace

GPUS = "2xA100-40GB"


def run(policy: str) -> Result:
    jobs = read_trace(Path(), "synthetic", seed=5, jobs=30, gap_s=20.0)
    return simulate(Scenario(jobs, GPUS), policy, 5, timeline=True)


@pytest.fixture(scope="module", params=["whole-fifo", "static:3,2,2", "oracle", "mps-only:3"])
def result(request: pytest.FixtureRequest) -> Result:
    return run(request.param)


def written(result: Result, folder: Path) -> list[dict[str, Any]]:
    write_trace(folder / "out.json", result)
    trace: list[dict[str, Any]] = json.loads((folder / "out.json").read_text(encoding="utf-8"))["traceEvents"]
    return trace


def test_every_segment_is_a_slice(result: Result, tmp_path: Path) -> None:
    assert result.timeline is not None
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
    assert result.curves is not None
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


def test_slices_and_counters_come_in_order_of_time(result: Result, tmp_path: Path) -> None:
    events = written(result, tmp_path)
    for kind, name in (("X", None), ("C", "jobs waiting"), ("C", "utilisation")):
        times = [event["ts"] for event in events if event["ph"] == kind and name in (None, event["name"])]
        assert times == sorted(times)
        assert times
    names = [event["name"] for event in events if event["ph"] == "M"]
    assert len(names) == len([event for event in events[: len(names)] if event["ph"] == "M"]), "names come first"


def test_a_counter_is_written_when_it_changes(result: Result, tmp_path: Path) -> None:
    values: dict[str, list[float]] = {}
    for event in written(result, tmp_path):
        if event["ph"] == "C":
            values.setdefault(event["name"], []).extend(event["args"].values())
    for series in values.values():
        assert all(before != after for before, after in pairwise(series))


def test_a_line_for_each_event_and_plain_numbers_only(result: Result, tmp_path: Path) -> None:
    write_trace(tmp_path / "out.json", result)
    head, *lines, tail = (tmp_path / "out.json").read_text(encoding="utf-8").splitlines()
    assert head.endswith('"traceEvents":[')
    assert json.loads(head + "]}")["otherData"] == {"generator": "gpuloom", "policy": result.policy, "seed": 5}
    assert tail == "]}"
    assert all(isinstance(json.loads(line.rstrip(",")), dict) for line in lines)
    assert "NaN" not in head + "".join(lines)


def test_an_empty_timeline_is_a_trace_of_names() -> None:
    names = list(events([], parse_cluster(GPUS), [], [], "whole-fifo"))
    assert [(event["ph"], event["pid"]) for event in names] == [("M", CLUSTER_PID)] * 2
    counted = list(events([], parse_cluster(GPUS), [(0.0, 1.0), (1.0, 1.0), (2.0, 0.5)], [(0.5, 0.25)], "x"))[2:]
    assert [(event["name"], event["ts"], event["args"]) for event in counted] == [
        ("jobs waiting", 0, {"jobs": 1.0}),
        ("jobs waiting", 2_000_000, {"jobs": 0.5}),
        ("utilisation", 500_000, {"percent": 25.0}),
    ]
