"""A kernel profile as one page that needs nothing but a browser: what host and device did in the first requests, how
long kernels and gaps are, and which kernels take the time.

Pure: from data to text. The same profile gives the same bytes. Times of day are not in a profile: they are rebuilt from
what the host did before each launch and how long each kernel held its queue.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpuloom.errors import InputError
from gpuloom.kernels.profile import Kernel, Launch, Profile
from gpuloom.pages import page as pages
from gpuloom.pages.cards import Card, cards
from gpuloom.pages.chart import COLOURS, colour, drawing, label, legend, rect, swatch, upright
from gpuloom.pages.html import Html, join, tag
from gpuloom.pages.table import Column, number_column, table

REQUESTS = 4
MOST_BARS = 1200
"""More launches than that nobody looks at one by one."""
MOST_ROWS = 30
WIDTH_PX = 1040
"""Of a picture that fits the screen: what is thinner than a pixel of it is drawn a pixel wide."""
PX_PER_LAUNCH, WIDEST_PX = 7, 12_000
AXIS_REM, ROW_REM = 1.5, 4.3
HOST_REM, HOST_HIGH_REM = 1.15, 0.6
DEVICE_REM, DEVICE_HIGH_REM = 1.9, 1.6
BINS_PER_DECADE = 4
HISTOGRAM_REM = 10.0
LOG = "launches, log axis"
KEY = (
    ("host", "the host prepares a launch (above)"),
    (colour(0), "a kernel runs, in its colour; pale: launched and not yet running"),
    ("gap", "a gap: the device waits for the host"),
)
KERNEL_COLUMNS = (
    Column("kernel"), number_column("launches"), number_column("of the time"), number_column("mean"),
    number_column("p99"), number_column("mean gap after"), Column("grid"), Column("block"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Placed:
    launch: Launch
    launched_ns: int
    free_ns: int
    """When it could start."""
    ended_ns: int


def placed(launches: Sequence[Launch]) -> list[Placed]:
    """Each launch with its times, from 0 at the first."""
    found: list[Placed] = []
    launched = ended = 0
    for launch in launches:
        launched = (ended if launch.waited else launched) + launch.host_ns
        free = max(launched, ended)
        ended = free + launch.held_ns
        found.append(Placed(launch, launched, free, ended))
    return found


def page(profile: Profile) -> str:
    longest = profile.longest()
    if not longest:
        raise InputError(f"{profile.source}: has no launches: expected some")
    size = profile.period()
    summary = profile.summary()
    colours = {kernel.id: colour(min(rank, COLOURS - 1)) for rank, (kernel, *_) in enumerate(summary)}
    ran = np.fromiter((launch.ran_ns for launch in profile.launches()), np.int64)
    gaps = np.fromiter((launch.gap_ns for launch in profile.launches()), np.int64)
    queues = "1 queue" if len(profile.runs) == 1 else f"{len(profile.runs):,} queues"
    facts = (profile.device, f"{queues} recorded", f"{len(ran):,} launches of {len(summary):,} kernels")
    return pages.page(
        profile.source,
        "kernels",
        facts,
        cards(_figures(longest, size)),
        _requests(profile.kernels, longest, size, colours),
        _histograms(ran, gaps),
        _kernels(profile, sum(ran.tolist()), colours),
        closing=pages.listed(profile.notes),
    )


def _figures(launches: Sequence[Launch], size: int) -> list[Card]:
    times = placed(launches)
    whole = len(times) // size * size
    lengths = [times[at + size - 1].ended_ns - times[at].launched_ns for at in range(0, whole, size)]
    busy = sum(launch.ran_ns for launch in launches) / max(times[-1].ended_ns, 1)
    gaps = [launch.gap_ns for launch in launches if launch.gap_ns]
    return [
        Card("launches a request" if size < len(launches) else "launches, which never repeat", f"{size:,}"),
        Card("a request, median", _time(float(np.median(lengths)))),
        Card("the device computes", f"{100 * min(busy, 1):.0f} %"),
        Card("gap, median", _time(float(np.median(gaps))) if gaps else "none"),
    ]


def _requests(kernels: dict[int, Kernel], launches: Sequence[Launch], size: int, colours: dict[int, str]) -> Html:
    """A row for each of the first requests, all on one scale that starts at the request's first launch."""
    count = max(1, min(REQUESTS, MOST_BARS // size, len(launches) // size))
    bars = min(size, MOST_BARS)
    times = placed(launches[: (count - 1) * size + bars + 1])
    rows = [times[at * size : at * size + bars] for at in range(count)]
    spans = [max(row[-1].ended_ns + row[-1].launch.gap_ns, row[-1].launched_ns) - row[0].launched_ns for row in rows]
    width_px = min(max(WIDTH_PX, PX_PER_LAUNCH * bars), WIDEST_PX)
    span_ns = max(*spans, 1)
    high_rem = AXIS_REM + count * ROW_REM
    drawn = _axis(span_ns, width_px, high_rem)
    for number, row in enumerate(rows):
        top_rem = AXIS_REM + number * ROW_REM
        following = times[number * size + bars : number * size + bars + 1]
        drawn.append(label(f"request {number + 1}", 0, top_rem + 0.8))
        drawn += _request(row, following, top_rem, span_ns, 100 / width_px, kernels, colours)
    about = f"Requests 1 to {count}, {bars:,} launches each: what the host prepares, what the device runs, the gaps"
    picture = drawing(about, high_rem, drawn, None if width_px == WIDTH_PX else width_px)
    cut = (pages.remark(f"The first {bars:,} of {size:,} launches."),) if bars < size else ()
    title = "The first requests"
    shown = legend("Colours", KEY), pages.wide(title, picture, "wide full"), *cut
    return pages.section("requests", title, *shown, note="of the longest run")


def _request(
    row: Sequence[Placed], following: Sequence[Placed], top_rem: float, span_ns: int, least_pct: float,
    kernels: dict[int, Kernel], colours: dict[int, str],
) -> list[Html]:  # fmt: skip
    """`following`: the launch after it, if there is one, which the host prepares at the end of this row."""
    origin_ns = row[0].launched_ns
    lanes = {"host": (top_rem + HOST_REM, HOST_HIGH_REM), "device": (top_rem + DEVICE_REM, DEVICE_HIGH_REM)}
    drawn = [rect("lane", 0, 100, *place) for place in lanes.values()]

    def bar(style: str, lane: str, start_ns: int, end_ns: int, about: str = "") -> None:
        left_pct = 100 * max(start_ns - origin_ns, 0) / span_ns
        width_pct = max(100 * (end_ns - origin_ns) / span_ns - left_pct, least_pct)
        drawn.append(rect(style, left_pct, width_pct, *lanes[lane], about))

    for step in (*row[1:], *following):
        waited = ", after waiting for results" if step.launch.waited else ""
        about = f"the host: {_time(step.launch.host_ns)}{waited}"
        bar("host", "host", step.launched_ns - step.launch.host_ns, step.launched_ns, about)
    for step in row:
        launch, style = step.launch, colours[step.launch.kernel]
        kernel = kernels[launch.kernel]
        bar(style, "host", step.launched_ns, step.launched_ns)
        about = f"{kernel.name}\n{kernel.grid} / {kernel.block}\nran {_time(launch.ran_ns)}"
        began_ns = step.ended_ns - launch.ran_ns
        if began_ns > step.free_ns:
            late = f"{about}, {_time(began_ns - step.free_ns)} until it ran"
            bar(f"{style} held", "device", step.free_ns, began_ns, late)
        bar(f"{style} ran", "device", began_ns, step.ended_ns, about)
        if launch.gap_ns:
            about = f"gap of {_time(launch.gap_ns)}"
            bar("gap", "device", step.ended_ns, step.ended_ns + launch.gap_ns, about)
    return drawn


def _axis(span_ns: int, width_px: int, bottom_rem: float) -> list[Html]:
    """A line and a time at each round number, some eight of them in a screen's width, and on paper as many in all."""
    px_per_ns = width_px / span_ns
    step_ns = 10.0 ** math.floor(math.log10(max(130 / px_per_ns, 1)))
    step_ns *= next(times for times in (1, 2, 5, 10) if times * step_ns * px_per_ns >= 100)
    screens = math.ceil(width_px / WIDTH_PX)
    marks = []
    for number in range(int(span_ns / step_ns) + 1):
        left_pct = 100 * number * step_ns / span_ns
        fine = number % screens > 0
        room_px = 40 if fine else 0.06 * width_px
        marks.append(upright(left_pct, 1, bottom_rem, "grid fine" if fine else "grid"))
        if left_pct < 100 * (1 - room_px / width_px):
            marks.append(label(_time(number * step_ns), left_pct, 0.8, "fine" if fine else None))
    return marks


def _histograms(ran: NDArray[np.int64], gaps: NDArray[np.int64]) -> Html:
    """Both on one axis, so that one sees what fits into what."""
    some = np.concatenate((ran[ran > 0], gaps[gaps > 0]))
    if not len(some):
        return Html("")
    low, high = math.floor(math.log10(some.min())), math.floor(math.log10(some.max())) + 1
    sides = tag(
        "div",
        pages.section("kernel-lengths", "How long kernels run", _histogram(colour(0), ran, low, high), note=LOG),
        pages.section("gap-lengths", "How long the gaps are", _histogram(colour(1), gaps, low, high), note=LOG),
        class_="sides",
    )
    ahead = int(np.count_nonzero(gaps == 0))
    no_gap = f"{ahead:,} of {len(gaps):,} launches left no gap: the host was ahead, or nothing followed."
    return join(sides, pages.remark(no_gap))


def _histogram(style: str, values: NDArray[np.int64], low: int, high: int) -> Html:
    edges = np.logspace(low, high, (high - low) * BINS_PER_DECADE + 1)
    counts = [int(count) for count in np.histogram(values[values > 0], edges)[0]]
    most, step_pct = max(*counts, 1), 100 / len(counts)
    drawn = []
    for decade in range(low, high + 1):
        left_pct = (decade - low) * BINS_PER_DECADE * step_pct
        drawn.append(upright(left_pct, 0, HISTOGRAM_REM + 0.3))
        drawn.append(label(_time(10**decade), left_pct, HISTOGRAM_REM + 1.1, end=decade == high))
    for place, count in enumerate(counts):
        tall_rem = HISTOGRAM_REM * count / most
        about = f"{_time(edges[place])} to {_time(edges[place + 1])}: {count:,}"
        drawn.append(rect(style, place * step_pct, step_pct * 0.97, HISTOGRAM_REM - tall_rem, tall_rem, about))
    top = counts.index(max(counts))
    words = f"{sum(counts):,} launches; most, {max(counts):,}, from {_time(edges[top])} to {_time(edges[top + 1])}"
    return drawing(words, HISTOGRAM_REM + 1.4, drawn)


def _kernels(profile: Profile, total_ns: int, colours: dict[int, str]) -> Html:
    summary = profile.summary()
    rows = [
        (
            join(swatch(colours[kernel.id]), kernel.name),
            f"{count:,}",
            f"{100 * ran.mean_ns * count / max(total_ns, 1):.1f} %",
            _time(ran.mean_ns),
            _time(ran.quantiles_ns[-1]),
            _time(gap.mean_ns),
            kernel.grid,
            kernel.block,
        )
        for kernel, count, ran, gap in summary[:MOST_ROWS]
    ]
    more = (pages.remark(f"And {len(summary) - MOST_ROWS:,} more."),) if len(summary) > MOST_ROWS else ()
    return pages.section("kernels", "Kernels", table("Kernels", KERNEL_COLUMNS, rows), *more)


def _time(ns: float) -> str:
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}" if ns < 1000 * size else f"{ns / size:,.0f} {unit}"
    return f"{ns:.0f} ns"
