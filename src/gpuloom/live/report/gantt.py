"""Devices over time as lanes: one for how each is cut, one for each of its instances, more where jobs share one.

Sideways everything is in percent of the run. Knows how a lane is drawn, and nothing of what a run is worth.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from gpuloom.gpus.grant import Grant
from gpuloom.gpus.layouts import draw
from gpuloom.gpus.model import GpuModel, Instance
from gpuloom.live.report.replay import Condition, Doing, LayoutSpan
from gpuloom.live.report.story import DeviceStory, RunStory
from gpuloom.pages.chart import label, legend, piece, row, upright
from gpuloom.pages.html import Html, join, tag
from gpuloom.pages.words import duration

MOST_PIECES = 4000
"""More of them nobody can tell apart; the page says that the first are left out."""
STEPS = (1, 2, 5)
MOST_TICKS = 4
KEY = (
    ("c0", "runs, in its colour"),
    ("c0 starting", "starts"),
    ("c0 probing", "runs while it is probed"),
    ("c0 resizing", "goes on while it is resized"),
    ("c0 stopping", "saves and leaves"),
    ("host", "the device is being cut"),
    ("gap", "the device is lost"),
)
CONDITIONS = {Condition.THERE: "lane", Condition.CUTTING: "host", Condition.LOST: "gap"}


class Bar(NamedTuple):
    """One stretch of one job on one device."""

    begin_s: float
    end_s: float
    job_id: str
    grant: Grant
    doing: Doing


def bars_of(story: RunStory) -> list[Bar]:
    """In order of time; of too many the last."""
    bars = [
        Bar(part.begin_s, part.end_s, job.id, grant, part.doing)
        for job in story.jobs
        for part in job.segments
        for grant in part.grants
    ]
    return sorted(bars)[-MOST_PIECES:]


def side_by_side(bars: Iterable[Bar]) -> list[list[Bar]]:
    """Bars of one instance as rows in which none overlaps another; a job stays in its row as long as it sits there."""
    rows: list[list[Bar]] = []
    for bar in sorted(bars):
        free = [found for found in rows if found[-1].end_s <= bar.begin_s]
        same = [found for found in free if found[-1].job_id == bar.job_id]
        if free:
            (same or free)[0].append(bar)
        else:
            rows.append([bar])
    return rows


def chart(story: RunStory, colours: Mapping[str, str]) -> Html:
    """`colours` are the classes of the jobs."""
    span_s = max(story.end_s, 1e-9)
    bars = bars_of(story)
    lanes = [_axis(story, span_s)]
    for device in story.devices:
        lanes.append(_lane(device.name, _cuts(device, story, span_s), f"{device.name}: how it is cut over time"))
        by_instance: dict[Instance | None, list[Bar]] = {}
        for bar in bars:
            if bar.grant.gpu == device.index:
                by_instance.setdefault(bar.grant.instance, []).append(bar)
        for instance in sorted(by_instance, key=lambda place: (place is not None, place)):
            lanes += _instance(device, instance, by_instance[instance], story, colours)
    return join(legend("What a lane shows", KEY), tag("div", *lanes, class_="lanes"))


def _instance(
    device: DeviceStory, instance: Instance | None, bars: Sequence[Bar], story: RunStory, colours: Mapping[str, str]
) -> list[Html]:
    name = "whole" if instance is None else str(instance)
    span_s = max(story.end_s, 1e-9)
    lanes = []
    for number, row_bars in enumerate(side_by_side(bars)):
        pieces = [_piece(bar, story, span_s, colours[bar.job_id]) for bar in row_bars]
        about = f"{device.name}, {name}: {'jobs' if number == 0 else 'more jobs'} over time"
        lanes.append(_lane(name if number == 0 else "", pieces, about, inner=True))
    return lanes


def _piece(bar: Bar, story: RunStory, span_s: float, colour: str) -> Html:
    about = f"{bar.job_id}: {bar.doing.value} on {bar.grant}, {_when(bar.begin_s, bar.end_s, story)}"
    style = colour if bar.doing is Doing.RUNNING else f"{colour} {bar.doing.value}"
    words = bar.job_id if bar.doing is Doing.RUNNING else ""  # on a hatched ground they could hardly be read
    return piece(style, words, *_place(bar.begin_s, bar.end_s, span_s), about)


def _cuts(device: DeviceStory, story: RunStory, span_s: float) -> list[Html]:
    return [
        piece(
            CONDITIONS[span.condition],
            _cut_words(device.model, span),
            *_place(span.begin_s, span.end_s, span_s),
            f"{_cut_in_full(span)}, {_when(span.begin_s, span.end_s, story)}",
        )
        for span in device.spans[-MOST_PIECES:]
    ]


def _cut_words(model: GpuModel, span: LayoutSpan) -> str:
    if span.condition is not Condition.THERE:
        return "lost" if span.condition is Condition.LOST else ""  # a cut is short, and the legend names its colour
    return draw(model, span.layout) if span.layout else "uncut"


def _cut_in_full(span: LayoutSpan) -> str:
    layout = ", ".join(map(str, span.layout)) or "uncut"
    return layout if span.condition is Condition.THERE else span.condition.value


def _when(begin_s: float, end_s: float, story: RunStory) -> str:
    begin, end = story.real_s(begin_s), story.real_s(end_s)
    return f"{duration(begin)} to {duration(end)} ({duration(end - begin)})"


def _place(begin_s: float, end_s: float, span_s: float) -> tuple[float, float]:
    return 100 * begin_s / span_s, 100 * (end_s - begin_s) / span_s


def _lane(name: str, pieces: Sequence[Html], about: str, inner: bool = False) -> Html:
    return tag("div", tag("span", name), row(about, pieces), class_="inner" if inner else None)


def _axis(story: RunStory, span_s: float) -> Html:
    """Real seconds; whole numbers of a step that leaves room for the words on a phone."""
    span_real_s = story.real_s(span_s)
    step_s = tick_s(span_real_s)
    drawn = []
    for number in range(int(span_real_s / step_s) + 1):
        left_pct = 100 * number * step_s / span_real_s
        drawn += [
            upright(left_pct, 0, 1.5),
            label(duration(number * step_s), left_pct, 1.05, end=left_pct > 85),
        ]
    about = f"Time from 0 to {duration(span_real_s)}"
    return tag("div", tag("span", "time"), row(about, drawn), class_="axis")


def tick_s(span_s: float) -> float:
    """The least step of 1, 2 or 5 times a power of ten that divides the span into few enough parts."""
    size = 1e-9
    while True:
        for step in STEPS:
            if span_s / (step * size) <= MOST_TICKS:
                return step * size
        size *= 10
