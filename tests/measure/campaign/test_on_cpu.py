"""Campaigns on a CPU device: real quotas, real memory limits, what the kernel counts. Skips without control groups."""

from tests.live.shop import until
from tests.measure.lab import Lab, by_arrangement, program


def test_every_way_and_what_the_kernel_counts(cpu_lab: Lab) -> None:
    plan = cpu_lab.plan(
        workloads=[{"name": "a", "command": program()}, {"name": "hog", "command": program("eats memory")}],
        ways=[],
        layouts=["whole (a)", "2 x whole (a)", "2 x whole 40% (a)", "3c (a) + 2c (a)", "1c (hog) + 1c (a)"],
    )
    answer = cpu_lab.measure(plan, "--seconds", "1s")
    found = by_arrangement(answer["rows"])
    eater, beside = found.pop("1c (hog) + 1c (a)")
    assert eater["outcome"] == "out of memory"
    assert eater["said"].startswith("the kernel killed it")
    assert eater["mem_peak_mib"] > 0
    assert beside["outcome"] in ("too few steps", "ok")
    assert {name: len(rows) for name, rows in found.items()} == {
        "whole": 1, "2 x whole together": 2, "2 x whole 40%": 2, "3c + 2c": 2,
    }  # fmt: skip
    for row in (row for rows in found.values() for row in rows):
        assert row["outcome"] == "ok"
        assert row["host_cpus"] is None or 0 <= row["host_cpus"] < 1
        assert row["mem_peak_mib"] == row["host_mem_peak_mib"]
    assert answer["noise"]["pieces"] > 0
    assert answer["device"]["uuid"].startswith("CPU-")
    cpu_lab.check_left_as_found()


def test_killed_and_resumed(cpu_lab: Lab) -> None:
    words = ("--ways", "alone,parallel", "--profiles", "3c", "--", *program())
    runner = cpu_lab.start(*words)
    cpu_lab.wait_for_runs(runner, 1)
    until(lambda: cpu_lab.reported("r00001-0") > 2, "the second has begun")
    cpu_lab.kill(runner)
    answer = cpu_lab.measure(*words)
    assert [run["number"] for run in cpu_lab.journal()] == [0, 1, 2]
    assert {*by_arrangement(answer["rows"])} == {"whole", "3c", "2 x 3c"}
    cpu_lab.check_left_as_found()


def test_two_runs_that_a_deadline_needs_most(cpu_lab: Lab) -> None:
    answer = cpu_lab.measure("--for", "deadline 100 in 1s", "--runs", "2", "--", *program())
    places = {row["arrangement"] for row in answer["rows"]}
    assert len(places) == 2
    assert len(answer["explored"]["not_run"]) == len(answer["explored"]["places"]) - 2
    assert places <= {seat["profile"] for seat in answer["explored"]["places"]}
    cpu_lab.check_left_as_found()


def test_two_devices_are_refused(cpu_lab: Lab) -> None:
    cpu_lab.device = "2xcpu=40%"
    assert "is 2 devices; a campaign measures one" in cpu_lab.refused("--", *program())
    cpu_lab.device = "cpu=40%"
    cpu_lab.check_left_as_found()
