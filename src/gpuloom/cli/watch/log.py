"""`gpuloom log`: questions about the log of a run. It computes nothing: `engine/audit.py` does."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuloom.cli.output import Output, emit, print_json
from gpuloom.cli.watch.explain import log_in, read_text

if TYPE_CHECKING:
    from gpuloom.engine.audit import Audit

SHOWN = 300
"""Characters of a decision that are shown: it may be about a thousand jobs."""

app = typer.Typer(help="Ask the log of a run whether it would be decided the same again.", no_args_is_help=True)


@app.callback()
def options() -> None:
    """Ask the log of a run whether it would be decided the same again."""


@app.command()
def audit(
    log: Annotated[
        Path, typer.Argument(metavar="LOG", help="A log that `simulate --log` wrote, or the --state folder of a `run`.")
    ],
    output: Annotated[Output, typer.Option("--output", "-o", help="How to print.")] = Output.table,
) -> None:
    """Ask the policy of a logged run again, turn by turn, and compare what it says with what it said then.

    \b
    gpuloom simulate --policy miso --log run.jsonl
    gpuloom log audit run.jsonl
    gpuloom log audit /var/tmp/loom --output json

    Exit code 0: every decision is the same, byte for byte. 1: one is not; the first is shown. 2: it is not such a log.
    A difference says that the policy has been changed since, or that it is not deterministic. A run that goes on after
    it was killed does not depend on this: it applies what was decided.
    """
    from gpuloom.engine import audit as auditing
    from gpuloom.sim.run import build_policy

    path = log_in(log)
    with read_text(path) as lines:
        found = auditing.audit(
            lines, str(path), lambda head, gpus: build_policy(head.policy, gpus, head.seed, head.every_s)
        )
    row = _row(found)
    if output is Output.json:
        print_json(row)
    elif output is Output.csv:
        emit([row], output)
    else:
        typer.echo(_sentence(found))
    if found.difference is not None:
        raise typer.Exit(1)


def _row(found: "Audit") -> dict[str, object]:
    differs = found.difference
    return {
        "agrees": differs is None,
        "turns": found.turns,
        "decisions": found.decisions,
        "turn": differs and differs.turn,
        "at_s": differs and differs.at_s,
        "what": differs and differs.what,
        "logged": differs and differs.logged,
        "now": differs and differs.now,
    }


def _sentence(found: "Audit") -> str:
    differs = found.difference
    if differs is None:
        return f"agrees: {found.turns:,} turns, {found.decisions:,} decisions, every one the same"
    logged, now = _from_where_they_differ(differs.logged, differs.now)
    where = f"differs in turn {differs.turn:,} at {differs.at_s:,.1f} s: {differs.what}"
    return f"{where}\n  logged: {logged}\n  now:    {now}"


def _from_where_they_differ(logged: str, now: str) -> tuple[str, str]:
    """Both, from a little before the first character that is not the same."""
    pairs = enumerate(zip(logged, now, strict=False))
    first = next((at for at, (old, new) in pairs if old != new), min(len(logged), len(now)))
    begin = max(first - SHOWN // 3, 0)
    return _part(logged, begin), _part(now, begin)


def _part(text: str, begin: int) -> str:
    end = begin + SHOWN
    return f"{'…' * (begin > 0)}{text[begin:end]}{'…' * (len(text) > end)}"
