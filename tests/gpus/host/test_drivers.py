"""Drivers that are old, and GPUs that have to be reset: what is done, and what somebody is told to do."""

import json
import os
from pathlib import Path
from typing import Any

from gpuloom.gpus.catalogue import MODELS
from gpuloom.gpus.layouts import maximal, parse
from tests.standin.hardware import Hardware

OLD = "535.183.01"
"""Of the branch that NVIDIA supports for longest, with NVML 12.2."""
A100 = MODELS["A100-40GB"]
WITH_MIG = [model for model in MODELS.values() if model.mig]
MIG_PARTED = """
version: v1
mig-configs:
  filtered:
    - {device-filter: "0x7FFF10DE", devices: all, mig-enabled: true, mig-devices: {"4g.20gb": 1, "3g.20gb": 1}}
    - {device-filter: ["0x20B010DE"], devices: all, mig-enabled: true, mig-devices: {"3g.20gb": 2}}
  others:
    - {device-filter: "0x20F110DE", devices: all, mig-enabled: true, mig-devices: {"7g.40gb": 1}}
  unusable:
    - {devices: all, mig-enabled: true, mig-devices: {"1c.3g.20gb": 2}}
"""
HIDES_PLACEMENTS = "nvmlDeviceGetGpuInstancePossiblePlacements_v2:1+:NOT_SUPPORTED"


