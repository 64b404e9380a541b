"""Locks and records of GPUs, and the traces of other managers; no GPU is involved."""

from pathlib import Path

import pytest

from gpuloom.gpus.host.ownership import Claims, Found, Refused, other_manager, state_dir
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


@pytest.mark.parametrize(
    ("trace", "who"),
    [
        ("etc/systemd/system/multi-user.target.wants/nvidia-mig-manager.service", "MIG manager is enabled"),
        ("var/lib/kubelet/device-plugins/nvidia-gpu.sock", "device plugin"),
        ("var/lib/kubelet/plugins/gpu.nvidia.com", "DRA driver"),
    ],
)
def test_traces_of_other_managers(tmp_path: Path, trace: str, who: str) -> None:
    assert other_manager(tmp_path) is None
    (tmp_path / trace).parent.mkdir(parents=True)
    (tmp_path / trace).touch()
    assert who in str(other_manager(tmp_path))


def test_other_managers_that_run(tmp_path: Path) -> None:
    for pid, name in ((10, "python3"), (11, "gpu-kubelet-plu")):
        (tmp_path / f"proc/{pid}").mkdir(parents=True)
        (tmp_path / f"proc/{pid}/comm").write_text(f"{name}\n")
    assert other_manager(tmp_path) == "the Kubernetes DRA driver is running (process 11)"
