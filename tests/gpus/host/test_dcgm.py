"""A host engine that runs is found and asked; one that does not is not started; `dmon` is read as it prints."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuloom.gpus.host.dcgm.dmon import Dmon, device_of, parse
from gpuloom.gpus.host.dcgm.engine import TOLD_BY, NoEngine, find_engine
from tests.live.shop import until
from tests.standin.dcgm import HostEngine, clients, host_engine
from tests.standin.hardware import Hardware


@pytest.fixture
def running(hardware: Hardware) -> Iterator[HostEngine]:
    hardware.install("A100-40GB+mig")
    with host_engine(hardware) as engine:
        yield engine


def why_not(environment: dict[str, str], answer_s: float = 20.0) -> str:
    with pytest.raises(NoEngine) as reason:
        find_engine(environment, answer_s)
    return str(reason.value)


@pytest.mark.parametrize("words", [(), ("tcp",)])
def test_an_engine_that_runs_is_found(hardware: Hardware, words: tuple[str, ...]) -> None:
    hardware.install("A100-40GB", "T4-16GB")
    with host_engine(hardware, *words) as engine:
        found = engine.found(**{TOLD_BY: engine.address})
    assert found.address == engine.address
    assert found.gpus == {hardware.show(gpu)["uuid"] for gpu in (0, 1)}


def test_where_nobody_listens_nothing_is_run(hardware: Hardware, tmp_path: Path) -> None:
    """Whatever `dcgmi` would do there: one that is run leaves a mark."""
    tool = tmp_path / "dcgmi"
    tool.write_text(f"#!/bin/sh\ntouch {tmp_path}/was-run\n")
    tool.chmod(0o755)
    environment = hardware.environment | {"PATH": str(tmp_path)}
    for address in (f"unix://{tmp_path}/socket", "127.0.0.1:1", "[::1]:1"):
        assert why_not(environment | {TOLD_BY: address}) == f"no host engine listens at {address}"
    assert not (tmp_path / "was-run").exists()


@pytest.mark.parametrize("address", ["localhost:port", "http://localhost:5555", "/run/dcgm.sock", ":5555"])
def test_what_is_no_address_is_said(hardware: Hardware, address: str) -> None:
    said = why_not(hardware.environment | {TOLD_BY: address})
    assert said == f"{TOLD_BY} is {address}, which is no address; accepted are HOST, HOST:PORT and unix:///PATH"


def test_without_its_client_an_engine_cannot_be_asked(running: HostEngine, tmp_path: Path) -> None:
    assert why_not(running.hardware.environment | {"PATH": str(tmp_path)}) == "dcgmi is not in the PATH"


def test_one_that_hangs_is_not_waited_for(running: HostEngine) -> None:
    running.hang()
    said = why_not(running.hardware.environment, answer_s=0.2)
    assert said == f"the host engine at {running.address} does not answer within 0.2 s"
    assert clients() == []


def test_one_that_speaks_something_else_is_none(running: HostEngine, tmp_path: Path) -> None:
    tool = tmp_path / "dcgmi"
    tool.write_text("#!/bin/sh\necho 'Error: API version mismatch'\nexit 244\n")
    tool.chmod(0o755)
    said = why_not(running.hardware.environment | {"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert said.endswith("does not tell its GPUs: Error: API version mismatch")
    tool.write_bytes(b"\x7fELF of another machine")
    assert "cannot be run: Exec format error" in why_not(running.hardware.environment | {"PATH": str(tmp_path)})


def test_lines_of_dmon() -> None:
    """As DCGM 2.1, 2.4 and 4 print them."""
    told = {"gract": 0.889, "smact": 0.4, "smocc": 0.25, "drama": 1.0}
    assert parse("    GPU 0  0.889  0.400  0.250  1.000") == told
    assert parse("GPU-I 21  0.889        0.400        0.250        1.000        \n") == told
    assert parse("GPU 0      0.889        N/A          N/A          0.001") == {"gract": 0.889, "drama": 0.001}
    assert parse("GPU-CI 3  N/A          N/A          N/A          N/A          ") == {}
    assert parse("GPU 0     nan          inf          0.2...       0.100") == {"drama": 0.1}
    for other in (
        "#Entity   GRACT        SMACT        SMOCC        DRAMA",
        "# Entity  GRACT  SMACT  SMOCC  DRAMA",
        "ID",
        "GPU 0      0.889        0.400",
        "GPUs are 4 in number here",
        "Error getting values information. Return -21: Host engine connection invalid/disconnected",
        "",
    ):
        assert not parse(other)


def test_an_instance_is_watched_until_it_is_let_go(running: HostEngine) -> None:
    hardware = running.hardware
    assert hardware.gpuloom("layout", "apply", "--gpu", "0", "--to", "3,2,2").returncode == 0
    part = hardware.show()["instances"][1]
    device = device_of(hardware.show()["uuid"], part["id"])
    dmon = Dmon(running.found(), device, 0.01, 60.0)
    rows: list[dict[str, float]] = []
    until(lambda: len(heard(dmon, rows)) > 20, "it has printed more than one header")
    assert rows[0] == {}, "a new watch has told nothing yet"
    assert rows[1:] == [{"gract": 0.5 + part["id"] / 100, "smact": 0.4, "smocc": 0.25, "drama": 0.125}] * len(rows[1:])
    dmon.close()
    dmon.close()
    mig = part["computes"][0]["uuid"]
    until(lambda: running.watched() == [f"watches {mig}", f"let go of {mig}"], "the engine has noticed")
    assert clients() == []


def test_it_ends_by_itself_where_nobody_ends_it(running: HostEngine) -> None:
    dmon = Dmon(running.found(), running.hardware.show()["uuid"], 0.01, 0.05)
    rows: list[dict[str, float]] = []
    until(lambda: dmon.ended, "it has counted to its end")
    assert len(heard(dmon, rows)) == 5
    dmon.close()


def test_an_engine_that_dies_ends_it(running: HostEngine) -> None:
    dmon = Dmon(running.found(), running.hardware.show()["uuid"], 0.01, 60.0)
    until(lambda: bool(dmon.rows()), "it prints")
    running.kill()
    until(lambda: dmon.ended, "it has noticed")
    dmon.close()


def heard(dmon: Dmon, rows: list[dict[str, float]]) -> list[dict[str, float]]:
    """All so far."""
    rows += dmon.rows()
    return rows
