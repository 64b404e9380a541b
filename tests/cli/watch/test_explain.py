"""`gpuloom explain`: nothing that was decided about a job is missing, and its times are those of the run."""

import csv
import io
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner
from typer.testing import Result as Printed

from gpuloom.cli.watch.explain import explain
from gpuloom.contract.plan import Plan, Reason
from gpuloom.contract.view import Report
from gpuloom.engine.events import (
    CutFailed,
    Event,
    GpuLeft,
    GpuLost,
    JobArrived,
    JobCancelled,
    JobCompleted,
    JobCrashed,
    JobReported,
    JobStalled,
    JobStarted,
    PolicyReset,
)
from gpuloom.engine.history import Entry, What, follow
from gpuloom.engine.log import Header, Scribe, header_line, opened, read
from gpuloom.engine.machine import Decision
from gpuloom.engine.story import story
from gpuloom.errors import InputError
from gpuloom.gpus.grant import Grant
from gpuloom.sim.faults import Faults
from gpuloom.sim.run import Result, simulate
from gpuloom.sim.scenario import Scenario
from gpuloom.work.model import Job
from gpuloom.work.traces import read_trace
from tests.engine.old_lines import old_line

GPUS = "2xA100-40GB"
FAULTS = Faults(
    (*(JobCrashed(400.0, "segfault", f"job-{at}") for at in range(6)), GpuLost(700.0, "fell off the bus", 1)),
    failing_cuts=frozenset({2, 5}),
)
DECISIONS = {What.PLACED, What.MOVED, What.KEPT, What.PAUSED, What.CONSIDERED, What.REJECTED}

app = typer.Typer()
app.command()(explain)


def run(*args: str) -> Printed:
    return CliRunner().invoke(app, args)


def logged(folder: Path, policy: str, faults: Faults = FAULTS) -> tuple[Path, Result]:
    path = folder / "run.jsonl"
    jobs = read_trace(Path(), "synthetic", seed=2, jobs=30, gap_s=30.0)
    with path.open("w", encoding="utf-8") as out:
        result = simulate(Scenario(jobs, GPUS, faults=faults), policy, 2, log=out, timeline=True)
    return path, result


@pytest.fixture(scope="module", params=["whole-fifo", "static:3,2,2", "oracle", "mps-only:3"])
def logged_run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    return logged(tmp_path_factory.mktemp("log"), request.param)


def history(path: Path, job_id: str) -> list[Entry]:
    with path.open(encoding="utf-8") as lines:
        return list(follow(opened(lines, str(path))[1], job_id))


def decisions(path: Path) -> Iterator[Decision]:
    with path.open(encoding="utf-8") as lines:
        yield from (entry for entry in read(lines, "log") if isinstance(entry, Decision))


def test_every_decision_and_every_reason_is_there(logged_run: tuple[Path, Result]) -> None:
    path, result = logged_run
    reasons = Counter(reason for decision in decisions(path) for reason in decision.plan.reasons)
    granted = Counter(job_id for decision in decisions(path) for job_id in decision.plan.grants)
    assert reasons
    told: Counter[Reason] = Counter()
    for job_id in result.outcomes.ids:
        entries = history(path, job_id)
        told.update(reason for entry in entries for reason in entry.reasons)
        assert sum(entry.event in DECISIONS for entry in entries) >= granted[job_id]
        assert entries == sorted(entries, key=lambda entry: entry.at_s)
    assert told == reasons


def test_waits_work_and_starts_are_those_of_the_run(logged_run: tuple[Path, Result]) -> None:
    path, result = logged_run
    worked, started = defaultdict[str, float](float), Counter[str]()
    assert result.timeline is not None
    for segment in result.timeline.segments:
        if segment.phase == "running":
            worked[segment.job_id] += segment.end_s - segment.begin_s
            started[segment.job_id] += 1
    for job_id, wait_s in zip(result.outcomes.ids, result.outcomes.wait_s, strict=True):
        entries = history(path, job_id)
        totals = entries[-1].totals
        assert entries[0].event is What.ARRIVED
        assert entries[-1].event is What.COMPLETED
        assert totals.waited_s == pytest.approx(wait_s)
        assert totals.ran_s == pytest.approx(worked[job_id])
        assert totals.starts == sum(entry.event is What.STARTED for entry in entries) >= started[job_id]
        assert totals.moves == sum(entry.event is What.MOVED for entry in entries)
        ended = sum(entry.lasted_s or 0.0 for entry in entries if entry.event is not What.STARTED)
        assert totals.ran_s == pytest.approx(ended)


