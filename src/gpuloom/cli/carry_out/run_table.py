"""A run while it goes on: on a terminal a table that is drawn again and again, else lines as things happen.

Only looks at the body, a few times a second of the real clock. Whoever listened may have gone: nothing that happens to
the terminal ends a runner half-way.
"""

import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from gpuloom.cli.carry_out.run_lines import Words, is_alarming, say

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from gpuloom.contract.view import GpuView, JobView
    from gpuloom.engine.events import Event
    from gpuloom.engine.machine import Decision
    from gpuloom.gpus.grant import Grant
    from gpuloom.gpus.model import GpuModel
    from gpuloom.live.body import LocalBody
    from gpuloom.live.jobs import LiveJob

EVERY_REAL_S = 0.25
LAST_EVENTS = 5
SPEED_REAL_S = 5.0
"""So far back a job's speed now is measured."""
COLUMNS = ("job", "state", "where", "steps", "steps/s", "ran s", "waited s")
LEFT = 3
"""So many of the columns are words, and begin at the left."""
ENDED = ("given up", "completed")
BETWEEN = 3
"""Blanks that each column has around it, at most."""
COLOURS = {
    "running": "green",
    "resizing": "green",
    "starting": "yellow",
    "stopping": "yellow",
    "given up": "red",
    "completed": "cyan",
}
ORDER = ("running", "resizing", "stopping", "starting", "waiting", *ENDED)


class Shown(Protocol):
    """Who shows a run."""

    def event(self, entry: "Event | Decision") -> None: ...
    def notice(self, text: str) -> None: ...
    def later(self, text: str) -> None:
        """A notice from a signal handler, which may have come in the middle of anything."""

    @property
    def look(self) -> "Callable[[LocalBody], None] | None": ...


@contextmanager
def shown(plain: bool, words: Words) -> Iterator[Shown]:
    """A table on a terminal that can move its cursor, unless plain lines are wanted."""
    on_terminal = sys.stderr.isatty()
    if plain or not on_terminal or os.environ.get("TERM", "dumb") in ("dumb", "unknown"):
        yield Lines(words, everything=on_terminal)
        return
    table = LiveTable(words)
    try:
        yield table
    finally:
        table.close()


class Lines:
    look: None = None

    def __init__(self, words: Words, everything: bool) -> None:
        self._words, self.everything = words, everything

    def event(self, entry: "Event | Decision") -> None:
        line = self._words.line_of(entry)
        if line is not None and (self.everything or is_alarming(entry)):
            say(line)

    def notice(self, text: str) -> None:
        say(text)

    later = notice


@dataclass(frozen=True, slots=True)
class JobRow:
    """What the table says of a job."""

    job_id: str
    state: str
    where: str = ""
    steps: int | None = None
    steps_per_s: float | None = None
    """In real seconds, as are the next two."""
    ran_s: float = 0.0
    waited_s: float = 0.0

    def cells(self) -> tuple[str, ...]:
        steps = "–" if self.steps is None else f"{self.steps:,}"
        speed = "–" if self.steps_per_s is None else f"{self.steps_per_s:.3g}"
        return (
            self.job_id, self.state, self.where or "–", steps, speed, f"{self.ran_s:,.1f}", f"{self.waited_s:,.1f}",
        )  # fmt: skip


class Speed:
    """How fast a job has been in the last seconds."""

    def __init__(self) -> None:
        self._seen: deque[tuple[int, float]] = deque()

    def hear(self, step: int, at_real_s: float) -> None:
        if self._seen and step < self._seen[-1][0]:
            self._seen.clear()  # it has gone back to its checkpoint
        if not self._seen or step > self._seen[-1][0]:
            self._seen.append((step, at_real_s))

    def now(self, now_real_s: float) -> float | None:
        while len(self._seen) > 2 and self._seen[1][1] < now_real_s - SPEED_REAL_S:
            self._seen.popleft()
        if len(self._seen) < 2:
            return None
        (first, began_s), (last, ended_s) = self._seen[0], self._seen[-1]
        return (last - first) / (ended_s - began_s) if ended_s > began_s else None


