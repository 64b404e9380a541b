"""The page of a campaign: answers, verdicts, pictures and the table, a chapter for each workload.

Pure: from rows to text; the same rows give the same bytes. Names and what programs said are text, never markup.
"""

from collections.abc import Iterable, Mapping, Sequence

from gpuloom.gpus.model import GpuModel
from gpuloom.measure.arrangement import Seat
from gpuloom.measure.explore.advise import believed_of
from gpuloom.measure.explore.belief import Belief
from gpuloom.measure.figures import Figure, Interval, alone, figures, in_parallel
from gpuloom.measure.options import Option, options
from gpuloom.measure.page.bars import Bar, bars, differences
from gpuloom.measure.recommend import Answer, recommend
from gpuloom.measure.results import Copy, Outcome
from gpuloom.measure.verdicts import SAME_PCT, part_of, verdicts, whole
from gpuloom.pages import page as pages
from gpuloom.pages.cards import Card, cards
from gpuloom.pages.chart import colour, legend
from gpuloom.pages.html import Html, tag
from gpuloom.pages.table import Column, number_column, table
from gpuloom.pages.words import number

MOST_WORKLOADS, MOST_LINES = 40, 60
COLUMNS = (
    Column("arrangement"), Column("of"), number_column("repetitions"), number_column("step", "ms"),
    Column("90 % interval"), number_column("together", "steps/s"), number_column("memory", "MiB at most"),
    number_column("CPU", "s/s"), number_column("energy", "J/step"), Column("outcome", style="prose"),
)  # fmt: skip
ONE, SEVERAL = colour(0), colour(1)
KINDS = ((ONE, "one copy"), (SEVERAL, "several at once"), ("host", "90 % interval"))


def measured_page(
    rows: Iterable[Copy],
    model: GpuModel,
    facts: Sequence[str] = (),
    host_cpus: int | None = None,
    places: Mapping[str, Sequence[Seat]] | None = None,
) -> str:
    """`facts` go below the title: device, driver, command, day. `host_cpus`: that the host has beside its device.

    `places`: of workloads that were not run in all of them.
    """
    found = figures(rows)
    beliefs = believed_of(found, model, places or {})
    workloads = list(dict.fromkeys(figure.seat.workload for figure in found))
    shown = workloads[:MOST_WORKLOADS]
    several = len(workloads) > 1
    parts = [
        part
        for at, name in enumerate(shown)
        for part in _workload(at, name, found, model, host_cpus, several, beliefs.get(name))
    ]
    if len(workloads) > MOST_WORKLOADS:
        parts.append(pages.notice(f"Only the first {MOST_WORKLOADS} of {len(workloads):,} workloads are shown."))
    named = workloads[0] if len(workloads) == 1 else f"{len(workloads):,} workloads"
    title = f"{named} on {model.name}" if workloads else f"Nothing was measured on {model.name}"
    closing = tag(
        "p",
        "Intervals are 90 %, by Student's t over repetitions: steps of one run share its luck and count once. Verdicts "
        "rest on step times. What was predicted says so.",
    )
    return pages.page(title, "measured", facts, *parts, _table(found, workloads, model), closing=closing)


def _workload(
    at: int,
    name: str,
    found: Sequence[Figure],
    model: GpuModel,
    host_cpus: int | None,
    several: bool,
    belief: Belief | None,
) -> list[Html]:
    known = options(found, model, name, belief)
    prefix = f"{name}: " if several else ""
    answers = recommend(known, belief)
    sentences = [f"{verdict.about}: {verdict.says}" for verdict in verdicts(found, model, name, host_cpus)]
    return [
        pages.section(f"answers-{at}", prefix + "What to choose", _cards(answers), _listed(a.says for a in answers)),
        pages.section(f"verdicts-{at}", prefix + "What it is like", _listed(sentences)),
        tag("div", *_pictures(at, prefix, name, found, known, model), class_="sides"),
    ]


def _pictures(
    at: int, prefix: str, name: str, found: Sequence[Figure], known: Sequence[Option], model: GpuModel
) -> list[Html]:
    margin = f"of steps in parallel; within ±{SAME_PCT:g} % of alone is none"
    pictures = [
        ("throughput", "Throughput against slice", "of all copies together", _rates(known)),
        ("speedup", "Speed-up of parallel copies", "the line: one copy with all of it", _gains(found, name, model)),
        ("interference", "Interference", margin, _interference(found, name, model)),
        ("memory", "Memory fit", "the most that a copy used, of what is there", _memory(found, name, model)),
        ("energy", "Energy", "of the whole device, a step of anybody", _energy(found, name)),
    ]
    key_to_all = {"throughput": tag("div", legend("Colours", KINDS), class_="below")}
    return [
        pages.section(
            f"{key}-{at}", prefix + title, tag("div", picture, class_="panel"), key_to_all.get(key, Html("")), note=note
        )
        for key, title, note, picture in pictures
        if picture
    ]


