"""What somebody sees while a campaign runs: on a terminal a bar or, plainly, a line a run; in a pipe nothing."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.progress import Progress

    from gpuloom.measure.campaign.order import Ahead, Next, Run


class Show(Protocol):
    def begins(self, chosen: "Next", ahead: "Ahead") -> None: ...
    def ended(self, run: "Run", ahead: "Ahead") -> None: ...
    def say(self, text: str) -> None: ...


@contextmanager
def shown(plain: bool) -> Iterator[Show]:
    if not sys.stderr.isatty():
        yield Silent()
    elif plain:
        yield Lines()
    else:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        columns = (BarColumn(bar_width=20), MofNCompleteColumn(), TextColumn("{task.description}", markup=False))
        with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
            yield Bar(progress)


class Silent:
    """In a pipe only what needs attention is said."""

    def begins(self, chosen: "Next", ahead: "Ahead") -> None: ...
    def ended(self, run: "Run", ahead: "Ahead") -> None: ...

    def say(self, text: str) -> None:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


class Lines(Silent):
    def begins(self, chosen: "Next", ahead: "Ahead") -> None:
        self.say(f"run {chosen.number}: {name_of(chosen)}{because(chosen)}; {left(ahead)}")

    def ended(self, run: "Run", ahead: "Ahead") -> None:  # noqa: ARG002
        self.say(f"run {run.number}: {came_out(run)}")


class Bar:
    def __init__(self, progress: "Progress") -> None:
        self._progress = progress
        self._task = progress.add_task("", total=None)

    def begins(self, chosen: "Next", ahead: "Ahead") -> None:
        if chosen.why:  # above the bar, which has no room for it
            self.say(f"run {chosen.number}: {name_of(chosen)}{because(chosen)}")
        description = f"{name_of(chosen)}; {left(ahead)}"
        total = chosen.number + ahead.runs
        self._progress.update(self._task, description=description, completed=chosen.number, total=total)

    def ended(self, run: "Run", ahead: "Ahead") -> None:
        if not run.fine:
            self.say(f"run {run.number}: {came_out(run)}")
        self._progress.update(self._task, completed=run.number + 1, total=run.number + 1 + ahead.runs)

    def say(self, text: str) -> None:
        self._progress.console.print(text, markup=False, highlight=False)


def name_of(chosen: "Next") -> str:
    """What runs: `train on 3g.20gb`; of several workloads the arrangement says whose each is."""
    names = {seat.workload for seat in chosen.arrangement.seats}
    whose = f"{next(iter(names))} on " if len(names) == 1 else ""
    return f"{whose}{chosen.arrangement.name}"


def because(chosen: "Next") -> str:
    return f" ({chosen.why})" if chosen.why else ""


def left(ahead: "Ahead") -> str:
    runs = f"at most {ahead.runs} runs to go" if ahead.at_most else f"{ahead.runs} runs or more to go"
    return runs if ahead.seconds is None else f"{runs}, about {duration(ahead.seconds)}"


def duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


def came_out(run: "Run") -> str:
    """Throughput, or the first failure."""
    failed = next((copy for copy in run.copies if copy.step_ms is None), None)
    if failed is not None:
        return f"copy {failed.copy}: {failed.outcome}: {failed.said}"
    total = sum(copy.steps_per_s or 0.0 for copy in run.copies)
    return f"{total:.4g} steps/s"
