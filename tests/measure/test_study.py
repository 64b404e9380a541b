"""The shipped study, in one command on the stand-in, and what gpuloom concludes: what the study did."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.measure.lab import Lab, by_arrangement

ROOT = Path(__file__).parents[2]
PATIENCE_S = 180.0
"""About 25 s on two idle cores."""
SLICES = {"1g.5gb": 7, "2g.10gb": 3, "3g.20gb": 2, "4g.20gb": 1, "7g.40gb": 1}


@pytest.fixture
def study(lab: Lab) -> Lab:
    """Where the plan's commands find their script, and a Python that knows gpuloom."""
    (lab.folder / "examples").symlink_to(ROOT / "examples")
    lab.environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{lab.hardware.environment['PATH']}"
    return lab


def test_it_concludes_what_the_study_concluded(study: Lab) -> None:
    words = ("--pace", "20", "--steps", "20", "--repeat", "2", "--most", "2", "--seconds", "60s")
    answer = study.finish(study.start("examples/mig_study.yaml", *words), patience_s=PATIENCE_S)
    assert answer["stop"] == "all is known"
    check_rows(answer["rows"])
    page = study.folder / "study.html"
    done = study.hardware.gpuloom("recommend", str(study.state), "--report", str(page), "-o", "json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)["workloads"]
    assert {*told} == {"small", "medium", "large"}
    check_small(told["small"])
    check_that_it_fills_the_device(told["medium"], "2g.10gb", out_on="1g.5gb")
    check_that_it_fills_the_device(told["large"], "3g.20gb", out_on="1g.5gb, 2g.10gb")
    for name, count in (("small", 3), ("medium", 2), ("large", 1)):
        interference = verdicts(told[name], "interference")
        assert [one["holds"] for one in interference] == [False] * count
        assert all(": none: within 2 % of alone" in one["says"] for one in interference)
    text = page.read_text()
    assert text.count("Speed-up of parallel copies") >= 3
    assert "out of memory on 1g.5gb, 2g.10gb" in text
    study.check_left_as_found()


def check_rows(rows: list[dict[str, Any]]) -> None:
    """Every size on every place; out of memory is a row like any other, and everything else has run."""
    for size, fits in (("small", "12347"), ("medium", "2347"), ("large", "347")):
        found = by_arrangement([row for row in rows if row["workload"] == size])
        several = {f"{count} x {name}" for name, count in SLICES.items() if count > 1}
        assert {*found} == {"whole", *SLICES, *several}
        for name, own in found.items():
            outcomes = {row["outcome"] for row in own}
            if own[0]["profile"] is None or own[0]["profile"][0] in fits:
                assert outcomes == {"ok"}, name
            else:
                assert "out of memory" in outcomes, name
                assert outcomes <= {"out of memory", "too few steps"}, name


def check_small(told: dict[str, Any]) -> None:
    (scaling,) = verdicts(told, "scaling")
    assert scaling["holds"] is True
    assert scaling["says"].startswith("seven copies on 1g.5gb do 3.")
    assert 2.5 < scaling["ratio"]["low"] <= scaling["ratio"]["high"] < 3.5
    (saturation,) = verdicts(told, "saturation")
    assert saturation["holds"] is False
    (memory,) = verdicts(told, "memory")
    assert memory["holds"] is True
    assert chosen(told, "most work an hour") == "7 x 1g.5gb"
    assert chosen(told, "one copy") == "4g.20gb"
    (host,) = verdicts(told, "host")
    assert "a larger slice helps" in host["says"], "each copy by itself is slower on a small slice"


def check_that_it_fills_the_device(told: dict[str, Any], least: str, out_on: str) -> None:
    (scaling,) = verdicts(told, "scaling")
    assert scaling["ratio"]["high"] < 1.1, "gains are marginal"
    (saturation,) = verdicts(told, "saturation")
    assert saturation["holds"] is True
    assert saturation["says"].startswith("fills the device by itself")
    (memory,) = verdicts(told, "memory")
    assert memory["says"] == f"the smallest place on which it ran is {least}; out of memory on {out_on}"
    assert chosen(told, "most work an hour") == "2 x 3g.20gb"
    assert chosen(told, "one copy") in ("7g.40gb", "whole")


def verdicts(told: dict[str, Any], about: str) -> list[dict[str, Any]]:
    return [verdict for verdict in told["verdicts"] if verdict["about"] == about]


def chosen(told: dict[str, Any], goal: str) -> str:
    (answer,) = (answer for answer in told["answers"] if answer["goal"] == goal)
    return str(answer["choice"])
