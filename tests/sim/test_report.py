"""The report: one page that is whole, safe, bounded, and the same for the same runs."""

import json
import re
from base64 import b64encode
from collections import Counter
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path

import pytest

from gpuloom.gpus.grant import Grant
from gpuloom.sim.report import RunData, run_data, write_report
from gpuloom.sim.report.embed import MOST_GPUS, MOST_RUNS, MOST_SEGMENTS
from gpuloom.sim.report.page import page
from gpuloom.sim.report.words import against, duration, label, number
from gpuloom.sim.run import Scenario, figures, simulate
from gpuloom.sim.timeline import Segment
from gpuloom.work.model import TraceJob
from gpuloom.work.traces import read_trace

GPUS = "2xA100-40GB"
POLICIES = ("whole-fifo", "static:3,2,2", "oracle", "mps-only:3")
HOSTILE = ("</script><b>", "<!--<script>", '"><img src=x onerror=alert(1)>', "&lt;i&gt;", "'\\\u2028{{$data}}")
VOID = frozenset({"meta", "link", "input", "br", "img", "hr"})


def trace(jobs: int = 30) -> list[TraceJob]:
    return read_trace(Path(), "synthetic", seed=3, jobs=jobs, gap_s=20.0)


def run(policy: str, jobs: list[TraceJob] | None = None) -> RunData:
    return run_data(simulate(Scenario(jobs or trace(), GPUS), policy, 3, timeline=True), GPUS)


@pytest.fixture(scope="module")
def runs() -> list[RunData]:
    return [run(policy) for policy in POLICIES]


