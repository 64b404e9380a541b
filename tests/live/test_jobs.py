"""What the end of a process means, and how fast a job is: by what its keeper and its reports say."""

import signal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuloom.gpus.grant import Grant
from gpuloom.live.jobs import Fate, LiveJob, ending
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
        (job(stopping=True), Exit(-signal.SIGTERM, asked=True), Fate.STOPPED, "ended by SIGTERM without saving"),
        (job(stopping=True), Exit(3, asked=True), Fate.CRASHED, "exit code 3 when asked to stop"),
        (job(stopping=True, killed=True, kill_at_s=9.0), None, Fate.STOPPED, "killed 8 s after SIGTERM"),
        (job(stopping=True, killed=True, kill_at_s=0.0), None, Fate.STOPPED, "killed"),
        (job(kill_at_s=9.0), Exit(0, asked=True), Fate.COMES_BACK, "another share"),
        (job(kill_at_s=9.0, killed=True), None, Fate.COMES_BACK, "another share"),
        (job(kill_at_s=9.0), Exit(3, asked=True), Fate.CRASHED, "exit code 3"),
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


STEPS = st.lists(st.tuples(st.integers(0, 50), st.floats(0.0, 30.0)), min_size=1, max_size=20)


@given(STEPS, st.floats(0.5, 10.0))
def test_speeds_add_up_to_what_was_done(deltas: list[tuple[int, float]], every_s: float) -> None:
    """Whatever was told covers the time from the first report on without a gap, and none of it twice."""
    live, step, now_s = job(), 0, 0.0
    live.batches_per_s(Progress(0, 0.0), 0.0, every_s, 1.0)
    told, last_s = 0.0, 0.0
    for more, passed_s in deltas:
        step, now_s = step + more, now_s + passed_s
        rate = live.batches_per_s(Progress(step, now_s), now_s, every_s, 1.0)
        if rate is not None:
            assert now_s - last_s >= every_s
            told, last_s = told + rate * (now_s - last_s), now_s
            assert told == pytest.approx(step)


def test_a_clock_that_goes_back_tells_nothing() -> None:
    live = job()
    assert live.batches_per_s(Progress(0, 100.0), 0.0, 1.0, 1.0) is None
    assert live.batches_per_s(Progress(50, 90.0), 10.0, 1.0, 1.0) is None
    assert live.batches_per_s(Progress(60, 110.0), 20.0, 1.0, 1.0) == pytest.approx(6.0)
