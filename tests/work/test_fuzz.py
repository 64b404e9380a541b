"""Broken files of every kind: a reader succeeds or raises InputError, in one line that names the file."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuloom.errors import InputError
from gpuloom.work.files import read_work
from gpuloom.work.traces import FORMATS, load_trace

FILES = ["pollux", "philly", "philly log", "helios", "openb", "jsonl", "yaml"]
FUZZ = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

# Pieces that have broken readers before, or could.
NUMBERS = ["nan", "inf", "-1", "-0", "1e999", "1_0", "٣", "null", "true"]
MARKS = ['"', "'", ",", ",,", "{", "}", "[]", "{}", "-", ":", "#", "&a", "*a", "!!python/x", "…", "é", "\\ud800"]
FIELDS = ["jobs:", "services:", '"id"', '"kind":[]', '"extra":{"a":1}']
SPACED = ["", "\0", "\n", "\r\n", "\n\n", "\u2028", "\x85", "\ufeff", "- ", ": ", "name: a", "gpus: 2", "<<: *a"]
DATES = ["2020-13-45", "0001-01-01", "2017-10-07 01:12:09+02:00", "9999-12-31 23:59:59"]
HUGE = ["9" * 5000, "0x" + "f" * 5000, "[" * 2000]
NASTY = st.sampled_from([*NUMBERS, *MARKS, *FIELDS, *SPACED, *DATES, *HUGE])


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def edits() -> st.SearchStrategy[list[tuple[float, int, str]]]:
    """Where (as a part of the length), how many characters go, and what comes instead."""
    where = st.floats(0, 1)
    return st.lists(st.tuples(where, st.integers(0, 12), NASTY | st.text(max_size=5)), min_size=1, max_size=4)


def edited(text: str, changes: list[tuple[float, int, str]]) -> bytes:
    for where, gone, new in changes:
        at = int(where * len(text))
        text = text[:at] + new + text[at + gone :]
    return text.encode("utf-8", "surrogatepass")


def survives(path: Path, format: str) -> None:
    try:
        trace = load_trace(path, format, jobs=3 if FORMATS[format].generated else None)
    except InputError as error:
        message = str(error)
        assert str(path) in message
        assert len(message.splitlines()) == 1
        message.encode()  # can be printed
    else:
        assert trace.jobs
        for entry in trace.jobs:
            assert entry.length_s is None or entry.length_s > 0
            assert entry.job.submit_s >= 0
            assert entry.job.id.isprintable()


@pytest.mark.parametrize("name", FILES)
@FUZZ
@given(data=st.binary(max_size=200))
def test_random_bytes(name: str, data: bytes, folder: Path) -> None:
    path = folder / "random"
    path.write_bytes(data)
    survives(path, name.split()[0])


@pytest.mark.parametrize("name", FILES)
@FUZZ
@given(changes=edits())
def test_edited_files(name: str, changes: list[tuple[float, int, str]], folder: Path, samples: dict[str, str]) -> None:
    path = folder / "edited"
    path.write_bytes(edited(samples[name], changes))
    survives(path, name.split()[0])


@pytest.mark.parametrize("name", FILES)
def test_files_cut_short_anywhere(name: str, folder: Path, samples: dict[str, str]) -> None:
    path = folder / "cut"
    for end in range(0, len(samples[name]), 1 + len(samples[name]) // 150):
        path.write_text(samples[name][:end])
        survives(path, name.split()[0])


@pytest.mark.parametrize("name", ["job_models.json", "num_iters.json", "mig_batch_latency.csv"])
@FUZZ
@given(changes=edits())
def test_edited_miso_folder(
    name: str, changes: list[tuple[float, int, str]], folder: Path, miso_files: dict[str, str]
) -> None:
    path = folder / "miso"
    path.mkdir(exist_ok=True)
    for other, text in miso_files.items():
        (path / other).write_text(text)
    (path / name).write_bytes(edited(miso_files[name], changes))
    survives(path, "miso")


yaml_values = st.recursive(
    NASTY | st.integers() | st.floats() | st.booleans() | st.none() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


ANYWHERE = ["name", "command", "kind", "gpus", "memory", "priority", "length", "submit", "count"]
ON_A_HOST = ["user", "cpus", "host_memory", "pids", "log_max", "stall_s", "on_stall"]


@pytest.mark.parametrize("field", [*ANYWHERE, *ON_A_HOST])
@FUZZ
@given(value=yaml_values)
def test_any_value_in_a_field_of_a_work_file(field: str, value: object, folder: Path) -> None:
    path = folder / "value.yaml"
    fields = {"name": "a", "length": 1, field: value}
    path.write_text(yaml.safe_dump({"jobs": [fields]}), encoding="utf-8", errors="surrogatepass")
    with contextlib.suppress(InputError):
        jobs, _ = read_work(path)
        assert jobs
        host = jobs[0].job.host
        assert all(limit is None or 0 < limit < float("inf") for limit in (host.cpus, host.host_mem_mib, host.pids))
        assert host.log_max_mib > 0
        assert host.stall_s is None or host.stall_s > 0


def test_folders_missing_files_and_odd_names(tmp_path: Path) -> None:
    for name in FORMATS:
        if name == "synthetic":
            continue
        for path in (tmp_path, tmp_path / "absent", tmp_path / ("x" * 5000), Path("\0")):
            with pytest.raises(InputError):
                load_trace(path, name)
