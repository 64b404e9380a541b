"""`gpuloom serve` and `gpuloom load` as a user calls them, when something is wrong."""

import os
import socket
import sys
from pathlib import Path

import pytest

from gpuloom.cli.main import main
from gpuloom.serve.gateway.grpc_client import library
from gpuloom.serve.state import Endpoint, Record, State
from gpuloom.serve.triton.environment import Triton
from tests.serve.plans import row, write_plan


def fails(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one sentence; exit code 2."""
    with pytest.raises(SystemExit) as left:
        main(list(words))
    assert left.value.code == 2
    sentence = capsys.readouterr().err
    assert sentence.count("\n") == 1
    return sentence


def test_wrong_plans(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = ["--state", str(tmp_path / "s")]
    assert "does not exist" in fails(capsys, "serve", "up", str(tmp_path / "no.json"), *state)
    plan = str(write_plan(tmp_path, row(slo_ms=0)))
    assert "services[0].slo_ms is 0" in fails(capsys, "serve", "up", plan, *state)
    plan = str(write_plan(tmp_path, row(batch_ms=None, workload="unheard-of")))
    assert "no profile of 'unheard-of'" in fails(capsys, "serve", "up", plan, *state)
    plan = str(write_plan(tmp_path, row()))
    assert "has no model W6 or resnet50" in fails(capsys, "serve", "up", plan, *state, "--models", str(tmp_path))
    both = ["--models", str(tmp_path), "--dilate", "10"]
    assert "--dilate is for stand-in models" in fails(capsys, "serve", "up", plan, *state, *both)
    assert "not a program" in fails(capsys, "serve", "up", plan, *state, "--triton", str(tmp_path))
    assert "--help is not that of Triton" in fails(capsys, "serve", "up", plan, *state, "--triton", "/bin/true")
    both = ["--port", "8000", "--grpc-port", "8000"]
    assert "each needs one of its own" in fails(capsys, "serve", "up", plan, *state, *both)
    assert "is a file: expected a folder" in fails(capsys, "serve", "up", plan, "--state", plan)
    assert "is a file: expected a folder" in fails(capsys, "serve", "up", plan, "--detach", "--state", plan)


@pytest.mark.parametrize("option", ["--port", "--grpc-port"])
def test_a_port_that_is_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], fake_triton: Triton, option: str
) -> None:
    words = [str(write_plan(tmp_path, row())), "--state", str(tmp_path / "s"), "--triton", str(fake_triton.binary)]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        told = fails(capsys, "serve", "up", *words, option, str(port))
    assert f"{option} {port}: something else listens on 127.0.0.1:{port}" in told
    for host in ("192.0.2.1", "", "a" * 64):
        assert f"--host '{host}': not an address of this host" in fails(capsys, "serve", "up", *words, "--host", host)


def test_without_grpcio(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("grpc", "grpc.aio"):
        monkeypatch.setitem(sys.modules, name, None)  # as if it were not installed
    library.cache_clear()
    try:
        plan = str(write_plan(tmp_path, row()))
        how = "which is not installed: pip install 'gpuloom[grpc]'"
        assert how in fails(capsys, "load", "grpc://127.0.0.1:1/m", "--rate", "5")
        assert how in fails(capsys, "serve", "up", plan, "--grpc-port", "8001", "--state", str(tmp_path / "s"))
    finally:
        library.cache_clear()


def test_load_of_what_gpuloom_serves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Over HTTP only, with models of the user's own."""
    with State(tmp_path) as state:
        state.publish(Record(os.getpid(), "127.0.0.1", 1, 1.0, False, (Endpoint("a", "/p", 10.0, 5.0),)))
        assert "--body a=FILE is missing, and a request cannot be made up" in fails(capsys, "load", str(tmp_path))
        assert "is served over HTTP only" in fails(capsys, "load", str(tmp_path), "--grpc")
    (tmp_path / "body.json").write_text('{"inputs": [{"name": "x"}]}')
    words = ["--rate", "5", "--body", str(tmp_path / "body.json")]
    assert "shape of input x" in fails(capsys, "load", "grpc://127.0.0.1:1/m", *words)


def test_nothing_is_served(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "nothing that is served" in fails(capsys, "serve", "status", "--state", str(tmp_path))
    assert "nothing that is served" in fails(capsys, "load", str(tmp_path / "absent"))
    with pytest.raises(SystemExit) as left:
        main(["serve", "down", "--state", str(tmp_path / "absent")])
    assert left.value.code == 0
    assert "nothing was running" in capsys.readouterr().err
    (tmp_path / "deployment.json").write_text("{")
    assert "not the description" in fails(capsys, "serve", "status", "--state", str(tmp_path))
    for command in (["serve", "status", "--state"], ["serve", "down", "--state"], ["load"]):
        assert "is a file: expected a folder" in fails(capsys, *command, str(tmp_path / "deployment.json"))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["ftp://x"], "is not understood; expected http://HOST:PORT/v2/models/NAME/infer or grpc://HOST:PORT/NAME"),
        (["https://x/v2/models/m/infer"], "is not understood"),
        (["http://x"], "is not understood"),
        (["grpc://x/m"], "is not understood"),
        (["grpc://127.0.0.1:1"], "names no model: add /NAME, or --service NAME"),
        (["grpc://127.0.0.1:1/m"], "--rate is missing"),
        (["grpc://127.0.0.1:1", "-s", "a", "-s", "b", "--rate", "a=5"], "--rate is missing"),
        (["http://127.0.0.1:1/p", "--grpc", "--rate", "5"], "an http:// address is asked over HTTP"),
        (["http://127.0.0.1:1/p", "--rate", "5", "--body", "absent.json"], "absent.json does not exist"),
        (["http://x:99999/p"], "is not understood"),
        (["http://127.0.0.1:1/p", "--rate", "0.01", "--duration", "0.01"], "no request of /p is due within 0.01 s"),
        (["http://127.0.0.1:1/v2/models/m/infer"], "--rate is missing"),
        (["http://127.0.0.1:1/v2/models/m/infer", "--rate", "none"], "--rate none"),
        (["http://127.0.0.1:1/v2/models/m/infer", "--rate", "other=5"], "other is not asked"),
        (["http://127.0.0.1:1/v2/models/m/infer", "--service", "other"], "not served there; there are m"),
        (["http://127.0.0.1:1/v2/models/m/infer", "--rate", "5", "--arrivals", "often"], "accepted are poisson"),
        (["http://127.0.0.1:1/v2/models/m/infer", "--rate", "5", "--requests", "1", "--duration", "1"], "exclude"),
    ],
)
def test_wrong_load(capsys: pytest.CaptureFixture[str], words: list[str], told: str) -> None:
    assert told in fails(capsys, "load", *words)


def test_a_load_that_nobody_answers_is_a_broken_promise(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["load", "http://127.0.0.1:1/v2/models/m/infer", "--rate", "1000", "--requests", "3", "--output", "json"])
    assert left.value.code == 1
    told = capsys.readouterr()
    assert '"lost": 3' in told.out
    assert "m: the first that went wrong: 127.0.0.1:1 cannot be reached" in told.err
