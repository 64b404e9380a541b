"""What a user reads when a file is wrong: the file, the line or field, and what would be accepted."""

from pathlib import Path

import pytest

from gpuloom.errors import InputError
from gpuloom.work.measured.figures import figures_from_csv
from gpuloom.work.traces import read_trace


def complaint(path: Path, format: str) -> str:
    with pytest.raises(InputError) as caught:
        read_trace(path, format)
    return str(caught.value).replace(str(path.parent) + "/", "")


@pytest.mark.parametrize(
    ("format", "old", "new", "sentence"),
    [
        ("pollux", "107,", "-5,", "line 2, column 'time' is '-5', but must be a number of seconds, 0 or more"),
        ("pollux", "107,", "nan,", "line 2, column 'time' is 'nan', but must be a number of seconds, 0 or more"),
        ("pollux", ",6,2048", ",6", "line 2 has 4 fields where the header has 5: expected one value per column"),
        ("pollux", ",6,", ",2.5,", "line 2, column 'num_replicas' is '2.5', but must be a whole number from 1 to 64"),
        ("pollux", "ncf,1,", "ncf,2,", "line 3, column 'num_replicas' is '2', but must be a whole number from 1 to 1"),
        ("pollux", "ncf-1", "cifar10-0", "line 3, column 'name' is 'cifar10-0', which an earlier job already has"),
        ("pollux", "application", "app", "line 1 has no column 'application': expected the columns name, time,"),
        ("pollux", "batch_size", "batch_size,name", "line 1 has the column 'name' twice: each may appear once"),
        ("philly", "2951.0,8", "-2951.0,8", "line 3, column 'duration' is '-2951.0', but must be a number of seconds"),
        ("philly", "66.0,1", "66.0,0", "line 2, column 'num_gpus' is '0', but must be a whole number from 1 to"),
        ("philly", "2017-10-09 07", "09/10/2017 07", "line 2, column 'timestamp' is '09/10/2017 07:01:55', but must"),
        ("philly", "66.0,1", "9" * 400 + ",1", "line 2, column 'duration' is '99999"),
        ("philly log", '"jobid": "application_3"', '"jobid": 3', "entry 2, field 'jobid' is 3, but must be a text"),
        ("philly log", "2017-10-07 01:13:00", "2017-10-07 01:11:00", "entry 0, field 'attempts[0].end_time' is"),
        ("philly log", "application_3", "application_1", "entry 2, field 'jobid' is 'application_1', which an earlier"),
        ("philly log", "[\n {", "[\n 7, {", "entry 0 is 7, but must be an object with jobid, attempts"),
        ("helios", ",3600,0", ",-3600,0", "line 2, column 'duration' is '-3600', but must be a number of seconds"),
        ("helios", "14,ub", "12,ub", "line 4, column 'job_id' is '12', which an earlier job already has"),
        ("openb", "100,1100,150", "100,140,150", "line 2, column 'deletion_time' is '140', but must be no earlier"),
        ("openb", ",460,", ",4600,", "line 3, column 'gpu_milli' is '4600', but must be a whole number from 1 to 1000"),
        ("jsonl", '"mem_mib"', '"mem_mb"', "line 4 has an unknown field 'mem_mb' (did you mean 'mem_mib'?): accepted"),
        ("jsonl", '"sliceable"', '"sliced"', "line 4, field 'kind' is 'sliced', but must be rigid, sliceable or"),
        ("jsonl", '"length_s": 60', '"length_s": NaN', "line 1, field 'length_s' is nan, but must be a number"),
        ("jsonl", ', "length_s": 60', "", "line 1 has no field 'length_s': a rigid job needs its seconds"),
        ("jsonl", '"id": "b"', '"id": "a"', "line 2, field 'id' is 'a', which an earlier job already has"),
        ("jsonl", '"max_gpus": 8', '"max_gpus": 1', "line 2, field 'gpus' is 2, but must be from min_gpus (1) to"),
        ("jsonl", '60}', '60', "line 1, column 27 is not JSON"),
        ("yaml", "memory", "memry", "line 3, jobs[0].memry is not a known field (did you mean 'memory'?): accepted"),
        ("yaml", "length: 2h", "length: -2", "line 4, jobs[0].length is -2, but must be a time such as 2h, 90m"),
        ("yaml", "    length: 2h\n", "", "job 'a' has no length: to be simulated it needs one"),
    ],
)  # fmt: skip
def test_the_sentence_names_the_place(
    format: str, old: str, new: str, sentence: str, samples: dict[str, str], tmp_path: Path
) -> None:
    assert old in samples[format]
    path = tmp_path / "trace"
    path.write_text(samples[format].replace(old, new, 1))
    assert sentence in complaint(path, format.split()[0])