def _listed(words: Iterable[str]) -> Html:
    return pages.listed(list(words))


def _cards(answers: Sequence[Answer]) -> Html:
    return cards(
        Card(answer.goal, answer.choice.name, answer.confidence) for answer in answers if answer.choice is not None
    )


def _rates(known: Sequence[Option]) -> Html:
    rows = [
        Bar(
            option.name,
            option.rate.interval,
            ONE if option.copies == 1 else SEVERAL,
            "" if option.measured else "predicted, not measured",
        )
        for option in known[:MOST_LINES]
    ]
    return bars("Steps a second", "/s", rows)


def _gains(found: Sequence[Figure], name: str, model: GpuModel) -> Html:
    base = whole(alone(found, name), model)
    if base is None or base.rate is None:
        return Html("")
    rate = base.rate
    rows = [Bar(f.arrangement, f.rate.minus(rate).interval, SEVERAL) for f in _parallel(found, name, model) if f.rate]
    return bars("Work of all copies", "x", rows[:MOST_LINES], mark=1.0)


def _interference(found: Sequence[Figure], name: str, model: GpuModel) -> Html:
    solo = alone(found, name)
    rows = [
        Bar(figure.arrangement, _per_cent(figure.step.minus(step).interval), SEVERAL)
        for figure in _parallel(found, name, model)
        if figure.step and figure.seat.place in solo and (step := solo[figure.seat.place].step)
    ]
    return differences("Step time in parallel against alone", rows[:MOST_LINES], SAME_PCT)


def _parallel(found: Sequence[Figure], name: str, model: GpuModel) -> list[Figure]:
    """Small slices first."""
    return sorted(in_parallel(found, name), key=lambda figure: (part_of(figure, model), figure.arrangement))


def _per_cent(ratio: Interval) -> Interval:
    low, high = (None if end is None else (end - 1) * 100 for end in (ratio.low, ratio.high))
    return Interval((ratio.value - 1) * 100, low, high)


def _memory(found: Sequence[Figure], name: str, model: GpuModel) -> Html:
    """Of every place in which one copy was tried: what there is, and what of that it used."""
    by_part = sorted(alone(found, name).values(), key=lambda figure: part_of(figure, model))
    whole_places = [figure for figure in by_part if figure.seat.share_pct >= 100]
    return bars("Memory", "MiB", [_memory_bar(figure, model) for figure in whole_places[:MOST_LINES]])


def _memory_bar(figure: Figure, model: GpuModel) -> Bar:
    seat, peak = figure.seat, figure.mem_peak_mib
    room = float(model.by_name[seat.profile].mem_mib if seat.profile else model.mem_mib)
    if figure.step is None:
        return Bar(seat.place, None, ONE, "out of memory" if figure.out_of_memory else "did not run", room)
    if peak is None:
        return Bar(seat.place, None, ONE, "ran, how much it used is not known", room)
    return Bar(seat.place, Interval(peak), ONE, room=room)


def _energy(found: Sequence[Figure], name: str) -> Html:
    mine = [f for f in found if f.seat.workload == name and f.uniform and f.energy_j]
    rows = [Bar(f.arrangement, Interval(f.energy_j), ONE if f.alone else SEVERAL) for f in mine if f.energy_j]
    return bars("Energy a step", "J", rows[:MOST_LINES])


def _table(found: Sequence[Figure], workloads: Sequence[str], model: GpuModel) -> Html:
    def small_first(figure: Figure) -> tuple[float, ...]:
        return workloads.index(figure.seat.workload), part_of(figure, model), figure.copies

    rows = [_row(figure) for figure in sorted(found, key=small_first)[: MOST_LINES * MOST_WORKLOADS]]
    return pages.section("table", "All figures", table("What was measured", COLUMNS, rows)) if rows else Html("")


def _row(figure: Figure) -> list[str]:
    step, rate = figure.step_ms, figure.steps_per_s
    return [
        figure.arrangement,
        f"{figure.seat.workload} on {figure.seat.place}",
        f"{figure.repetitions:,}",
        _known(None if step is None else step.value),
        _span(step) + (" (pooled)" if figure.pooled else ""),
        _known(None if rate is None else rate.value),
        _known(figure.mem_peak_mib),
        _known(figure.host_cpus),
        _known(figure.energy_j),
        _outcome(figure),
    ]


def _outcome(figure: Figure) -> str:
    bad = [f"{count} x {outcome.value}" for outcome, count in figure.outcomes.items() if outcome is not Outcome.OK]
    return "; ".join([*(bad or ["ok"]), *figure.said])


def _span(value: Interval | None) -> str:
    if value is None or value.low is None or value.high is None:
        return "–" if value is None else "not known"
    return f"{number(value.low)} to {number(value.high)}"


def _known(value: float | None) -> str:
    return "–" if value is None else number(value)
