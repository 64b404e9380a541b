"""The story of a run from its log: times add up, what was predicted stands beside what was seen; and its page."""

from itertools import pairwise

import pytest

from gpuloom.contract.plan import Plan, Reason
from gpuloom.contract.view import Report
from gpuloom.engine.events import (
    Event,
    GpuCut,
    GpuProbed,
    JobArrived,
    JobCancelled,
    JobCompleted,
    JobCrashed,
    JobReported,
    JobStarted,
    JobStopped,
)
from gpuloom.engine.log import Header, Scribe, header_line
from gpuloom.engine.machine import Decision
from gpuloom.errors import InputError
from gpuloom.gpus.cluster import describe, parse_cluster
from gpuloom.gpus.grant import Grant
from gpuloom.gpus.host.noise import Noise
from gpuloom.gpus.model import Instance
from gpuloom.live.report.gantt import MOST_TICKS, Bar, side_by_side, tick_s
from gpuloom.live.report.page import run_page
from gpuloom.live.report.replay import Condition, Doing
from gpuloom.live.report.story import RunStory, run_story
from gpuloom.perf.speed import Estimate
from gpuloom.work.model import Job, Kind
from tests.engine.resized import tell_of_a_resize
from tests.live.shop import Shop, interrupt, until
from tests.pages.seen import Seen, asks_for_nothing

UNCUT = "A100-40GB+resets"
LARGE, SMALL = Instance(4, "3g.20gb"), Instance(0, "2g.10gb")


class Log:
    """Turns written by hand."""

    def __init__(self, gpus: str = "1xA100-40GB") -> None:
        self._scribe = Scribe()
        self.lines = [header_line(Header(gpus, "by hand", 7, cluster=describe(parse_cluster(gpus))))]

    def turn(self, *events: Event, plan: Plan | None = None, rejected: str | None = None) -> None:
        decision = None if plan is None else Decision(events[-1].at_s, events[-1].cause, plan, rejected)
        self.lines.append(self._scribe.line(events, decision))


def job(name: str) -> Job:
    return Job(name, kind=Kind.SLICEABLE, mem_mib=1000)


def rated(at_s: float, name: str, batches_per_s: float) -> JobReported:
    return JobReported(at_s, "report", name, Report(at_s, batches_per_s=batches_per_s))


def alone_then_cut() -> Log:
    """One job on the whole GPU, then a probe beside another, then each on a slice."""
    log = Log()
    reason = Reason("a", "gpu0", "nobody else is here", 1.0, (("wait", 0.5),))
    log.turn(JobArrived(10.0, "submitted", job("a")), plan=Plan(grants={"a": (Grant(0),)}, reasons=(reason,)))
    log.turn(JobStarted(12.0, "it reports", "a"))
    log.turn(rated(20.0, "a", 10.0))
    shares = {name: (Grant(0, share_pct=50.0),) for name in ("a", "b")}
    log.turn(JobArrived(30.0, "submitted", job("b")), plan=Plan(grants=shares, probes=(0,)))
    log.turn(JobStopped(31.0, "checkpointed", "a"))
    log.turn(JobStarted(33.0, "it reports", "a"), JobStarted(34.0, "it reports", "b"))
    slices = {"3g.20gb": Estimate(0.6, 0.5, 0.7), "2g.10gb": Estimate(0.4, 0.3, 0.5), "7g.40gb": Estimate(1.0, 0.9, 1)}
    apart = Plan({0: (SMALL, LARGE)}, {"a": (Grant(0, LARGE),), "b": (Grant(0, SMALL),)})
    log.turn(GpuProbed(40.0, "probed", 0, {"a": slices, "b": slices}), plan=apart)
    log.turn(JobStopped(41.0, "checkpointed", "a"), JobStopped(42.0, "checkpointed", "b"))
    log.turn(GpuCut(44.0, "cut", 0, (SMALL, LARGE)))
    log.turn(JobStarted(46.0, "it reports", "a"), JobStarted(46.0, "it reports", "b"))
    log.turn(rated(50.0, "a", 5.0), rated(51.0, "a", 7.0), rated(52.0, "b", 3.0))
    log.turn(JobCompleted(60.0, "done", "a"), JobCompleted(70.0, "done", "b"))
    return log


def told(log: Log, *names: str, pace: float = 1.0) -> RunStory:
    return run_story(log.lines, "log.jsonl", [job(name) for name in names], pace)


def check_times(story: RunStory) -> None:
    """What holds of every run."""
    for one in story.jobs:
        for before, after in pairwise(one.segments):
            assert before.end_s <= after.begin_s
        assert all(part.begin_s < part.end_s <= story.end_s for part in one.segments)
        if one.submitted_s is None:
            continue
        last_s = story.end_s if one.ended_s is None else one.ended_s
        assert one.waited_s + sum(part.lasted_s for part in one.segments) == pytest.approx(last_s - one.submitted_s)
        assert one.waited_s + one.ran_s <= last_s - one.submitted_s + 1e-6
    for device in story.devices:
        assert [before.end_s for before in device.spans[:-1]] == [after.begin_s for after in device.spans[1:]]
        assert sum(span.end_s - span.begin_s for span in device.spans) == pytest.approx(story.end_s)