class LiveTable:
    def __init__(self, words: Words) -> None:
        from rich.console import Console
        from rich.live import Live

        # rich takes any NO_COLOR as set; the convention is: set and not empty.
        self._console = Console(stderr=True, no_color=bool(os.environ.get("NO_COLOR")), highlight=False)
        # No thread of its own: signals and launches do not go well with those.
        self._live = Live(console=self._console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
        self._words = words
        self._last: deque[str] = deque(maxlen=LAST_EVENTS)
        self._rows: dict[str, JobRow] = {}
        self._speeds: dict[str, Speed] = {}
        self._here: dict[str, LiveJob] = {}
        """Whoever has a process, or had one when it was last looked at."""
        self._completed: set[str] = set()
        self._body: LocalBody | None = None
        self._drawn_real_s = 0.0

    def event(self, entry: "Event | Decision") -> None:
        from gpuloom.engine.events import JobArrived, JobCompleted

        if isinstance(entry, JobArrived):  # it may have ended before it is looked at
            self._rows.setdefault(entry.job.id, JobRow(entry.job.id, "waiting"))
        if isinstance(entry, JobCompleted):
            self._completed.add(entry.job_id)
        line = self._words.line_of(entry)
        if line is not None:
            self._last.append(line)

    def notice(self, text: str) -> None:
        """At once: the runner may be waiting for what it tells of."""
        self._last.append(text)
        if self._body is not None:
            self._draw(self._body)

    def later(self, text: str) -> None:
        self._last.append(text)

    def look(self, body: "LocalBody") -> None:
        self._body = body
        now_real_s = time.monotonic()
        for job in body.jobs.values():
            self._here[job.id] = job
            self._hear(job, now_real_s)
            self._remember(job.id, body)
        if now_real_s - self._drawn_real_s >= EVERY_REAL_S:
            self._drawn_real_s = now_real_s
            self._draw(body)

    def close(self) -> None:
        """The last state stays on the screen; what nobody has seen yet is said."""
        if self._body is None:
            for line in list(self._last):
                say(line)
            return
        self._draw(self._body)
        with suppress(OSError):
            self._live.stop()

    def _hear(self, job: "LiveJob", now_real_s: float) -> None:
        if job.heard is not None:
            told_s = job.heard.at_monotonic_s
            at_real_s = now_real_s if told_s is None or told_s > now_real_s else told_s
            self._speeds.setdefault(job.id, Speed()).hear(job.heard.step, at_real_s)

    def _draw(self, body: "LocalBody") -> None:
        for job_id in {**body.engine.state.jobs, **self._rows}:
            self._remember(job_id, body)
        with suppress(OSError):
            self._live.start()
            self._live.update(picture(body, list(self._rows.values()), list(self._last), self._console), refresh=True)

    def _remember(self, job_id: str, body: "LocalBody") -> None:
        """The engine forgets whoever has ended; people do not."""
        view, before = body.engine.state.jobs.get(job_id), self._rows.get(job_id)
        if view is not None:
            self._rows[job_id] = row_of(view, body, before, self._speeds.get(job_id))
        elif before is not None and before.state not in ENDED:
            state = "completed" if job_id in self._completed else "given up"
            self._rows[job_id] = replace(before, state=state, where="", steps=self._last_step(before), steps_per_s=None)

    def _last_step(self, row: JobRow) -> int | None:
        """What it reported just before its end, nobody may have looked at."""
        job = self._here.pop(row.job_id, None)
        told = None if job is None else job.launch.progress()
        return row.steps if told is None else told.step


def row_of(view: "JobView", body: "LocalBody", before: JobRow | None, speed: Speed | None) -> JobRow:
    from gpuloom.contract.view import Phase

    now_s, pace = body.now_s(), body.clock.pace
    ran_s = view.ran_s + (now_s - view.since_s if view.phase is Phase.RUNNING else 0.0)
    here = body.jobs.get(view.id)
    steps = here.heard.step if here is not None and here.heard is not None else before.steps if before else None
    now = speed.now(time.monotonic()) if speed is not None and here is not None else None
    names = [device_name_of(grant.gpu, body) for grant in view.held or view.grants]
    where = ", ".join(place_of(grant, name) for grant, name in zip(view.held or view.grants, names, strict=True))
    waited_s = max(now_s - view.job.submit_s - ran_s, 0.0)
    state = "resizing" if view.id in body.engine.state.rescaling and view.phase is Phase.RUNNING else view.phase.value
    return JobRow(view.id, state, where, steps, now, ran_s / pace, waited_s / pace)


def device_name_of(index: int, body: "LocalBody") -> str:
    from gpuloom.live.report.story import device_name

    return device_name(index, body.engine.state.cluster.gpus[index].model)


def place_of(grant: "Grant", device: str) -> str:
    """`3g.20gb@4 of GPU 0`."""
    place = device if grant.instance is None else f"{grant.instance} of {device}"
    return place if grant.share_pct >= 100 else f"{grant.share_pct:g}% of {place}"


# ---- the picture -----------------------------------------------------------------------------------------------------


def picture(body: "LocalBody", rows: list[JobRow], last: list[str], console: "Console") -> "RenderableType":
    """Devices, jobs, and what happened last."""
    from rich.console import Group
    from rich.text import Text

    state = body.engine.state
    devices = [
        Text(device_line(device_name_of(index, body), state.cluster.gpus[index].model, gpu))
        for index, gpu in state.gpus.items()
    ]
    events = [Text(line, style="dim") for line in last]
    room = max(console.height - len(devices) - 2 * len(events) - 4, 3)
    return Group(*devices, jobs_part(rows, console.width, room), *events)


def device_line(name: str, model: "GpuModel", gpu: "GpuView") -> str:
    from gpuloom.gpus.layouts import draw

    drawn = draw(model, gpu.actual) if gpu.actual else "uncut"
    if gpu.lost:
        return f"{name}  {drawn}  closed to newcomers" if gpu.tenants else f"{name}  lost"
    doing = "being cut" if gpu.cutting else "probing" if gpu.probing else ""
    return f"{name}  {drawn}  {doing or model.name}"


def jobs_part(rows: list[JobRow], width: int, room: int) -> "RenderableType":
    """One line a job where that is wide enough; else a few lines, so that neither numbers nor names are broken."""
    from rich.console import Group
    from rich.text import Text

    ordered = sorted(rows, key=lambda row: ORDER.index(row.state))
    widths = [max(map(len, column)) for column in zip(COLUMNS, *(row.cells() for row in ordered), strict=True)]
    is_wide = sum(widths) + BETWEEN * len(widths) <= width
    kept = ordered[: room if is_wide else max(room // 3, 1)]
    left_out = [Text(f"and {len(ordered) - len(kept):,} more", style="dim")] if len(kept) < len(ordered) else []
    return Group(_table(kept) if is_wide else Group(*map(_stacked, kept)), *left_out)


def _table(rows: list[JobRow]) -> "RenderableType":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for at, column in enumerate(COLUMNS):
        table.add_column(column, justify="left" if at < LEFT else "right", no_wrap=True)
    for row in rows:
        job_id, state, *others = row.cells()
        table.add_row(Text(job_id), Text(state, COLOURS.get(state, "")), *map(Text, others))
    return table


def _stacked(row: JobRow) -> "RenderableType":
    from rich.text import Text

    job_id, state, where, steps, speed, ran_s, waited_s = row.cells()
    return Text.assemble(
        (job_id, "bold"),
        ("\n  " + state, COLOURS.get(state, "")),
        f" on {where}" if row.where else "",
        f"\n  {steps} steps, {speed}/s, ran {ran_s} s, waited {waited_s} s",
    )
