"""Locks and records of GPUs; no GPU is involved."""

from pathlib import Path

import pytest

from gpuloom.gpus.host.ownership import Claims, Found, Refused, state_dir
from gpuloom.gpus.model import Instance

FOUND = Found("GPU-1", True, (Instance(0, "2g.10gb"), Instance(4, "3g.20gb")))


def test_where_the_state_is() -> None:
    assert state_dir({"GPULOOM_STATE_DIR": "/x", "HOME": "/home/a"}, uid=0) == Path("/x")
    assert state_dir({"HOME": "/root"}, uid=0) == Path("/var/lib/gpuloom")
    assert state_dir({"HOME": "/home/a"}, uid=7) == Path("/home/a/.local/state/gpuloom")
    assert state_dir({"HOME": "/home/a", "XDG_STATE_HOME": "/s"}, uid=7) == Path("/s/gpuloom")


def test_a_lock_is_held_by_one(tmp_path: Path) -> None:
    # Two claims in one process exclude each other as two processes do.
    with Claims(tmp_path / "new") as first, Claims(tmp_path / "new") as second:
        assert second.holder("GPU-1") is None
        first.lock("GPU-1")
        first.lock("GPU-1")
        second.lock("GPU-2")
        assert first.holder("GPU-1") is None
        assert "another gpuloom (process " in str(second.holder("GPU-1"))
        with pytest.raises(Refused, match="another gpuloom"):
            second.lock("GPU-1")
        first.unlock("GPU-1")
        second.lock("GPU-1")
        assert second.holds("GPU-1")
        assert not first.holds("GPU-1")


def test_a_record_stays_until_it_is_forgotten(tmp_path: Path) -> None:
    with Claims(tmp_path) as claims:
        assert claims.found("GPU-1") is None
        claims.remember(FOUND)
    with Claims(tmp_path) as claims:
        assert claims.found("GPU-1") == FOUND
        claims.forget("GPU-1")
        claims.forget("GPU-1")
        assert claims.found("GPU-1") is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["", "[]", '{"mig": true}', '{"mig": 1, "layout": [[1]]}', '{"mig": 1, "layout": 3}'])
def test_a_damaged_record(tmp_path: Path, text: str) -> None:
    (tmp_path / "GPU-1.json").write_text(text)
    with Claims(tmp_path) as claims, pytest.raises(Refused, match="cannot be understood"):
        claims.found("GPU-1")


def test_locks_and_records_are_for_nobody_else(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o755)
    with Claims(folder) as claims:
        claims.lock("GPU-1")
        claims.remember(FOUND)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (folder, *folder.iterdir())}
    assert modes == {"state": 0o700, "GPU-1.lock": 0o600, "GPU-1.json": 0o600}


def test_a_folder_that_others_can_write_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with Claims(tmp_path) as claims, pytest.raises(Refused, match="can be written by others"):
        claims.lock("GPU-1")


@pytest.mark.parametrize("kind", ["lock", "json"])
def test_a_link_in_the_place_of_a_lock_or_record_is_refused(tmp_path: Path, kind: str) -> None:
    (tmp_path / "elsewhere").write_text('{"mig": true, "layout": []}')
    (tmp_path / f"GPU-1.{kind}").symlink_to(tmp_path / "elsewhere")
    with Claims(tmp_path) as claims:
        ask = claims.lock if kind == "lock" else claims.found
        with pytest.raises(Refused, match="is not a plain file of gpuloom's"):
            ask("GPU-1")
        if kind == "lock":
            assert "is not a plain file" in str(claims.holder("GPU-1"))
    assert (tmp_path / "elsewhere").read_text() == '{"mig": true, "layout": []}'
