"""What the end of a process means, and how fast a job is: by what its keeper and its reports say."""

import signal
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuloom.gpus.grant import Grant
from gpuloom.live.jobs import Fate, LiveJob, ending, has_stalled
from gpuloom.live.store import Exit, Launch, Progress

CODES = st.sampled_from([0, 1, 3, 143, -signal.SIGTERM, -signal.SIGKILL, -signal.SIGSEGV])
LEFT = st.none() | st.builds(Exit, CODES, st.booleans())


def job(**more: object) -> LiveJob:
    live = LiveJob("a", (Grant(0),), Launch(Path("launch"), 1, 1, None), None)
    for name, value in more.items():
        setattr(live, name, value)
    return live


@pytest.mark.parametrize(
    ("live", "left", "fate", "cause"),
    [
        (job(), Exit(0, asked=False), Fate.COMPLETED, "done"),
        (job(stopping=True), Exit(0, asked=False), Fate.COMPLETED, "done"),
        (job(), Exit(3, asked=False), Fate.CRASHED, "exit code 3"),
        (job(), None, Fate.CRASHED, "its processes were killed"),
        (job(stopping=True), Exit(0, asked=True), Fate.STOPPED, "checkpointed"),
        (job(stopping=True), Exit(-signal.SIGTERM, asked=True), Fate.STOPPED, "ended by SIGTERM"),
        (job(stopping=True), Exit(3, asked=True), Fate.STOPPED, "exit code 3 after SIGTERM"),
        (job(stopping=True, killed=True, kill_at_s=9.0), None, Fate.STOPPED, "killed 8 s after SIGTERM"),
        (job(stopping=True, killed=True, kill_at_s=0.0), None, Fate.STOPPED, "killed"),
        (job(kill_at_s=9.0), Exit(0, asked=True), Fate.COMES_BACK, "another share"),
        (job(kill_at_s=9.0, killed=True), None, Fate.COMES_BACK, "another share"),
        (job(kill_at_s=9.0), Exit(3, asked=True), Fate.COMES_BACK, "another share"),
    ],
)
def test_fates(live: LiveJob, left: Exit | None, fate: Fate, cause: str) -> None:
    assert ending(live, left, grace_s=8.0) == (fate, cause)


@given(LEFT, st.booleans(), st.booleans(), st.none() | st.floats(0.0, 100.0))
def test_nobody_completes_without_having_ended_well_by_itself(
    left: Exit | None, stopping: bool, killed: bool, kill_at_s: float | None
) -> None:
    fate, cause = ending(job(stopping=stopping, killed=killed, kill_at_s=kill_at_s), left, 8.0)
    assert cause
    assert (fate is Fate.COMPLETED) == (left == Exit(0, asked=False))
    if stopping:
        assert fate is not Fate.COMES_BACK


@dataclass(frozen=True)
class Look:
    """What has happened between two looks of the runner."""

    batches: int
    passed_s: float
    clock_set_s: float
    """By how much somebody has set the wall clock."""


LOOKS = st.lists(
    st.builds(Look, st.integers(0, 50), st.floats(0.01, 30.0), st.just(0.0) | st.floats(-1e6, 1e6)),
    min_size=1,
    max_size=20,
)


@given(LOOKS, st.floats(0.5, 10.0), st.sampled_from([1.0, 40.0]))
def test_speeds_add_up_to_what_was_done(looks: list[Look], every_s: float, pace: float) -> None:
    """Whatever was told covers the time from the first report on, no gap, none of it twice, whatever the wall clock."""
    live, step, now_s, unix_s = job(), 0, 0.0, 2e6
    live.batches_per_s(Progress(0, unix_s, 0.0), 0.0, every_s, pace)
    told, last_s = 0.0, 0.0
    for look in looks:
        step, now_s, unix_s = step + look.batches, now_s + look.passed_s, unix_s + look.passed_s + look.clock_set_s
        rate = live.batches_per_s(Progress(step, unix_s, now_s / pace), now_s, every_s, pace)
        if rate is not None:
            assert now_s - last_s >= every_s
            told, last_s = told + rate * (now_s - last_s), now_s
            assert told == pytest.approx(step)


@given(LOOKS, st.floats(0.5, 10.0))
def test_without_the_jobs_monotonic_clock_it_is_ours_that_counts(looks: list[Look], every_s: float) -> None:
    """From the first step that was seen to be new: the one before may have been done long ago."""
    live, step, now_s, unix_s = job(), 7, 0.0, 2e6
    live.batches_per_s(Progress(step, unix_s), 0.0, every_s, 1.0)
    new_at_s, began = list[float](), 0
    told = 0.0
    for look in looks:
        step, now_s, unix_s = step + look.batches, now_s + look.passed_s, unix_s + look.clock_set_s
        if look.batches:
            new_at_s.append(now_s)
            began = began or step
        rate = live.batches_per_s(Progress(step, unix_s), now_s, every_s, 1.0)
        if rate is not None:
            told += rate * (new_at_s[-1] - new_at_s[0])
            assert told == pytest.approx(step - began)
            new_at_s, began, told = [new_at_s[-1]], step, 0.0


def test_a_job_that_counts_from_the_beginning_again_is_measured_from_there() -> None:
    live = job()
    for step, now_s in ((500, 0.0), (3, 10.0)):
        assert live.batches_per_s(Progress(step, 0.0, now_s), now_s, 1.0, 1.0) is None
    assert live.batches_per_s(Progress(23, 0.0, 20.0), 20.0, 1.0, 1.0) == pytest.approx(2.0)


@given(st.lists(st.tuples(st.integers(0, 99), st.floats(0, 1e11), st.none() | st.floats(0, 1e11)), max_size=20))
def test_whatever_a_job_reports_no_speed_is_negative_or_endless(reports: list[tuple[int, float, float | None]]) -> None:
    live = job()
    for now_s, report in enumerate(reports):
        rate = live.batches_per_s(Progress(*report), float(now_s), 1.0, 1.0)
        assert rate is None or 0 < rate < float("inf")


REPORTS = st.lists(st.tuples(st.floats(0.01, 20.0), st.booleans()), max_size=20)


@given(REPORTS, st.floats(0.1, 30.0), st.floats(0.0, 30.0))
def test_who_says_nothing_new_for_so_long_has_stalled(
    looks: list[tuple[float, bool]], stall_s: float, up_by_s: float
) -> None:
    live, now_s, step, heard_s = job(up_by_s=up_by_s), 0.0, 0, list[float]()
    for passed_s, new in looks:
        now_s += passed_s
        if new:
            step += 1
            heard_s.append(now_s)
        if heard_s:
            live.hear(Progress(step, 0.0), now_s)  # the same again is nothing new
        live.up = bool(heard_s) or now_s >= up_by_s
        quiet_s = now_s - (heard_s[-1] if heard_s else up_by_s)
        assert has_stalled(live, now_s, stall_s) == (live.up and quiet_s >= stall_s)
        assert not has_stalled(live, now_s, None)


def test_who_starts_or_leaves_has_not_stalled() -> None:
    assert not has_stalled(job(up_by_s=5.0), 1e6, 1.0)
    assert has_stalled(job(up=True), 1e6, 1.0)
    assert not has_stalled(job(up=True, kill_at_s=2e6), 1e6, 1.0)


def test_what_is_new_ends_a_stall_that_was_told() -> None:
    live = job(up=True)
    live.hear(Progress(1, 0.0), 1.0)
    live.stall_told = True
    live.hear(Progress(1, 0.0), 2.0)
    assert live.stall_told
    live.hear(Progress(2, 0.0), 3.0)
    assert not live.stall_told
