"""gpuloom's own trace format loses nothing."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.errors import InputError
from gpuloom.work.model import Job, Kind, TraceJob
from gpuloom.work.traces import FORMATS, read_trace, write_trace

counts = st.integers(1, 1000)
seconds = st.floats(0.001, 1e9)
names = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=20)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)


@st.composite
def entries(draw: st.DrawFn) -> TraceJob:
    kind = draw(st.sampled_from(Kind))
    low, middle, high = sorted(draw(st.tuples(counts, counts, counts)))
    job = Job(
        id=draw(names),
        submit_s=draw(st.floats(0, 1e9)),
        kind=kind,
        workload=draw(st.none() | names),
        gpus=1 if kind is Kind.SLICEABLE else middle,
        min_gpus=low if kind is Kind.ELASTIC else draw(counts),
        max_gpus=high if kind is Kind.ELASTIC else draw(counts),
        mem_mib=draw(st.none() | counts),
        priority=draw(st.integers(-100, 100)),
        batch=draw(st.none() | st.just(middle)),
        min_batch=draw(st.none() | st.just(low)),
        max_batch=draw(st.none() | st.just(high)),
        min_speed=draw(st.none() | st.floats(0, 1)),
        estimate_s=draw(st.none() | seconds),
        command=tuple(draw(st.lists(texts, max_size=3))),
    )
    length_s = draw(st.none() | seconds) if kind is Kind.ELASTIC else draw(seconds)
    return TraceJob(job, length_s, draw(st.dictionaries(texts, texts, max_size=2)))


@settings(deadline=None)
@given(jobs=st.lists(entries(), min_size=1, max_size=5, unique_by=lambda entry: entry.job.id))
def test_what_is_written_is_read_back(jobs: list[TraceJob], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "trace.jsonl"
    write_trace(path, jobs)
    assert read_trace(path, "jsonl") == sorted(jobs, key=lambda entry: entry.job.submit_s)


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_survives_the_round_trip(format: str, sample_path: dict[str, Path], tmp_path: Path) -> None:
    jobs = read_trace(sample_path.get(format, tmp_path), format, seed=1, jobs=3)
    write_trace(tmp_path / "out.jsonl", jobs)
    assert read_trace(tmp_path / "out.jsonl", "jsonl") == jobs


def test_writing_to_nowhere_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        write_trace(tmp_path / "absent" / "out.jsonl", [TraceJob(Job("a"), 1.0)])
