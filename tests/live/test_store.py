"""The state directory, the keeper and the marks on processes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpuloom.engine.events import Tick
from gpuloom.engine.log import Entry, Header, read, read_turns
from gpuloom.errors import InputError
from gpuloom.gpus.host.processes import ProcessId, born_ticks
from gpuloom.live import processes
from gpuloom.live.clock import Clock
from gpuloom.live.launch import KEEPER
from gpuloom.live.store import Exit, Progress, Run, Store
from tests.engine.old_lines import old_line
from tests.live.shop import until

RUN = Run("whole-fifo", 1, 1.0, 0.0, "/", ("GPU-1",), ())
HEADER = Header("1xA100-40GB", "whole-fifo", 1)


def test_half_a_line_is_not_appended_to(folder: Path) -> None:
    with Store(folder) as store:
        store.begin(RUN, HEADER)
        store.write([Tick(1.0, "round")])
    with store.log_path.open("a") as log:
        log.write('{"Tick":{"at_s":2')
    with Store(folder) as store:
        assert store.run() == RUN
        store.open_log()
        store.write([Tick(3.0, "round")])
        assert list(read(store.lines(), "log"))[1:] == [Tick(1.0, "round"), Tick(3.0, "round")]


def test_a_line_that_is_torn_inside_a_character(folder: Path) -> None:
    with Store(folder) as store:
        store.begin(RUN, HEADER)
        store.write([Tick(1.0, "r\u2028ound")])
    with store.log_path.open("ab") as log:
        log.write('{"Tick":{"cause":"ü'.encode()[:-1])
    assert list(read(store.lines(), "log"))[1:] == [Tick(1.0, "r\u2028ound")]


def test_a_last_line_whose_checksum_fails_was_being_written(folder: Path) -> None:
    with Store(folder) as store:
        store.begin(RUN, HEADER)
        store.write([Tick(1.0, "round")])
        store.write([Tick(2.0, "round")])
    store.log_path.write_text(store.log_path.read_text().replace("2.0", "2.5"))
    with Store(folder) as store:
        store.open_log()
        store.write([Tick(3.0, "round"), Tick(4.0, "round")])
        found = [turn.events for turn in read_turns(store.lines(), "log")[1]]
    assert found == [(Tick(1.0, "round"),), (Tick(3.0, "round"), Tick(4.0, "round"))]


def test_a_damaged_line_in_the_middle_is_named(folder: Path) -> None:
    with Store(folder) as store:
        store.begin(RUN, HEADER)
        store.write([Tick(1.0, "round")])
        store.write([Tick(2.0, "round")])
    store.log_path.write_text(store.log_path.read_text().replace("1.0", "1.5"))
    with Store(folder) as store, pytest.raises(InputError, match=r"log\.jsonl:2: damaged"):
        store.open_log()


def test_a_log_of_version_1_is_written_anew_once_and_kept(folder: Path) -> None:
    entries: list[Entry] = [HEADER, Tick(1.0, "r\u2028ound"), Tick(2.0, "round")]
    old = "".join(map(old_line, entries))
    with Store(folder) as store:
        store.log_path.write_text(old + '{"Tick":{"at_s":3')
        for at_s in (3.0, 4.0):
            store.open_log()
            store.write([Tick(at_s, "round")])
        header, turns = read_turns(store.lines(), "log")
        assert (header.policy, header.cluster) == ("whole-fifo", ())
        assert [turn.number for turn in turns] == [1, 2, 3, 4]
    assert (folder / "log.v1.jsonl").read_text() == old + '{"Tick":{"at_s":3'
    assert store.log_path.read_text().startswith('{"Header":{"version":2,')


def test_what_the_policy_remembers_is_whole_in_the_first_turn_of_every_runner(folder: Path) -> None:
    with Store(folder) as store:
        store.begin(RUN, HEADER)
        store.write([Tick(1.0, "round")], None, {"a": 1, "b": 2})
        store.write([Tick(2.0, "round")], None, {"a": 1, "b": 3})
    with Store(folder) as store:
        store.open_log()
        store.write([Tick(3.0, "round")], None, {"a": 1, "b": 3})
        found = [turn.memory for turn in read_turns(store.lines(), "log")[1]]
    assert found == [{"is": {"a": 1, "b": 2}}, {"in": {"b": {"is": 3}}}, {"is": {"a": 1, "b": 3}}]


def test_one_at_a_time(folder: Path) -> None:
    with Store(folder), pytest.raises(InputError, match="another gpuloom is running there"), Store(folder):
        pass
    with Store(folder):
        pass


def test_any_name_is_a_folder_of_its_own(folder: Path) -> None:
    store = Store(folder)
    names = ["a", "..", "a/b", "a b", "a_b", "ä" * 200, "x" * 200, ".hidden"]
    folders = [store.job_dir(name) for name in names]
    assert len(set(folders)) == len(names)
    assert all(path.parent == store.jobs_dir and len(os.fsencode(path.name)) < 100 for path in folders)
    assert store.job_dir("a").name == "a"


def test_what_a_job_writes_is_not_trusted(folder: Path) -> None:
    launch = Store(folder).new_launch("a", 1, 1, None)
    assert launch.progress() is None
    broken = ['{"step": Infinity, "at_unix_s": 1}', '{"step": 3, "at_unix_s": NaN}', "[" * 100_000, '{"step": 1e300}']
    huge = f'{{"step": 1{"0" * 310}, "at_unix_s": 1}}'
    for text in (
        *broken,
        huge,
        '{"step": -1, "at_unix_s": 1}',
        "",
        "nonsense",
        "[]",
        "3",
        '{"step": "x", "at_unix_s": 1}',
        '{"step": 3}',
        "\xff",
    ):
        (launch.folder / "progress").write_text(text, encoding="latin-1")
        assert launch.progress() is None
    (launch.folder / "progress").write_text('{"step": 3, "at_unix_s": 4.5, "loss": 1}')
    assert launch.progress() == Progress(3, 4.5)


def test_a_launch_that_was_only_prepared_does_not_count(folder: Path) -> None:
    store = Store(folder)
    assert store.last_launch("a") is None
    first = store.new_launch("a", 1, 1, 14.0)
    (first.folder.with_name("000002")).mkdir()
    assert store.last_launch("a") == first
    assert not first.started


def keep(folder: Path, *command: str) -> "subprocess.Popen[bytes]":
    environment = os.environ | {processes.MARK: str(folder)}
    return subprocess.Popen([*KEEPER, str(folder), *command], env=environment, start_new_session=True)


def left(folder: Path) -> Exit:
    found = json.loads((folder / "exit").read_text())
    return Exit(found["code"], found["asked"])


def test_the_keeper_writes_down_how_it_ended(folder: Path) -> None:
    assert keep(folder, sys.executable, "-c", "raise SystemExit(7)").wait(10) == 7
    assert left(folder) == Exit(7, asked=False)


def test_a_launch_happens_once(folder: Path) -> None:
    program = f"open({str(folder / 'ran')!r}, 'a').write('x')"
    for _ in range(2):
        assert keep(folder, sys.executable, "-c", program).wait(10) == 0
    assert (folder / "ran").read_text() == "x"


def test_sigterm_is_passed_on_once_and_remembered(folder: Path) -> None:
    program = (
        "import signal, sys, pathlib\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n"
        f"pathlib.Path({str(folder / 'up')!r}).touch()\n"
        "while True: signal.pause()\n"
    )
    keeper = keep(folder, sys.executable, "-c", program)
    until((folder / "up").exists, "it is up")
    assert len(processes.marked(folder)[folder]) == 2
    keeper.send_signal(signal.SIGTERM)
    assert keeper.wait(10) == 0
    assert left(folder) == Exit(0, asked=True)
    assert processes.marked(folder) == {}


def test_everything_that_carries_the_mark_is_ended(folder: Path) -> None:
    program = "import subprocess, sys; subprocess.Popen(['sleep', '60'], start_new_session=True).wait()"
    keeper = keep(folder, sys.executable, "-c", program)
    until(lambda: len(processes.marked(folder).get(folder, [])) == 3, "its child is up")
    assert processes.end(folder)
    assert keeper.wait(10) == -signal.SIGKILL
    assert not (folder / "exit").exists()
    assert processes.marked(folder) == {}


def test_ended_means_gone_not_dying(folder: Path) -> None:
    """A process that dies gives its memory back first, and its environment with it; its files and GPU later."""
    program = f"import time; held = b'x' * (1 << 29); open({str(folder / 'up')!r}, 'w').close(); time.sleep(60)"
    keeper = keep(folder, sys.executable, "-c", program)
    until((folder / "up").exists, "it holds its memory")
    found = processes.marked(folder)[folder]
    assert processes.end(folder)
    assert [process.lives for process in found] == [False, False]
    keeper.wait(10)


def test_a_number_that_is_used_again_is_another_process() -> None:
    me = ProcessId(os.getpid(), born_ticks(os.getpid()) or 0)
    assert me.lives
    assert not ProcessId(me.pid, me.born_ticks - 1).lives


def test_time_goes_on_where_the_log_ended() -> None:
    assert Clock(origin_unix_s=4e9, not_before_s=70.0).now_s() >= 70.0
    clock = Clock(origin_unix_s=4e9, pace=1e6)
    first = clock.now_s()
    assert clock.now_s() > first
