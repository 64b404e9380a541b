"""Every policy with every seed: the same figures from workers and from a file that was cut off anywhere."""

import json
from dataclasses import replace
from multiprocessing import active_children
from pathlib import Path

import pytest

from gpuloom.errors import InputError
from gpuloom.sim.compare.runs import Task, read_done, run_all, tasks_for
from gpuloom.sim.compare.statistics import for_people, summarise
from gpuloom.sim.inputs import Inputs

SMALL = Inputs(gpus="2xA100-40GB", jobs=25)
TINY = Inputs(gpus="1xA100-40GB", jobs=2)


def test_workers_and_resumed_runs_give_the_same_figures(tmp_path: Path) -> None:
    tasks = tasks_for(SMALL, ["whole-fifo", "oracle"], [1, 2], timelines=False)
    done = tmp_path / "done.jsonl"

    def rows(workers: int, path: Path | None) -> list[dict[str, object]]:
        return [{**row, "wall_s": 0} for row, _ in run_all(tasks, workers, path)]

    alone = rows(1, None)
    assert rows(2, done) == alone
    whole = done.read_text()
    done.write_text(whole[: len(whole) // 2])  # the power went out while it was written
    assert rows(1, done) == alone
    assert len(read_done(done)) >= 2
    table = summarise(alone, "whole-fifo")
    assert [row["policy"] for row in table] == ["whole-fifo", "oracle"]
    assert table[0]["ratio_to_whole-fifo"] == 1.0


def test_an_edited_trace_is_run_again(tmp_path: Path) -> None:
    trace, done = tmp_path / "trace.jsonl", tmp_path / "done.jsonl"
    inputs = Inputs(trace, gpus="1xV100")
    means = []
    for length_s in (100, 5000, 5000):
        trace.write_text(f'{{"id": "a", "length_s": {length_s}}}\n')
        ((row, _),) = run_all(tasks_for(inputs, ["whole-fifo"], [1], timelines=False), 1, done)
        means.append(row["avg_jct_s"])
    assert means == [110, 5010, 5010]
    assert len(read_done(done)) == 2


def test_a_policy_that_completes_nothing_is_shown_as_such(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text('{"id": "a", "kind": "sliceable", "workload": "bert 8", "length_s": 100}\n')
    tasks = tasks_for(Inputs(trace, gpus="1xA100-40GB"), ["whole-fifo", "static:1,1,1,1,1,1,1"], [1], timelines=False)
    table = summarise([row for row, _ in run_all(tasks, 1)], "whole-fifo")
    assert (table[1]["avg_jct_s"], table[1]["given_up"], table[1]["difference_s"]) == (None, 1, None)
    assert for_people(table, "whole-fifo")[1]["jobs given up"] == "1"


def test_ctrl_c_ends_the_workers() -> None:
    tasks = tasks_for(SMALL, ["whole-fifo", "oracle"], [1, 2, 3], timelines=False)

    workers = []

    def interrupt(done: int) -> None:  # noqa: ARG001
        workers.extend(active_children())
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_all(tasks, 2, on_progress=interrupt)
    assert workers
    for worker in workers:
        worker.join(30)  # the pool waits for them too, and whoever comes second is not told that they have ended
        stat = Path(f"/proc/{worker.pid}/stat")
        assert not stat.exists() or ") Z " in stat.read_text()


def test_a_file_that_was_cut_off_at_any_byte_keeps_its_whole_lines(tmp_path: Path) -> None:
    done = tmp_path / "done.jsonl"
    known = [("first", {"jobs": 1}), ("zweitär", {"jobs": 2, "layout": "3,2,2"}), ("third", {})]
    lines = [json.dumps({"key": key, "figures": row}, ensure_ascii=False).encode() + b"\n" for key, row in known]
    whole = b"".join(lines)
    ends = [sum(map(len, lines[:count])) for count in range(len(lines) + 1)]
    for length in range(len(whole) + 1):
        done.write_bytes(whole[:length])
        kept = max(count for count, end in enumerate(ends) if end <= length)
        assert list(read_done(done).items()) == known[:kept]
        assert done.read_bytes() == whole[: ends[kept]], "what was cut off is gone, so that lines can follow"


@pytest.mark.parametrize("part", [0.0, 0.2, 0.5, 0.7, 0.999, 1.0])
def test_a_comparison_goes_on_where_it_was_cut_off(part: float, tmp_path: Path) -> None:
    done = tmp_path / "done.jsonl"
    tasks = tasks_for(TINY, ["whole-fifo", "whole-sjf"], [1, 2], timelines=False)
    first = [{**row, "wall_s": 0} for row, _ in run_all(tasks, 1, done)]
    whole = done.read_bytes()
    done.write_bytes(whole[: round(part * len(whole))])
    seen: list[int] = []
    again = [{**row, "wall_s": 0} for row, _ in run_all(tasks, 1, done, seen.append)]
    assert again == first
    assert len(seen) == 4 - whole[: round(part * len(whole))].count(b"\n"), "only what is missing is run"
    assert [json.loads(line)["key"] for line in done.read_text().splitlines()] == [task.key for task in tasks]


@pytest.mark.parametrize("line", ["{", "5", "[]", "{}", '{"key": "a"}', '{"key": [], "figures": {}}', "\x00"])
def test_a_file_of_something_else_is_not_touched(line: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text('{"key": "a", "figures": {"jobs": 1}}\n' + line + "\n")
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"mine\.jsonl:2: not a line of a gpuloom results file"):
        read_done(path)
    assert path.read_bytes() == before
    assert read_done(tmp_path / "absent.jsonl") == {}


def test_a_run_is_known_by_what_its_files_hold(tmp_path: Path) -> None:
    """The same contents elsewhere are the same run; another seed, policy, option or byte is another."""
    first, second = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    for path in (first, second):
        path.write_text('{"id": "a", "length_s": 100}\n')
    task = Task(Inputs(first, gpus="1xV100"), "whole-fifo", 1)
    assert task.key == replace(task, inputs=Inputs(second, gpus="1xV100")).key
    assert task.key == replace(task, keep_timeline=True).key
    others = [
        replace(task, seed=2),
        replace(task, policy="whole-sjf"),
        replace(task, inputs=replace(task.inputs, gpus="2xV100")),
        replace(task, inputs=replace(task.inputs, costs=("cut_s=1",))),
    ]
    assert len({task.key, *(other.key for other in others)}) == 5


def test_the_first_seed_of_each_policy_is_drawn() -> None:
    tasks = tasks_for(TINY, ["whole-fifo", "whole-sjf"], [3, 4], timelines=True)
    assert [(task.policy, task.seed, task.keep_timeline) for task in tasks] == [
        ("whole-fifo", 3, True),
        ("whole-fifo", 4, False),
        ("whole-sjf", 3, True),
        ("whole-sjf", 4, False),
    ]
    results = run_all(tasks, 1)
    assert [data is not None for _, data in results] == [True, False, True, False]


def test_a_run_that_fails_says_why_in_a_worker_too(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text('{"id": "wide", "gpus": 3, "length_s": 100}\n')
    tasks = tasks_for(Inputs(trace, gpus="1xV100"), ["whole-fifo", "whole-sjf"], [1, 2], timelines=False)
    for workers in (1, 2):
        with pytest.raises(InputError, match=r"wide .*fits nowhere"):
            run_all(tasks, workers)
