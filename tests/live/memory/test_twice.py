"""Runs one after the other on the stand-in: a later one knows what an earlier one saw, and its log needs no file."""

import json
import subprocess
from pathlib import Path
from typing import Any

from gpuloom.live.store import Store
from tests.live.shop import PATIENCE_S, Shop, interrupt, until
from tests.standin.hardware import GPULOOM

KIND = "resnet 128"


def memory_of(shop: Shop) -> Path:
    return shop.hardware.folder / "state" / "memory" / "memory.json"


def rows(shop: Shop) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(memory_of(shop).read_text())["seen"]
    return found


def new_run(shop: Shop, name: str, steps: int = 200, **more: Any) -> None:
    """From now on in a state folder of its own, with three jobs of one workload."""
    shop.state = shop.folder / name
    shop.store = Store(shop.state)
    shop.jobs, shop._entries = {}, []
    for number in range(3):
        shop.job(f"j{number}", KIND, steps, **more)


def said(shop: Shop, *words: str) -> str:
    command = [str(GPULOOM), *words]
    done = subprocess.run(command, env=shop.hardware.environment, capture_output=True, text=True, check=True)
    return done.stdout


def test_the_second_run_need_not_probe_and_says_why(shop: Shop) -> None:
    """The first is not even of the same policy: what counts is what its jobs report."""
    shop.hardware.install("A100-40GB+resets")
    new_run(shop, "first")
    shop.run("static:3,2,2")
    (row,) = rows(shop)
    assert (row["workload"], row["model"]) == (KIND, "A100-40GB")
    assert {*row["rates"]} == {"3g.20gb", "2g.10gb"}
    assert all(rate > 0 and number >= 1 for rate, number in row["rates"].values())
    new_run(shop, "without")
    shop.options = ["--memory", "none"]
    shop.run("miso")
    assert len(rows(shop)) == 1, "nor is it written"
    assert shop.events("GpuProbed")
    assert not shop.events("SeenEarlier")
    new_run(shop, "with")
    shop.options = []
    shop.run("miso")
    assert shop.events("GpuProbed") == []
    (told,) = shop.events("SeenEarlier")
    assert told["cause"] == f"1 workload, kept in {memory_of(shop)}"
    assert [(one["workload"], {*one["rates"]}) for one in told["seen"]] == [(KIND, {"3g.20gb", "2g.10gb"})]
    assert len(rows(shop)) == 2
    told_of = said(shop, "explain", str(shop.state), "j0")
    assert "seen earlier by an earlier run, " in told_of
    assert "its speed there as an earlier run saw it" in told_of
    memory_of(shop).write_text("something else by now")
    assert said(shop, "log", "audit", str(shop.state)).startswith("agrees: ")
    memory_of(shop).unlink()
    assert said(shop, "log", "audit", str(shop.state)).startswith("agrees: ")
    shop.check_left_as_found()


def test_a_run_that_was_killed_and_one_that_was_stopped_go_on_with_what_they_were_handed(shop: Shop) -> None:
    shop.hardware.install("A100-40GB+resets")
    new_run(shop, "first")
    shop.run("static:3,2,2")
    new_run(shop, "second", 2000)
    before = memory_of(shop).read_bytes()
    runner = shop.begin("miso")
    until(lambda: bool(shop.events("JobReported")) or runner.poll() is not None, "a job has reported")
    shop.kill(runner)
    assert memory_of(shop).read_bytes() == before
    reported = len(shop.events("JobReported"))
    memory_of(shop).write_text("{")
    runner = shop.begin("miso")
    until(lambda: len(shop.events("JobReported")) > reported or runner.poll() is not None, "jobs report again")
    memory_of(shop).write_bytes(before)
    interrupt(runner)
    shop.finish(runner, 130)
    stopped = {row["source"]: row for row in rows(shop)}
    shop.run("miso")
    ended = {row["source"]: row for row in rows(shop)}
    assert len(ended) == len(stopped) == 2
    (source,) = ended.keys() - {json.loads(before)["seen"][0]["source"]}
    reported = len(shop.events("JobReported"))
    assert observations(stopped[source]) < observations(ended[source]) <= reported, "none was counted twice"
    assert len(shop.events("SeenEarlier")) == 1
    assert not shop.events("PolicyReset")
    shop.check_jobs()
    shop.check_left_as_found()


def observations(row: dict[str, Any]) -> int:
    return sum(number for _, number in row["rates"].values())


def test_a_memory_that_cannot_be_used_stops_nobody_and_is_left_alone(shop: Shop) -> None:
    shop.hardware.install("A100-40GB+resets")
    theirs = shop.folder / "theirs.json"
    theirs.write_text('{"format": "gpuloom memory", "version": 1, "seen": [')
    new_run(shop, "run", 60)
    shop.options = ["--memory", str(theirs)]
    runner = shop.begin("static:3,2,2", report_s=1.0)
    _, err = runner.communicate(timeout=PATIENCE_S)
    assert runner.returncode == 0, err
    assert err.count(f"{theirs}: is damaged, or no JSON: expected a memory that gpuloom wrote (JSON)\n") == 2, err
    assert "what earlier runs saw is not used: " in err
    assert "what this run sees is not kept for later ones: " in err
    assert theirs.read_text() == '{"format": "gpuloom memory", "version": 1, "seen": ['
    assert not memory_of(shop).exists()
    shop.check_left_as_found()
