"""`gpuloom log audit`: it agrees with what was just written, and shows where a log and a policy part."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gpuloom.cli.main import main
from gpuloom.engine.log import Scribe, header_line, read_turns

GOLDEN = Path(__file__).parents[2] / "golden"


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stop:
        main(["log", "audit", *arguments])
    code = stop.value.code
    return code if isinstance(code, int) else 0


@pytest.mark.parametrize("name", ["log_version_1", "log_version_1_rounds", "log_version_2", "log_version_2_rounds"])
def test_it_agrees_with_logs_of_every_version(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(str(GOLDEN / f"{name}.jsonl")) == 0
    assert capsys.readouterr().out.startswith("agrees: ")


def test_it_takes_the_folder_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "log.jsonl").write_bytes((GOLDEN / "log_version_2.jsonl").read_bytes())
    assert run(str(tmp_path), "--output", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["agrees"], found["turns"], found["decisions"]) == (True, 84, 12)


def test_a_difference_is_shown_with_its_turn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As if the policy had given another reason then."""
    lines = (GOLDEN / "log_version_2.jsonl").read_text().splitlines(keepends=True)
    header, (first, *_) = read_turns(lines, "log")
    assert first.decision is not None
    plan = first.decision.plan
    reasons = (replace(plan.reasons[0], why="it was cheaper then"), *plan.reasons[1:])
    decision = replace(first.decision, plan=replace(plan, reasons=reasons))
    path = tmp_path / "changed.jsonl"
    path.write_text(header_line(header) + Scribe().line(first.events, decision))
    assert run(str(path)) == 1
    printed = capsys.readouterr().out
    assert printed.startswith("differs in turn 1 at 0.0 s: decision\n  logged: ")
    assert "it was cheaper then" in printed


@pytest.mark.parametrize("content", ["", "nothing\n", '{"Header":{"version":7}}\n'])
def test_what_is_not_a_log_is_refused_in_one_sentence(
    tmp_path: Path, content: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(content)
    assert run(str(path)) == 2
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    assert "bad.jsonl" in printed
    assert run(str(tmp_path / "absent")) == 2
