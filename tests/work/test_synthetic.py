"""The generator: the same seed gives the same jobs, and they look like the data they were fitted to."""

from collections import Counter
from pathlib import Path
from statistics import fmean, median
from typing import Any

import pytest

from gpuloom.errors import InputError
from gpuloom.work.measured.figures import load_figures
from gpuloom.work.model import Kind
from gpuloom.work.synthetic import synthetic
from gpuloom.work.traces import read_trace
from gpuloom.work.traces.miso import arrivals_s


def test_the_same_seed_gives_the_same_jobs() -> None:
    assert synthetic(50, 3) == synthetic(50, 3)
    assert synthetic(50, 3) != synthetic(50, 4)
    assert synthetic(50, 3)[:20] == synthetic(20, 3)
    assert read_trace(Path("ignored"), "synthetic", seed=3, jobs=50) == synthetic(50, 3)
    assert len(read_trace(Path("ignored"), "synthetic")) == 100


def test_golden_first_jobs() -> None:
    first, second = synthetic(2, seed=1)
    assert (first.job.workload, first.job.submit_s, first.length_s) == ("embedding 128", 86.578, 1247.5)
    assert (second.job.workload, second.job.submit_s, second.length_s) == ("gnn 128", 122.393, 268.9)


def test_jobs_are_sliceable_and_fit_their_workload() -> None:
    figures = load_figures()
    for entry in synthetic(200, 5):
        assert entry.job.kind is Kind.SLICEABLE
        assert entry.job.workload is not None
        assert entry.job.mem_mib == figures.workloads[entry.job.workload].mem_mib


def test_mix_and_gaps_are_those_asked_for() -> None:
    jobs = synthetic(20_000, 1, gap_s=30.0)
    assert jobs[-1].job.submit_s / 20_000 == pytest.approx(30.0, rel=0.03)
    counts = Counter(entry.job.workload for entry in jobs)
    for name, count in load_figures().mix.items():
        assert counts[name] / 200 == pytest.approx(count, abs=1.0)


@pytest.mark.parametrize("durations", ["miso", "philly"])
def test_lengths_are_heavy_tailed_within_the_data(durations: str) -> None:
    fit = load_figures().durations[durations]
    lengths = [entry.length_s or 0.0 for entry in synthetic(20_000, 2, durations=durations)]
    assert min(lengths) >= fit.low_s
    assert max(lengths) <= fit.high_s
    assert fmean(lengths) > 2 * median(lengths)


def test_lengths_match_the_templates(data_dir: Path) -> None:
    templates = [entry.length_s or 0.0 for entry in read_trace(data_dir / "miso", "miso")]
    generated = [entry.length_s or 0.0 for entry in synthetic(20_000, 2)]
    assert fmean(generated) == pytest.approx(fmean(templates), rel=0.1)
    assert median(generated) == pytest.approx(median(templates), rel=0.2)


def test_misos_gaps_by_option() -> None:
    jobs = synthetic(30, 1, arrivals="miso")
    assert [entry.job.submit_s for entry in jobs] == arrivals_s(30, 1, 60.0)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"n": 0}, "n is 0, but must be 1 or more"),
        ({"seed": -1}, "seed is -1, but must be a whole number from 0"),
        ({"gap_s": float("nan")}, "gap_s is nan, but must be"),
        ({"durations": "phily"}, r"durations is 'phily', but must be one of miso, philly \(did you mean 'philly'\?\)"),
        ({"arrivals": "x"}, "arrivals is 'x', but must be one of poisson, miso"),
    ],
)
def test_wrong_options(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        synthetic(**options)
