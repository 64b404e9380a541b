"""`gpuloom doctor`, as a user runs it: on hosts with GPUs that can and cannot be cut, and on one without any."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from gpuloom.gpus.host import doctor
from gpuloom.gpus.host.mps.daemon import Daemon, daemon_for
from tests.standin.dcgm import host_engine
from tests.standin.hardware import Hardware

pytestmark = pytest.mark.xdist_group("mps")  # one of these looks at every MPS daemon of the host


ROOT = doctor._permission(os.geteuid(), doctor._has_sys_admin(), mig_config=False)["state"] == "ok"
ALLOWED = (0, True, True) if ROOT else (1, False, True)
"""Exit code, whether GPUs can be cut, whether they can be shared: of a user of this machine."""


def checks(answer: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {row["check"]: (row["state"], row["detail"]) for row in answer["checks"]}


def diagnose(hardware: Hardware, **environment: str) -> tuple[int, dict[str, Any]]:
    done = hardware.gpuloom("doctor", "--output", "json", **environment)
    assert done.stderr == ""
    answer: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, answer


def test_a_host_with_gpus(hardware: Hardware) -> None:
    hardware.install("A100-40GB+mig", "T4-16GB", "H100-SXM-80GB", "unknown")
    with hardware.job(hardware.show(2)["uuid"]) as job:
        code, answer = diagnose(hardware)
    found = checks(answer)
    assert (code, answer["can_cut"], answer["can_share"]) == ALLOWED
    assert found["driver"] == ("ok", "NVIDIA 580.65.06, 4 GPUs")
    assert found["GPU 0"] == ("ok", "NVIDIA A100-SXM4-40GB: MIG on; can be cut")
    assert found["GPU 1"][0] == "no"
    assert f"in use by process {job.pid}" in found["GPU 2"][1]
    assert "not in the catalogue" in found["GPU 3"][1]
    assert found["MPS"] == ("ok", f"{hardware.tools}/nvidia-cuda-mps-control; no daemon runs")
    assert str(hardware.folder / "state") in found["state folder"][1]
    assert found["cgroups"][0] in ("ok", "no")
    sharing = {row["share"]: row["here"] for row in answer["sharing"]}
    assert sharing == {
        "MIG slice: SMs and memory": "enforced",
        "MPS share of SMs": "enforced for MPS clients",
        "MPS memory limit": "enforced for MPS clients",
        "whole GPU or slice of a job": "advisory",
    }


def test_what_is_pending_and_what_is_cut(hardware: Hardware) -> None:
    hardware.install("A30-24GB", "A100-40GB+mig")
    assert hardware.gpuloom("layout", "apply", "--gpu", "0", "--to", "2").returncode == 1
    assert hardware.gpuloom("layout", "apply", "--gpu", "1", "--to", "3g.20gb@4").returncode == 0
    printed = hardware.gpuloom("doctor").stdout
    waits = "not to be cut: its MIG mode waits for a reset: run `nvidia-smi --gpu-reset -i 0`"
    assert f"NVIDIA A30: MIG off, on after the next reset; {waits if ROOT else 'not to be cut'}" in printed
    assert "MIG on (3g.20gb@4); can be cut" in printed
    assert "what a share means on this host" in printed


def test_a_host_without_a_driver(hardware: Hardware, tmp_path: Path) -> None:
    hardware.install("A100-40GB")  # which cannot be reached: no test relies on what another has installed
    missing = "nvmlInitWithFlags:1+:LIBRARY_NOT_FOUND"
    code, answer = diagnose(hardware, GPULOOM_STANDIN_FAULTS=missing, PATH=str(tmp_path))
    assert (code, answer["can_cut"], answer["can_share"]) == (1, False, False)
    assert checks(answer)["driver"] == (
        "no",
        "the NVIDIA driver is not installed (no libnvidia-ml.so.1 was found)",
    )
    assert checks(answer)["MPS"][0] == "no"
    assert checks(answer)["permission"] == (
        "-",
        "without a driver that shows a GPU nobody can tell what this user may do",
    )
    assert {row["here"] for row in answer["sharing"]} == {"not here"}


def test_a_driver_that_is_not_loaded(hardware: Hardware) -> None:
    code, answer = diagnose(hardware, GPULOOM_STANDIN_FAULTS="nvmlInitWithFlags:1+:DRIVER_NOT_LOADED")
    assert (code, checks(answer)["driver"]) == (1, ("no", "the NVIDIA driver is installed but not loaded"))


@pytest.mark.parametrize(
    ("uid", "sys_admin", "mig_config", "state", "word"),
    [
        (0, True, False, "ok", "root"),
        (0, False, True, "no", "container"),
        (1000, False, True, "ok", "not switch"),
        (1000, False, False, "no", "needs root"),
    ],
)
def test_permissions(uid: int, sys_admin: bool, mig_config: bool, state: str, word: str) -> None:
    row = doctor._permission(uid, sys_admin, mig_config)
    assert row["state"] == state
    assert word in str(row["detail"])


def test_driver_versions() -> None:
    assert [doctor._major(text) for text in ("580.65.06", None, "beta", "")] == [580, 0, 0, 0]


def test_a_host_engine_that_answers_is_told(hardware: Hardware, tmp_path: Path) -> None:
    hardware.install("A100-40GB+mig")
    with host_engine(hardware) as engine:
        code, answer = diagnose(hardware)
        told = f"the host engine at {engine.address} answers and knows 1 GPU: it counts activity there"
        assert (code, checks(answer)["DCGM"]) == (ALLOWED[0], ("ok", told))
        engine.kill()
        code, answer = diagnose(hardware)
        without = "; GPUs before Hopper are measured without activity counters"
        assert (code, checks(answer)["DCGM"]) == (
            ALLOWED[0],
            ("-", f"no host engine listens at {engine.address}{without}"),
        )
    assert checks(diagnose(hardware, PATH=str(tmp_path))[1])["DCGM"] == ("-", f"dcgmi is not in the PATH{without}")


def test_without_cgroups_it_says_what_that_costs(hardware: Hardware) -> None:
    hardware.install("A100-40GB+mig")
    state, detail = checks(diagnose(hardware, GPULOOM_CGROUP="none")[1])["cgroups"]
    assert state == "no"
    assert "GPULOOM_CGROUP is none" in detail
    assert "a job whose keeper is killed cannot be run again" in detail


def test_it_exits_with_1_where_cutting_would_fail(hardware: Hardware, tmp_path: Path) -> None:
    hardware.install("T4-16GB")
    code, answer = diagnose(hardware)
    assert (code, answer["can_cut"], answer["can_share"]) == (1, False, True)
    hardware.install("A100-40GB+mig")
    assert diagnose(hardware)[0] == ALLOWED[0]
    (tmp_path / "file").touch()
    code, answer = diagnose(hardware, GPULOOM_STATE_DIR=str(tmp_path / "file" / "state"))
    assert (code, checks(answer)["state folder"][0]) == (1, "no")
    code, answer = diagnose(hardware, GPULOOM_OVERRIDE="nobody")
    assert (code, checks(answer)["other managers"][0]) == (1, "no")
    code, answer = diagnose(hardware, GPULOOM_STANDIN_MODES="virtual=2")
    assert (code, checks(answer)["GPU 0 modes"][0]) == (1, "no")
    assert "only the host can cut that" in checks(answer)["GPU 0"][1]


def test_modes_that_others_have_set(hardware: Hardware) -> None:
    hardware.install("A100-40GB+mig")
    usual = checks(diagnose(hardware)[1])["GPU 0 modes"]
    assert usual[0] == "ok"
    assert "compute mode default; persistence mode off" in usual[1]
    exclusive = checks(diagnose(hardware, GPULOOM_STANDIN_MODES="persistence=1,compute=3")[1])["GPU 0 modes"]
    assert exclusive[0] == "-"
    assert "one process at a time" in exclusive[1]
    assert "persistence mode on" in exclusive[1]
    prohibited = checks(diagnose(hardware, GPULOOM_STANDIN_MODES="compute=2,virtual=1")[1])["GPU 0 modes"]
    assert prohibited[0] == "no"
    assert "`nvidia-smi -i 0 -c 0`" in prohibited[1]
    assert "a reset takes a restart of the machine" in prohibited[1]


def test_daemons_of_others_are_told_apart(hardware: Hardware, tmp_path_factory: pytest.TempPathFactory) -> None:
    hardware.install("H100-SXM-80GB")
    uuid = hardware.show()["uuid"]
    folder = tmp_path_factory.mktemp("m")
    foreign = Daemon(uuid, folder / "theirs")
    ours = daemon_for(uuid, folder)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("PATH", "LD_LIBRARY_PATH", "GPULOOM_STANDIN_STATE"):
            patch.setenv(name, hardware.environment[name])
        try:
            ours.start()
            state, detail = checks(diagnose(hardware)[1])["MPS"]
            assert (state, "daemons of gpuloom's run in" in detail, str(ours.pipe_dir) in detail) == ("ok", True, True)
            foreign.start()
            state, detail = checks(diagnose(hardware)[1])["MPS"]
            assert (state, str(foreign.pipe_dir) in detail.partition("daemons of others run in")[2]) == ("-", True)
        finally:
            foreign.stop()
            ours.stop()
