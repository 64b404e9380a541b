"""Whole runs: repeatable to the byte, sound under every policy, and no larger at the end than they need be."""

import io
from dataclasses import replace
from multiprocessing import active_children
from pathlib import Path

import pytest

from gpuloom.engine.log import replay
from gpuloom.engine.machine import Engine
from gpuloom.errors import InputError
from gpuloom.gpus.cluster import parse_cluster
from gpuloom.sim.body import VirtualBody
from gpuloom.sim.compare.runs import for_people, mean_and_error, read_done, run_all, summarise, tasks_for
from gpuloom.sim.costs import Costs
from gpuloom.sim.run import Scenario, build_policy, figures, make_world, simulate
from gpuloom.sim.scenario import Inputs, load
from gpuloom.work.model import Job, Kind, TraceJob

POLICIES = ["whole-fifo", "whole-sjf", "static:3,2,2", "mps-only", "oracle", "miso-paper", "miso", "best-static"]
SMALL = Inputs(gpus="2xA100-40GB", jobs=25)
RESTLESS = Inputs(
    gpus="2xA100-40GB", jobs=25, faults=("gpu-lost:0@900", "gpu-restored:0@1500", "crash:job-3@700", "cut-fails:3")
)


@pytest.mark.parametrize("policy", POLICIES)
def test_the_same_seed_gives_the_same_bytes(policy: str) -> None:
    logs, rows = [], []
    for _ in range(2):
        log = io.StringIO()
        rows.append({**figures(simulate(load(SMALL, 3), policy, 3, log=log)), "wall_s": 0})
        logs.append(log.getvalue())
    assert logs[0] == logs[1]
    assert rows[0] == rows[1]
    assert rows[0]["completed"] == 25
    assert rows[0]["plans_rejected"] == 0


@pytest.mark.parametrize("inputs", [SMALL, RESTLESS], ids=["smooth", "faults"])
@pytest.mark.parametrize("policy", ["whole-fifo", "static:3,2,2", "mps-only", "oracle", "miso-paper", "miso"])
def test_a_log_replays_to_the_same_state(policy: str, inputs: Inputs) -> None:
    log, scenario = io.StringIO(), load(inputs, 1)
    cluster = parse_cluster(scenario.gpus)
    engine = Engine(cluster, build_policy(policy, cluster, 1, scenario.every_s))
    simulate(scenario, policy, 1, log=log)
    VirtualBody(engine, make_world(scenario, cluster, engine.policy, 1), scenario.costs, (), scenario.faults).run(
        scenario.trace
    )
    again = replay(
        log.getvalue().splitlines(keepends=True),
        "run.jsonl",
        parse_cluster,
        lambda header, cluster: build_policy(header.policy, cluster, header.seed, header.every_s),
    )
    assert again.state.dump() == engine.state.dump()


@pytest.mark.parametrize(
    "policy", ["whole-fifo", "whole-sjf", "static:3,2,2", "mps-only", "oracle", "miso-paper", "miso"]
)
def test_faults_lose_no_job(policy: str) -> None:
    summary = simulate(load(RESTLESS, 2), policy, 2).summary
    assert summary.completed == 25
    assert summary.given_up == 0


def test_what_ran_leaves_nothing_behind() -> None:
    """State, body and curves are as small after a long run as after a short one."""
    trace = [TraceJob(Job(f"j{n}", n * 3600.0, Kind.RIGID), 1800.0) for n in range(3000)]
    scenario = Scenario(trace, "2xV100", costs=Costs())
    cluster = parse_cluster("2xV100")
    engine = Engine(cluster, build_policy("whole-fifo", cluster, 0, 10.0))
    body = VirtualBody(engine, make_world(scenario, cluster, engine.policy, 1), scenario.costs)
    body.run(trace)
    assert not any((body.jobs, body._agenda, engine.state.jobs, engine.state.held, engine.state.order))
    curves = simulate(scenario, "whole-fifo").curves
    assert curves is not None
    assert len(curves.points(0)) <= 1025


def test_best_static_is_the_best_of_all_static_layouts() -> None:
    scenario = load(SMALL, 1)
    best = simulate(scenario, "best-static", 1)
    assert best.layout is not None
    for layout in ("7", "4,3", "3,3", "3,2,2", "4,2,1"):
        other = simulate(scenario, f"static:{layout}", 1).summary.avg_jct_s
        assert (best.summary.avg_jct_s or 0) <= (other or 0) + 1e-9


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


@pytest.mark.parametrize("policy", ["miso", "miso-paper"])
def test_probes_can_be_measured_or_assumed(policy: str, data_dir: Path) -> None:
    """Real errors are drawn from measured mixes; they are the default where the trace comes with some."""
    inputs = Inputs(data_dir / "miso", jobs=40, gpus="4xA100-40GB")
    mixes = str(data_dir / "miso" / "mps_mixes.csv")
    told = [
        simulate(load(replace(inputs, probe=probe), 1), policy, 1).summary.avg_jct_s
        for probe in (None, mixes, "authors")
    ]
    assert told[0] == told[1] != told[2]


def test_a_probe_that_cannot_be_simulated() -> None:
    with pytest.raises(InputError, match=r"--probe nobody.csv: expected authors, or a CSV file of measured mixes"):
        load(replace(SMALL, probe="nobody.csv"), 1)


def test_workloads_that_nobody_measured_are_told(tmp_path: Path) -> None:
    trace = tmp_path / "jobs.jsonl"
    line = '{{"id": "{0}", "kind": "sliceable", "workload": "{1}", "length_s": 100, "mem_mib": 4000}}\n'
    trace.write_text(line.format("a", "resnet 128") + line.format("b", "my own 7"))
    (note,) = load(Inputs(trace, gpus="1xA100-40GB"), 1).notes
    assert note.startswith("1 jobs of workloads that were not measured (my own 7)")
    assert load(SMALL, 1).notes == ()


def test_guesses_are_off_by_at_most_the_factor() -> None:
    entries = load(replace(SMALL, guesses=2.0), 1).trace
    ratios = [(entry.job.estimate_s or 0) / (entry.length_s or 1) for entry in entries]
    assert 0.5 <= min(ratios) < 0.8
    assert 1.3 < max(ratios) <= 2.0
    assert [entry.job.estimate_s for entry in load(replace(SMALL, guesses=1.0), 1).trace] == [
        pytest.approx(entry.length_s) for entry in entries
    ]
    with pytest.raises(InputError, match="expected a factor from 1"):
        load(replace(SMALL, guesses=0.5), 1)


def test_a_cut_beside_costs_what_it_is_said_to() -> None:
    """On MIG nothing; the same cuts with a price can only be slower."""
    free, dear = (
        simulate(load(replace(SMALL, costs=costs), 1), "static:3,2,2", 1).summary.avg_jct_s or 0
        for costs in ((), ("stay_s=50",))
    )
    assert free <= dear
    free, dear = (
        simulate(load(replace(SMALL, costs=costs), 1), "miso", 1).summary.avg_jct_s or 0
        for costs in ((), ("stay_s=50",))
    )
    assert free < dear


def test_the_standard_error_is_that_of_the_mean() -> None:
    assert mean_and_error([1.0]) == (1.0, None)
    mean, error = mean_and_error([1.0, 2.0, 3.0, 4.0])
    assert (mean, error) == (2.5, pytest.approx((5 / 3 / 4) ** 0.5))