@pytest.mark.parametrize("format", ["pollux", "philly", "helios", "openb", "jsonl", "yaml"])
def test_files_that_are_no_text_at_all(format: str, tmp_path: Path) -> None:
    path = tmp_path / "trace"
    for data, sentence in [
        (b"", "trace is empty: expected "),
        (b" \n\n", "trace is empty: expected "),
        (b"a\n\xff\xfe\n", "trace: line 2 is not UTF-8 text: expected "),
        (b"a\nb\0\n", "trace: line 2 contains a NUL byte: expected "),
    ]:
        path.write_bytes(data)
        assert complaint(path, format).startswith(sentence)
    assert complaint(tmp_path / "absent", format).startswith("absent does not exist: expected ")
    (tmp_path / "folder").mkdir()
    assert complaint(tmp_path / "folder", format).startswith("folder is a folder: expected ")


@pytest.mark.parametrize("format", ["pollux", "philly", "helios", "openb"])
def test_a_header_alone_is_an_empty_trace(format: str, samples: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text(samples[format].splitlines()[0] + "\n")
    assert complaint(path, format) == "trace has no job to run: expected at least one"


def test_what_was_left_out_is_said_when_nothing_is_left(samples: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "trace"
    lines = samples["helios"].splitlines()
    path.write_text("\n".join([lines[0], lines[2], lines[4]]))
    assert complaint(path, "helios") == "trace has no job to run (1 are CPU jobs, 1 never ran): expected at least one"


def test_columns_may_stand_in_any_order_beside_others(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text("note,batch_size,num_replicas,application,time,name\r\nx,8,2,bert,5,a\r\n")
    assert [entry.job.id for entry in read_trace(path, "pollux")] == ["a"]


@pytest.mark.parametrize(
    ("file", "old", "new", "sentence"),
    [
        ("job_models.json", "resnet_train128", "resnt_train128", "job 0 is 'resnt_train128', but must be a workload"),
        ("job_models.json", '"1"', '"one"', "key 'one' is not a job number of its own"),
        ("num_iters.json", "1000", "-1000", "job 0 is -1000, but must be a whole number from 1"),
        ("num_iters.json", '"2"', '"3"', "job 2 is in only one of job_models.json and num_iters.json"),
        ("num_iters.json", "{", "[", "is not JSON"),
        ("mig_batch_latency.csv", "7g.40gb,10,0.1", "7g.80gb,10,0.1", "column 'slice' is '7g.80gb', but must be one"),
        ("mig_batch_latency.csv", "gizmo,1,7g.40gb", "gizmo,1,3g.20gb", "has no row of gizmo 1 on 7g.40gb"),
        ("mig_batch_latency.csv", "10,0.4,", "10,0,", "line 2, column 'mean_s' is '0', but must be"),
        ("mig_batch_latency.csv", "resnet,128,3g.20gb", "resnet,128,1g.5gb", "line 3 measures resnet 128 on 1g.5gb"),
    ],
)  # fmt: skip
def test_a_wrong_miso_folder(file: str, old: str, new: str, sentence: str, sample_path: dict[str, Path]) -> None:
    path = sample_path["miso"] / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    assert sentence in complaint(sample_path["miso"], "miso")


def test_measurements_without_rows(tmp_path: Path) -> None:
    path = tmp_path / "latencies.csv"
    path.write_text("model,batch,slice,mean_s\n")
    with pytest.raises(InputError, match="has no rows: expected at least one workload"):
        figures_from_csv(path)
