"""`gpuloom explain`: for one job of a logged run, what was decided about it, why, and what came of it."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from gpuloom.cli.output import Output, emit, print_json
from gpuloom.errors import InputError

if TYPE_CHECKING:
    from gpuloom.engine.log import Header, Line
    from gpuloom.engine.story import Line as StoryLine

MOST_HINTS = 5


def explain(
    log: Annotated[
        Path, typer.Argument(metavar="LOG", help="A log that `simulate --log` wrote, or the --state folder of a `run`.")
    ],
    job: Annotated[str, typer.Argument(metavar="JOB", help="The job's name.")],
    output: Annotated[Output, typer.Option("--output", "-o", help="How to print.")] = Output.table,
) -> None:
    """Show one job's way through a run: each decision about it with its alternatives, and what came of it.

    \b
    gpuloom simulate --policy oracle --log run.jsonl
    gpuloom explain run.jsonl job-17
    gpuloom explain run.jsonl job-17 --output json

    A decision says what was chosen and why, in brackets its score if it has one, then the other options with theirs.

    JSON is a list of objects, one for each thing that happened to the job; CSV has a line for each reason.
    """
    from gpuloom.engine.history import follow
    from gpuloom.engine.story import rows, story

    with opened_log(log) as (header, lines):
        entries = list(follow(lines, job))
    if not entries:
        raise InputError(_unknown(log, job))
    if output is Output.json:
        print_json(rows(entries))
    elif output is Output.csv:
        emit(rows(entries, flat=True), output)
    else:
        _tell(list(story(job, header, entries)))


def _tell(lines: "Sequence[StoryLine]") -> None:
    """With colours on a terminal, as plain lines in a pipe."""
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.text import Text

        console = Console(no_color=bool(os.environ.get("NO_COLOR")), highlight=False)
        for style, line in lines:
            console.print(Text(line, style))
        return
    encoding = sys.stdout.encoding or "utf-8"
    text = "".join(f"{line}\n" for _, line in lines)
    sys.stdout.write(text.encode(encoding, "replace").decode(encoding))


@contextmanager
def opened_log(path: Path) -> "Iterator[tuple[Header, Iterator[Line]]]":
    """The header of a log and its other lines; whatever is wrong with the file is one sentence."""
    from gpuloom.engine.log import opened

    path = log_in(path)
    with read_text(path) as lines:
        yield opened(lines, str(path))


def log_in(path: Path) -> Path:
    """The log itself, of the state folder of a run too."""
    return path / "log.jsonl" if (path / "log.jsonl").is_file() else path


@contextmanager
def read_text(path: Path) -> "Iterator[TextIO]":
    try:
        with path.open(encoding="utf-8", newline="\n") as lines:
            yield lines
    except OSError as error:
        wanted = "expected a log that `gpuloom simulate --log` wrote, or the --state folder of a `gpuloom run`"
        raise InputError(f"{path}: cannot be read ({error.strerror}); {wanted}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: not a gpuloom log: it is not UTF-8 text") from None


def _unknown(path: Path, job: str) -> str:
    """Names like the one that was asked for: those that contain it, else those that are spelt alike."""
    from difflib import get_close_matches

    from gpuloom.engine.history import job_ids

    with opened_log(path) as (_, lines):
        ids = list(dict.fromkeys(job_ids(lines)))
    close = [name for name in ids if job.lower() in name.lower()] if job else []
    close = (close or get_close_matches(job, ids, MOST_HINTS))[:MOST_HINTS]
    hint = f"did you mean {', '.join(close)}?" if close else f"it has {len(ids):,} jobs"
    if not close and ids:
        hint += f", such as {', '.join(ids[:3])}"
    return f"{path}: no job {job!r} in this log; {hint}"
