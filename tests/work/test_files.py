"""The flat work file: what is inferred, what is refused, and that the schema and the reader agree."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from gpuloom.errors import InputError
from gpuloom.work.files import json_schema, read_work
from gpuloom.work.model import NO_HOST_NEEDS, HostNeeds, Job, Kind, Service, TraceJob

ROOT = Path(__file__).resolve().parents[2]


def work(tmp_path: Path, text: str) -> tuple[list[TraceJob], list[Service]]:
    path = tmp_path / "work.yaml"
    path.write_text(text, encoding="utf-8")
    return read_work(path)


def one(tmp_path: Path, fields: dict[str, Any]) -> Job:
    jobs, _ = work(tmp_path, yaml.safe_dump({"jobs": [{"name": "a", **fields}]}))
    return jobs[0].job


def complaint(tmp_path: Path, text: str) -> str:
    with pytest.raises(InputError) as caught:
        work(tmp_path, text)
    return str(caught.value).removeprefix(f"{tmp_path}/")


@pytest.mark.parametrize(
    ("fields", "kind", "gpus"),
    [
        ({}, Kind.RIGID, (1, 1, 1)),
        ({"gpus": 4}, Kind.RIGID, (4, 4, 4)),
        ({"gpus": 4, "memory": "30G"}, Kind.RIGID, (4, 4, 4)),
        ({"memory": "12G"}, Kind.SLICEABLE, (1, 1, 1)),
        ({"memory": "12G", "gpus": 1}, Kind.SLICEABLE, (1, 1, 1)),
        ({"memory": "12G", "kind": "rigid"}, Kind.RIGID, (1, 1, 1)),
        ({"min_speed": 0.5}, Kind.SLICEABLE, (1, 1, 1)),
        ({"workload": "resnet 128"}, Kind.SLICEABLE, (1, 1, 1)),
        ({"workload": "unheard of"}, Kind.RIGID, (1, 1, 1)),
        ({"max_gpus": 4}, Kind.ELASTIC, (1, 1, 4)),
        ({"min_gpus": 2, "max_gpus": 4}, Kind.ELASTIC, (2, 2, 4)),
        ({"min_gpus": 2, "max_gpus": 4, "gpus": 3}, Kind.ELASTIC, (3, 2, 4)),
        ({"kind": "elastic", "gpus": 8}, Kind.ELASTIC, (8, 1, 8)),
    ],
)
def test_the_kind_is_inferred(fields: dict[str, Any], kind: Kind, gpus: tuple[int, int, int], tmp_path: Path) -> None:
    job = one(tmp_path, fields)
    assert (job.kind, (job.gpus, job.min_gpus, job.max_gpus)) == (kind, gpus)


def test_every_field_arrives(tmp_path: Path) -> None:
    text = """
jobs:
  - name: all
    command: python train.py --name 'two words'
    kind: elastic
    workload: cifar10
    gpus: 2
    min_gpus: 1
    max_gpus: 4
    memory: 12G
    priority: high
    batch: 128
    min_batch: 64
    max_batch: 1024
    min_speed: 0.5
    length: 2h
    submit: 90m
    user: alice
    cpus: 2.5
    host_memory: 16G
    pids: 500
    log_max: 64M
    stall_s: 10m
    on_stall: restart
services:
  - {name: api, workload: resnet50, rate: 400, p99: 40ms, memory: 4096, priority: 3, max_batch: 32}
