"""Profiles of elastic jobs are read as they are, or refused in one sentence that says where and what."""

from pathlib import Path

import pytest

from gpuloom.errors import InputError
from gpuloom.work.measured.elastic_profiles import EpochRow, PlacementRow, ScalabilityRow, read_profiles

FILES = {
    "placements.csv": "placement,local_bsz,step_time,sync_time\n1,32,0.5,0.01\n44,32,0.75,0.25\n",
    "scalability.csv": "num_nodes,num_replicas,local_bsz,step_time,sync_time\n6,12,32,0.9,0.4\n",
    "validation-1024.csv": "progress,iteration,metric,grad_sqr,grad_var\n11.5,2,0.4,2,3\n22.5,4,0.6,1e12,0\n",
    "validation-64.csv": "progress,iteration,metric,grad_sqr,grad_var\n10,10,0.5,0,3\n20,20,0.7,1,2\n",
}


def write(folder: Path, model: str = "toy", **changed: str | None) -> None:
    """The files of one model; `placements="…"` replaces one of them, None leaves it out."""
    (folder / model).mkdir()
    for name, text in FILES.items():
        found = changed.get(name.removesuffix(".csv").replace("-", "_"), text)
        if found is not None:
            (folder / model / name).write_text(found)


def test_every_row_is_read_and_batches_are_in_order(tmp_path: Path) -> None:
    write(tmp_path)
    write(tmp_path, "yolov3")
    (tmp_path / "workloads").mkdir()
    profiles = read_profiles(tmp_path)
    assert list(profiles) == ["toy", "yolov3"]
    toy = profiles["toy"]
    assert toy.placements == (PlacementRow((1,), 32, 0.5, 0.01), PlacementRow((4, 4), 32, 0.75, 0.25))
    assert toy.scalability == (ScalabilityRow(6, 12, 32, 0.9, 0.4),)
    assert list(toy.validation) == [64, 1024]
    assert toy.validation[1024][1] == EpochRow(22.5, 4, 0.6, 1e12, 0.0)
    assert toy.max_local_batch is None
    assert profiles["yolov3"].max_local_batch == 8


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"placements": None}, "placements.csv does not exist"),
        ({"scalability": None}, "scalability.csv does not exist"),
        ({"validation_64": None, "validation_1024": None}, "has no validation-<batch>.csv"),
        ({"placements": "placement,step_time,sync_time\n1,1,1\n"}, "no column 'local_bsz'"),
        ({"placements": "placement,local_bsz,step_time,sync_time\n"}, "has no rows"),
        ({"placements": "placement,local_bsz,step_time,sync_time\n40,32,1,0\n"}, "line 2, column 'placement' is '40'"),
        ({"placements": "placement,local_bsz,step_time,sync_time\n4,3.5,1,0\n"}, "column 'local_bsz' is '3.5'"),
        ({"placements": "placement,local_bsz,step_time,sync_time\n4,3,0,0\n"}, "column 'step_time' is '0'"),
        ({"placements": "placement,local_bsz,step_time,sync_time\n4,3,1,2\n"}, "column 'sync_time' is '2'"),
        ({"scalability": "num_nodes,num_replicas,local_bsz,step_time,sync_time\n0,1,1,1,1\n"}, "column 'num_nodes'"),
        (
            {"validation_64": "progress,iteration,metric,grad_sqr,grad_var\n5,1,1,1,1\n5,2,1,1,1\n"},
            "line 3, column 'progress'",
        ),
        ({"validation_64": "progress,iteration,metric,grad_sqr,grad_var\n5,1,1,nan,1\n"}, "column 'grad_sqr' is 'nan'"),
        ({"validation_64": "progress,iteration,metric,grad_sqr,grad_var\n5,1,1,1\n"}, "line 2 has 4 fields"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(tmp_path: Path, changed: dict[str, str | None], complaint: str) -> None:
    write(tmp_path, "toy", **changed)
    with pytest.raises(InputError) as refused:
        read_profiles(tmp_path)
    assert complaint in str(refused.value)
    assert "\n" not in str(refused.value)
    assert "toy" in str(refused.value)


def test_a_folder_without_models_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no model in it"):
        read_profiles(tmp_path)
    with pytest.raises(InputError, match="not a readable folder"):
        read_profiles(tmp_path / "absent")


def test_the_published_measurements(data_dir: Path) -> None:
    profiles = read_profiles(data_dir / "pollux")
    assert list(profiles) == ["bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3"]
    epochs = {model: {len(rows) for rows in profile.validation.values()} for model, profile in profiles.items()}
    assert epochs == {"bert": {2}, "cifar10": {100}, "deepspeech2": {80}, "imagenet": {90}, "ncf": {10}, "yolov3": {50}}
