"""What a server's environment says of its device, on the stand-in for NVIDIA's library and MPS tool."""

import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpuloom.gpus.catalogue import find
from gpuloom.gpus.host.mps.daemon import running
from gpuloom.gpus.layouts import parse
from gpuloom.serve.state import read_events
from gpuloom.serve.triton.environment import Triton
from tests.serve.plans import row, write_plan
from tests.standin.hardware import GPULOOM, Hardware

pytestmark = pytest.mark.xdist_group("mps")


@contextmanager
def serve(hardware: Hardware, plan: Path, triton: Triton, state: Path) -> "Iterator[subprocess.Popen[str]]":
    """`gpuloom serve up`, ended with Ctrl-C."""
    words = [str(GPULOOM), "serve", "up", str(plan), "--state", str(state), "--triton", str(triton.binary)]
    server = subprocess.Popen(words, env=hardware.environment, stderr=subprocess.PIPE, text=True)
    try:
        yield server
    finally:
        server.send_signal(signal.SIGINT)
        server.communicate(timeout=20)


def environments(state: Path, servers: int) -> dict[str, dict[str, str]]:
    """Of each server, by its name, when all have been started."""
    deadline_s = time.monotonic() + 20
    while len(started := [one for one in read_events(state) if one["event"] == "started"]) < servers:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    found = {}
    for event in started:
        entries = Path(f"/proc/{event['pid']}/environ").read_text().split("\0")
        found[event["server"]] = dict(entry.split("=", 1) for entry in entries if "=" in entry)
    return found


def test_a_share_is_mps_and_a_whole_gpu_is_not(
    hardware: Hardware, fake_triton: Triton, tmp_path_factory: pytest.TempPathFactory
) -> None:
    hardware.install("A100-40GB")
    folder = tmp_path_factory.mktemp("s")
    rows = [row("a", share_pct=30), row("b", share_pct=60)]
    with serve(hardware, write_plan(folder, *rows), fake_triton, folder / "s") as server:
        found = environments(folder / "s", 4)
    assert server.returncode == 0
    shares = {name: env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] for name, env in found.items()}
    assert shares == {"a-0-planned": "30", "a-0-shadow": "40", "b-0-planned": "60", "b-0-shadow": "70"}
    assert {env["CUDA_VISIBLE_DEVICES"] for env in found.values()} == {hardware.show()["uuid"]}
    (pipe,) = {env["CUDA_MPS_PIPE_DIRECTORY"] for env in found.values()}
    assert Path(pipe).is_relative_to(folder / "s" / "mps")
    assert not list(Path(pipe).iterdir())  # its daemon has ended


def test_nothing_is_left_even_if_the_folder_is_gone(
    hardware: Hardware, fake_triton: Triton, tmp_path_factory: pytest.TempPathFactory
) -> None:
    hardware.install("A100-40GB")
    folder = tmp_path_factory.mktemp("s")
    with serve(hardware, write_plan(folder, row()), fake_triton, folder / "s"):
        (first, *_) = environments(folder / "s", 2).values()
        pipe = Path(first["CUDA_MPS_PIPE_DIRECTORY"])
        shutil.rmtree(folder, ignore_errors=True)
    assert pipe not in running()


def test_a_slice_is_its_uuid(hardware: Hardware, fake_triton: Triton, tmp_path_factory: pytest.TempPathFactory) -> None:
    hardware.install("A100-40GB+mig")
    hardware.worker().apply(parse(find("A100-40GB"), "3g.20gb@0"))
    folder = tmp_path_factory.mktemp("s")
    plan = write_plan(folder, row("a", device="3g.20gb@0", share_pct=100))
    with serve(hardware, plan, fake_triton, folder / "s"):
        found = environments(folder / "s", 2)
    for environment in found.values():
        assert environment["CUDA_VISIBLE_DEVICES"] == hardware.uuids()["3g.20gb@0"]
        assert not list(Path(environment["CUDA_MPS_PIPE_DIRECTORY"]).iterdir()), "it has a share of nothing"


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"gpu": 3}, "uses GPU 3, but this host has 1"),
        ({"device": "3g.20gb@0", "workload": None}, "which is not there"),
    ],
)
def test_a_device_that_is_not_there(
    hardware: Hardware, fake_triton: Triton, tmp_path: Path, fields: dict[str, Any], told: str
) -> None:
    hardware.install("A100-40GB")
    with serve(hardware, write_plan(tmp_path, row(**fields)), fake_triton, tmp_path / "s") as server:
        _, err = server.communicate(timeout=20)
    assert server.returncode == 2
    assert told in err
