"""Kill -9 at odd moments: the table is that of a campaign that nobody disturbed, row by row and in the same order.

The program tells each step with the time at which it was due, so that even step times are the same.
"""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.live.shop import until
from tests.measure.lab import Lab, program

WORDS = ("--ways", "alone,parallel", "--profiles", "2g.10gb,3g.20gb", "--seed", "3", "--repeat", "2", "--most", "2")
RUNS, KILLS = 10, 4
WHO_AND_WHERE = (
    "run",
    "arrangement",
    "way",
    "copies",
    "copy",
    "repetition",
    "workload",
    "profile",
    "share_pct",
    "outcome",
)


@pytest.mark.parametrize("seed", [1, 2])
def test_killed_at_odd_moments_the_table_is_the_same(lab: Lab, seed: int) -> None:
    words = (*WORDS, "--", *program("clocked"))
    undisturbed = lab.measure(*words)["rows"]
    assert len({row["run"] for row in undisturbed}) == RUNS
    lab.state.rename(lab.folder / "undisturbed")
    dice = Random(seed)
    for at in sorted(dice.sample(range(RUNS), KILLS)):
        runner = lab.start(*words)
        moment, reached = an_odd_moment(lab, at, dice)
        until(lambda runner=runner, reached=reached: reached() or runner.poll() is not None, moment)  # type: ignore[misc]
        lab.kill(runner)
        tear(lab.state / "journal.jsonl", dice)
    answer = lab.measure(*words)
    assert answer["stop"] == "all is known"
    assert [who_and_where(row) for row in answer["rows"]] == [who_and_where(row) for row in undisturbed]
    assert [row["step_ms"] for row in answer["rows"]] == pytest.approx([row["step_ms"] for row in undisturbed])
    lab.check_left_as_found()


def an_odd_moment(lab: Lab, at: int, dice: Random) -> tuple[str, Callable[[], bool]]:
    """Of a campaign's way through its run number `at`, or just before or after it."""
    journal, job = lab.state / "journal.jsonl", f"r{at:05}-0"
    steps = dice.randrange(1, 12)
    return dice.choice(
        [
            (f"run {at} is over", lambda: len(journal.read_text().split("\n")) > at + 1 if journal.exists() else False),
            (f"run {at} has its folder", lambda: (lab.store.jobs_dir / job).exists()),
            (f"run {at} has done {steps} steps", lambda: lab.reported(job) >= steps),
        ]
    )


def tear(journal: Path, dice: Random) -> None:
    """It may have been killed while it wrote a line."""
    if journal.exists() and dice.random() < 0.5:
        with journal.open("a") as file:
            file.write('{"number": 7, "arrange')


def who_and_where(row: dict[str, Any]) -> list[object]:
    return [row[name] for name in WHO_AND_WHERE]
