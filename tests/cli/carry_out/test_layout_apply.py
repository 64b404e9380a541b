"""`gpuloom layout apply`, as a user types it, on the stand-in for the hardware."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpuloom.gpus.catalogue import MODELS
from gpuloom.gpus.host.mps.daemon import daemon_for
from gpuloom.gpus.layouts import parse
from tests.standin.hardware import GPULOOM, PATIENCE_S, Hardware

A100 = MODELS["A100-40GB"]
CONFIG = """
version: v1
mig-configs:
  balanced:
    - {devices: all, mig-enabled: true, mig-devices: {"3g.20gb": 1, "2g.10gb": 2}}
  empty:
    - {devices: all, mig-enabled: true, mig-devices: {}}
"""


def apply(hardware: Hardware, *words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return hardware.gpuloom("layout", "apply", *words, **environment)


def answer(hardware: Hardware, *words: str) -> dict[str, Any]:
    done = apply(hardware, *words, "--output", "json")
    assert done.returncode == 0, done.stderr
    shown: dict[str, Any] = json.loads(done.stdout)
    return shown


def test_dry_run_then_apply_then_as_found(hardware: Hardware) -> None:
    hardware.install("A100-40GB+mig")
    words = ("--gpu", "0", "--to", "3,2,2")
    plan = answer(hardware, *words, "--dry-run")
    assert (plan["dry_run"], plan["would_be_refused"], len(plan["steps"])) == (True, None, 3)
    assert hardware.layout() == ()
    cut = answer(hardware, *words)
    assert (cut["reached"], cut["steps"], cut["layout"]) == (True, plan["steps"], plan["to"])
    assert hardware.layout() == parse(A100, plan["to"])
    assert {row["instance"]: row["uuid"] for row in cut["instances"]} == hardware.uuids()
    assert answer(hardware, *words)["steps"] == []
    printed = apply(hardware, "--gpu", "0", "--as-found").stdout
    assert printed == "GPU 0, A100-40GB: none |········|, MIG on\n"
    again = apply(hardware, "--gpu", "0", "--as-found")
    assert (again.returncode, "has not taken it" in again.stderr) == (1, True)


def test_from_a_mig_parted_file(hardware: Hardware, tmp_path: Path) -> None:
    hardware.install("A100-40GB+mig+resets")
    config = tmp_path / "mig.yaml"
    config.write_text(CONFIG)
    words = ("--gpu", "0", "--config", str(config), "--name")
    assert answer(hardware, *words, "balanced")["layout"] == "2g.10gb@0,2g.10gb@2,3g.20gb@4"
    empty = answer(hardware, *words, "empty")
    assert (empty["layout"], empty["mig"]) == ("none", True)
    assert answer(hardware, "--gpu", "0", "--to", "none")["mig"] is False


def test_the_answer_is_no(hardware: Hardware) -> None:
    hardware.install("A30-24GB", "A100-40GB+mig")
    waits = apply(hardware, "--gpu", "0", "--to", "2,2")
    assert waits.returncode == 1
    assert "run `nvidia-smi --gpu-reset -i 0` and apply again; now it has no instance, MIG off" in waits.stderr
    cut = answer(hardware, "--gpu", "1", "--to", "3g.20gb@4")
    with hardware.job(cut["instances"][0]["uuid"]):
        for words in (("--dry-run",), ()):
            done = apply(hardware, "--gpu", "1", "--to", "4", *words)
            # 4g sits in the other half, but it was not asked for beside the 3g.
            assert done.returncode == 1
            assert "runs on 3g.20gb@4: stop it first" in done.stderr
    assert hardware.layout(1) == parse(A100, "3g.20gb@4")
    done = apply(hardware, "--gpu", "1", "--to", "7", GPULOOM_STANDIN_USER="nobody")
    assert (done.returncode, "only to root" in done.stderr) == (1, True)


def test_a_failure_in_the_middle_is_told(hardware: Hardware) -> None:
    hardware.install("A100-40GB+mig")
    fault = "nvmlDeviceCreateGpuInstanceWithPlacement:2+:INSUFFICIENT_RESOURCES"
    done = apply(hardware, "--gpu", "0", "--to", "2g.10gb@0,2g.10gb@2", "-o", "json", GPULOOM_STANDIN_FAULTS=fault)
    shown = json.loads(done.stdout)
    assert (done.returncode, shown["reached"], shown["layout"]) == (1, False, "none")
    assert shown["reason"] == "create 2g.10gb@2: the driver finds no room for it there"
    assert hardware.layout() == ()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--to", "3", "--gpu", "5"), "--gpu 5: this host has 2 GPUs; accepted is 0 to 1"),
        (("--to", "3", "--gpu", "1"), "Tesla T4 has no MIG"),
        (("--to", "9,9", "--gpu", "0"), "'9' is not a size of A100-40GB"),
        (("--gpu", "0"), "the target is missing or given twice"),
        (("--gpu", "0", "--to", "3", "--as-found"), "the target is missing or given twice"),
        (("--gpu", "0", "--config", "nowhere.yaml", "--name", "x"), "nowhere.yaml does not exist"),
    ],
)
def test_wrong_usage_changes_nothing(hardware: Hardware, words: tuple[str, ...], sentence: str) -> None:
    hardware.install("A100-40GB+mig", "T4-16GB")
    done = apply(hardware, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in done.stderr
    assert list((hardware.folder / "state").glob("*.json")) == []


def test_without_a_driver(hardware: Hardware) -> None:
    fault = "nvmlInitWithFlags:1+:LIBRARY_NOT_FOUND"
    done = apply(hardware, "--gpu", "0", "--to", "3", GPULOOM_STANDIN_FAULTS=fault)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("GPU 0 was not changed: the NVIDIA driver is not installed")


def test_killed_in_the_middle_and_started_again(hardware: Hardware) -> None:
    hardware.install("A100-40GB+mig")
    command = [str(GPULOOM), "layout", "apply", "--gpu", "0", "--to", "3,2,2"]
    environment = hardware.environment | {"GPULOOM_STANDIN_FAULTS": "nvmlGpuInstanceCreateComputeInstance:2:KILL"}
    killed = subprocess.run(command, env=environment, capture_output=True, check=False, timeout=PATIENCE_S)
    assert killed.returncode == -signal.SIGKILL
    usable, half_made, _ = hardware.instances()
    assert (len(usable), len(half_made)) == (1, 1)
    assert answer(hardware, "--gpu", "0", "--to", "3,2,2")["reached"]
    assert len(hardware.layout()) == 3


def test_the_command_says_what_it_needs() -> None:
    environment = dict(os.environ) | {"NO_COLOR": "1", "COLUMNS": "200"}
    command = [str(GPULOOM), "layout", "apply", "--help"]
    shown = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    assert "gpuloom layout apply --gpu 0 --to 3,2,2 --dry-run" in shown.stdout


def test_the_examples_in_the_docs(hardware: Hardware) -> None:
    page = (Path(__file__).parents[3] / "docs" / "cutting-gpus.md").read_text(encoding="utf-8")
    hardware.install("A100-40GB+mig")
    blocks = [block.partition("```")[0] for block in page.split("```console\n")[1:]]
    examples = [example for block in blocks for example in block.split("$ gpuloom ")[1:]]
    assert examples
    for example in examples:
        command, _, printed = example.partition("\n")
        assert hardware.gpuloom(*command.split()).stdout == printed


def test_as_found_ends_the_daemons_that_a_killed_self_test_left(
    hardware: Hardware, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PATH", "LD_LIBRARY_PATH", "GPULOOM_STANDIN_STATE"):
        monkeypatch.setenv(name, hardware.environment[name])
    hardware.install("A100-40GB+mig")
    hardware.worker().apply(parse(MODELS["A100-40GB"], "3g.20gb@0"))
    daemon = daemon_for(hardware.uuids()["3g.20gb@0"], hardware.folder / "state" / "mps")
    daemon.start(uid=os.getuid())
    done = apply(hardware, "--gpu", "0", "--as-found")
    assert done.returncode == 0, done.stderr
    assert hardware.show()["instances"] == []
    assert not daemon.alive()
