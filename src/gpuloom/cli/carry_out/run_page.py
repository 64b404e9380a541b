"""`gpuloom run --report`: the page of a run from what its state folder holds. Computes nothing."""

from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from gpuloom.errors import InputError

if TYPE_CHECKING:
    from gpuloom.gpus.host.noise import Noise
    from gpuloom.live.store import Run, Store


def write_page(path: Path, store: "Store", noise: "Noise | None") -> None:
    """Also of a run that was interrupted, or that had ended before."""
    from gpuloom.live.report.page import run_page
    from gpuloom.live.report.story import run_story

    run = store.run()
    if run is None:
        raise InputError(f"{store.folder}: was removed before its page could be written")
    story = run_story(store.lines(), str(store.log_path), run.jobs, run.pace)
    text = run_page(story, facts_of(run, story.gpus), noise)
    try:
        path.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}; --resume --report makes the page") from None
    with suppress(OSError):  # whoever listened may have gone
        typer.echo(f"report: {path}", err=True)


def facts_of(run: "Run", gpus: str) -> list[str]:
    """What was run, when and how fast."""
    began = datetime.fromtimestamp(run.origin_unix_s, UTC).strftime("%Y-%m-%d %H:%M UTC")
    paced = [f"pace {run.pace:g}"] if run.pace != 1 else []
    return [gpus, f"seed {run.seed}", *paced, f"began {began}"]