def test_what_went_wrong_is_told(logged_run: tuple[Path, Result]) -> None:
    path, result = logged_run
    events = {job_id: [entry.event for entry in history(path, job_id)] for job_id in result.outcomes.ids}
    assert any(What.CRASHED in of_job for of_job in events.values())
    assert any(What.GPU_LOST in of_job for of_job in events.values())
    if result.policy == "oracle":
        assert any(What.CUT_FAILED in of_job for of_job in events.values())


def test_the_story(tmp_path: Path) -> None:
    path, _ = logged(tmp_path, "oracle", Faults((JobCrashed(400.0, "segfault", "job-3"),)))
    text = run(str(path), "job-3").stdout
    assert text.startswith("job-3: ")
    assert "under oracle, seed 2, on 2xA100-40GB" in text
    assert "the fewest jobs of the GPUs with a slice for everybody" in text
    assert "instead of " in text
    assert "crashed    (segfault) after running " in text
    assert text.splitlines()[-1].startswith("waited ")
    assert "started 1 times" not in text


def test_json_is_a_list_of_objects_with_the_same_keys(tmp_path: Path) -> None:
    path, _ = logged(tmp_path, "oracle")
    rows = json.loads(run(str(path), "job-4", "--output", "json").stdout)
    assert {tuple(row) for row in rows} == {tuple(rows[0])}
    assert [row["event"] for row in rows][0 :: len(rows) - 1] == ["arrived", "completed"]
    reasons = [reason for row in rows for reason in row["reasons"]]
    assert all(set(reason) == {"chosen", "why", "value", "alternatives"} for reason in reasons)
    lines = list(csv.DictReader(io.StringIO(run(str(path), "job-4", "-o", "csv").stdout)))
    assert [line["chosen"] for line in lines if line["chosen"]] == [reason["chosen"] for reason in reasons]


def test_a_rejected_plan_is_told_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from gpuloom.gpus.grant import Grant\n"
        "from gpuloom.contract import Plan, Reason\n"
        "from gpuloom.policies.whole import WholeFifo\n"
        "class Careless(WholeFifo):\n"
        "    asked = 0\n"
        "    def decide(self, view):\n"
        "        self.asked += 1\n"
        "        if self.asked > 1:\n"
        "            return super().decide(view)\n"
        "        first = next(iter(view.waiting))\n"
        "        return Plan(grants={first: (Grant(99),)}, reasons=(Reason(first, 'GPU 99', 'a typing error'),))\n"
    )
    path, result = logged(tmp_path, f"{tmp_path / 'mine.py'}:Careless", Faults())
    assert result.summary.plans_rejected == 1
    text = run(str(path), "job-0").stdout
    assert "rejected   on gpu99 (submitted): " in text
    assert "GPU 99: a typing error" in text
    (rejected,) = [entry for entry in history(path, "job-0") if entry.event is What.REJECTED]
    assert rejected.rejected
    assert [entry.event for entry in history(path, "job-0")].count(What.PLACED) == 1


def hand_made(folder: Path) -> Path:
    """What the simulator does not do: reports of an elastic job, a pause, a cancellation, a job named like a cause."""
    two, one = (Grant(0), Grant(1)), (Grant(0),)
    entries: list[Event | Decision] = [
        JobArrived(0.0, "submitted", Job("round", workload="bert", gpus=2, mem_mib=2048, priority=3)),
        Decision(
            1.0, "round", Plan(grants={"round": two}, reasons=(Reason("round", "2 GPUs", "all there is", 1.5),)), None
        ),
        JobStarted(2.0, "processes are up", "round"),
        *(JobReported(2.0 + at, "report", "round", Report(2.0 + at, at, at * 10.0, 0.5)) for at in range(1, 6)),
        Decision(10.0, "round", Plan(grants={"other": one}), None),
        Decision(20.0, "round", Plan(grants={"round": one}, reasons=(Reason("round", "1 GPU", "shrunk"),)), None),
        CutFailed(21.0, "stopped half-way", 0, ()),
        JobStarted(25.0, "processes are up", "round"),
        Decision(30.0, "round", Plan(grants={"round": ()}), None),
        JobCancelled(40.0, "round", "round"),
    ]
    path, scribe = folder / "hand.jsonl", Scribe()
    turns = [scribe.line([], entry) if isinstance(entry, Decision) else scribe.line([entry]) for entry in entries]
    text = header_line(Header(GPUS, "mine", 0)) + "".join(turns)
    path.write_text(text + '{"Turn":{"number":99,"events":[],"cau', encoding="utf-8")
    return path


