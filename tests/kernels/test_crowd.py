"""A crowd for a few seconds in every test run; `python -m tests.kernels.crowd 60` for a minute, with the mean waits."""

import shutil
from pathlib import Path

import pytest

from .crowd import NO_FLOOR, build, run

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")


@pytest.mark.parametrize(("processes", "each"), [(16, 1), (1, 16)], ids=["processes", "threads"])
def test_the_order_of_priorities_is_kept_and_the_thread_sanitizer_is_silent(
    tmp_path: Path, processes: int, each: int
) -> None:
    crowd = run(build(tmp_path, "thread"), 3, "fill", processes, each, NO_FLOOR)
    assert crowd.sound, crowd
    assert crowd.in_order, crowd
    assert sum(tenant.held_back for tenant in crowd.tenants) > 0, "nobody was in anybody's way"


def test_without_a_gate_the_same_check_finds_the_order_broken(tmp_path: Path) -> None:
    assert not run(build(tmp_path, "none"), 1, "share").in_order
