"""From what a user names to a scenario: formats, rounds, guesses, probes, and one sentence for what is wrong."""

from dataclasses import replace
from math import log
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.errors import InputError
from gpuloom.sim.costs import Costs
from gpuloom.sim.inputs import MISO_CONTROL_S, POLLUX_COSTS, Inputs, guess_format, load
from gpuloom.sim.run import simulate
from gpuloom.sim.worlds.probes import AuthorsError

MANY = Inputs(gpus="2xA100-40GB", jobs=400)
SMALL = Inputs(gpus="2xA100-40GB", jobs=25)


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


@pytest.mark.parametrize(
    ("name", "kind"), [("a.yaml", "yaml"), ("a.yml", "yaml"), ("a.b.jsonl", "jsonl"), ("dir.yaml/x.yml", "yaml")]
)
def test_a_format_is_told_from_the_name(name: str, kind: str) -> None:
    assert guess_format(Path(name)) == kind


def test_a_folder_is_misos_and_nothing_is_made_up(tmp_path: Path) -> None:
    assert guess_format(tmp_path) == "miso"
    assert guess_format(None) == "synthetic"
    for name in ("jobs.csv", "jobs", "jobs.YAML", ".yaml"):
        with pytest.raises(InputError, match="its format cannot be told from its name: give --format"):
            guess_format(tmp_path / name)


@pytest.mark.parametrize("kind", ["miso", "jsonl", "yaml", "helios", "philly"])
def test_a_format_that_reads_a_file_needs_one(kind: str) -> None:
    with pytest.raises(InputError, match=r"needs --trace PATH|expected one of"):
        load(replace(SMALL, format=kind), 1)


def test_pollux_needs_its_tables(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="format pollux needs --profiles DIR"):
        load(Inputs(tmp_path / "workload.csv", format="pollux"), 1)
    assert POLLUX_COSTS.start_s == POLLUX_COSTS.restart_s == 30.0


@pytest.mark.parametrize("every_s", [0.0, -1.0, 0.001, 1e18, float("nan")])
def test_rounds_that_make_no_sense(every_s: float) -> None:
    with pytest.raises(InputError, match=r"--every .* expected from 0\.01 to"):
        load(replace(SMALL, every_s=every_s), 1)


def test_a_scenario_is_what_was_named() -> None:
    scenario = load(replace(SMALL, costs=("cut_s=7",), faults=("gpu-lost:1@50", "crash:job-3@10")), 4)
    assert len(scenario.trace) == 25
    assert scenario.gpus == "2xA100-40GB"
    assert scenario.every_s == MISO_CONTROL_S
    assert scenario.costs == Costs(cut_s=7.0)
    assert [type(event).__name__ for event in scenario.faults.events] == ["JobCrashed", "GpuLost"]
    assert scenario.probers is AuthorsError
    assert scenario.tables is None
    assert load(replace(SMALL, every_s=60.0), 4).every_s == 60.0


def test_a_seed_shapes_the_trace() -> None:
    assert load(SMALL, 4).trace == load(SMALL, 4).trace
    assert load(SMALL, 4).trace != load(SMALL, 5).trace


def test_faults_and_costs_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match="there is no job 'job-99' in the trace"):
        load(replace(SMALL, faults=("crash:job-99@10",)), 1)
    with pytest.raises(InputError, match="there are GPUs 0 to 1"):
        load(replace(SMALL, faults=("gpu-lost:2@10",)), 1)
    with pytest.raises(InputError, match="no such cost"):
        load(replace(SMALL, costs=("rent=3",)), 1)


@settings(deadline=None, max_examples=20)
@given(st.floats(1.0, 1000.0), st.integers(0, 100))
def test_any_factor_of_guesses_holds(factor: float, seed: int) -> None:
    for entry in load(replace(SMALL, jobs=5, guesses=factor), seed).trace:
        assert entry.length_s is not None
        assert entry.job.estimate_s is not None
        assert entry.length_s / factor * (1 - 1e-9) <= entry.job.estimate_s <= entry.length_s * factor * (1 + 1e-9)


def test_a_load_only_presses_arrivals_together() -> None:
    plain, twice = load(SMALL, 3).trace, load(replace(SMALL, load=2.0), 3).trace
    assert [entry.job.submit_s / 2 for entry in plain] == [entry.job.submit_s for entry in twice]
    assert [replace(entry, job=replace(entry.job, submit_s=0.0)) for entry in plain] == [
        replace(entry, job=replace(entry.job, submit_s=0.0)) for entry in twice
    ]


def test_elastic_jobs_are_resized_in_place_where_that_has_a_price(tmp_path: Path) -> None:
    trace = tmp_path / "jobs.jsonl"
    line = '{{"id": "{0}", "kind": "{1}", "workload": "x", "length_s": 100, "max_gpus": {2}}}\n'
    trace.write_text(line.format("a", "elastic", 4) + line.format("b", "rigid", 1))
    inputs = Inputs(trace, gpus="4xV100")
    assert [entry.job.in_place for entry in load(inputs, 1).trace] == [False, False]
    resized = load(replace(inputs, costs=("rescale_s=1",)), 1)
    assert [entry.job.in_place for entry in resized.trace] == [True, False]
    assert resized.costs.told().of_change(in_place=True) == 1.0


def test_jitter_scales_lengths_by_a_factor_of_mean_1_and_the_seed_decides() -> None:
    entries = load(replace(MANY, length_jitter=0.5), 3).trace
    factors = [entry.stretch for entry in entries]
    assert sum(factors) / len(factors) == pytest.approx(1.0, abs=0.1)
    logs = [log(factor) for factor in factors]
    mean = sum(logs) / len(logs)
    assert (sum((one - mean) ** 2 for one in logs) / len(logs)) ** 0.5 == pytest.approx(0.5, rel=0.1)
    assert factors == [entry.stretch for entry in load(replace(MANY, length_jitter=0.5), 3).trace]
    assert factors != [entry.stretch for entry in load(replace(MANY, length_jitter=0.5), 4).trace]
    assert {entry.stretch for entry in load(MANY, 3).trace} == {1.0}


@pytest.mark.parametrize("sigma", [-0.1, 3.5, float("nan"), float("inf")])
def test_jitter_that_makes_no_sense(sigma: float) -> None:
    with pytest.raises(InputError, match=r"length jitter .* expected a sigma from 0 to 3"):
        load(replace(SMALL, length_jitter=sigma), 1)


@pytest.mark.parametrize("factor", [0.0, -1.0, 1e9, float("nan")])
def test_a_load_that_makes_no_sense(factor: float) -> None:
    with pytest.raises(InputError, match=r"load .* expected a factor from"):
        load(replace(SMALL, load=factor), 1)
