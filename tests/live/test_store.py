"""The state directory, and the marks on processes."""

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuloom.engine.events import Tick
from gpuloom.engine.log import Entry, Header, read, read_turns
from gpuloom.errors import InputError
from gpuloom.gpus.host.processes import ProcessId, born_ticks
from gpuloom.live import processes
from gpuloom.live.clock import Clock
from gpuloom.live.keeper import Output
from gpuloom.live.store import MOST_STEPS, Launch, Progress, Run, Store, same_work
from gpuloom.live.users import Account
from gpuloom.train import report
from gpuloom.work.model import NO_HOST_NEEDS, Job
from tests.engine.old_lines import old_line
from tests.live.shop import until

STRANGER = 65534
"""A user of this host without any rights."""
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


NO_REPORTS = {
    "infinite": '{"step": Infinity, "at_unix_s": 1}',
    "not a number": '{"step": 3, "at_unix_s": NaN}',
    "deep": "[" * 60_000,
    "deep objects": '{"step":' * 8_000,
    "large": '{"step": 1e300}',
    "larger": f'{{"step": 1{"0" * 310}, "at_unix_s": 1}}',
    "thousands of digits": f'{{"step": {"9" * 60_000}, "at_unix_s": 1}}',
    "a time of 400 digits": f'{{"step": 3, "at_unix_s": 1, "at_monotonic_s": {"9" * 400}}}',
    "negative": '{"step": -1, "at_unix_s": 1}',
    "empty": "",
    "no JSON": "nonsense",
    "a list": "[]",
    "a number": "3",
    "a text as its step": '{"step": "x", "at_unix_s": 1}',
    "no time": '{"step": 3}',
    "no UTF-8": "\xff",
    "rubbish": "".join(map(chr, range(256))) * 200,
    "too long": '{"step": 3, "at_unix_s": 4.5}' + " " * 70_000,
}


@pytest.mark.parametrize("text", NO_REPORTS.values(), ids=NO_REPORTS)
def test_what_a_job_writes_is_not_trusted(folder: Path, text: str) -> None:
    launch = Store(folder).new_launch("a", 1, 1, None)
    assert launch.progress() is None
    launch.progress_path.write_text(text, encoding="latin-1")
    assert launch.progress() is None
    launch.progress_path.write_text('{"step": 3, "at_unix_s": 4.5, "loss": 1}')
    assert launch.progress() == Progress(3, 4.5)


@given(st.binary(max_size=300))
def test_whatever_bytes_a_job_writes_there_is_a_report_or_none(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    launch = Store(tmp_path_factory.mktemp("s")).new_launch("a", 1, 1, None)
    launch.progress_path.write_bytes(b'{"step": 3, "at_unix_s": 1' + data)
    told = launch.progress()
    assert told is None or 0 <= told.step <= MOST_STEPS


@pytest.mark.parametrize(
    ("told", "at_s"), [("12.5", 12.5), ("3", 3.0), ("-1", None), ("NaN", None), ("Infinity", None), ('"1"', None)]
)
def test_a_time_that_is_none_leaves_the_report(folder: Path, told: str, at_s: float | None) -> None:
    launch = Store(folder).new_launch("a", 1, 1, None)
    launch.progress_path.write_text(f'{{"step": 3, "at_unix_s": 4.5, "at_monotonic_s": {told}}}')
    assert launch.progress() == Progress(3, 4.5, at_s)


def put(path: Path, kind: str) -> None:
    """What a job could have in the place of its report. Reading from most of these would never end."""
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "device":
            try:
                os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 5))  # /dev/zero
            except PermissionError:
                pytest.skip("only root can make devices")
        case "socket":
            with socket.socket(socket.AF_UNIX) as listener:
                os.chdir(path.parent)  # the name of a socket must be short
                listener.bind(path.name)
        case "folder":
            path.mkdir()
        case "link":
            path.symlink_to(path.with_name("report"))
        case "link to a device":
            path.symlink_to("/dev/zero")
        case "ten gigabytes":
            with path.open("wb") as file:
                file.write(b'{"step": 3, "at_unix_s": 4.5}')
                file.truncate(10 << 30)


