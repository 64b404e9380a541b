"""A job's way through a log: whatever the policy and the faults, nothing of it is lost and its seconds add up."""

from io import StringIO
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.engine.events import JobReported
from gpuloom.engine.history import Entry, What, follow, job_ids
from gpuloom.engine.log import opened, read
from gpuloom.engine.story import rows, story
from gpuloom.sim.inputs import Inputs, load
from gpuloom.sim.run import simulate
from tests.engine.resized import tell_of_a_resize

POLICIES = st.sampled_from(["whole-fifo", "static:3,2,2", "mps-only", "oracle", "miso-paper", "miso"])
FAULTS = st.lists(
    st.sampled_from(["gpu-lost:1@300", "gpu-restored:1@900", "crash:job-2@400", "crash:job-0@700", "cut-fails:1"]),
    unique=True,
).map(lambda faults: sorted(faults, reverse=True))
ENDS = {What.COMPLETED, What.CRASHED, What.CANCELLED, What.STOPPED}


def logged(policy: str, faults: list[str], seed: int) -> list[str]:
    if "gpu-lost:1@300" in faults and "gpu-restored:1@900" not in faults:
        faults = [*faults, "gpu-restored:1@900"]  # a run that cannot end has no log of its end
    inputs = Inputs(gpus="2xA100-40GB", jobs=8, gap_s=60.0, faults=tuple(faults))
    log = StringIO()
    simulate(load(inputs, seed), policy, seed, log=log)
    return log.getvalue().splitlines(keepends=True)


def follow_in(lines: list[str], job_id: str) -> list[Entry]:
    return list(follow(opened(lines, "log")[1], job_id))


@settings(max_examples=15)
@given(POLICIES, FAULTS, st.integers(0, 50))
def test_nothing_is_lost_and_seconds_add_up(policy: str, faults: list[str], seed: int) -> None:
    lines = logged(policy, faults, seed)
    ids = list(job_ids(opened(lines, "log")[1]))
    assert len(ids) == len(set(ids)) == 8
    for job_id in ids:
        entries = follow_in(lines, job_id)
        check_way(entries)
        own = [one for one in read(lines, "log") if getattr(one, "job_id", None) == job_id]
        told = [entry for entry in entries if entry.event in ENDS | {What.STARTED}]
        assert len(told) == len([one for one in own if not isinstance(one, JobReported)])


def check_way(entries: list[Entry]) -> None:
    first, last = entries[0], entries[-1]
    assert first.event is What.ARRIVED
    assert [entry.at_s for entry in entries] == sorted(entry.at_s for entry in entries)
    starts = [entry for entry in entries if entry.event is What.STARTED]
    assert last.totals.starts == len(starts)
    if starts:
        assert last.totals.waited_s == pytest.approx(starts[0].at_s - first.at_s)
    assert last.totals.ran_s <= last.at_s - first.at_s + 1e-6
    for before, after in pairwise(entries):
        assert after.totals.ran_s >= before.totals.ran_s
        assert after.totals.starts >= before.totals.starts
        assert after.totals.moves >= before.totals.moves


@settings(max_examples=8)
@given(POLICIES, st.integers(0, 20))
def test_words_and_rows_tell_of_every_entry(policy: str, seed: int) -> None:
    lines = logged(policy, [], seed)
    header, rest = opened(lines, "log")
    entries = list(follow(rest, "job-3"))
    assert [row["event"] for row in rows(entries)] == [entry.event.value for entry in entries]
    assert len(rows(entries, flat=True)) == sum(max(len(entry.reasons), 1) for entry in entries)
    text = "\n".join(line for _, line in story("job-3", header, entries))
    assert text.startswith("job-3")
    assert all(f"{entry.at_s:>12,.1f} s  {entry.event.value}" in text for entry in entries)
    assert all(reason.why in text for entry in entries for reason in entry.reasons)


def test_a_line_that_was_cut_off_ends_the_history() -> None:
    lines = logged("whole-fifo", [], 1)
    whole = follow_in(lines, "job-7")
    for broken in (lines[-1].rstrip("\n"), lines[-1].replace('"number":', '"Number":')):
        assert follow_in([*lines[:-1], broken], "job-7") in (whole, whole[:-1])


def test_who_is_not_in_the_log_has_no_history() -> None:
    assert follow_in(logged("whole-fifo", [], 1), "job-99") == []


def test_a_job_that_is_resized_in_place_goes_on() -> None:
    lines = tell_of_a_resize()
    entries = follow_in(lines, "a")
    assert [entry.event for entry in entries] == [
        *(What.ARRIVED, What.PLACED, What.STARTED, What.RESIZING, What.RESCALED, What.GPU_LOST, What.RESCALED),
        *(What.RESIZING, What.RESCALE_FAILED, What.STOPPED, What.STARTED, What.COMPLETED),
    ]
    header, rest = opened(lines, "log")
    text = "\n".join(line for _, line in story("a", header, list(follow(rest, "a"))))
    assert "rescaled   on gpu0, gpu1 (goes on)" in text
    assert "rescale failed (no room)" in text
    assert "started 2 times, never moved, resized 2 times" in text
    assert entries[-1].totals.ran_s == 62.0 - 12.0 - 2.0  # all but its restart
