"""Profiles and pairs of services are read as they are, or refused in one sentence that says where and what."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpuloom.errors import InputError
from gpuloom.work.measured.service_pairs import PairRow, read_gpulets_folder, read_solo_and_pairs
from gpuloom.work.measured.service_profiles import read_service_profiles

TABLE = [[4.0, 1.0, 0.8], [17.0, 4.0, 2.5], [31.0, 7.0, 4.0]]
HARDWARE: dict[str, Any] = {
    "maxGPUfrequency": 1530,
    "maxGPUpower": 300,
    "idlepower": 53.5,
    "unit": 2.5,
    "bandwidth": 1e7,
    "power": [118, 185, 259, 296, 295],
    "frequency": [1530, 1530, 1530, 1486, 1431],
    "idletime": [0.001, 0.002, 0.007, 0.012, 0.017],
}
TOY: dict[str, Any] = {
    "kernel": 20,
    "inputdata": 602112,
    "outputdata": 4000,
    "gpulatency": TABLE,
    "power": [[80, 150, 187], [84, 184, 288], [85, 192, 295]],
    "frequency": [[1530] * 3, [1530] * 3, [1530, 1530, 1506]],
    "l2caches": [2.7, 16.2, 29.6],
    "idletime_1": 0.03,
    "activetime_1": 3.7,
    "l2cache": 16.0,
    "activetime_2": 3.9,
    "frequency_2": 1514,
    "something_else": None,
}


def write(path: Path, hardware: dict[str, Any] | None = None, toy: dict[str, Any] | None = None) -> Path:
    fields = TOY | (toy or {})
    lines = [{"hardware": HARDWARE | (hardware or {})}, *({"toy": {name: value}} for name, value in fields.items())]
    file = path / "profile.jsonl"
    file.write_text("\n".join(json.dumps(line) for line in lines) + "\n\n")
    return file


def test_fields_spread_over_lines_make_one_profile(tmp_path: Path) -> None:
    profiles = read_service_profiles(write(tmp_path))
    toy = profiles.services["toy"]
    assert (toy.model, toy.kernels, toy.load_bytes) == ("toy", 20.0, 602112.0)
    assert toy.gpu_ms[1] == (17.0, 4.0, 2.5)
    assert toy.l2_pct == (2.7, 16.2, 29.6)
    assert profiles.gpu.copies_clock_mhz[4] == 1431.0
    assert profiles.gpu.idle_w == 53.5


@pytest.mark.parametrize(
    ("field", "value", "complaint"),
    [
        ("kernel", 0, "'kernel' of toy is 0, but must be a number above 0"),
        ("kernel", True, "'kernel' of toy is True"),
        ("activetime_2", "3.9", "'activetime_2' of toy is '3.9'"),
        ("activetime_2", float("nan"), "'activetime_2' of toy is nan"),
        ("gpulatency", TABLE[:2], "'gpulatency' of toy is a list, but must be 3 lists of 3 numbers above 0"),
        ("gpulatency", [[1, 2], [1, 2, 3], [1, 2, 3]], "'gpulatency' of toy is a list"),
        ("gpulatency", [[1, 2, -3], [1, 2, 3], [1, 2, 3]], "'gpulatency' of toy is -3"),
        ("l2caches", [1, 2], "'l2caches' of toy is a list, but must be a list of 3 numbers"),
        ("idletime_1", -1, "'idletime_1' of toy is -1, but must be a number, 0 or more"),
    ],
)
def test_a_wrong_field_is_named(tmp_path: Path, field: str, value: object, complaint: str) -> None:
    with pytest.raises(InputError) as refused:
        read_service_profiles(write(tmp_path, toy={field: value}))
    assert complaint in str(refused.value)
    assert str(tmp_path) in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "is empty"),
        ('{"toy": {"kernel": 20}}\n', "has no line of the GPU"),
        (json.dumps({"hardware": HARDWARE}), "has no model in it"),
        (json.dumps({"hardware": HARDWARE}) + '\n{"toy": {"kernel": 20}}', "toy has no 'inputdata'"),
        (json.dumps({"hardware": HARDWARE}) + '\n{"toy": {"kern', "line 2, column 10 is not JSON"),
        ('{"hardware": {"unit": 2.5}}\n{"hardware": {"unit": 5}}', "line 2 gives 'unit' of hardware again"),
        ("[1]", "line 1 is a list"),
        ('{"toy": 3}', "line 1 is an object"),
        ('{"": {"kernel": 2}}', "names a model ''"),
        ('{"hardware": {"unit": 2.5}}\n{"toy": {"kernel": 2}}', "hardware has no 'maxGPUfrequency'"),
    ],
)
def test_a_half_written_profile_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "cut.jsonl"
    file.write_text(text)
    with pytest.raises(InputError) as refused:
        read_service_profiles(file)
    assert complaint in str(refused.value)
    assert "\n" not in str(refused.value)


PAIRS = '{"interference": {"latency": [["a", "b", 2, 4, 20, 2.5, 3.5]]}}'


def test_a_pair_has_two_sides_and_tables_may_be_absent(tmp_path: Path) -> None:
    file = tmp_path / "pairs.jsonl"
    file.write_text(PAIRS + '\n{"interference": {"std": [["a", "b", 2, 4, 20, 0.1, 0.1]]}}\n')
    bare = read_solo_and_pairs(file)
    assert bare.pairs == (PairRow("a", 2, 20.0, "b", 4, 80.0, 2.5), PairRow("b", 4, 80.0, "a", 2, 20.0, 3.5))
    assert not bare.solo_ms
    file.write_text(
        '{"a": {"latency": {"2": {"20": 2.1}}, "throughput": {}}}\n{"a": {"dram": {"2": {"20": 7}}}}\n' + PAIRS
    )
    full = read_solo_and_pairs(file)
    assert full.solo_ms == {"a": {(2, 20.0): 2.1}}
    assert full.dram_pct == {"a": {(2, 20.0): 7.0}}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"a": {"latency": {"2": {"20": 2.1}}}}', "has no measured pairs"),
        ('{"interference": {"latency": 3}}', "'latency' of interference is 3"),
        ('{"interference": {"latency": [["a", "b", 2, 4, 20, 2.5]]}}', "pair 1 is"),
        ('{"interference": {"latency": [["a", "b", 2, 4, 100, 2.5, 3.5]]}}', "pair 1 is"),
        ('{"interference": {"latency": [["a", "b", 2, 0, 20, 2.5, 3.5]]}}', "pair 1 is"),
        ('{"interference": {"latency": [["a", "b", 2, 4, 20, 2.5, NaN]]}}', "pair 1 is"),
        (PAIRS + '\n{"a": {"latency": {"two": {"20": 2.1}}}}', "line 2: 'latency' of a, batch 'two'"),
        (PAIRS + '\n{"a": {"latency": []}}', "line 2: 'latency' of a is a list"),
        (PAIRS[:30], "line 1, column"),
    ],
)
def test_wrong_pairs_are_refused(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "pairs.jsonl"
    file.write_text(text)
    with pytest.raises(InputError) as refused:
        read_solo_and_pairs(file)
    assert complaint in str(refused.value)
    assert "\n" not in str(refused.value)


def test_gpulets_folder(tmp_path: Path) -> None:
    (tmp_path / "solo.csv").write_text("model,batch,share_pct,latency_s\na,1,20,0.004\n")
    (tmp_path / "cache_dram_util.csv").write_text("model,batch,share_pct,dram_util_pct,l2_util_pct\na,1,20,7.5,6.5\n")
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("model,batch,share_pct,neighbour,neighbour_batch,latency_s\na,1,20,b,2,0.005\n")
    measured = read_gpulets_folder(tmp_path)
    assert measured.pairs == (PairRow("a", 1, 20.0, "b", 2, 80.0, 5.0),)
    assert measured.solo_ms == {"a": {(1, 20.0): 4.0}}
    assert (measured.l2_pct["a"][1, 20.0], measured.dram_pct["a"][1, 20.0]) == (6.5, 7.5)
    pairs.write_text("model,batch,share_pct,neighbour,neighbour_batch,latency_s\na,1,100,b,2,0.005\n")
    with pytest.raises(InputError, match="column 'share_pct' is '100', but must be below 100"):
        read_gpulets_folder(tmp_path)


def test_the_published_measurements(data_dir: Path) -> None:
    profiles = read_service_profiles(data_dir / "igniter" / "profile_v100.jsonl")
    assert list(profiles.services) == ["alexnet", "resnet50", "vgg19", "ssd"]
    measured = read_solo_and_pairs(data_dir / "igniter" / "solo_and_pairs_v100.jsonl")
    assert len(measured.pairs) == 2 * 750
    assert len(read_gpulets_folder(data_dir / "gpulet_a100").pairs) == 2573
