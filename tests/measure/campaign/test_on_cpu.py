"""Campaigns on a CPU device: real quotas, real memory limits, what the kernel counts. Skips without control groups."""

import json
from typing import Any

from tests.live.shop import until
from tests.measure.lab import Lab, by_arrangement, program

PATIENCE_S = 300.0
REPETITIONS = (2, 4, 8, 16)
"""The first take about 25 s."""


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


def test_who_waits_gains_from_parallel_copies_and_who_computes_does_not(cpu_lab: Lab) -> None:
    """Nothing is timed here: what a busy machine leaves in doubt is repeated more often, as the verdicts advise."""
    cpu_lab.device = "cpu=6%"  # little enough to be had beside whatever else runs here
    plan = cpu_lab.plan(
        workloads=[{"name": name, "command": program(name)} for name in ("sleepy", "saturating")],
        ways=["alone", "parallel"],
        profiles=["3c"],
    )
    for repetitions in REPETITIONS:
        told = measured_and_judged(cpu_lab, plan, repetitions)
        sleepy, saturating = verdicts(told["sleepy"]), verdicts(told["saturating"])
        if None not in (sleepy["saturation"]["holds"], saturating["saturation"]["holds"]):
            break
    assert sleepy["scaling"]["holds"] is True, sleepy["scaling"]["says"]
    assert 1.5 < sleepy["scaling"]["ratio"]["value"] < 2.5, "two copies, and each as fast as alone"
    assert sleepy["saturation"]["holds"] is False, sleepy["saturation"]["says"]
    assert not sleepy["host"]["says"].startswith("the CPU is the limit")
    assert chosen(told["sleepy"], "most work an hour") == "2 x 3c"
    assert saturating["scaling"]["holds"] is not True, saturating["scaling"]["says"]
    assert 0.6 < saturating["scaling"]["ratio"]["value"] < 1.1, "six sevenths"
    assert saturating["saturation"]["holds"] is True, saturating["saturation"]["says"]
    assert saturating["host"]["says"].startswith("a larger slice helps")
    assert chosen(told["saturating"], "one copy") == "whole"
    cpu_lab.check_left_as_found()


def measured_and_judged(lab: Lab, plan: str, repetitions: int) -> dict[str, Any]:
    """Goes on where it was: what was run is not run again."""
    words = ("--steps", "12", "--seconds", "20s", "--repeat", str(repetitions), "--most", str(repetitions))
    answer = lab.finish(lab.start(plan, *words), patience_s=PATIENCE_S)
    assert {row["outcome"] for row in answer["rows"]} == {"ok"}
    assert len({row["run"] for row in answer["rows"]}) == 6 * repetitions
    done = lab.hardware.gpuloom("recommend", str(lab.state), "-o", "json")
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)["workloads"]
    return told


def verdicts(told: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {verdict["about"]: verdict for verdict in told["verdicts"]}


def chosen(told: dict[str, Any], goal: str) -> str:
    (answer,) = (answer for answer in told["answers"] if answer["goal"] == goal)
    return str(answer["choice"])


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
