"""From a plan to real Triton servers and back to nothing, through the commands that a user has."""

import json
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuloom.serve.state import State, read_events
from gpuloom.serve.triton.environment import Triton
from tests.serve.plans import row, write_plan
from tests.standin.hardware import GPULOOM

pytestmark = pytest.mark.xdist_group("triton")
PATIENCE_S = 60.0
OWN_MODEL = """
import numpy as np
import triton_python_backend_utils as triton

class TritonPythonModel:
    def execute(self, requests):
        size = triton.Tensor("y", np.array([[len(requests)]], np.float32))
        return [triton.InferenceResponse([size]) for _ in requests]
"""


def until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s, "waited in vain"
        time.sleep(0.02)


class Deployed:
    """`gpuloom serve up` in a process of its own."""

    def __init__(self, folder: Path, plan: Path, *words: str, file: str = "deployment.json") -> None:
        self.state = State(folder / "state")
        command = [str(GPULOOM), "serve", "up", str(plan), "--state", str(self.state.folder), *words]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        until(lambda: self.process.poll() is not None or (self.state.folder / file).exists())
        assert self.process.poll() is None, self.process.communicate()[1]

    def command(self, *words: str, code: int = 0) -> str:
        done = subprocess.run([str(GPULOOM), *words], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert done.returncode == code, done.stderr
        return done.stdout

    def load(self, *more: str) -> "subprocess.Popen[str]":
        words = [str(GPULOOM), "load", str(self.state.folder), "--requests", "300", "--output", "json", *more]
        return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)

    def events(self, what: str, **more: str) -> list[dict[str, Any]]:
        wanted = {"event": what, **more}
        return [one for one in read_events(self.state.folder) if all(one[key] == wanted[key] for key in wanted)]

    def serving(self, service: str) -> str:
        """The server that the last switch went to."""
        server: str = self.events("switched", service=service)[-1]["server"]
        return server

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            subprocess.run(
                [str(GPULOOM), "serve", "status", "--state", str(self.state.folder), "--output", "json"],
                capture_output=True, text=True, timeout=PATIENCE_S, check=False,
            ).stdout
        )  # fmt: skip
        return found

    def check_nothing_is_left(self) -> None:
        mark = str(self.state.folder).encode()
        until(lambda: not any(mark in words for words in _command_lines()))
        assert not list(Path("/dev/shm").glob(f"{self.state.shm_prefix}*"))

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        self.state.take_down()


def _command_lines() -> Iterator[bytes]:
    for folder in Path("/proc").glob("[0-9]*"):
        if int(folder.name) != os.getpid():
            try:
                yield (folder / "cmdline").read_bytes()
            except OSError:
                continue


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_violation_and_a_kill_cost_no_request(
    tmp_path: Path,
    real_triton: Triton,  # noqa: ARG001
    protocol: str,
) -> None:
    if protocol == "grpc":
        pytest.importorskip("grpc")
    rows = [
        row("fast", share_pct=20, rate_rps=60, slo_ms=60, batch=4, batch_ms=[8, 9, 10, 11]),
        row("slow", share_pct=50, rate_rps=60, slo_ms=60, batch=4, batch_ms=[8, 9, 10, 11]),
    ]
    deployed = Deployed(tmp_path, write_plan(tmp_path, *rows), "--calm-s", "0.2")
    try:
        load = deployed.load(*(["--grpc"] if protocol == "grpc" else []))
        slowdown = deployed.state.servers_dir / "slow-0" / "slowdown"
        until(lambda: deployed.status()["services"][1]["requests"] > 20)
        slowdown.write_text("8")
        (victim,) = [one["pid"] for one in deployed.events("started", server="fast-0-planned")]
        os.kill(victim, signal.SIGKILL)
        until(lambda: bool(deployed.events("grow")) and deployed.serving("slow") == "slow-0-shadow")
        slowdown.unlink()
        out, _ = load.communicate(timeout=PATIENCE_S)
        for service in json.loads(out)["services"]:
            assert (service["requests"], service["failed"], service["lost"]) == (300, 0, 0)
        until(lambda: len(deployed.events("ready", server="fast-0-planned")) == 2)
        until(lambda: bool(deployed.events("shrink")) and deployed.serving("slow") == "slow-0-planned")
        deployed.process.send_signal(signal.SIGINT)
        assert deployed.process.wait(PATIENCE_S) == 0
        deployed.check_nothing_is_left()
    finally:
        deployed.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ending_it_while_servers_start_leaves_nothing(
    tmp_path: Path,
    real_triton: Triton,  # noqa: ARG001
    number: signal.Signals,
) -> None:
    deployed = Deployed(tmp_path, write_plan(tmp_path, row()), file="events.jsonl")  # the first server was started
    try:
        deployed.process.send_signal(number)
        assert deployed.process.wait(PATIENCE_S) == 0
        assert not (deployed.state.folder / "deployment.json").exists()
        deployed.check_nothing_is_left()
    finally:
        deployed.close()


def test_own_models_are_served_with_the_plans_batching_and_die_with_their_keeper(
    tmp_path: Path, real_triton: Triton
) -> None:
    own = tmp_path / "models" / "resnet50"
    (own / "1").mkdir(parents=True)
    (own / "1" / "model.py").write_text(OWN_MODEL)
    tensor = "data_type: TYPE_FP32 dims: [1]"
    (own / "config.pbtxt").write_text(
        f'backend: "python"\nmax_batch_size: 64\ninput [{{ name: "x" {tensor} }}]\noutput [{{ name: "y" {tensor} }}]\n'
    )
    words = ["--models", str(tmp_path / "models"), "--no-standby", "--host", "localhost"]
    assert real_triton.binary.exists()
    deployed = Deployed(tmp_path, write_plan(tmp_path, row(batch=3, batch_ms=None)), *words)
    try:
        record = deployed.state.record()
        assert not record.standin
        address = f"http://{record.host}:{record.port}/v2/models/W6"
        body = json.dumps({"inputs": [{"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [0]}]}).encode()
        with urllib.request.urlopen(f"{address}/infer", data=body, timeout=PATIENCE_S) as reply:
            assert json.load(reply)["outputs"][0]["data"] == [1.0]
        with urllib.request.urlopen(f"{address}/config", timeout=PATIENCE_S) as reply:
            config = json.load(reply)
        assert config["max_batch_size"] == 3
        assert config["dynamic_batching"]["max_queue_delay_microseconds"] == 500
        deployed.process.kill()
        deployed.process.wait()
        deployed.command("serve", "status", "--state", str(deployed.state.folder), code=2)
        deployed.command("serve", "down", "--state", str(deployed.state.folder))
        deployed.check_nothing_is_left()
    finally:
        deployed.close()
