"""Campaigns beside a host engine, on the stand-in's A100: its figures are in the table, and it is in nobody's way."""

from collections.abc import Callable, Iterator

import pytest

from tests.live.shop import interrupt, until
from tests.measure.lab import Lab, by_arrangement, program
from tests.standin.dcgm import VALUES, HostEngine, host_engine

COUNTERS = ("gract", "smact", "smocc", "drama")
LONG = ("--seconds", "8s", "--steps", "1000000")
"""Long enough for an engine, which is asked only seconds after a cut."""


@pytest.fixture
def engine(lab: Lab) -> Iterator[HostEngine]:
    with host_engine(lab.hardware) as engine:
        yield engine


def layouts(lab: Lab, *names: str) -> tuple[str, ...]:
    workloads = [{"name": "program", "command": program()}]
    return (lab.plan(workloads=workloads, ways=[], layouts=names), *LONG)


def counted(row: dict[str, object]) -> list[object]:
    return [row[name] for name in COUNTERS]


def all_is_let_go(engine: HostEngine) -> bool:
    lines = engine.watched()
    return len(lines) > 0 and 2 * sum(line.startswith("let go") for line in lines) == len(lines)


def test_its_figures_are_in_the_table_and_cuts_find_nobody_watching(lab: Lab, engine: HostEngine) -> None:
    """What is watched is in use on this stand-in, so that a cut under a watch would be refused."""
    engine.behave(holds=True)
    answer = lab.measure(*layouts(lab, "2 x 3g.20gb", "whole"))
    assert {row["outcome"] for row in answer["rows"]} == {"ok"}
    assert answer["counters"] == f"DCGM's host engine at {engine.address}"
    found = by_arrangement(answer["rows"])
    assert counted(found["whole"][0]) == pytest.approx(VALUES)
    instances = {int(line.split("-")[-1][:8], 16) for line in engine.watched() if "MIG-" in line}
    both = found["2 x 3g.20gb"]
    assert len(instances) == 2
    assert {round(row["gract"], 2) for row in both} == {0.5 + number / 100 for number in instances}
    assert counted(both[0])[1:] == pytest.approx(VALUES[1:])
    assert len(engine.watched()) == 2 * 3
    assert all_is_let_go(engine)
    lab.check_left_as_found()


@pytest.mark.parametrize("fault", [HostEngine.kill, HostEngine.hang])
def test_one_that_fails_half_way_costs_no_run(
    lab: Lab, engine: HostEngine, fault: Callable[[HostEngine], None]
) -> None:
    runner = lab.start(*layouts(lab, "whole"))
    until(lambda: engine.answers() > 3 or runner.poll() is not None, "it is asked")
    fault(engine)
    answer = lab.finish(runner, 0)
    assert [row["outcome"] for row in answer["rows"]] == ["ok"]
    assert answer["rows"][0]["smact"] in (None, VALUES[1])
    lab.check_left_as_found()


def test_one_that_hangs_from_the_beginning_is_left_alone(lab: Lab, engine: HostEngine) -> None:
    engine.hang()
    answer = lab.measure("--ways", "alone", "--profiles", "3g.20gb", "--", *program())
    assert {row["outcome"] for row in answer["rows"]} == {"ok"}
    assert [counted(row) for row in answer["rows"]] == [[None] * 4] * 2
    assert answer["counters"].endswith(f"the host engine at {engine.address} does not answer within 5 s")
    lab.check_left_as_found()


def test_whoever_stops_lets_go(lab: Lab, engine: HostEngine) -> None:
    runner = lab.start(*layouts(lab, "whole"))
    until(lambda: engine.answers() > 0 or runner.poll() is not None, "it is watched")
    interrupt(runner)
    lab.finish(runner, 130)
    until(lambda: all_is_let_go(engine), "it is let go")
    lab.check_left_as_found()


def test_whoever_is_killed_lets_go_too(lab: Lab, engine: HostEngine) -> None:
    runner = lab.start(*layouts(lab, "whole"))
    until(lambda: engine.answers() > 0 or runner.poll() is not None, "it is watched")
    lab.kill(runner)
    until(lambda: all_is_let_go(engine), "it is let go")
