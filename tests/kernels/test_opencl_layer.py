"""The OpenCL layer on real runtimes: programs behave as without it, and are gated."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpuloom.kernels.session import Settings, environment

PROGRAM = Path(__file__).with_name("opencl_program.py")
pytestmark = pytest.mark.xdist_group("opencl")


def program(name: str, env: dict[str, str]) -> dict[str, Any]:
    ended = subprocess.run([sys.executable, str(PROGRAM), name], env=env, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert "gpuloom:" not in ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return found


def gated(opencl: dict[str, str], tmp_path: Path, **changes: str) -> dict[str, str]:
    return environment(Settings(tmp_path / "region"), opencl) | changes


def recorded(opencl: dict[str, str], tmp_path: Path) -> dict[str, str]:
    from gpuloom.kernels.session import recording

    return recording(tmp_path / "record", opencl)


def test_every_network_gives_the_same_bits_with_and_without_the_layer(opencl: dict[str, str], tmp_path: Path) -> None:
    plain = program("results", opencl)
    assert program("results", gated(opencl, tmp_path)) == plain
    assert program("results", recorded(opencl, tmp_path)) == plain


def test_a_program_sees_no_difference(opencl: dict[str, str], tmp_path: Path) -> None:
    plain = program("what_a_program_sees", opencl)
    assert program("what_a_program_sees", gated(opencl, tmp_path)) == plain
    assert program("what_a_program_sees", recorded(opencl, tmp_path)) == plain


@pytest.mark.parametrize("policy", ["0,5", "5,0", "0,0"])
def test_queues_that_wait_for_each_other_do_not_wait_for_ever(
    opencl: dict[str, str], tmp_path: Path, policy: str
) -> None:
    plain = program("dependencies", opencl)
    assert program("dependencies", gated(opencl, tmp_path, GPULOOM_KERNELS_PRIORITY=policy)) == plain


def test_a_launch_in_a_callback_does_not_wait(opencl: dict[str, str], tmp_path: Path) -> None:
    env = gated(opencl, tmp_path, GPULOOM_KERNELS_PRIORITY="0,5", GPULOOM_KERNELS_FLOOR="0")
    assert program("launch_in_a_callback", env) == program("launch_in_a_callback", opencl)


def test_closing_opencl_with_kernels_in_flight(opencl: dict[str, str], tmp_path: Path) -> None:
    assert program("closed_in_flight", gated(opencl, tmp_path, GPULOOM_KERNELS_PRIORITY="0,5"))["alive"]


def test_two_queues_of_one_process_are_gated_and_right(opencl: dict[str, str], tmp_path: Path) -> None:
    seen = program("two_queues", gated(opencl, tmp_path, GPULOOM_KERNELS_PRIORITY="0,5"))
    assert seen["right"]
    assert seen["left"] == 0, "a released queue gives its slot back"
    high, low = seen["slots"]
    assert (high["priority"], low["priority"]) == (0, 5)
    assert high["fills"] == 0
    assert 0 < low["fills"] <= low["launches"]
    assert high["in_flight"] == low["in_flight"] == 0
    assert not (tmp_path / "region").exists()


def test_a_program_sets_its_queues_priority(opencl: dict[str, str], tmp_path: Path) -> None:
    assert program("priority_by_call", gated(opencl, tmp_path)) == {"known": 0, "unknown": -30}


@pytest.mark.parametrize("path", ["/proc/nowhere/region", "/", "/dev/null", "x" * 400])
def test_without_shared_memory_the_program_runs_ungated_and_says_so_once(opencl: dict[str, str], path: str) -> None:
    env = environment(Settings(Path(path)), opencl)
    ended = subprocess.run([sys.executable, str(PROGRAM), "dependencies"], env=env, capture_output=True, text=True)
    assert ended.returncode == 0
    assert ended.stderr.count("gpuloom: kernels run ungated:") == 1
    assert json.loads(ended.stdout)["same"]


def test_a_missing_or_broken_profile_is_said_and_harms_nothing(opencl: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "broken.kprof").write_bytes(b"kernel\t\xff\xff\nkernel\t12\nkernel\t1\t2\t99999999999999999999\t3\n")
    for profile in ("none.kprof", "broken.kprof"):
        env = gated(opencl, tmp_path, GPULOOM_KERNELS_PROFILE=str(tmp_path / profile))
        ended = subprocess.run([sys.executable, str(PROGRAM), "dependencies"], env=env, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr
        assert json.loads(ended.stdout)["same"]