@pytest.mark.parametrize("kind", ["pipe", "device", "socket", "folder", "link", "link to a device", "ten gigabytes"])
def test_what_is_no_plain_file_is_no_report_and_nobody_waits(
    folder: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    launch = Store(folder).new_launch("a", 1, 1, None)
    launch.progress_path.with_name("report").write_text('{"step": 3, "at_unix_s": 4.5}')
    put(launch.progress_path, kind)
    assert launch.progress() is None


def test_a_job_that_an_earlier_version_launched_is_still_heard(folder: Path) -> None:
    launch = Store(folder).new_launch("a", 1, 1, None)
    (launch.folder / "job").rmdir()
    (launch.folder / "progress").write_text('{"step": 3, "at_unix_s": 4.5}')
    assert launch.progress() == Progress(3, 4.5)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_state_folder_is_for_nobody_else(folder: Path) -> None:
    state = folder / "above" / "state"
    (folder / "above").mkdir()
    before = os.umask(0)
    try:
        with Store(state) as store:
            store.begin(RUN, Header("1xA100-40GB", "whole-fifo", 1))
            launch = store.new_launch("a", 1, 1, None)
    finally:
        os.umask(before)
    folders = [state, state / "jobs", launch.folder, launch.folder / "job", store.checkpoint_dir("a")]
    assert {mode(path) for path in folders} == {0o700}
    assert {mode(path) for path in (state / "run.json", state / "lock", launch.folder / "launch.json")} == {0o600}


def test_a_state_folder_that_others_could_read_is_shut(folder: Path) -> None:
    (folder / "state").mkdir(mode=0o755)
    with Store(folder / "state"):
        assert mode(folder / "state") == 0o700


def test_a_state_folder_that_others_could_have_filled_is_refused(folder: Path) -> None:
    (folder / "open").mkdir()
    (folder / "open").chmod(0o777)
    (folder / "link").symlink_to(folder / "real")
    (folder / "real").mkdir()
    for name, why in (("open", "can be written by others"), ("link", "is a symbolic link")):
        with pytest.raises(InputError, match=f"{why}: name a"), Store(folder / name):
            pass
    assert list((folder / "open").iterdir()) == list((folder / "real").iterdir()) == []


def test_a_run_that_is_a_link_is_not_read(folder: Path) -> None:
    with Store(folder / "a") as store:
        store.begin(RUN, Header("1xA100-40GB", "whole-fifo", 1))
    with Store(folder / "b") as store:
        for target in ("run.json", "nothing"):
            (folder / "b" / "run.json").symlink_to(folder / "a" / target)
            with pytest.raises(InputError, match=r"run.json is not a plain file of gpuloom's"):
                store.run()
            (folder / "b" / "run.json").unlink()


AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")


@AS_ROOT
def test_as_root_what_a_stranger_planted_is_refused(folder: Path) -> None:
    """A planted run.json ran its commands as root."""
    with Store(folder / "theirs") as store:
        store.begin(RUN, Header("1xA100-40GB", "whole-fifo", 1))
    os.chown(folder / "theirs" / "run.json", STRANGER, STRANGER)
    with Store(folder / "theirs") as store, pytest.raises(InputError, match=f"belongs to user {STRANGER}"):
        store.run()
    os.chown(folder / "theirs", STRANGER, STRANGER)
    with pytest.raises(InputError, match=f"belongs to user {STRANGER}: name a folder"), Store(folder / "theirs"):
        pass
    with pytest.raises(InputError, match=r"others can change .*theirs, and could put"), Store(folder / "theirs" / "in"):
        pass
    assert not (folder / "theirs" / "in").exists()


@AS_ROOT
def test_a_job_of_another_user_reaches_what_is_its_own_and_nothing_else() -> None:
    account = Account("nobody", STRANGER, STRANGER, (STRANGER,), "/", "/bin/sh")
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o711)
        store = Store(Path(name) / "state")
        with store:
            store.begin(RUN, Header("1xA100-40GB", "whole-fifo", 1))
            launch = store.new_launch("a", 1, 1, None, account)
            os.close(Output(-1, str(store.job_dir("a") / "out.log"), 1000, (account.uid, account.gid)).target)
            other = store.new_launch("b", 1, 1, None)
        script = """
            touch "$1/job/progress" "$2/saved" && cat "$3/out.log" || exit 1
            for path in "$1" "$3" "$4"; do ls "$path" && exit 2; touch "$path/new" && exit 3; done
            for path in "$4/run.json" "$4/log.jsonl" "$4/lock" "$1/launch.json"; do cat "$path" && exit 4; done
            ls "$5/job" && exit 5
            mv "$2" "$3/gone" && exit 6
            exit 0
        """
        words = [launch.folder, store.checkpoint_dir("a"), store.job_dir("a"), store.folder, other.folder]
        command = ["sh", "-c", script, "sh", *map(str, words)]
        done = subprocess.run(command, user=STRANGER, group=STRANGER, extra_groups=[], capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        with Store(store.folder):  # its jobs may still live: the way stays open
            assert mode(store.folder) == 0o711


@AS_ROOT
def test_output_is_not_appended_through_a_link(folder: Path) -> None:
    path = str(folder / "out.log")
    (folder / "treasure").write_text("gold")
    (folder / "out.log").symlink_to(folder / "treasure")
    with pytest.raises(OSError, match="symbolic links"):
        Output(-1, path, 1000, (STRANGER, STRANGER))
    assert (folder / "treasure").stat().st_uid == 0
    (folder / "out.log").unlink()
    for _ in range(2):  # by the second launch it is the user's
        descriptor = Output(-1, path, 1000, (STRANGER, STRANGER)).target
        os.write(descriptor, b"x")
        os.close(descriptor)
    assert (folder / "out.log").read_text() == "xx"
    assert (mode(folder / "out.log"), (folder / "out.log").stat().st_uid) == (0o600, STRANGER)


def test_a_run_of_an_earlier_version_is_read(folder: Path) -> None:
    with Store(folder) as store:
        store.begin(replace(RUN, jobs=(Job("a", command=("true",)),)), Header("1xA100-40GB", "whole-fifo", 1))
        old = json.loads((folder / "run.json").read_text())
        del old["owner_uid"]
        del old["jobs"][0]["host"]
        (folder / "run.json").write_text(json.dumps(old))
        run = store.run()
    assert run is not None
    assert (run.owner_uid, run.jobs[0].host) == (None, NO_HOST_NEEDS)
    assert same_work(run, run.jobs, "whole-fifo", 1, 1.0, owner_uid=7) is None
    known = replace(run, owner_uid=8)
    assert same_work(known, run.jobs, "whole-fifo", 1, 1.0, owner_uid=7) == "a work file of user 8"


def test_a_launch_that_was_only_prepared_does_not_count(folder: Path) -> None:
    store = Store(folder)
    assert store.last_launch("a") is None
    first = store.new_launch("a", 1, 1, 14.0)
    (first.folder.with_name("000002")).mkdir()
    assert store.last_launch("a") == first
    assert not first.started


def marked(folder: Path, program: str) -> "subprocess.Popen[bytes]":
    """A process that carries the mark of this launch, and leads its session."""
    environment = os.environ | {processes.MARK: str(folder)}
    return subprocess.Popen([sys.executable, "-c", program], env=environment, start_new_session=True)


def test_everything_that_carries_the_mark_is_ended(folder: Path) -> None:
    program = "import subprocess, sys; subprocess.Popen(['sleep', '60'], start_new_session=True).wait()"
    with marked(folder, program) as leader:
        until(lambda: len(processes.marked(folder).get(folder, [])) == 2, "its child is up")
        assert processes.leader(folder) == ProcessId(leader.pid, born_ticks(leader.pid) or 0)
        assert processes.end(folder)
        assert leader.wait(10) == -signal.SIGKILL
    assert processes.marked(folder) == {}


def test_ended_means_gone_not_dying(folder: Path) -> None:
    """A process that dies gives its memory back first, and its environment with it; its files and GPU later."""
    program = f"import time; held = b'x' * (1 << 29); open({str(folder / 'up')!r}, 'w').close(); time.sleep(60)"
    with marked(folder, program):
        until((folder / "up").exists, "it holds its memory")
        found = processes.marked(folder)[folder]
        assert processes.end(folder)
        assert [process.lives for process in found] == [False]


def test_a_process_whose_first_thread_has_ended_lives() -> None:
    program = (
        "import ctypes, threading, time\n"
        "threading.Thread(target=lambda: time.sleep(60)).start()\n"
        "ctypes.CDLL(None).pthread_exit(None)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program]) as process:
        until(lambda: "State:\tZ" in Path(f"/proc/{process.pid}/status").read_text(), "its first thread has ended")
        assert born_ticks(process.pid) is not None
        process.kill()
        until(lambda: born_ticks(process.pid) is None, "it is gone")


def test_a_number_that_is_used_again_is_another_process() -> None:
    me = ProcessId(os.getpid(), born_ticks(os.getpid()) or 0)
    assert me.lives
    assert not ProcessId(me.pid, me.born_ticks - 1).lives


def test_time_goes_on_where_the_log_ended() -> None:
    assert Clock(origin_unix_s=4e9, not_before_s=70.0).now_s() >= 70.0
    clock = Clock(origin_unix_s=4e9, pace=1e6)
    first = clock.now_s()
    assert clock.now_s() > first


@pytest.mark.parametrize("text", ["{}", '{"code": null, "asked": 1}', '{"code": 1e999, "asked": 0}', "[]", "x", ""])
def test_a_damaged_record_of_the_end_is_none(folder: Path, text: str) -> None:
    launch = Store(folder).new_launch("a", 1, 1, None)
    (launch.folder / "exit").write_text(text)
    (launch.folder / "started").write_text(text)
    assert launch.exit() is None
    assert launch.keeper() is None


def test_a_damaged_launch_is_named_and_others_files_are_passed_over(folder: Path) -> None:
    store = Store(folder)
    launch = store.new_launch("a", 1, 1, None)
    (launch.folder.with_name("000001.bak")).mkdir()
    assert store.last_launch("a") == launch
    (launch.folder / "launch.json").write_text('{"start": "x"}')
    with pytest.raises(InputError, match=r"launch.json: damaged"):
        store.last_launch("a")


def test_a_folder_with_other_things_in_it_is_left_alone(folder: Path) -> None:
    folder.chmod(0o755)
    (folder / "thesis.tex").touch()
    with pytest.raises(InputError, match="has other files in it"), Store(folder):
        pass
    assert mode(folder) == 0o755


def test_half_a_report_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = Launch(tmp_path, 1, 1, None)
    monkeypatch.setenv("GPULOOM_PROGRESS", str(launch.progress_path))
    report(1999)
    before = launch.progress_path.read_bytes()
    report(2000)
    after = launch.progress_path.read_bytes()
    launch.progress_path.write_bytes(after[:10] + before[10:])
    assert launch.progress() is None, "step 2999 was never told"
    launch.progress_path.write_bytes(after)
    told = launch.progress()
    assert told is not None
    assert told.step == 2000


def test_reports_are_read_whole_while_others_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = Launch(tmp_path, 1, 1, None)
    monkeypatch.setenv("GPULOOM_PROGRESS", str(launch.progress_path))
    writer = os.fork()
    if writer == 0:
        for step in range(1, 5001):
            report(step, batch=step)
        os._exit(0)
    steps = []
    while os.waitpid(writer, os.WNOHANG)[0] == 0:
        told = launch.progress()
        if told is not None:
            assert told.figures["batch"] == told.step
            steps.append(told.step)
    assert steps == sorted(steps)
    last = launch.progress()
    assert last is not None
    assert last.step == 5000
