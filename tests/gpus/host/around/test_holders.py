"""Who has the GPUs' device files open, on a pretended /proc; and what somebody is told to do about it."""

import os
from pathlib import Path

import pytest

from gpuloom.gpus.host.around.holders import Holder, holders, others, way_to_reset


def process(root: Path, pid: int, name: str, *files: str) -> None:
    folder = root / "proc" / str(pid) / "fd"
    folder.mkdir(parents=True)
    (folder.parent / "comm").write_text(f"{name}\n")
    for number, path in enumerate(files):
        (folder / str(number)).symlink_to(path)


def drm(root: Path, modeset: str, refcnt: str) -> None:
    folder = root / "sys/module/nvidia_drm"
    (folder / "parameters").mkdir(parents=True)
    (folder / "parameters/modeset").write_text(f"{modeset}\n")
    (folder / "refcnt").write_text(f"{refcnt}\n")


def test_who_has_a_device_file_open(tmp_path: Path) -> None:
    process(tmp_path, 90, "python3", "/dev/null", "/dev/nvidia0")
    process(tmp_path, 8, "nvidia-persiste", "/dev/nvidiactl", "/dev/nvidia1")
    process(tmp_path, 17, "nv-hostengine", "socket:[4]", "/dev/nvidiactl")
    process(tmp_path, os.getpid(), "gpuloom", "/dev/nvidiactl")
    process(tmp_path, 5, "bash", "/dev/null", "/home/a/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap1")
    process(tmp_path, 6, "kthreadd")
    found = others(holders(tmp_path))
    assert list(map(str, found)) == [
        "nvidia-persistenced (process 8)",
        "DCGM's nv-hostengine (process 17)",
        "python3 (process 90)",
    ]
    assert [holder.pid for holder in holders(tmp_path) if holder.ours] == [os.getpid()]


@pytest.mark.parametrize(("modeset", "refcnt", "holds"), [("Y", "0", True), ("N", "2", True), ("N", "0", False)])
def test_the_kernels_own_display_module(tmp_path: Path, modeset: str, refcnt: str, holds: bool) -> None:
    assert holders(tmp_path) == ()
    drm(tmp_path, modeset, refcnt)
    assert list(map(str, holders(tmp_path))) == (["the kernel's nvidia_drm"] if holds else [])


PERSISTENCED = Holder("nvidia-persistenced", 8)
ALL = (
    PERSISTENCED,
    Holder("nv-hostengine", 17),
    Holder("python3", 90),
    Holder("nvidia_drm"),
    Holder("gpuloom", 1, True),
)


def test_the_way_to_a_reset_names_what_stands_in_it() -> None:
    assert way_to_reset(2, ALL, persistent=False, virtual=False).split(", then ") == [
        "run `systemctl stop nvidia-persistenced`",
        "stop DCGM's nv-hostengine (process 17) with `systemctl stop nvidia-dcgm`",
        "stop python3 (process 90)",
        "run `modprobe -r nvidia_drm`",
        "run `nvidia-smi --gpu-reset -i 2`",
    ]
    # In persistence mode the daemon lets go of one GPU when it is told to.
    assert way_to_reset(2, (PERSISTENCED,), persistent=True, virtual=False).split(", then ") == [
        "run `nvidia-smi -i 2 -pm 0`",
        "run `nvidia-smi --gpu-reset -i 2`",
    ]
    assert "restart this virtual machine" in way_to_reset(2, ALL, persistent=True, virtual=True)
