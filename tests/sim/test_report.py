"""The report: one page that is whole, safe, bounded, and the same for the same runs."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuloom.gpus.grant import Grant
from gpuloom.sim.report import RunData, run_data, write_report
from gpuloom.sim.report.embed import MOST_GPUS, MOST_RUNS, MOST_SEGMENTS
from gpuloom.sim.report.page import page
from gpuloom.sim.report.words import label
from gpuloom.sim.run import figures, simulate
from gpuloom.sim.scenario import Scenario
from gpuloom.sim.timeline import Segment
from gpuloom.work.model import TraceJob
from gpuloom.work.traces import read_trace
from tests.pages.seen import Seen, asks_for_nothing

GPUS = "2xA100-40GB"
POLICIES = ("whole-fifo", "static:3,2,2", "oracle", "mps-only:3")
HOSTILE = ("</script><b>", "<!--<script>", '"><img src=x onerror=alert(1)>', "&lt;i&gt;", "'\\\u2028{{$data}}")


def trace(jobs: int = 30) -> list[TraceJob]:
    return read_trace(Path(), "synthetic", seed=3, jobs=jobs, gap_s=20.0)


def run(policy: str, jobs: list[TraceJob] | None = None) -> RunData:
    return run_data(simulate(Scenario(jobs or trace(), GPUS), policy, 3, timeline=True), GPUS)


@pytest.fixture(scope="module")
def runs() -> list[RunData]:
    return [run(policy) for policy in POLICIES]


def rows_of(runs: list[RunData]) -> list[dict[str, object]]:
    return [{"policy": run.policy, **run.summary} for run in runs]


def charts(text: str) -> list[dict[str, Any]]:
    """What the charts of a page draw, run by run."""
    return list(Seen(text).data["runs"])


def test_the_page_is_whole_and_asks_for_nothing(runs: list[RunData], tmp_path: Path) -> None:
    write_report(tmp_path / "out.html", "A title", runs, rows_of(runs), ["A note."])
    text = (tmp_path / "out.html").read_text(encoding="utf-8")
    seen = Seen(text)
    assert len(seen.of("table")) == len(seen.of("main")) == 1
    assert seen.said("h1") == ["A title"]
    assert "A note." in seen.said("li")
    assert asks_for_nothing(text)


def test_names_cannot_become_html() -> None:
    jobs = [replace(entry, job=replace(entry.job, id=name)) for entry, name in zip(trace(), HOSTILE, strict=False)]
    nasty = replace(run("oracle", jobs), policy=HOSTILE[0])
    text = page(HOSTILE[2], [nasty], [{"policy": HOSTILE[0], "note": HOSTILE[1]}] * 2, HOSTILE)
    seen = Seen(text)
    assert len(seen.of("script")) == 2
    assert not seen.of("b") + seen.of("img")
    assert seen.said("h1") == [HOSTILE[2]]
    assert set(charts(text)[0]["jobs"]) == set(HOSTILE)


def test_the_same_runs_give_the_same_bytes(runs: list[RunData]) -> None:
    again = [run(policy) for policy in POLICIES]
    assert page("t", runs, rows_of(runs)) == page("t", again, rows_of(again))
    result = simulate(Scenario(trace(), GPUS), "oracle", 3)
    one, other = (page("t", [], [figures(replace(result, wall_s=wall_s))]) for wall_s in (1.0, 2.0))
    assert one == other


def test_every_segment_is_in_the_page(runs: list[RunData]) -> None:
    for run, chart in zip(runs, charts(page("t", runs, [])), strict=True):
        drawn = {
            (gpu, "" if job < 0 else chart["jobs"][job], phase, begin_s, end_s, chart["devices"][device])
            for gpu, _, _, job, phase, begin_s, end_s, device in chart["segments"]
        }
        kept = {
            (s.grant.gpu, s.job_id, PHASES[s.phase], round(s.begin_s, 3), round(s.end_s, 3), str(s.grant))
            for s in run.segments
        }
        assert drawn == kept
        assert chart["policy"] == run.policy
        assert len(chart["curves"]) == 3
        assert all(curve["at_s"] for curve in chart["curves"])


PHASES = {"running": 0, "starting": 1, "stopping": 2, "cutting": 3}


def big(segments: int, gpus: int) -> RunData:
    rows = [Segment(at, at + 5.0, f"job-{at // 7}", Grant(at % gpus), "running") for at in range(segments)]
    curve = [(float(at), at % 10 / 10) for at in range(1000)]
    return RunData("big", 1, f"{gpus}xA100-40GB", {"jobs": segments}, rows, curve, curve, curve)


def test_a_large_run_shows_its_first_gpus_and_says_so() -> None:
    text = page("t", [big(100_000, 2000)] * 2, [])
    assert len(text) < 1_000_000
    assert f"GPU 0 to {MOST_GPUS - 1} of 2,000" in text
    assert max(row[0] for row in charts(text)[0]["segments"]) == MOST_GPUS - 1


def test_a_run_too_long_for_one_gpu_shows_its_beginning_and_says_so() -> None:
    text = page("t", [big(100_000, 1)], [])
    assert len(text) < 5_000_000
    assert "ends early" in text
    assert len(charts(text)[0]["segments"]) == MOST_SEGMENTS


def test_many_runs_stay_bounded() -> None:
    one = big(5_000, 8)
    text = page("t", [replace(one, seed=seed) for seed in range(40)], [])
    assert len(text) < 6_000_000
    assert f"the first {MOST_RUNS} of 40 runs" in text


def test_runs_without_a_timeline_and_no_runs_at_all_make_pages(runs: list[RunData]) -> None:
    bare = run_data(simulate(Scenario(trace(5), GPUS), "whole-fifo", 3), GPUS)
    assert charts(page("t", [bare], []))[0]["segments"] == []
    assert Seen(page("t", [], [])).said("h1") == ["t"]
    empty = replace(bare, summary={}, queue=(), utilisation=(), fragmentation=())
    assert len(charts(page("t", [empty, runs[0]], []))) == 2


def test_the_table_takes_whatever_columns_it_is_given() -> None:
    table = [
        {"policy": "a", "avg_jct_s": 2000.0, "stderr_s": 12.5, "ratio_to_a": 1.0, "ratio_stderr": 0.0, "diff": -1.0},
        {"policy": "b", "avg_jct_s": 1500.0, "stderr_s": None, "ratio_to_a": 0.75, "layout": "3,2,2", "diff": None},
    ]
    text = page("t", [], table)
    assert '2,000 <span class="error">± 12</span>' in text
    assert '<td class="number"><strong>1,500</strong><svg class="bar"' in text
    assert "stderr" not in text
    assert ">1.00<svg" in text
    assert '<td class="number">-1.00</td>' in text
    assert "3,2,2" in text
    assert "All figures" in page("t", [], table[:1])


def test_the_headline_is_the_best_policy_against_the_baseline(runs: list[RunData]) -> None:
    means = {run.policy: run.summary["avg_jct_s"] or 0.0 for run in runs}
    best = min(means, key=means.__getitem__)
    assert f"</i>{best}</h2>" in page("t", runs, [])
    assert " than whole-fifo</dd>" in page("t", runs, [])
    if best != "static:3,2,2":
        assert "static:3,2,2</dd>" in page("t", runs, [], baseline="static:3,2,2")
    stated = [{"policy": run.policy, "avg_jct_s": 7.0 if run.policy == "mps-only:3" else 9.0} for run in runs]
    assert "</i>mps-only:3</h2>" in page("t", runs, stated)


def test_columns_in_words() -> None:
    assert label("avg_jct_s") == ("mean completion time", "s")
    assert label("avg_jct_s_ratio") == ("mean completion time: ratio", "")
    assert label("mem_mib") == ("mem", "MiB")
    assert label("ratio_to_whole-fifo") == ("ratio to whole-fifo", "")