class Page(HTMLParser):
    """What a browser would make of a page, as far as these tests ask."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str | None]] = []
        self.text: dict[str, str] = {}
        self.scripts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        self.tags[tag] += 1

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open:
            assert not data.strip()
        elif self.open[-1] == "script":
            self.scripts[-1] += data
        else:
            self.text[self.open[-1]] = self.text.get(self.open[-1], "") + data

    @property
    def charts(self) -> list[dict[str, object]]:
        return json.loads(self.scripts[0])["runs"]


def rows_of(runs: list[RunData]) -> list[dict[str, object]]:
    return [{"policy": run.policy, **run.summary} for run in runs]


def test_the_page_is_whole_and_asks_for_nothing(runs: list[RunData], tmp_path: Path) -> None:
    write_report(tmp_path / "out.html", "A title", runs, rows_of(runs), ["A note."])
    text = (tmp_path / "out.html").read_text(encoding="utf-8")
    seen = Page(text)
    assert seen.open == []
    assert seen.tags["h1"] == seen.tags["table"] == seen.tags["main"] == 1
    assert seen.text["h1"] == "A title"
    assert "A note." in seen.text["li"]
    assert not re.search(r"https?://|//cdn|@import|url\(", text)
    fetched = [value for _, name, value in seen.attributes if name in ("src", "href", "srcset", "action")]
    assert fetched == ["data:,"]


def test_the_only_script_that_may_run_is_ours(runs: list[RunData]) -> None:
    seen = Page(page("t", runs, []))
    policy = next(value for tag, name, value in seen.attributes if tag == "meta" and "default-src" in (value or ""))
    assert "default-src 'none'" in str(policy)
    digest = b64encode(sha256(seen.scripts[1].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in str(policy)


def test_names_cannot_become_html() -> None:
    jobs = [replace(entry, job=replace(entry.job, id=name)) for entry, name in zip(trace(), HOSTILE, strict=False)]
    nasty = replace(run("oracle", jobs), policy=HOSTILE[0])
    seen = Page(page(HOSTILE[2], [nasty], [{"policy": HOSTILE[0], "note": HOSTILE[1]}] * 2, HOSTILE))
    assert seen.open == []
    assert seen.tags["script"] == 2
    assert not seen.tags["b"] + seen.tags["img"]
    assert not [name for _, name, _ in seen.attributes if name.startswith("on")]
    assert seen.text["h1"] == HOSTILE[2]
    assert set(seen.charts[0]["jobs"]) == set(HOSTILE)


def test_the_same_runs_give_the_same_bytes(runs: list[RunData]) -> None:
    again = [run(policy) for policy in POLICIES]
    assert page("t", runs, rows_of(runs)) == page("t", again, rows_of(again))
    result = simulate(Scenario(trace(), GPUS), "oracle", 3)
    one, other = (page("t", [], [figures(replace(result, wall_s=wall_s))]) for wall_s in (1.0, 2.0))
    assert one == other


def test_every_segment_is_in_the_page(runs: list[RunData]) -> None:
    for run, chart in zip(runs, Page(page("t", runs, [])).charts, strict=True):
        drawn = Counter()
        for gpu, _, height, job, phase, begin_s, end_s, device in chart["segments"]:
            name = "" if job < 0 else chart["jobs"][job]
            drawn[gpu, name, phase, begin_s, end_s, chart["devices"][device]] += height
        kept = {
            (s.grant.gpu, s.job_id, PHASES[s.phase], round(s.begin_s, 3), round(s.end_s, 3), str(s.grant))
            for s in run.segments
        }
        assert set(drawn) == kept
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
    assert max(row[0] for row in Page(text).charts[0]["segments"]) == MOST_GPUS - 1


def test_a_run_too_long_for_one_gpu_shows_its_beginning_and_says_so() -> None:
    text = page("t", [big(100_000, 1)], [])
    assert len(text) < 5_000_000
    assert "ends early" in text
    assert len(Page(text).charts[0]["segments"]) == MOST_SEGMENTS


def test_many_runs_stay_bounded() -> None:
    one = big(5_000, 8)
    text = page("t", [replace(one, seed=seed) for seed in range(40)], [])
    assert len(text) < 6_000_000
    assert f"the first {MOST_RUNS} of 40 runs" in text


def test_runs_without_a_timeline_and_no_runs_at_all_make_pages(runs: list[RunData]) -> None:
    bare = run_data(simulate(Scenario(trace(5), GPUS), "whole-fifo", 3), GPUS)
    assert Page(page("t", [bare], [])).charts[0]["segments"] == []
    assert Page(page("t", [], [])).open == []
    empty = replace(bare, summary={}, queue=(), utilisation=(), fragmentation=())
    assert Page(page("t", [empty, runs[0]], [])).open == []


def test_the_table_takes_whatever_columns_it_is_given() -> None:
    table = [
        {"policy": "a", "avg_jct_s": 2000.0, "stderr_s": 12.5, "ratio_to_a": 1.0, "ratio_stderr": 0.0, "diff": -1.0},
        {"policy": "b", "avg_jct_s": 1500.0, "stderr_s": None, "ratio_to_a": 0.75, "layout": "3,2,2", "diff": None},
    ]
    text = page("t", [], table)
    assert '2,000 <span class="error">± 12</span>' in text
    assert '<td class="number best">1,500<i class="bar"' in text
    assert "stderr" not in text
    assert ">1.00<i" in text
    assert '<td class="number">-1.00</td>' in text
    assert "3,2,2" in text
    assert "All figures" in page("t", [], table[:1])


def test_the_headline_is_the_best_policy_against_the_baseline(runs: list[RunData]) -> None:
    means = {run.policy: run.summary["avg_jct_s"] for run in runs}
    best = min(means, key=means.__getitem__)
    assert f"</i>{best}</h2>" in page("t", runs, [])
    assert " than whole-fifo</dd>" in page("t", runs, [])
    if best != "static:3,2,2":
        assert "static:3,2,2</dd>" in page("t", runs, [], baseline="static:3,2,2")
    stated = [{"policy": run.policy, "avg_jct_s": 7.0 if run.policy == "mps-only:3" else 9.0} for run in runs]
    assert "</i>mps-only:3</h2>" in page("t", runs, stated)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0, "0 s"),
        (8.54, "8.54 s"),
        (59.99, "60 s"),
        (90, "1 m 30 s"),
        (3600, "1 h"),
        (6059, "1 h 41 m"),
        (3599.9, "1 h"),
        (172_799, "2 d"),
        (2e5, "2 d 8 h"),
    ],
)
def test_durations(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_comparisons_in_words() -> None:
    assert against(41.0, 100.0) == "59 % less than"
    assert against(110.0, 100.0) == "10 % more than"
    assert against(1.1, 100.0) == "98.9 % less than"
    assert against(320.0, 100.0) == "3.2 times"
    assert against(5.0, 5.0) == "the same as"
    assert against(5.0, 0.0) == ""


def test_columns_in_words() -> None:
    assert label("avg_jct_s") == ("mean completion time", "s")
    assert label("avg_jct_s_ratio") == ("mean completion time: ratio", "")
    assert label("mem_mib") == ("mem", "MiB")
    assert label("ratio_to_whole-fifo") == ("ratio to whole-fifo", "")
    assert [number(value) for value in (3, 0.0, 1234.5, 12.34, 1.0, 0.1234)] == [
        "3",
        "0",
        "1,234",
        "12.3",
        "1.00",
        "0.123",
    ]
