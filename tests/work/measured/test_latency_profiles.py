"""Latency profiles: what was written is read again, and whatever is wrong is one sentence that names the place."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpuloom.errors import InputError
from gpuloom.work.measured.latency_profiles import as_json, is_latency_profile, read_latency_profile
from gpuloom.work.measured.service_pairs import PairRow

DEVICE: dict[str, object] = {"name": "A100-40GB", "mem_mib": 40960}
POINTS: list[dict[str, object]] = [
    {"batch": batch, "share_pct": share, "latency_ms": 100 * batch / share, "p95_ms": 120 * batch / share}
    for batch in (1, 4)
    for share in (50, 100)
]
PAIR: dict[str, object] = {
    "model": "m", "batch": 1, "share_pct": 50, "neighbour": "m", "neighbour_batch": 4, "neighbour_share_pct": 50,
    "latency_ms": 2.5,
}  # fmt: skip


def content() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(as_json(DEVICE, {"m": POINTS}, [PAIR], driver="575"))
    return found


def written(tmp_path: Path, what: object) -> Path:
    path = tmp_path / "profile.json"
    path.write_text(what if isinstance(what, str) else json.dumps(what), encoding="utf-8")
    return path


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    path = written(tmp_path, content())
    assert is_latency_profile(path)
    profile = read_latency_profile(path)
    assert (profile.device, profile.mem_mib, profile.share_unit_pct) == ("A100-40GB", 40960, 2.5)
    assert profile.alone_ms["m"] == {(1, 50.0): 2.0, (1, 100.0): 1.0, (4, 50.0): 8.0, (4, 100.0): 4.0}
    assert profile.p95_ms["m"][4, 50.0] == pytest.approx(9.6)
    assert profile.pairs == (PairRow("m", 1, 50.0, "m", 4, 50.0, 2.5),)
    assert profile.most_batch == {"m": 4}


def test_a_p95_of_some_points_is_none_of_all(tmp_path: Path) -> None:
    some = content()
    del some["models"]["m"][0]["p95_ms"]
    assert read_latency_profile(written(tmp_path, some)).p95_ms == {}


def test_somebody_elses_file_is_none(tmp_path: Path) -> None:
    for text in ('{"resnet50": {"kernel": 80}}\n{"hardware": {}}', "[1]", "{" * 100_000, "no"):
        assert not is_latency_profile(written(tmp_path, text))


@pytest.mark.parametrize("part", [0.2, 0.5, 0.99])
def test_a_damaged_one_is_nobody_elses(tmp_path: Path, part: float) -> None:
    """Who is told what iGniter's format expects looks for the mistake in the wrong place."""
    text = as_json(DEVICE, {"m": POINTS}, [PAIR])
    cut = written(tmp_path, text[: int(part * len(text))])
    assert is_latency_profile(cut)
    with pytest.raises(InputError, match="expected a latency profile as `gpuloom measure service` writes it"):
        read_latency_profile(cut)
    assert is_latency_profile(written(tmp_path, content() | {"format": "gpuloom latency profil"}))


def test_what_may_be_a_mistake_is_told(tmp_path: Path) -> None:
    """A few very slow batches make a mean that is above most of them, so it is no error."""
    assert read_latency_profile(written(tmp_path, content())).doubts == ()
    odd = content()
    odd["models"]["m"][0]["p95_ms"] = odd["models"]["m"][3]["p95_ms"] = 0.5
    odd["pairs"][0]["share_pct"] = 40
    assert read_latency_profile(written(tmp_path, odd)).doubts == (
        "p95_ms of m at batch 1 on 50 % is below the mean (and 1 more): no batch is taken to be faster than the mean",
        "pairs have m on 40 %, where it was not measured alone: that is interpolated",
    )


def _set(where: tuple[Any, ...], value: object) -> dict[str, Any]:
    changed = content()
    inner: Any = changed
    for key in where[:-1]:
        inner = inner[key]
    inner[where[-1]] = value
    return changed


@pytest.mark.parametrize(
    ("where", "value", "says"),
    [
        (("format",), "other", 'has no "format"'),
        (("version",), 2, "reads version 1"),
        (("device",), "A100", "device is 'A100', but must be an object"),
        (("device", "name"), "", "device.name is '', but must be a name"),
        (("device", "mem_mib"), -1, "device.mem_mib is -1"),
        (("device", "share_unit_pct"), 0, "device.share_unit_pct is 0"),
        (("models",), {}, "models is an object, but must be"),
        (("models", "m"), [], "models.m is a list, but must be a list of points, one or more"),
        (("models", "m", 1), 5, "models.m[1] is 5, but must be an object"),
        (("models", "m", 0, "batch"), 1.5, "models.m[0].batch is 1.5, but must be a whole number"),
        (("models", "m", 0, "batch"), True, "models.m[0].batch is True"),
        (("models", "m", 0, "share_pct"), 101, "models.m[0].share_pct is 101"),
        (("models", "m", 0, "latency_ms"), 0, "models.m[0].latency_ms is 0"),
        (("models", "m", 0, "latency_ms"), float("nan"), "models.m[0].latency_ms is nan"),
        (("models", "m", 0, "latency_ms"), 1e-300, "models.m[0].latency_ms is 1e-300, but must be a number from 1e-06"),
        (("models", "m", 1), POINTS[0], "batch 1 on 50 % is there twice"),
        (("pairs",), {}, "pairs is an object, but must be a list"),
        (("pairs", 0, "neighbour"), "other", "pairs[0] names 'other', which models does not"),
        (("pairs", 0, "latency_ms"), "fast", "pairs[0].latency_ms is 'fast'"),
    ],
)
def test_whatever_is_wrong_is_one_sentence(tmp_path: Path, where: tuple[Any, ...], value: object, says: str) -> None:
    path = written(tmp_path, _set(where, value))
    with pytest.raises(InputError) as error:
        read_latency_profile(path)
    assert says in str(error.value)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)
