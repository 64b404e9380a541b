"""Every reader: what becomes of each column, what is left out, and what all formats have in common."""

import time
from pathlib import Path
from typing import Any

import pytest

from gpuloom.errors import InputError
from gpuloom.work.model import Job, Kind, TraceJob
from gpuloom.work.traces import FORMATS, load_trace, read_trace
from gpuloom.work.units import PRIORITIES


def test_pollux(sample_path: dict[str, Path]) -> None:
    jobs = read_trace(sample_path["pollux"], "pollux")
    assert jobs == [
        TraceJob(Job("ncf-1", 90.0, Kind.ELASTIC, "ncf", 1, 1, 1, batch=32768)),
        TraceJob(Job("cifar10-0", 107.0, Kind.ELASTIC, "cifar10", 6, 1, 64, batch=2048)),
    ]


def test_philly_csv_counts_from_the_earliest_job_and_keeps_the_order_of_equals(sample_path: dict[str, Path]) -> None:
    trace = load_trace(sample_path["philly"], "philly")
    assert [(entry.job.id, entry.job.submit_s, entry.job.gpus, entry.length_s) for entry in trace.jobs] == [
        ("philly-1", 0.0, 8, 2951.0),
        ("philly-2", 0.0, 2, 10.0),
        ("philly-0", 3600.0, 1, 66.0),
    ]
    assert {entry.job.kind for entry in trace.jobs} == {Kind.RIGID}
    assert trace.jobs[0].extra == {"cluster": "bb"}
    assert trace.skipped == {"never ran": 1}


def test_philly_log_sums_attempts_and_takes_the_gpus_of_the_first(sample_path: dict[str, Path]) -> None:
    trace = load_trace(sample_path["philly log"], "philly")
    assert trace.skipped == {"never ran": 1, "were still running when the log ends": 1}
    short, long = trace.jobs
    assert (short.job.id, short.job.submit_s, short.job.gpus, short.length_s) == ("application_3", 0.0, 1, 30.0)
    assert (long.job.id, long.job.submit_s, long.job.gpus, long.length_s) == ("application_1", 60.0, 3, 360.0)
    assert long.extra == {"status": "Pass", "user": "u1", "vc": "a1"}


def test_helios_leaves_out_cpu_jobs_and_those_that_never_ran(sample_path: dict[str, Path]) -> None:
    trace = load_trace(sample_path["helios"], "helios")
    assert trace.skipped == {"are CPU jobs": 1, "never ran": 1}
    assert trace.jobs == [
        TraceJob(Job("12", 0.0, Kind.RIGID, None, 8, 8, 8), 3600.0, {"state": "COMPLETED", "user": "ua", "vc": "va"}),
        TraceJob(Job("14", 30.0, Kind.RIGID, None, 1, 1, 1), 60.0, {"state": "FAILED", "user": "ub", "vc": "vb"}),
    ]


def test_openb_makes_shared_pods_sliceable_with_their_share_as_slowest_speed(sample_path: dict[str, Path]) -> None:
    trace = load_trace(sample_path["openb"], "openb")
    assert trace.skipped == {"are CPU pods": 1, "never ran": 1}
    shared, whole, many = trace.jobs
    assert shared.job == Job("pod-1", 0.0, Kind.SLICEABLE, priority=PRIORITIES["high"], min_speed=0.46)
    assert shared.length_s == 410.0
    assert shared.extra == {"gpu_milli": "460", "gpu_spec": "V100M16|V100M32", "pod_phase": "Running", "qos": "LS"}
    assert whole.job == Job("pod-0", 10.0, Kind.RIGID)
    assert whole.length_s == 950.0
    assert many.job == Job("pod-3", 110.0, Kind.RIGID, None, 8, 8, 8, priority=PRIORITIES["low"])


def test_jsonl_fills_in_what_is_absent(sample_path: dict[str, Path]) -> None:
    first, sliced, elastic = read_trace(sample_path["jsonl"], "jsonl")
    assert first == TraceJob(Job("a"), 60.0)
    assert sliced == TraceJob(Job("c", 2.5, Kind.SLICEABLE, mem_mib=4000), 9.0, {"user": "me"})
    assert elastic == TraceJob(Job("b", 5.0, Kind.ELASTIC, "bert", 2, 1, 8, batch=9))


def test_a_work_file_is_a_trace_too(sample_path: dict[str, Path]) -> None:
    trace = load_trace(sample_path["yaml"], "yaml")
    assert [entry.job.id for entry in trace.jobs] == ["a", "b-1", "b-2"]
    assert trace.skipped == {"are services": 1}


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "synthetic"])
def test_every_format_is_sorted_has_unique_names_and_can_be_cut(name: str, sample_path: dict[str, Path]) -> None:
    jobs = read_trace(sample_path[name], name, seed=3)
    times = [entry.job.submit_s for entry in jobs]
    assert times == sorted(times)
    assert len({entry.job.id for entry in jobs}) == len(jobs)
    assert read_trace(sample_path[name], name, seed=3, limit=1) == jobs[:1]
    if not FORMATS[name].generated:
        assert read_trace(sample_path[name], name, jobs=2) == jobs[:2]
        assert read_trace(sample_path[name], name, jobs=2, limit=1) == jobs[:1]


def test_unknown_format_lists_the_accepted_ones() -> None:
    with pytest.raises(
        InputError, match=r"'phily' is not known \(did you mean 'philly'\?\): accepted are miso, pollux,"
    ):
        read_trace(Path("x"), "phily")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"seed": -1}, "seed is -1, but must be"),
        ({"seed": 2**32}, "seed is 4294967296, but must be"),
        ({"jobs": 0}, "jobs is 0, but must be"),
        ({"limit": 0}, "limit is 0, but must be"),
        ({"gap_s": -1.0}, "gap_s is -1.0, but must be"),
        ({"gap_s": float("nan")}, "gap_s is nan, but must be"),
        ({"gap_s": float("inf")}, "gap_s is inf, but must be"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], sentence: str, sample_path: dict[str, Path]) -> None:
    with pytest.raises(InputError, match=sentence):
        read_trace(sample_path["miso"], "miso", **options)


def test_the_philly_trace_of_the_data_folder_reads_quickly(data_dir: Path) -> None:
    began = time.process_time()
    jobs = read_trace(data_dir / "pollux" / "philly.csv", "philly")
    assert time.process_time() - began < 1.5
    assert len(jobs) == 82_247
    assert jobs[0].job.submit_s == 0.0
    assert max(entry.job.gpus for entry in jobs) == 128


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_the_pollux_workloads_of_the_data_folder(data_dir: Path, number: int) -> None:
    jobs = read_trace(data_dir / "pollux" / "workloads" / f"workload-{number}.csv", "pollux")
    assert len(jobs) == 160
    assert jobs[-1].job.submit_s <= 8 * 3600
    assert {entry.job.workload for entry in jobs} <= {"bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3"}
