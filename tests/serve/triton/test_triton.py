"""From a plan to real Triton servers and back to nothing, through the commands that a user has."""

import json
import os
import signal
import urllib.request
from pathlib import Path

import pytest

from gpuloom.serve.triton.environment import Triton
from tests.serve.plans import row, write_plan
from tests.serve.triton.deployed import PATIENCE_S, Deployed, until

pytestmark = pytest.mark.xdist_group("triton")
OWN_MODEL = """
import numpy as np
import triton_python_backend_utils as triton

class TritonPythonModel:
    def execute(self, requests):
        size = triton.Tensor("y", np.array([[len(requests)]], np.float32))
        return [triton.InferenceResponse([size]) for _ in requests]
"""


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
