"""The state folder: who serves, what is left of one that was killed, files that are not whole."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from gpuloom.errors import InputError
from gpuloom.gpus.host.noise import Noise
from gpuloom.serve.state import Endpoint, Record, State, read_events

SERVES = """
import sys, time
from pathlib import Path
from gpuloom.serve.state import State
with State(Path(sys.argv[1])):
    print("here", flush=True)
    time.sleep(600)
"""


def record(pid: int) -> Record:
    return Record(pid, "127.0.0.1", 8000, 1.0, True, (Endpoint("a", "/v2/models/a/infer", 10.0, 5.0),), 8001)


@contextmanager
def somebody_serves(folder: Path) -> "Iterator[subprocess.Popen[bytes]]":
    process = subprocess.Popen([sys.executable, "-c", SERVES, str(folder)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"here\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_what_is_served_is_found_by_others(tmp_path: Path) -> None:
    with State(tmp_path) as state:
        with pytest.raises(InputError, match="is still starting"):
            State(tmp_path).record()
        state.publish(record(os.getpid()))
        assert State(tmp_path).record() == record(os.getpid())
        on_cpus = replace(record(os.getpid()), noise=Noise(40.5, 3.25, 20))
        state.publish(on_cpus)
        assert State(tmp_path).record() == on_cpus
    with pytest.raises(InputError, match="nothing that is served"):
        State(tmp_path).record()


def test_the_description_of_one_that_was_killed_is_not_taken_for_the_next_ones(tmp_path: Path) -> None:
    with somebody_serves(tmp_path) as process:
        State(tmp_path).publish(record(1))
        with pytest.raises(InputError, match="is still starting"):
            State(tmp_path).record()
        State(tmp_path).publish(record(process.pid))
        assert State(tmp_path).record().pid == process.pid
        process.kill()
        process.wait()
        with pytest.raises(InputError, match="was killed; `gpuloom serve down` cleans up"):
            State(tmp_path).record()


def test_it_is_ended_from_another_shell(tmp_path: Path) -> None:
    with somebody_serves(tmp_path) as process:
        assert State(tmp_path).take_down()
        process.wait()
    assert not State(tmp_path).take_down()


@pytest.mark.parametrize("left", ["{pid} 1", "{pid}", "", "a b"])
def test_a_process_that_has_the_number_of_one_that_was_killed_is_not_ended(tmp_path: Path, left: str) -> None:
    """The lock is held, but says somebody else's number: of one that was killed before."""
    innocent = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        with somebody_serves(tmp_path):
            (tmp_path / "lock").write_text(left.format(pid=innocent.pid))
            with pytest.raises(InputError, match="something does not end"):
                State(tmp_path).take_down(0.1)
            assert innocent.poll() is None
    finally:
        innocent.communicate(b"\n")
    assert innocent.returncode == 0


def test_a_second_one_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    with (
        somebody_serves(tmp_path),
        pytest.raises(InputError, match="something is served there already"),
        State(tmp_path),
    ):
        pass


FIELDS = json.loads(json.dumps(asdict(record(1))))


MAY_LACK = ("grpc_port", "noise")
WITHOUT_ONE = [{name: FIELDS[name] for name in FIELDS if name != field} for field in FIELDS if field not in MAY_LACK]
SERVICES: list[Any] = [None, 3, [3], ["a"], {"a": 1}, [{}], [{"name": "a"}]]
BROKEN = [
    *WITHOUT_ONE,
    *(FIELDS | {"services": services} for services in SERVICES),
    FIELDS | {"noise": 3},
    FIELDS | {"unheard_of": 1},
]


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "null", *map(json.dumps, BROKEN)])
def test_a_description_that_is_not_whole_is_refused(tmp_path: Path, text: str) -> None:
    with State(tmp_path):
        (tmp_path / "deployment.json").write_text(text)
        with pytest.raises(InputError, match=r"deployment\.json: not the description of a deployment"):
            State(tmp_path).record()


def test_an_event_that_is_half_written_is_left_out(tmp_path: Path) -> None:
    with State(tmp_path) as state:
        state.write_event({"event": "started"})
        with (tmp_path / "events.jsonl").open("a") as file:
            file.write('{"event": "rea')
        assert read_events(tmp_path) == [{"event": "started"}]


def test_a_folder_that_is_gone_does_not_stop_it(tmp_path: Path) -> None:
    with State(tmp_path / "s") as state:
        for path in (tmp_path / "s").iterdir():
            path.unlink()
        (tmp_path / "s").rmdir()
        state.write_event({"event": "crashed"})
    assert read_events(tmp_path / "s") == []


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.touch()
    with pytest.raises(InputError, match="is a file: expected a folder"):
        State(path)
