"""A kernel profile as one page that needs nothing but a browser: what host and device did in the first requests, how
long kernels and gaps are, and which kernels take the time.

Pure: from data to text. The same profile gives the same bytes. Times of day are not in a profile: they are rebuilt from
what the host did before each launch and how long each kernel held its queue.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import NDArray

from gpuloom.errors import InputError
from gpuloom.kernels.profile import Kernel, Launch, Profile

REQUESTS = 4
MOST_BARS = 1200
"""More launches than that nobody looks at one by one."""
MOST_ROWS = 30
COLOURS = 12
WIDTH, ROW, AXIS = 1040, 66, 22
PX_PER_LAUNCH, WIDEST = 7, 12_000
BINS_PER_DECADE = 4
STYLE = """
:root { --paper:#fbfaf8; --surface:#fff; --lane:#f3f1ed; --ink:#1d1c1a; --soft:#5f5b55; --line:#e4e0d9; --gap:#f6dfc8;
 --host:#c9c4ba; --c0:#3b5fa8; --c1:#e08a4b; --c2:#3f9c8c; --c3:#cf6f7c; --c4:#9a9a3c; --c5:#6a5fb5; --c6:#7fb8dd;
 --c7:#8c2f5c; --c8:#2c6e3f; --c9:#b06bb3; --c10:#c9a74a; --c11:#8a847b; }
@media (prefers-color-scheme: dark) { :root { --paper:#151618; --surface:#1c1e21; --lane:#26292d; --ink:#ecebe8;
 --soft:#a3a099; --line:#33363b; --gap:#4d3a26; --host:#5c5952; } }
* { box-sizing:border-box } body { margin:0 auto; max-width:1100px; padding:36px 28px 56px; background:var(--paper);
 color:var(--ink); font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,Arial,sans-serif;
 font-variant-numeric:tabular-nums }
h1 { margin:0; font-size:24px; overflow-wrap:anywhere } h2 { margin:36px 0 12px; font-size:17px }
.facts,.soft,small { color:var(--soft) }
.cards { display:flex; flex-wrap:wrap; gap:12px; margin:20px 0 } .cards div { background:var(--surface);
 border:1px solid var(--line); border-radius:10px; padding:12px 18px } .cards b { display:block; font-size:24px }
.wide { overflow-x:auto } svg { display:block } svg text { font-size:11px; fill:var(--soft) }
.lane { fill:var(--lane) } .gap { fill:var(--gap) } .host { fill:var(--host) } .held { opacity:.35 }
.grid { stroke:var(--line) } .ran { stroke:var(--paper); stroke-width:.4 }
.sides { display:flex; flex-wrap:wrap; gap:28px }
table { border-collapse:collapse; width:100% } th,td { text-align:left; padding:5px 12px 5px 0; border-bottom:1px solid
 var(--line) } th { color:var(--soft); font-weight:500 } td.n { overflow-wrap:anywhere }
.key i { display:inline-block; width:10px; height:10px; border-radius:3px; margin:0 6px 0 14px }
""" + "\n".join(f".c{colour} {{ fill:var(--c{colour}); background:var(--c{colour}) }}" for colour in range(COLOURS))


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
    colours = {kernel.id: min(rank, COLOURS - 1) for rank, (kernel, *_) in enumerate(summary)}
    ran = np.fromiter((launch.ran_ns for launch in profile.launches()), np.int64)
    gaps = np.fromiter((launch.gap_ns for launch in profile.launches()), np.int64)
    queues = "1 queue" if len(profile.runs) == 1 else f"{len(profile.runs):,} queues"
    facts = f"{profile.device} · {queues} recorded · {len(ran):,} launches of {len(summary):,} kernels"
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>{escape(profile.source)}</title><style>{STYLE}</style></head><body>",
        f'<h1>{escape(profile.source)}</h1><p class="facts">{escape(facts)}</p>',
        _cards(longest, size),
        _requests(profile.kernels, longest, size, colours),
        _histograms(ran, gaps),
        _kernels(profile, sum(ran.tolist()), colours),
        "".join(f'<p class="soft">{escape(note)}</p>' for note in profile.notes),
        "</body></html>\n",
    ]
    return "\n".join(parts)


def _cards(launches: Sequence[Launch], size: int) -> str:
    times = placed(launches)
    whole = len(times) // size * size
    lengths = [times[at + size - 1].ended_ns - times[at].launched_ns for at in range(0, whole, size)]
    busy = sum(launch.ran_ns for launch in launches) / max(times[-1].ended_ns, 1)
    gaps = [launch.gap_ns for launch in launches if launch.gap_ns]
    figures = {
        "launches a request" if size < len(launches) else "launches, which never repeat": f"{size:,}",
        "a request, median": _time(float(np.median(lengths))),
        "the device computes": f"{100 * min(busy, 1):.0f} %",
        "gap, median": _time(float(np.median(gaps))) if gaps else "none",
    }
    return f'<div class="cards">{"".join(f"<div>{name}<b>{value}</b></div>" for name, value in figures.items())}</div>'


def _requests(kernels: dict[int, Kernel], launches: Sequence[Launch], size: int, colours: dict[int, int]) -> str:
    """A row for each of the first requests, all on one scale that starts at the request's first launch."""
    count = max(1, min(REQUESTS, MOST_BARS // size, len(launches) // size))
    bars = min(size, MOST_BARS)
    times = placed(launches[: (count - 1) * size + bars + 1])
    rows = [times[at * size : at * size + bars] for at in range(count)]
    spans = [max(row[-1].ended_ns + row[-1].launch.gap_ns, row[-1].launched_ns) - row[0].launched_ns for row in rows]
    width = min(max(WIDTH, PX_PER_LAUNCH * bars), WIDEST)
    scale = width / max(*spans, 1)
    drawn = [_axis(max(spans), scale, len(rows) * ROW)]
    for number, row in enumerate(rows):
        following = times[number * size + bars : number * size + bars + 1]
        drawn.append(_request(row, following, number * ROW + AXIS, scale, width, kernels, colours))
        drawn.append(f'<text x="4" y="{number * ROW + AXIS + 11}">request {number + 1}</text>')
    key = (
        '<p class="key soft"><i style="background:var(--host)"></i>the host prepares a launch (above)'
        '<i class="c0"></i>a kernel runs, in its colour; pale: launched and not yet running'
        '<i style="background:var(--gap)"></i>a gap: the device waits for the host</p>'
    )
    cut = f'<p class="soft">The first {bars:,} of {size:,} launches.</p>' if bars < size else ""
    svg = f'<svg width="{width}" height="{len(rows) * ROW + AXIS}" role="img">{"".join(drawn)}</svg>'
    return f'<h2>The first requests <small>of the longest run</small></h2>{key}<div class="wide">{svg}</div>{cut}'


def _request(
    row: Sequence[Placed], following: Sequence[Placed], top: int, scale: float, width: int, kernels: dict[int, Kernel],
    colours: dict[int, int],
) -> str:  # fmt: skip
    """`following`: the launch after it, if there is one, which the host prepares at the end of this row."""
    origin = row[0].launched_ns
    host, device = top + 16, top + 28
    parts = [f'<rect class="lane" x="0" y="{y}" width="{width}" height="{h}"/>' for y, h in ((host, 9), (device, 24))]

    def bar(style: str, y: int, height: int, start_ns: int, end_ns: int, about: str = "") -> None:
        left = max(start_ns - origin, 0) * scale
        wide = max((end_ns - origin) * scale - left, 1)
        title = f"<title>{escape(about)}</title>" if about else ""
        parts.append(
            f'<rect class="{style}" x="{left:.1f}" y="{y}" width="{wide:.1f}" height="{height}">{title}</rect>'
        )

    for one in (*row[1:], *following):
        waited = ", after waiting for results" if one.launch.waited else ""
        about = f"the host: {_time(one.launch.host_ns)}{waited}"
        bar("host", host, 9, one.launched_ns - one.launch.host_ns, one.launched_ns, about)
    for one in row:
        launch, colour = one.launch, f"c{colours[one.launch.kernel]}"
        kernel = kernels[launch.kernel]
        bar(colour, host, 9, one.launched_ns, one.launched_ns)
        about = f"{kernel.name}\n{kernel.grid} / {kernel.block}\nran {_time(launch.ran_ns)}"
        began = one.ended_ns - launch.ran_ns
        if began > one.free_ns:
            bar(f"{colour} held", device, 24, one.free_ns, began, f"{about}, {_time(began - one.free_ns)} until it ran")
        bar(f"{colour} ran", device, 24, began, one.ended_ns, about)
        if launch.gap_ns:
            bar("gap", device, 24, one.ended_ns, one.ended_ns + launch.gap_ns, f"gap of {_time(launch.gap_ns)}")
    return "".join(parts)


def _axis(span_ns: int, scale: float, bottom: int) -> str:
    """A line and a time at each round number, some eight of them in a screen's width."""
    step = 10.0 ** math.floor(math.log10(max(130 / scale, 1)))
    step *= next(times for times in (1, 2, 5, 10) if times * step * scale >= 100)
    marks = []
    for number in range(int(span_ns / step) + 1):
        x = number * step * scale
        marks.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="14" y2="{bottom + AXIS}"/>')
        marks.append(f'<text x="{x + 3:.1f}" y="11">{_time(number * step)}</text>')
    return "".join(marks)


def _histograms(ran: NDArray[np.int64], gaps: NDArray[np.int64]) -> str:
    """Both on one axis, so that one sees what fits into what."""
    some = np.concatenate((ran[ran > 0], gaps[gaps > 0]))
    if not len(some):
        return ""
    low, high = math.floor(math.log10(some.min())), math.floor(math.log10(some.max())) + 1
    edges = np.logspace(low, high, (high - low) * BINS_PER_DECADE + 1)
    ahead = int(np.count_nonzero(gaps == 0))
    kernels = _histogram("How long kernels run", "c0", ran, edges, low, high)
    idle = _histogram("How long the gaps are", "c1", gaps, edges, low, high)
    told = (
        f'<p class="soft">{ahead:,} of {len(gaps):,} launches left no gap: the host was ahead, or nothing followed.</p>'
    )
    return f'<div class="sides">{kernels}{idle}</div>{told}'


def _histogram(
    title: str, style: str, values: NDArray[np.int64], edges: NDArray[np.float64], low: int, high: int
) -> str:
    width, height = 500, 150
    counts, _ = np.histogram(values[values > 0], edges)
    step = width / len(counts)
    parts = []
    for place, count in enumerate(counts.tolist()):
        tall = height * count / max(int(counts.max()), 1)
        about = f"{_time(edges[place])} to {_time(edges[place + 1])}: {count:,}"
        parts.append(
            f'<rect class="{style}" x="{place * step:.1f}" y="{height - tall:.1f}" width="{step - 1:.1f}" '
            f'height="{tall:.1f}"><title>{about}</title></rect>'
        )
    for decade in range(low, high + 1):
        x = (decade - low) * BINS_PER_DECADE * step
        anchor = "end" if decade == high else "start"
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{height + 4}"/>')
        parts.append(f'<text x="{x:.1f}" y="{height + 16}" text-anchor="{anchor}">{_time(10**decade)}</text>')
    svg = f'<svg width="{width}" height="{height + 22}" role="img">{"".join(parts)}</svg>'
    return f"<div><h2>{title} <small>launches, log axis</small></h2>{svg}</div>"


def _kernels(profile: Profile, total_ns: int, colours: dict[int, int]) -> str:
    summary = profile.summary()
    rows = []
    for kernel, count, ran, gap in summary[:MOST_ROWS]:
        share = 100 * ran.mean_ns * count / max(total_ns, 1)
        cells = (
            f"{count:,}", f"{share:.1f} %", _time(ran.mean_ns), _time(ran.quantiles_ns[-1]), _time(gap.mean_ns),
            escape(kernel.grid), escape(kernel.block),
        )  # fmt: skip
        name = (
            f'<span class="key"><i class="c{colours[kernel.id]}" style="margin-left:0"></i></span>{escape(kernel.name)}'
        )
        rows.append(f'<tr><td class="n">{name}</td>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>')
    names = ("kernel", "launches", "of the time", "mean", "p99", "mean gap after", "grid", "block")
    head = "".join(f"<th>{name}</th>" for name in names)
    more = f'<p class="soft">And {len(summary) - MOST_ROWS:,} more.</p>' if len(summary) > MOST_ROWS else ""
    return f"<h2>Kernels</h2><table><tr>{head}</tr>{''.join(rows)}</table>{more}"


def _time(ns: float) -> str:
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}" if ns < 1000 * size else f"{ns / size:,.0f} {unit}"
    return f"{ns:.0f} ns"
