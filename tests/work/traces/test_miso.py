"""The MISO experiment: its order and its gaps are the authors' own streams, number for number."""

import random
from pathlib import Path

import numpy as np
import pytest

from gpuloom.work.model import Kind
from gpuloom.work.traces import read_trace
from gpuloom.work.traces.miso import arrivals_s


@pytest.mark.parametrize(("n", "seed", "gap"), [(100, 1, 60), (100, 5, 60), (1000, 2, 12)])
def test_streams_equal_the_global_generators_of_the_artifact(
    n: int, seed: int, gap: int, sample_path: dict[str, Path]
) -> None:
    before = (random.getstate(), np.random.get_state())
    random.seed(seed)
    order = random.sample(range(n), n)
    np.random.seed(seed + 1)
    now, arrivals = 0, []
    for i in range(n):
        now += np.random.poisson(gap / 2 if i <= int(n / 3) else gap)
        arrivals.append(now)
    random.setstate(before[0])
    np.random.set_state(before[1])

    jobs = read_trace(sample_path["miso"], "miso", seed=seed, jobs=n, gap_s=gap)
    assert [entry.job.id for entry in jobs] == [f"job-{number}" for number in order]
    assert [entry.job.submit_s for entry in jobs] == arrivals


def test_first_arrivals_of_seed_1() -> None:
    assert arrivals_s(100, 1, 60.0)[:5] == [29.0, 60.0, 89.0, 114.0, 141.0]
    assert arrivals_s(100, 1, 60.0)[-1] == 4948.0


def test_reading_leaves_the_global_generators_alone(sample_path: dict[str, Path]) -> None:
    random.seed(7)
    np.random.seed(7)
    expected = (random.random(), np.random.random())
    random.seed(7)
    np.random.seed(7)
    read_trace(sample_path["miso"], "miso", seed=1)
    assert (random.random(), np.random.random()) == expected


def test_a_job_has_the_memory_of_its_smallest_slice_and_the_length_on_the_whole_gpu(
    sample_path: dict[str, Path],
) -> None:
    jobs = {entry.job.id: entry for entry in read_trace(sample_path["miso"], "miso", seed=4, jobs=7)}
    assert set(jobs) == {f"job-{number}" for number in range(7)}
    for name, workload, mem_mib, length_s in [
        ("job-0", "resnet 128", 4864, 100.0),
        ("job-4", "bert 4", 9856, 150.0),
        ("job-5", "gizmo 1", 40192, 60.0),
    ]:
        entry = jobs[name]
        assert (entry.job.workload, entry.job.mem_mib, entry.job.kind) == (workload, mem_mib, Kind.SLICEABLE)
        assert entry.length_s == pytest.approx(length_s)


def test_the_templates_of_the_data_folder(data_dir: Path) -> None:
    jobs = read_trace(data_dir / "miso", "miso", seed=1)
    assert [entry.job.id for entry in jobs[:5]] == ["job-17", "job-72", "job-97", "job-8", "job-32"]
    assert [entry.job.workload for entry in jobs[:3]] == ["gnn 512", "embedding 64", "resnet 128"]
    assert len(jobs) == 100
    assert sum(entry.length_s or 0.0 for entry in jobs) == pytest.approx(76_033.275, abs=0.001)
