"""Reading measured mixes and the file of weights: what a good file gives, and a sentence for each kind of bad one."""

from pathlib import Path

import numpy as np
import pytest

from gpuloom.errors import InputError
from gpuloom.work.measured.mps_mixes import MeasuredJob, all_families, family_of, read_mixes
from gpuloom.work.measured.predictor_weights import load_weights, save_weights

HEADER = "mix,n_active,slot,workload,mps100,mps50,mps14,mig7g,mig4g,mig3g\n"
GOOD = (
    HEADER
    + """4,2,1,bert 4,0.5,0.6,1.0,0.6,0.9,1.0
4,2,0,resnet 64,1.0,0.8,0.7,0.9,1.0,1.0
4,2,2,dummy,1.0,0.5,0.5,0.8,1.0,0.8
2,1,0,bert 8,0.4,0.5,1.0,0.5,0.9,1.0
"""
)


def write(folder: Path, text: str) -> Path:
    path = folder / "mixes.csv"
    path.write_text(text)
    return path


def test_a_good_file(tmp_path: Path) -> None:
    first, second = read_mixes(write(tmp_path, GOOD))
    assert (first.id, second.id) == (4, 2)
    assert [job.workload for job in first.jobs] == ["resnet 64", "bert 4"]  # in order of slot
    assert first.jobs[1] == MeasuredJob("bert 4", (0.5, 0.6, 1.0), (0.6, 0.9, 1.0))
    assert len(first.gauges) == 1
    assert second.gauges == ()
    assert first.families == {"resnet", "bert"}
    assert all_families([first, second]) == ["bert", "resnet"]
    assert family_of("deepspeech2 16") == "deepspeech2"


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("0.5,0.6,1.0,0.6", "0.5,0,1.0,0.6", "line 2, column 'mps50' is '0', but must be a latency above 0"),
        ("0.5,0.6,1.0,0.6", "0.5,x,1.0,0.6", "line 2, column 'mps50' is 'x'"),
        ("4,2,1,bert", "4,2,7,bert", "line 2, column 'slot' is '7', but must be a whole number from 0 to 6"),
        ("4,2,1,bert", "4,8,1,bert", "line 2, column 'n_active' is '8'"),
        ("4,2,0,resnet", "4,3,0,resnet", "line 3, column 'n_active' is '3', but must be 2, as in the other rows"),
        ("4,2,0,resnet", "4,2,1,resnet", "line 3, column 'slot' is '1', but must be a slot that mix 4 has not had"),
        ("resnet 64", "dummy", "mix 4 has n_active 2, but 1 rows that are not dummy"),
        ("bert 4", "", "line 2, column 'workload' is ''"),
        ("mps14", "mps13", "line 1 has no column 'mps14'"),
        (GOOD[len(HEADER) :], "", "has no rows"),
        (",0.9,1.0\n", ",0.9\n", "line 2 has 9 fields where the header has 10"),
    ],
)
def test_a_bad_file(tmp_path: Path, old: str, new: str, sentence: str) -> None:
    path = write(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(InputError) as error:
        read_mixes(path)
    assert sentence in str(error.value)
    assert str(path) in str(error.value)


def test_the_measured_mixes(data_dir: Path) -> None:
    """What the docs say of the file: ratios within a row, and one latency on MIG for each workload, mix or no mix."""
    mixes = read_mixes(data_dir / "miso" / "mps_mixes.csv")
    jobs = [job for mix in mixes for job in mix.jobs]
    assert all(len(mix.jobs) + len(mix.gauges) == 7 for mix in mixes)
    assert all(max(job.mps) == max(job.mig) == 1.0 for job in jobs)
    assert len({(job.workload, job.mig) for job in jobs}) == len({job.workload for job in jobs}) == 32
    assert len(all_families(mixes)) == 8


def test_weights_come_back(tmp_path: Path) -> None:
    path = tmp_path / "weights.npz"
    everything = {"a": np.arange(3.0), "n": np.array(["x", "y"])}
    save_weights(path, everything, {"bert": {"a": np.zeros(2)}}, {"source": "me", "families": ["bert"]})
    kept = load_weights(path)
    assert kept.about["source"] == "me"
    assert set(kept.arrays) == {"a", "n"}
    assert (kept.arrays["a"] == everything["a"]).all()
    assert (load_weights(path, without_family="bert").arrays["a"] == np.zeros(2)).all()
    with pytest.raises(InputError, match="no weights trained without 'gnn': it has those without bert"):
        load_weights(path, without_family="gnn")


def test_files_that_are_no_weights(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist: expected weights"):
        load_weights(tmp_path / "none.npz")
    with pytest.raises(InputError, match="cannot be read"):
        load_weights(tmp_path)
    good = tmp_path / "good.npz"
    save_weights(good, {"a": np.arange(1000.0)}, {}, {"families": []})
    array, other = tmp_path / "array.npy", tmp_path / "other.npz"
    np.save(array, np.zeros(3))
    np.savez(other, a=np.zeros(3))
    cut, text = tmp_path / "cut.npz", tmp_path / "text.npz"
    cut.write_bytes(good.read_bytes()[:-40])
    text.write_text("mix,n_active")
    for path in (array, other, cut, text):
        with pytest.raises(InputError, match="is not a file of weights"):
            load_weights(path)