def answer(hardware: Hardware, *words: str, **environment: str) -> Any:
    done = hardware.gpuloom(*words, "--output", "json", **environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_an_old_driver_cuts_what_a_new_one_cuts(hardware: Hardware) -> None:
    """Before NVML 12.4 profiles and placements are told only while MIG is on; the catalogue has them meanwhile."""
    old = {"GPULOOM_STANDIN_DRIVER": OLD}
    hardware.install(*(f"{model.name}+resets" for model in WITH_MIG))
    told = {
        row["check"]: row["detail"]
        for row in json.loads(hardware.gpuloom("doctor", "-o", "json", **old).stdout)["checks"]
    }
    assert told["driver"] == f"NVIDIA {OLD}, {len(WITH_MIG)} GPUs"
    targets = [maximal(model)[len(maximal(model)) // 2] for model in WITH_MIG]
    for gpu, (model, target) in enumerate(zip(WITH_MIG, targets, strict=True)):
        assert "MIG off; can be cut" in told[f"GPU {gpu}"] or os.geteuid() != 0
        words = ("layout", "apply", "--gpu", str(gpu), "--to", ",".join(map(str, target)))
        cut = answer(hardware, *words, **old)
        assert (cut["reached"], cut["model"], len(cut["steps"])) == (True, model.name, len(target))
        assert hardware.layout(gpu) == target
    rows = answer(hardware, "gpus", "--host", **old)
    assert [row["model"] for row in rows] == [model.name for model in WITH_MIG]
    assert [row["instances"] for row in rows] == [list(map(str, target)) for target in targets]
    assert hardware.gpuloom("layout", "apply", "--gpu", "0", "--as-found", **old).returncode == 0
    assert (hardware.show()["mig"], hardware.layout()) == (False, ())


def test_placements_alone_may_be_hidden(hardware: Hardware) -> None:
    hardware.install("A100-40GB")
    worker = hardware.worker()
    assert worker.ask("look", faults=HIDES_PLACEMENTS)["model"] == worker.ask("look")["model"]
    worker.close()


def test_a_board_that_nobody_knows_is_asked_with_mig_on(hardware: Hardware) -> None:
    old = {"GPULOOM_STANDIN_DRIVER": OLD}
    words = ("layout", "apply", "--gpu", "0", "--to")
    hardware.install("unknown-mig")
    dry = hardware.gpuloom(*words, "3,2,2", "--dry-run", **old)
    assert (dry.returncode, "only while MIG is on: `nvidia-smi -i 0 -mig 1`" in dry.stderr) == (1, True)
    wrong = hardware.gpuloom(*words, "9g.90gb", **old)
    assert (wrong.returncode, "9g.90gb" in wrong.stderr) == (2, True)
    assert hardware.show()["mig"] is False
    assert list((hardware.folder / "state").glob("*.json")) == [], "what was asked wrongly takes no GPU"
    assert answer(hardware, *words, "3,2,2", **old)["reached"]
    assert hardware.layout() == parse(A100, "3,2,2")
    assert answer(hardware, *words, "none", **old)["reached"]
    assert hardware.show()["mig"] is False


def test_a_device_filter_is_about_the_board_that_is_here(hardware: Hardware, tmp_path: Path) -> None:
    """Which the catalogue need not know: what its driver says is enough."""
    hardware.install("unknown-mig", "A100-40GB+mig")
    config = tmp_path / "mig.yaml"
    config.write_text(MIG_PARTED)
    words = ("--config", str(config), "--name", "filtered")
    assert answer(hardware, "layout", "apply", "--gpu", "0", *words)["layout"] == "4g.20gb@0,3g.20gb@4"
    assert answer(hardware, "layout", "apply", "--gpu", "1", *words)["layout"] == "3g.20gb@0,3g.20gb@4"
    other = hardware.gpuloom("layout", "apply", "--gpu", "1", *words[:3], "others")
    assert (other.returncode, "with the PCI id 0x20B010DE:0x000010DE" in other.stderr) == (2, True)


def test_nobody_holds_the_driver_between_two_uses(hardware: Hardware) -> None:
    """Else a GPU could not be reset while gpuloom runs, not even by whoever it has asked to."""
    hardware.install("A100-40GB")
    worker = hardware.worker()
    assert worker.ask("hold", gpus=[0]) == {"taken": [0]}
    assert "takes effect at a GPU reset" in worker.ask("held-apply", target=parse(A100, "3,2,2"))["reason"]
    hardware.ctl("reset", "0")
    cut = worker.ask("held-apply", target=parse(A100, "3,2,2"))
    assert (cut["reached"], hardware.layout()) == (True, parse(A100, "3,2,2"))
    hardware.ctl("lose", "0")
    assert "the GPU is lost" in worker.ask("held-apply", target=())["refused"]
    hardware.ctl("find", "0")
    assert worker.ask("held-apply", target=parse(A100, "4,3"))["reached"]
    worker.close()


def test_another_client_of_the_driver_is_named(hardware: Hardware, tmp_path: Path) -> None:
    """It keeps the GPU from being reset, by the driver or by hand."""
    hardware.install("A100-40GB+resets", "A100-40GB")
    worker, monitor = hardware.worker(), hardware.worker()
    monitor.ask("watch")
    assert "another client of the driver holds" in hardware.ctl("reset", "0", check=False).stderr
    fd = tmp_path / "proc" / str(monitor.process.pid) / "fd"
    fd.mkdir(parents=True)
    (fd / "3").symlink_to("/dev/nvidiactl")
    (fd.parent / "comm").write_text("nv-hostengine\n")
    who = f"DCGM's nv-hostengine (process {monitor.process.pid})"
    in_use = worker.apply(parse(A100, "3,2,2"), root=str(tmp_path))
    assert f"the GPU is in use (open in {who}); stop what uses it" in in_use["reason"]
    waits = worker.apply(parse(A100, "3,2,2"), gpu=1, root=str(tmp_path))
    assert f"stop {who} with `systemctl stop nvidia-dcgm`, then run `nvidia-smi --gpu-reset -i 1`" in waits["reason"]
    monitor.close()
    assert worker.apply(parse(A100, "3,2,2"))["reached"]
    hardware.ctl("reset", "1")
    assert worker.apply(parse(A100, "3,2,2"), gpu=1)["reached"]
    worker.close()


def test_a_manager_that_comes_in_the_middle_is_noticed(hardware: Hardware, tmp_path: Path) -> None:
    hardware.install("A100-40GB+mig")
    worker = hardware.worker()
    assert worker.ask("hold", gpus=[0], root=str(tmp_path)) == {"taken": [0]}
    process = tmp_path / "proc/77"
    process.mkdir(parents=True)
    (process / "comm").write_text("nvidia-mig-part\n")
    running = "NVIDIA's mig-parted is running (process 77)"
    assert worker.ask("held-apply", target=parse(A100, "3,2,2")) == {"refused": running}
    assert hardware.layout() == ()
    # It comes after the GPU was looked at, and before the first change.
    (process / "comm").rename(tmp_path / "later")
    comes = [str(tmp_path / "later"), str(process / "comm")]
    cut = worker.ask("held-apply", target=parse(A100, "3,2,2"), rename=comes)
    assert (cut["reached"], cut["reason"]) == (False, f"create 2g.10gb@0: {running}")
    assert hardware.layout() == ()
    worker.close()


def test_instances_that_somebody_took_away_are_not_reported(hardware: Hardware) -> None:
    hardware.install("A100-40GB+mig")
    worker = hardware.worker()
    cut = worker.ask("visited-apply", target=parse(A100, "3,2,2"))
    assert (cut["reached"], cut["layout"], hardware.layout()) == (False, [], ())
    assert cut["reason"] == "it was reached, but somebody has changed the GPU since"
    worker.close()
