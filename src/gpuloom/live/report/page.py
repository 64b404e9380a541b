"""A run as one page that needs nothing but a browser: devices over time, jobs, what was predicted and seen, and why.

Pure: from a story to text. The same story gives the same bytes. Times are real seconds.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean

from gpuloom.engine.story import because
from gpuloom.gpus.host.noise import Noise
from gpuloom.live.report.gantt import MOST_PIECES, bars_of, chart
from gpuloom.live.report.story import Decided, JobStory, Prediction, ProbeStory, RunStory, SeenSpeed
from gpuloom.pages import page as pages
from gpuloom.pages.cards import Card, cards
from gpuloom.pages.chart import colour, swatch
from gpuloom.pages.html import Html, join, tag
from gpuloom.pages.table import Column, number_column, table
from gpuloom.pages.words import duration, number

MOST_JOBS, MOST_PROBES, MOST_DECISIONS = 1000, 100, 40
JOB_COLUMNS = (
    Column("job"), Column("state"), number_column("submitted", "s"), number_column("waited", "s"),
    number_column("ran", "s"), number_column("ended", "s"), number_column("completion", "s"),
    number_column("starts"), number_column("crashes"), Column("cause"),
)  # fmt: skip
SPEED_COLUMNS = (
    Column("job"), Column("on"), number_column("reports"), number_column("steps", "1/s, median"),
    number_column("of all of the device"),
)  # fmt: skip
PROBE_COLUMNS = (
    Column("job"), Column("probed"), Column("profile"), number_column("predicted"), number_column("interval"),
    number_column("seen"),
)  # fmt: skip
DECISION_COLUMNS = (Column("job"), number_column("at", "s"), Column("after"), Column("decided", style="prose"))


def run_page(story: RunStory, facts: Sequence[str], noise: Noise | None = None) -> str:
    """`facts` go below the title."""
    colours = {job.id: colour(at) for at, job in enumerate(story.jobs)}
    count = len(story.jobs)
    return pages.page(
        f"{count:,} job{'s' * (count != 1)} under {story.policy}",
        "run",
        facts,
        _section("figures", "In short", [cards(_figures(story))], noise),
        _devices(story, colours),
        _jobs(story, colours, noise),
        _speeds(story.speeds, story, colours, noise),
        _probes(story, colours, noise),
        _decisions(story, colours),
        closing=_closing(story),
    )


def _section(key: str, title: str, content: Sequence[Html], noise: Noise | None, note: str = "") -> Html:
    """A section of measured figures."""
    floor = () if noise is None else (pages.remark(f"Noise floor: {noise}."),)
    return pages.section(key, title, *content, *floor, note=note)


def _figures(story: RunStory) -> list[Card]:
    done, waits = len(story.completed), [job.waited_s for job in story.jobs if job.submitted_s is not None]
    resizes = sum(job.rescales for job in story.jobs)
    return [
        Card("completed", f"{done:,} of {len(story.jobs):,}"),
        Card("mean completion time", _duration(story.mean_completion_s, story)),
        Card("makespan", _duration(story.makespan_s, story)),
        Card("mean wait", _duration(fmean(waits) if waits else None, story)),
        Card("restarts", f"{sum(job.restarts for job in story.jobs):,}"),
        *([Card("resizes", f"{resizes:,}")] if resizes else []),
        Card("probes", f"{len(story.probes):,}"),
    ]


def _devices(story: RunStory, colours: Mapping[str, str]) -> Html:
    shown = [chart(story, colours)]
    if len(bars_of(story)) == MOST_PIECES:
        shown.append(pages.remark(f"Only the last {MOST_PIECES:,} stretches of jobs are drawn."))
    return pages.section("devices", "Devices over time", *shown, note="one lane an instance")


def _jobs(story: RunStory, colours: Mapping[str, str], noise: Noise | None) -> Html:
    rows = [_job(job, story, colours[job.id]) for job in story.jobs[:MOST_JOBS]]
    content = [table("Jobs", JOB_COLUMNS, rows), *_cut_off(len(story.jobs), MOST_JOBS, "first", "jobs")]
    return _section("jobs", "Jobs", content, noise)


def _job(job: JobStory, story: RunStory, style: str) -> list[str]:
    bad = job.state == "given up"
    return [
        join(swatch(style), job.id),
        tag("span", job.state, class_="bad") if bad else job.state,
        _seconds(job.submitted_s, story),
        _seconds(job.waited_s, story),
        _seconds(job.ran_s, story),
        _seconds(job.ended_s, story),
        _seconds(job.completion_s, story),
        f"{job.starts:,}",
        f"{job.crashes:,}",
        job.cause or "–",
    ]


def _speeds(speeds: Sequence[SeenSpeed], story: RunStory, colours: Mapping[str, str], noise: Noise | None) -> Html:
    if not speeds:
        return Html("")
    rows = [
        (
            join(swatch(colours[seen.job_id]), seen.job_id),
            f"{seen.profile} of {seen.model}",
            f"{seen.reports:,}",
            number(seen.batches_per_s * story.pace),
            "not seen there" if seen.relative is None else f"{seen.relative:.2f}",
        )
        for seen in speeds[:MOST_JOBS]
    ]
    content = [table("Speeds", SPEED_COLUMNS, rows), *_cut_off(len(speeds), MOST_JOBS, "first", "speeds")]
    return _section("speeds", "Speeds that were seen", content, noise, note="of jobs with a device for themselves")


def _probes(story: RunStory, colours: Mapping[str, str], noise: Noise | None) -> Html:
    if not story.probes:
        return Html("")
    rows = [row for probe in story.probes[-MOST_PROBES:] for row in _probe(probe, story, colours)]
    content = [table("Probes", PROBE_COLUMNS, rows), *_cut_off(len(story.probes), MOST_PROBES, "last", "probes")]
    note = "speed relative to all of the device; seen: after the probe, until the next"
    return _section("probes", "Predicted, and seen", content, noise, note=note)


def _probe(probe: ProbeStory, story: RunStory, colours: Mapping[str, str]) -> list[list[str]]:
    where = f"{story.devices[probe.gpu].name} at {duration(story.real_s(probe.at_s))}"
    return [
        [
            join(swatch(colours[found.job_id]), found.job_id),
            where,
            found.profile,
            f"{found.predicted.speed:.2f}",
            f"{found.predicted.low:.2f} to {found.predicted.high:.2f}",
            _seen(found, story),
        ]
        for found in probe.predictions
    ]


def _seen(found: Prediction, story: RunStory) -> str:
    """Relative if that can be said; a speed that nothing can be compared with is given as it is."""
    if found.seen is not None:
        return f"{found.seen:.2f}"
    if found.batches_per_s is None:
        return "not seen"
    return f"{number(found.batches_per_s * story.pace)} steps/s; not seen on all of it"


def _decisions(story: RunStory, colours: Mapping[str, str]) -> Html:
    if not story.decided:
        return Html("")
    rows = [_decision(decided, story, colours) for decided in story.decided[-MOST_DECISIONS:]]
    shown = table("Decisions", DECISION_COLUMNS, rows)
    more = _cut_off(len(story.decided), MOST_DECISIONS, "last", "reasons")
    return pages.section("decisions", "Decisions, and why", shown, *more)


def _decision(decided: Decided, story: RunStory, colours: Mapping[str, str]) -> list[str]:
    lines = [text.strip() for _, text in because(decided.reason)]
    refused = [] if decided.rejected is None else [tag("span", f" Refused: {decided.rejected}", class_="bad")]
    subject = decided.reason.subject
    mark = [swatch(colours[subject])] if subject in colours else []
    return [
        join(*mark, subject),
        _seconds(decided.at_s, story),
        decided.cause,
        join("; ".join(lines), *refused),
    ]


def _cut_off(there: int, most: int, which: str, what: str) -> list[Html]:
    return [pages.remark(f"The {which} {most:,} of {there:,} {what}.")] if there > most else []


def _closing(story: RunStory) -> Html:
    why = join("All of a job's way: ", tag("code", "gpuloom explain STATE JOB"), ".")
    if story.pace == 1:
        return tag("p", why)
    paced = f"Times are real; one real second was {story.pace:g} of the engine's, which reasons and causes speak of. "
    return tag("p", paced, why)


def _duration(engine_s: float | None, story: RunStory) -> str:
    return "–" if engine_s is None else duration(story.real_s(engine_s))


def _seconds(engine_s: float | None, story: RunStory) -> str:
    """A column of times is easier to compare with as many decimals in each row."""
    return "–" if engine_s is None else f"{story.real_s(engine_s):,.2f}"