def test_reports_pauses_and_cancellations(tmp_path: Path) -> None:
    entries = history(hand_made(tmp_path), "round")
    assert [entry.event.value for entry in entries] == [
        "arrived", "placed", "started", "reported", "moved", "cut failed", "started", "paused", "cancelled",
    ]  # fmt: skip
    assert entries[3].report is not None
    assert entries[3].report.epoch == 5
    assert entries[-1].totals.ran_s == 18.0 + 5.0
    assert [entry.others for entry in entries if entry.others] == [1]
    lines = [line for _, line in story("round", Header(GPUS, "mine", 0), entries)]
    assert lines[0] == "round: bert, rigid, 2 GPUs, 2,048 MiB, priority 3"
    assert lines[-1] == "waited 2 s, ran 23 s, 40 s in all; started 2 times, moved once"
    assert any("epoch 5, progress 50.0, metric 0.500" in line for line in lines)


def test_an_unknown_job_gets_names_that_are_near(tmp_path: Path) -> None:
    path, _ = logged(tmp_path, "whole-fifo")
    for asked, hint in (("jb-17", "job-17"), ("JOB-2", "job-2"), ("zzz", "30 jobs")):
        answer = run(str(path), asked)
        assert isinstance(answer.exception, InputError)
        assert f"no job {asked!r}" in str(answer.exception)
        assert hint in str(answer.exception)


@pytest.mark.parametrize(
    "content",
    [b"", b"\n", b"not a log\n", b'{"Tick":{"at_s":1,"cause":"round"}}\n', b"\xff\xfe\x00\n", b'{"Header":{"gpus":"x"'],
)
def test_what_is_not_a_log_is_refused_in_one_sentence(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_bytes(content)
    answer = run(str(path), "job-1")
    assert isinstance(answer.exception, InputError)
    assert "bad.jsonl" in str(answer.exception)
    missing = run(str(tmp_path / "absent"), "job-1")
    assert isinstance(missing.exception, InputError)
    assert isinstance(run(str(tmp_path), "job-1").exception, InputError)


def test_a_broken_line_about_the_job_is_named(tmp_path: Path) -> None:
    path = hand_made(tmp_path)
    path.write_text(old_line(Header(GPUS, "mine", 0)) + '{"Nothing":{"job_id":"a"}}\n', encoding="utf-8")
    assert "hand.jsonl:2" in str(run(str(path), "a").exception)


def test_what_stalls_what_leaves_and_a_policy_that_forgot_are_told(tmp_path: Path) -> None:
    scribe, path = Scribe(), tmp_path / "turns.jsonl"
    arrivals = [JobArrived(0.0, "submitted", Job("a")), JobArrived(0.0, "submitted", Job("b"))]
    grants = {"a": (Grant(0),), "b": (Grant(1),)}
    turns = [
        scribe.line(arrivals, Decision(0.0, "submitted", Plan(grants=grants))),
        scribe.line(
            [JobStarted(1.0, "up", "a"), JobStarted(1.0, "up", "b"), JobStalled(60.0, "no step for 50 s", "b")]
        ),
        scribe.line([JobCompleted(61.0, "done", "a"), PolicyReset(62.0, "memory is unreadable")]),
        scribe.line([GpuLeft(70.0, "unplugged", 1)], Decision(70.0, "unplugged", Plan(grants={"c": ()}))),
        scribe.line([], Decision(80.0, "round", Plan(grants={"c": ()}))),
    ]
    path.write_text(header_line(Header(GPUS, "mine", 0)) + "".join(turns), encoding="utf-8")
    assert [entry.event.value for entry in history(path, "a")] == ["arrived", "placed", "started", "completed"]
    told = history(path, "b")
    assert [entry.event.value for entry in told] == [
        "arrived", "placed", "started", "stalled", "policy reset", "gpu left",
    ]  # fmt: skip
    assert (told[-1].lasted_s, told[-1].gpu) == (69.0, 1)
    text = run(str(path), "b").stdout
    assert "stalled    (no step for 50 s)" in text
    assert "policy reset (memory is unreadable)" in text
    assert "gpu left   GPU 1 (unplugged) after running 1 m 9 s" in text