# ---- written by hand -------------------------------------------------------------------------------------------------


def test_where_a_job_sat_and_what_it_did_there() -> None:
    story = told(alone_then_cut(), "a", "b", "c")
    check_times(story)
    first, second, third = story.jobs
    assert [(part.begin_s, part.end_s, str(part.grants[0]), part.doing) for part in first.segments] == [
        (10.0, 12.0, "gpu0", Doing.STARTING),
        (12.0, 30.0, "gpu0", Doing.RUNNING),
        (30.0, 31.0, "gpu0", Doing.STOPPING),
        (31.0, 33.0, "gpu0:50%", Doing.STARTING),
        (33.0, 34.0, "gpu0:50%", Doing.RUNNING),
        (34.0, 40.0, "gpu0:50%", Doing.PROBING),
        (40.0, 41.0, "gpu0:50%", Doing.STOPPING),
        (44.0, 46.0, "gpu0/3g.20gb@4", Doing.STARTING),
        (46.0, 60.0, "gpu0/3g.20gb@4", Doing.RUNNING),
    ]
    assert (first.waited_s, first.ran_s, first.starts, first.completion_s) == (3.0, 39.0, 3, 50.0)
    assert (second.submitted_s, second.ended_s, second.restarts, second.state) == (30.0, 70.0, 1, "completed")
    assert (third.state, third.submitted_s, third.segments) == ("not submitted", None, ())
    assert story.mean_completion_s == 45.0
    assert story.makespan_s is None  # the third has not ended
    assert told(alone_then_cut(), "a", "b").makespan_s == 60.0


def test_how_a_device_was_cut() -> None:
    (device,) = told(alone_then_cut(), "a", "b").devices
    assert [(span.begin_s, span.end_s, span.layout, span.condition) for span in device.spans] == [
        (0.0, 42.0, (), Condition.THERE),
        (42.0, 44.0, (), Condition.CUTTING),
        (44.0, 70.0, (SMALL, LARGE), Condition.THERE),
    ]


def test_predictions_stand_beside_what_was_seen() -> None:
    story = told(alone_then_cut(), "a", "b")
    (probe,) = story.probes
    seen = {(found.job_id, found.profile): found.seen for found in probe.predictions}
    assert seen[("a", "3g.20gb")] == pytest.approx(0.6)  # the median of 5 and 7, over the 10 on the whole GPU
    assert [place for place, found in seen.items() if found is not None] == [("a", "3g.20gb")]
    speeds = {(found.job_id, found.profile): (found.reports, found.relative) for found in story.speeds}
    assert speeds == {("a", "whole"): (1, 1.0), ("a", "3g.20gb"): (2, pytest.approx(0.6)), ("b", "2g.10gb"): (1, None)}


def test_who_crashes_too_often_or_is_cancelled_was_given_up() -> None:
    log = Log()
    place = Plan(grants={"a": (Grant(0),)})
    log.turn(JobArrived(0.0, "submitted", job("a")), plan=place)
    for at_s in (1.0, 2.0, 3.0):
        log.turn(JobCrashed(at_s, "exit code 1", "a"), plan=place)
    log.turn(JobCrashed(4.0, "exit code 2", "a"))
    log.turn(JobArrived(5.0, "submitted", job("b")), plan=Plan(grants={"b": (Grant(0),)}))
    log.turn(JobCancelled(6.0, "its owner", "b"))
    log.turn(JobStopped(8.0, "killed", "b"))
    story = told(log, "a", "b")
    check_times(story)
    assert [(one.state, one.crashes, one.starts, one.ended_s, one.cause) for one in story.jobs] == [
        ("given up", 4, 4, 4.0, "exit code 2"),
        ("given up", 0, 1, 8.0, "its owner"),
    ]
    assert (story.mean_completion_s, story.makespan_s) == (None, None)


def test_a_log_that_is_none_or_cannot_be() -> None:
    with pytest.raises(InputError, match=r"log\.jsonl: not a gpuloom log"):
        run_story(["{}\n"], "log.jsonl", [])
    log = Log()
    log.turn(JobStarted(1.0, "it reports", "nobody"))
    with pytest.raises(InputError, match="turn 1 cannot have happened"):
        told(log)


def test_a_log_of_nothing_has_a_page() -> None:
    story = told(Log(), "a")
    check_times(story)
    assert "not submitted" in run_page(story, ())


# ---- the page --------------------------------------------------------------------------------------------------------


