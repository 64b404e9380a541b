"""Progress bars: on a terminal only, on standard error, so that pipes stay clean."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Gives a function that sets how much is done."""
    if not sys.stderr.isatty():
        yield lambda done: None  # noqa: ARG005
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=total)
        yield lambda done: progress.update(task, completed=done)


@contextmanager
def job_bar(policy: str, jobs: int) -> Iterator[Callable[[float, int], None] | None]:
    """A bar of completed jobs, told at every event and redrawn only when the count moves on."""
    if not sys.stderr.isatty():
        yield None
        return
    with bar(policy, jobs) as update:
        shown = -1

        def on_progress(now_s: float, done: int) -> None:  # noqa: ARG001
            nonlocal shown
            if done != shown:
                shown = done
                update(done)

        yield on_progress