"""
    jobs, services = work(tmp_path, text)
    command = ("python", "train.py", "--name", "two words")
    host = HostNeeds("alice", 2.5, 16384, 500, 64, 600.0, restart_stalled=True)
    job = Job("all", 5400.0, Kind.ELASTIC, "cifar10", 2, 1, 4, 12288, 10, 128, 64, 1024, 0.5, 7200.0, command, host)
    assert jobs == [TraceJob(job, 7200.0)]
    assert services == [Service("api", "resnet50", 400.0, 40.0, 4096, 3, 32)]


@pytest.mark.parametrize("fields", [{}, {"stall_s": 60, "on_stall": "tell"}])
def test_a_job_that_asks_for_nothing_has_no_limits(fields: dict[str, Any], tmp_path: Path) -> None:
    assert replace(one(tmp_path, fields).host, stall_s=None) == NO_HOST_NEEDS


def test_a_measured_workload_brings_its_memory_unless_given(tmp_path: Path) -> None:
    assert one(tmp_path, {"workload": "bert 4"}).mem_mib == 9856
    assert one(tmp_path, {"workload": "bert 4", "memory": "8G"}).mem_mib == 8192


def test_copies_are_numbered(tmp_path: Path) -> None:
    jobs, _ = work(tmp_path, "jobs: [{name: a, count: 3}, {name: b, count: 1}]")
    assert [entry.job.id for entry in jobs] == ["a-1", "a-2", "a-3", "b"]


def test_anchors_and_merges_work(tmp_path: Path) -> None:
    jobs, _ = work(tmp_path, "jobs:\n  - &base {name: a, memory: 8G, length: 1h}\n  - {<<: *base, name: b}\n")
    assert [(entry.job.id, entry.job.mem_mib) for entry in jobs] == [("a", 8192), ("b", 8192)]


def test_how_an_elastic_job_takes_other_gpus(tmp_path: Path) -> None:
    entry = "jobs:\n  - {name: a, max_gpus: 4, max_local_batch: 32"
    jobs = [work(tmp_path, f"{entry}{how}}}\n")[0][0].job for how in ("", ", resize: restart", ", resize: in-place")]
    assert [job.in_place for job in jobs] == [False, False, True]
    assert {job.max_local_batch for job in jobs} == {32}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("jobs:\n- nam: a\n", "line 2, jobs[0].nam is not a known field (did you mean 'name'?): accepted are name,"),
        ("job: []\n", "line 1, job is not a known field (did you mean 'jobs'?): accepted are jobs, services"),
        ("jobs:\n- name: a\n\n- gpus: 2\n", "line 4, jobs[1].name is missing"),
        ("jobs:\n- name: a\n  gpus: two\n", "line 3, jobs[0].gpus is 'two', but must be a whole number"),
        ("jobs:\n- name: a\n  gpus: 0\n", "line 3, jobs[0].gpus is 0, but must be 1 or more"),
        ("jobs:\n- name: a\n  gpus: true\n", "line 3, jobs[0].gpus is True, but must be a whole number"),
        ("jobs:\n- name: a\n  kind: elastc\n", "jobs[0].kind is 'elastc', but must be 'rigid', 'sliceable' or"),
        ("jobs:\n- name: a\n  memory: 12Q\n", "jobs[0].memory is '12Q', but must be memory such as 12G"),
        ("jobs:\n- name: a\n  kind: sliceable\n  gpus: 2\n", "line 4, jobs[0].gpus is 2, but a sliceable job runs"),
        ("jobs:\n- name: a\n  kind: rigid\n  max_gpus: 2\n", "line 4, jobs[0].max_gpus is given, but only an elastic"),
        ("jobs:\n- name: a\n  min_gpus: 4\n  max_gpus: 2\n", "jobs[0].min_gpus is 4, but must be at most max_gpus (2)"),
        ("jobs:\n- name: a\n  resize: in-place\n", "line 3, jobs[0].resize is given, but only an elastic job has one"),
        ("jobs:\n- name: a\n  max_gpus: 2\n  resize: inplace\n", "jobs[0].resize is 'inplace', but must be 'restart'"),
        ("jobs:\n- name: a\n  max_local_batch: 2\n", "jobs[0].max_local_batch is given, but only an elastic job has"),
        ("jobs:\n- name: a\n  batch: 4\n  min_batch: 8\n", "jobs[0].batch is 4, but must be at least min_batch (8)"),
        ("jobs:\n- name: a\n  batch: 9\n  max_batch: 8\n", "jobs[0].batch is 9, but must be at most max_batch (8)"),
        ("jobs:\n- name: a\n  min_batch: 9\n  max_batch: 8\n", "min_batch is 9, but must be at most max_batch (8)"),
        ("jobs:\n- name: a\n  min_speed: 1.5\n", "jobs[0].min_speed is 1.5, but must be 1.0 or less"),
        ("jobs:\n- name: a\n  length: 0\n", "jobs[0].length is 0, but must be a time above 0"),
        ("jobs:\n- name: a\n  command: 'a \"b'\n", "jobs[0].command is 'a \"b', which has unbalanced quotes"),
        ("jobs:\n- name: a\n  command: [1]\n", "jobs[0].command is a list, but must be a command line"),
        ("jobs:\n- name: a\n  user: 1000\n", "line 3, jobs[0].user is 1000, but must be the name of an account"),
        ("jobs:\n- name: a\n  user: '../x'\n", "jobs[0].user is '../x', but must be the name of an account"),
        ("jobs:\n- name: a\n  cpus: 0\n", "line 3, jobs[0].cpus is 0, but must be 0.01 or more"),
        ("jobs:\n- name: a\n  cpus: .inf\n", "jobs[0].cpus is inf, but must be 100000.0 or less"),
        ("jobs:\n- name: a\n  cpus: all\n", "jobs[0].cpus is 'all', but must be a number"),
        ("jobs:\n- name: a\n  host_memory: 4Q\n", "jobs[0].host_memory is '4Q', but must be memory such as 12G"),
        ("jobs:\n- name: a\n  pids: 0\n", "jobs[0].pids is 0, but must be 1 or more"),
        ("jobs:\n- name: a\n  log_max: -1\n", "jobs[0].log_max is -1, but must be memory such as 12G"),
        ("jobs:\n- name: a\n  stall_s: 0\n", "jobs[0].stall_s is 0, but must be a time above 0"),
        ("jobs:\n- {name: a, stall_s: 1m, on_stall: kill}\n", "on_stall is 'kill', but must be 'tell' or 'restart'"),
        ("jobs:\n- name: a\n  on_stall: restart\n", "line 3, jobs[0].on_stall is given, but only a job with stall_s"),
        ("jobs:\n- name: a\n  name: b\n", "line 3 gives 'name' a second time: expected each field once"),
        ("jobs:\n- name: a\n- name: a\n", "line 3, jobs[1].name is 'a', which an earlier job already has"),
        (
            "jobs: [{name: a}]\nservices: [{name: a, workload: b, rate: 1, p99: 1ms}]\n",
            "services[0].name is 'a', which an earlier job or service already has",
        ),
        ("services:\n- {name: a, workload: b, rate: 1e99, p99: 1s}\n", "rate is '1e99', but must be a number above 0"),
        ("services:\n- {name: a, workload: b, rate: 1, p99: 40}\n", "p99 is 40, but must be a time above 0 with"),
        ("services:\n- {name: a, workload: b, rate: 0, p99: 1s}\n", "rate is 0, but must be a number above 0"),
        ("jobs: {name: a}\n", "line 1, jobs is an object, but must be a list"),
        ("jobs: [a]\n", "line 1, jobs[0] is 'a', but must be a mapping of fields"),
        ("- name: a\n", "work.yaml is a list at its top: expected a work file"),
        ("# nothing\n", "work.yaml is missing at its top: expected a work file"),
        ("jobs: []\n", "work.yaml has no job and no service"),
        ("jobs:\n- name: [\n", "line 3 is not YAML"),
        ("jobs: 2020-13-45\n", "work.yaml is not YAML (month must be in 1..12)"),
        ("? {a: b}\n: 1\n", "line 1 is not YAML (found unhashable key)"),
    ],
)  # fmt: skip
def test_the_sentence_names_line_and_field(text: str, sentence: str, tmp_path: Path) -> None:
    assert sentence in complaint(tmp_path, text)


def test_the_example_is_read_and_fits_the_schema() -> None:
    path = ROOT / "examples" / "jobs.yaml"
    jobs, services = read_work(path)
    assert {entry.job.kind for entry in jobs} == set(Kind)
    assert all(entry.length_s for entry in jobs)
    assert services
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(yaml.safe_load(path.read_text()), schema)


def test_the_example_in_the_docs_is_read(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "work-files.md").read_text(encoding="utf-8")
    text = page.split("```yaml\n")[1].split("```")[0]
    jobs, services = work(tmp_path, text)
    assert jobs
    assert services
    jsonschema.validate(yaml.safe_load(text), json_schema())


def test_the_docs_name_every_field() -> None:
    page = (ROOT / "docs" / "work-files.md").read_text(encoding="utf-8")
    for definition in json_schema()["$defs"].values():
        for field in definition["properties"]:
            assert f"`{field}`" in page


@pytest.mark.parametrize(
    "wrong", [{"jobs": [{"name": "a", "memry": 1}]}, {"jobs": [{}]}, {"jobs": [{"name": "a", "gpus": 0}]}]
)
def test_the_schema_refuses_what_the_reader_refuses(wrong: dict[str, Any], tmp_path: Path) -> None:
    complaint(tmp_path, yaml.safe_dump(wrong))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, json_schema())


def test_a_rate_may_be_written_as_1e6(tmp_path: Path) -> None:
    """YAML 1.1 takes it for a text."""
    (tmp_path / "work.yaml").write_text("services:\n- {name: a, workload: b, rate: 1e6, p99: 1s}\n")
    _, (service,) = read_work(tmp_path / "work.yaml")
    assert service.rate_rps == 1_000_000.0
