"""What `kernels top` tells of each queue, and the environment that a program is started with."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuloom.kernels.core import Policy, Region
from gpuloom.kernels.session import Settings, environment, joined
from gpuloom.kernels.watch import COUNTERS, LONGEST_NAME, Look, look, program_of, rates, short_command, snapshot

from .conftest import MS, Core

S = 1_000_000_000
KEY = (3, 4711)


def seen(at_ns: int, **counters: int) -> Look:
    return Look(at_ns, {KEY: dict.fromkeys(COUNTERS, 0) | counters})


def states(region: Region) -> list[object]:
    return [row["state"] for row in snapshot(region)]


def test_rates_are_of_the_time_between_two_looks() -> None:
    before = seen(5 * S, launches=100, ran_ns=9 * S, waited_ns=S, overrun_ns=S, gaps_ns=S, gap_error_ns=S)
    more = {"waited_ns": S + S // 2, "overrun_ns": S + S // 20, "gaps_ns": S + 800, "gap_error_ns": S + 200}
    after = seen(7 * S, launches=150, ran_ns=10 * S, **more)
    assert rates(KEY, after, before) == {
        "device_pct": 50.0,
        "launches_per_s": 25.0,
        "waits_pct": 25.0,
        "slowed_pct": 5.0,
        "gap_error_pct": 25.0,
    }


def test_a_queue_that_came_between_two_looks_counts_from_its_beginning() -> None:
    after = seen(7 * S, launches=10)
    assert rates(KEY, after, Look(5 * S, {}))["launches_per_s"] == 5.0
    assert rates(KEY, after, seen(5 * S, launches=5000))["launches_per_s"] == 5.0, "another queue in the same slot"


def test_what_did_not_happen_has_no_quality() -> None:
    found = rates(KEY, seen(7 * S), seen(5 * S))
    assert found["device_pct"] == 0.0
    assert found["slowed_pct"] is None
    assert found["gap_error_pct"] is None
    assert set(rates(KEY, seen(7 * S), None).values()) == {None}


def test_the_states_of_queues(core_of: Callable[..., Core]) -> None:
    core = core_of(Policy.STRICT, 0, 5, 5, devices=[1, 1, 2])
    assert states(core.region) == ["idle", "idle", "alone"]
    assert core.ask(1, 1, S)
    assert states(core.region) == ["idle", "fills", "alone"]
    core.ended(1, 1, MS, S + MS)
    assert core.ask(0, 1, 2 * S)
    assert not core.ask(1, 1, 2 * S)
    assert states(core.region) == ["runs", "waits", "alone"]
    core.region.head.policy = Policy.SHARE
    assert states(core.region) == ["ungated"] * 3


def test_where_nothing_is_counted_there_are_no_rates(core_of: Callable[..., Core]) -> None:
    core = core_of(Policy.FILL, 0, 5, 5, devices=[1, 1, 2])
    before = look(core.region)
    assert [row["device_pct"] for row in snapshot(core.region, before)] == [0.0, 0.0, None]
    core.region.head.policy = Policy.SHARE
    assert [row["device_pct"] for row in snapshot(core.region, before)] == [None] * 3


def test_totals_are_the_cores_and_a_wait_counts_while_it_lasts(core_of: Callable[..., Core]) -> None:
    core = core_of(Policy.STRICT, 5, 0)
    end = core.teach(1, 7, 2 * MS, 3 * MS, 10, S)
    core.slot(1).slowdown_ppm = 250_000
    assert core.ask(1, 7, end)
    assert not core.ask(0, 8, end)
    high, low = snapshot(core.region)
    assert (high["queue"], low["queue"]) == (1, 0), "in the order of priorities"
    assert (high["launches"], high["ran_ms"], high["gaps"], high["allowed_pct"]) == (11, 20.0, 10, 25.0)
    assert low["launches"] == 0
    assert low["waited_ms"] == low["for_ms"] != 0.0


def test_the_quality_of_gaps_comes_from_the_core(core_of: Callable[..., Core]) -> None:
    """Gaps of 3 ms again and again are foreseen; one of 6 ms after them is wrong by about 3 ms of it."""
    core = core_of(Policy.FILL, 0, 5)
    before = Look(0, {})
    end = core.teach(0, 7, 2 * MS, 3 * MS, 20, S)
    assert snapshot(core.region, before)[0]["gap_error_pct"] == 0.0
    settled = look(core.region)
    core.teach(0, 7, 2 * MS, 6 * MS, 1, end)
    assert snapshot(core.region, settled)[0]["gap_error_pct"] == pytest.approx(50, abs=5)


@pytest.mark.parametrize(
    ("cells", "shown"),
    [
        (["/usr/bin/python3.11", "/srv/app/serve.py", "--port", "80"], "serve.py --port 80"),
        (["python", "-u", "-B", "serve.py"], "serve.py"),
        (["/x/.venv/bin/python", "/x/.venv/bin/gpuloom", "kernels", "example"], "gpuloom kernels example"),
        (["/usr/bin/python3", "-m", "server", "x"], "python3 -m server x"),
        (["python3", "-c", "print(1)"], "python3 -c print(1)"),
        (["python3"], "python3"),
        (["/opt/bin/infer", "a.bin"], "infer a.bin"),
        (["pythonista", "x.py"], "pythonista x.py"),
        (["app", "a\nb\x1b[31mred"], "app a b [31mred"),
        (["app", "x" * 100], "app " + "x" * 35 + "…"),
        ([""], ""),
        ([], ""),
    ],
)
def test_a_program_is_called_as_its_user_calls_it(cells: list[str], shown: str) -> None:
    assert short_command(cells) == shown
    assert len(shown) <= LONGEST_NAME


def test_the_name_of_a_process_is_its_command_and_the_slots_name_where_there_is_none(tmp_path: Path) -> None:
    script = tmp_path / "wait.py"
    script.write_text("print(flush=True)\ninput()\n")
    command = [sys.executable, str(script), "--fast"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    assert program_of(process.pid, "slot") == "wait.py --fast"
    process.communicate(b"\n")
    assert program_of(process.pid, "slot") == "slot"


def test_a_region_is_the_same_wherever_the_program_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert environment(Settings(Path("here")), {})["GPULOOM_KERNELS_REGION"] == str(tmp_path / "here")
    with joined(Path("here")):
        assert (tmp_path / "here").exists()
        os.chdir("/")
    assert not (tmp_path / "here").exists(), "who leaves finds the file again"