def test_the_page_shows_real_seconds_and_what_was_not_seen() -> None:
    text = run_page(told(alone_then_cut(), "a", "b", pace=10.0), ("1xA100-40GB",))
    seen = Seen(text)
    assert asks_for_nothing(text)
    assert dict(zip(seen.said("dt"), seen.said("dd"), strict=True))["mean completion time"] == "4.5 s"
    assert "a: running on gpu0/3g.20gb@4, 4.6 s to 6 s (1.4 s)" in [found.get("title") for found in seen.of("div")]
    assert seen.said("td").count("not seen") == 4
    assert "30.0 steps/s; not seen on all of it" in seen.said("td")
    assert "one real second was 10 of the engine's" in "".join(seen.said("p"))
    assert "gpu0: nobody else is here (1); instead of wait (0.5)" in seen.said("td")


def test_the_noise_floor_stands_beside_every_measured_figure() -> None:
    story, floor = told(alone_then_cut(), "a", "b"), Noise(12.5, 3.25, 40)
    sentence = "the same work alone varies by 3.2 % (40 pieces of 12 ms); smaller differences mean nothing"
    assert str(floor) == sentence
    assert run_page(story, (), floor).count(f"Noise floor: {sentence}.") == 4
    assert "Noise floor" not in run_page(story, ())


def test_bars_that_overlap_lie_in_rows_of_their_own() -> None:
    spans = [(0, 4, "a"), (1, 3, "b"), (3, 9, "b"), (4, 6, "a"), (6, 8, "c")]
    bars = [Bar(begin, end, name, Grant(0, share_pct=50.0), Doing.RUNNING) for begin, end, name in spans]
    rows = side_by_side(bars)
    assert ["".join(bar.job_id for bar in row) for row in rows] == ["aac", "bb"]


@pytest.mark.parametrize("span_s", [1e-6, 0.3, 1.0, 7.0, 59.0, 1e5])
def test_few_ticks_fit_on_a_phone(span_s: float) -> None:
    assert MOST_TICKS / 3 < span_s / tick_s(span_s) <= MOST_TICKS


# ---- real runs on the stand-in ---------------------------------------------------------------------------------------


def story_of(shop: Shop) -> RunStory:
    run = shop.store.run()
    assert run is not None
    return run_story(shop.store.lines(), "log.jsonl", run.jobs, run.pace)


@pytest.mark.xdist_group("mps")
def test_the_story_of_a_run_adds_up(shop: Shop) -> None:
    shop.hardware.install(UNCUT)
    shop.job("text", "bert 8", 150)
    shop.job("paint", "cyclegan 1", 150)
    assert set(shop.run("miso-paper", pace=10).values()) == {"completed"}
    story = story_of(shop)
    check_times(story)
    assert [one.id for one in story.jobs] == ["text", "paint"]
    ended = {event["job_id"]: event["at_s"] for event in shop.events("JobCompleted")}
    assert {one.id: one.ended_s for one in story.completed} == ended
    starts = [one.starts for one in story.jobs]
    assert sum(starts) >= len(shop.events("JobStarted")) > len(starts)
    assert len(story.probes) == len(shop.events("GpuProbed")) > 0
    assert any(part.doing is Doing.PROBING for one in story.jobs for part in one.segments)
    assert any(len(span.layout) == 2 for span in story.devices[0].spans)
    assert asks_for_nothing(run_page(story, ()))


def test_the_page_is_written_at_the_end_after_an_interrupt_and_again(shop: Shop) -> None:
    shop.hardware.install(UNCUT)
    shop.job("a", steps=4000)
    page = shop.folder / "page.html"
    shop.options = ["--report", str(shop.folder / "no" / "p.html")]
    missing = shop.hardware.gpuloom(*shop.command_line("whole-fifo")[1:])
    assert (missing.returncode, "folder that exists" in missing.stderr) == (2, True)
    assert not shop.state.exists()
    shop.options = ["--report", str(page)]
    runner = shop.begin("whole-fifo")
    until(lambda: len(shop.steps("a")) > 5, "it works")
    interrupt(runner)
    shop.finish(runner, 130)
    assert "waiting" in Seen(page.read_text()).said("span")
    page.unlink()
    shop.finish(shop.begin("whole-fifo"))
    written = page.read_text()
    assert "1 of 1" in Seen(written).said("dd")
    page.unlink()
    again = shop.hardware.gpuloom("run", "--resume", "--state", str(shop.state), *shop.options)
    assert (again.returncode, f"report: {page}" in again.stderr) == (0, True)
    assert page.read_text() == written
    check_times(story_of(shop))


def test_a_job_that_was_resized_in_place() -> None:
    story = run_story(tell_of_a_resize(), "log", [Job("a", kind=Kind.ELASTIC, max_gpus=2, in_place=True)])
    (job,) = story.jobs
    assert (job.starts, job.rescales, job.ran_s) == (2, 2, (50.0 - 12.0) + (62.0 - 53.0))
    assert [(part.begin_s, len(part.grants)) for part in job.segments if part.doing is Doing.RESIZING] == [
        *((20.0, 2), (30.0, 2), (40.0, 2)),
    ]
    assert "resizes" in run_page(story, ())
