"""Keepers with real processes, in a cgroup and without: how a launch begins, is asked, ends, and what is kept of it."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gpuloom.gpus.host.cgroups import NoCgroups
from gpuloom.gpus.host.homes import find_home, key_of, leave_home
from gpuloom.live.keeper import RECORD_BYTES, Output
from gpuloom.live.launch import Left, kill, left_of
from gpuloom.live.store import Exit, Launch
from gpuloom.live.users import account_of
from gpuloom.work.model import HostNeeds
from tests.live.launches import PATIENCE_S, Bench, bench
from tests.live.shop import until

SAVES = textwrap.dedent("""
    import pathlib, signal, sys, time
    here = pathlib.Path(sys.argv[1])
    def save(*_):
        for _ in range(30):
            time.sleep(0.01)
            print("saving", flush=True)
        (here / "saved").write_text("all of it")
        sys.exit(0)
    signal.signal(signal.SIGTERM, save)
    (here / "up").touch()
    while True:
        time.sleep(0.01)
""")
"""A training that saves when it is asked, and takes its time."""


@pytest.fixture(params=["cgroup", "none"])
def launches(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Bench]:
    folder = tmp_path / "state"
    if request.param == "cgroup":
        try:
            leave_home(find_home(key_of(folder)))
        except NoCgroups as reason:
            pytest.skip(f"needs cgroups: {reason}")
    with bench(folder, cgroups=request.param == "cgroup") as made:
        yield made


@pytest.fixture
def training(tmp_path: Path) -> list[str]:
    program = tmp_path / "train.py"
    program.write_text(SAVES)
    return [sys.executable, str(program), str(tmp_path)]


def lives(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists() and "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()


def killed(launch: Launch, keeper: "subprocess.Popen[bytes]") -> bool:
    """Again and again, as the runner does: a job that is about to enter its group is not there yet."""
    kill(launch)
    return keeper.poll() is not None


# ---- how it ends -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("words", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", -9)])
def test_how_it_ended_is_written_down(launches: Bench, words: str, code: int) -> None:
    launch, keeper = launches.start("sh", "-c", words)
    assert launches.finish(launch, keeper) == Exit(code, asked=False, empty=True)
    assert left_of(launch) is Left.NOBODY


def test_a_command_that_cannot_be_run(launches: Bench) -> None:
    launch, keeper = launches.start("/no/such/program")
    assert launches.finish(launch, keeper).code == 127
    assert "/no/such/program cannot be run: No such file" in launches.out("err.log")


def test_room_for_the_end_is_there_before_it_begins(launches: Bench) -> None:
    launch, keeper = launches.start("sleep", "60")
    assert (launch.folder / "exit").stat().st_size == RECORD_BYTES
    assert launch.exit() is None
    until(lambda: killed(launch, keeper), "it is killed")
    assert launches.finish(launch, keeper) == Exit(-signal.SIGKILL, asked=False, empty=True)
    assert (launch.folder / "exit").stat().st_size == RECORD_BYTES


def test_who_stays_behind_is_ended_with_the_job(launches: Bench, tmp_path: Path) -> None:
    words = f"setsid sh -c 'echo $$ > {tmp_path}/pid; exec sleep 60' & until test -s {tmp_path}/pid; do :; done"
    launch, keeper = launches.start("sh", "-c", words)
    assert launches.finish(launch, keeper) == Exit(0, asked=False, empty=True)
    assert not lives(int((tmp_path / "pid").read_text()))


def test_a_job_that_kills_its_whole_process_group(launches: Bench) -> None:
    """Its keeper is not meant: else nobody would know how it ended, or it would count as asked."""
    launch, keeper = launches.start("sh", "-c", "trap '' TERM; kill -TERM 0; trap - TERM; exit 3")
    assert launches.finish(launch, keeper) == Exit(3, asked=False, empty=True)


def test_a_launch_happens_once(launches: Bench, tmp_path: Path) -> None:
    launch, keeper = launches.start("sh", "-c", f"echo ran >> {tmp_path}/ran")
    launches.finish(launch, keeper)
    subprocess.run(keeper.args, check=True, timeout=PATIENCE_S)
    assert (tmp_path / "ran").read_text() == "ran\n"


def test_who_was_forestalled_does_not_begin(launches: Bench, tmp_path: Path) -> None:
    launch, keeper = launches.start("sh", "-c", f"echo ran >> {tmp_path}/ran; sleep 60")
    if launch.forestall():
        assert keeper.wait(PATIENCE_S) == 0
        assert not launch.started
        assert not (tmp_path / "ran").exists()
    else:
        assert launch.started  # it was faster


# ---- asking ------------------------------------------------------------------------------------------------------

WRAPPERS = {
    "plain": ["{train}"],
    "bash": ["bash", "-c", "{train}; exit 5"],
    "a shell that traps": ["bash", "-c", "trap 'exit 0' TERM; {train}; true"],
    "two shells": ["sh", "-c", "bash -c '{train}; true'; true"],
    "in the background": ["bash", "-c", "{train} & wait"],
    "a wrapper that dies": [sys.executable, "-c", "import subprocess, sys; subprocess.run(sys.argv[1:])", "{train}"],
    "another session": ["sh", "-c", "setsid {train} & sleep 60"],
    "no environment": ["env", "-i", "{train}"],
    "time": ["bash", "-c", "time {train}"],
    "tee": ["bash", "-c", "{train} 2>&1 | tee /dev/null"],
    "tee, and more to do": ["bash", "-c", "{train} 2>&1 | tee /dev/null; touch never; sleep 60"],
    "setsid": ["setsid", "{train}"],
    "timeout": ["timeout", "60", "{train}"],
    "its own trap": ["bash", "-c", "{train} & p=$!; trap 'kill -TERM $p' TERM; wait; wait"],
    "su": ["su", "-c", "{train}; true"],
    "unshare": ["unshare", "-f", "{train}"],
    "deaf wrapper": [
        sys.executable,
        "-c",
        "import signal, subprocess, sys; p = subprocess.Popen(sys.argv[1:]); signal.signal(15, lambda *_: 0); p.wait()",
        "{train}",
    ],
}


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_whatever_is_around_it_it_saves(launches: Bench, training: list[str], tmp_path: Path, wrapper: str) -> None:
    line = " ".join(training)
    command = [part for word in WRAPPERS[wrapper] for part in (training if word == "{train}" else [word])]
    if wrapper in ("su", "unshare") and os.geteuid() != 0:
        pytest.skip("only root can")
    launch, keeper = launches.start(*[word.replace("{train}", line) for word in command])
    until((tmp_path / "up").exists, "it works")
    keeper.send_signal(signal.SIGTERM)
    told = launches.finish(launch, keeper)
    assert (tmp_path / "saved").read_text() == "all of it"
    assert (told.asked, told.empty) == (True, True)
    assert left_of(launch) is Left.NOBODY


def test_a_shell_that_saves_for_a_program_that_cannot(launches: Bench, tmp_path: Path) -> None:
    """Its trap runs when that program has ended, so that is asked as well, and at once."""
    words = f"trap 'echo all of it > {tmp_path}/saved; exit 0' TERM; touch {tmp_path}/up; sleep 60 | cat; sleep 60"
    launch, keeper = launches.start("bash", "-c", words)
    until((tmp_path / "up").exists, "it works")
    keeper.send_signal(signal.SIGTERM)
    assert launches.finish(launch, keeper) == Exit(0, asked=True, empty=True)
    assert (tmp_path / "saved").read_text() == "all of it\n"


LOADERS = textwrap.dedent("""
    import multiprocessing, os, pathlib, signal, sys, time
    here = pathlib.Path(sys.argv[1])
    def load():
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        while True: time.sleep(0.01)
    loaders = [multiprocessing.get_context("fork").Process(target=load, daemon=True) for _ in range(2)]
    [loader.start() for loader in loaders]
    asked = []
    signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
    (here / "up").touch()
    while not asked: time.sleep(0.01)
    time.sleep(0.3)
    (here / "saved").write_text(str([loader.is_alive() for loader in loaders]))
""")


def test_a_trainings_own_helpers_are_left_to_it(launches: Bench, tmp_path: Path) -> None:
    """Data loaders that died of the same signal would make it fail instead of saving."""
    (tmp_path / "train.py").write_text(LOADERS)
    launch, keeper = launches.start("bash", "-c", f"{sys.executable} {tmp_path}/train.py {tmp_path}; true")
    until((tmp_path / "up").exists, "it works")
    keeper.send_signal(signal.SIGTERM)
    launches.finish(launch, keeper)
    assert (tmp_path / "saved").read_text() == "[True, True]"


def test_the_keeper_is_deaf_to_what_is_not_for_it(launches: Bench) -> None:
    launch, keeper = launches.start("sh", "-c", "sleep 60; true")
    until(lambda: launch.started, "it began")
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE):
        keeper.send_signal(number)
    keeper.send_signal(signal.SIGTERM)
    assert launches.finish(launch, keeper) == Exit(-signal.SIGTERM, asked=True, empty=True)


THE_C_LIBRARYS = 0b11 << 31
"""Signals 32 and 33: whoever started us may ignore them, and nobody can change that."""


def test_the_job_is_deaf_to_nothing(launches: Bench) -> None:
    launch, keeper = launches.start("sh", "-c", "grep -E 'Sig(Blk|Ign)' /proc/self/status")
    launches.finish(launch, keeper)
    masks = [int(line.split()[1], 16) for line in launches.out().splitlines()]
    assert [mask & ~THE_C_LIBRARYS for mask in masks] == [0, 0]


# ---- killing -----------------------------------------------------------------------------------------------------

ENDED_MAIN_THREAD = (
    "import ctypes, threading, time\n"
    "threading.Thread(target=lambda: time.sleep(60)).start()\n"
    "print('up', flush=True)\n"
    "ctypes.CDLL(None).pthread_exit(None)\n"
)
CLOBBERED = (
    "import ctypes, signal, time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "words = open('/proc/self/stat').read().rpartition(')')[2].split()\n"
    "start, end = int(words[47]), int(words[48])\n"
    "ctypes.memset(start, 0, end - start)\n"
    "assert b'GPULOOM' not in open('/proc/self/environ', 'rb').read()\n"
    "print('up', flush=True)\n"
    "time.sleep(60)\n"
)
STUBBORN = {
    "its main thread has ended": [sys.executable, "-c", ENDED_MAIN_THREAD],
    "its environment is overwritten": [sys.executable, "-c", CLOBBERED],
    "no environment": ["env", "-i", "sh", "-c", "trap '' TERM; echo up; sleep 60; sleep 60"],
    "orphans in sessions of their own": ["sh", "-c", "(setsid sh -c 'sleep 60; true' &); sleep 0.1; echo up; sleep 60"],
    "stopped": ["sh", "-c", "echo up; kill -STOP $$"],
}


@pytest.mark.parametrize("way", STUBBORN)
def test_nobody_survives_a_kill(launches: Bench, way: str) -> None:
    launch, keeper = launches.start(*STUBBORN[way])
    until(lambda: (launches.store.job_dir("job") / "out.log").exists() and "up" in launches.out(), "it is up")
    assert launch.group is None or not launch.group.remove()
    kill(launch)
    assert launches.finish(launch, keeper).empty
    assert left_of(launch) is Left.NOBODY


def test_without_its_keeper_only_a_group_can_tell(launches: Bench) -> None:
    launch, keeper = launches.start("sh", "-c", "echo up; env -i setsid sleep 60; true")
    until(lambda: (launches.store.job_dir("job") / "out.log").exists() and "up" in launches.out(), "it is up")
    keeper.kill()
    keeper.wait(PATIENCE_S)
    if launch.group is None:
        assert left_of(launch) is Left.UNKNOWN
        subprocess.run(["pkill", "-9", "-f", "^sleep 60"], check=False)
    else:
        until(lambda: left_of(launch) is Left.NOBODY, "the kernel has ended them")


# ---- output ------------------------------------------------------------------------------------------------------


def test_output_is_kept_in_order_to_the_last_byte(launches: Bench) -> None:
    launch, keeper = launches.start("sh", "-c", "seq 1 20000; echo oops >&2; printf end")
    launches.finish(launch, keeper)
    assert launches.out().splitlines() == [*map(str, range(1, 20001)), "end"]
    assert launches.out("err.log") == "oops\n"


def test_a_flood_is_cut_at_what_was_allowed(launches: Bench) -> None:
    launch, keeper = launches.start("sh", "-c", "yes | head -c 9000000; echo last", host=HostNeeds(log_max_mib=1))
    assert launches.finish(launch, keeper).code == 0
    folder = launches.store.job_dir("job")
    files = [folder / name for name in ("out.log", "out.log.1")]
    assert sum(path.stat().st_size for path in files) <= 1 << 20
    assert launches.out().endswith("last\n")


def test_a_second_launch_goes_on_in_the_same_file(launches: Bench) -> None:
    for word in ("one", "two"):
        launches.finish(*launches.start("echo", word))
    assert launches.out() == "one\ntwo\n"


def test_output_that_finds_no_room_is_counted_and_the_job_goes_on(tmp_path: Path) -> None:
    """/dev/full takes nothing, as a disk without room does."""
    source, target = os.pipe()
    output = Output(source, str(tmp_path / "out.log"), 1 << 20, (os.getuid(), os.getgid()))
    good, output.target = output.target, os.open("/dev/full", os.O_WRONLY)
    os.write(target, b"lost")
    assert output.take()
    os.close(output.target)
    output.target = good
    os.write(target, b"kept")
    output.take()
    for descriptor in (source, target, good):
        os.close(descriptor)
    assert (tmp_path / "out.log").read_text() == "\n[gpuloom: 4 bytes of output could not be written]\nkept"


def test_a_link_in_the_place_of_the_output_is_not_followed(tmp_path: Path) -> None:
    with bench(tmp_path / "state", cgroups=False) as made:
        made.store.job_dir("job").mkdir(parents=True)
        (made.store.job_dir("job") / "out.log").symlink_to(tmp_path / "victim")
        launch, keeper = made.start("echo", "planted")
        assert keeper.wait(PATIENCE_S) != 0
        assert launch.exit() is None
        assert not (tmp_path / "victim").exists()


def test_becoming_a_user(launches: Bench) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can")
    made = replace(launches.launcher, accounts={"job": account_of("nobody", 0, 0)})
    launch, keeper = Bench(launches.store, made).start("sh", "-c", "id -u; id -g; id -G")
    assert launches.finish(launch, keeper).code == 0
    assert launches.out().split() == ["65534", "65534", "65534"]


def test_output_goes_on_after_there_was_no_room_for_a_new_file(tmp_path: Path) -> None:
    source, target = os.pipe()
    output = Output(source, str(tmp_path / "out.log"), 20, (os.getuid(), os.getgid()))
    os.write(target, b"0123456789")
    output.take()
    (tmp_path / "out.log").rename(tmp_path / "out.log.1")  # as if the next step had failed then
    os.write(target, b"abc")
    output.take()
    for descriptor in (source, target, output.target):
        os.close(descriptor)
    assert (tmp_path / "out.log").read_text() == "abc"
    assert (tmp_path / "out.log.1").read_text() == "0123456789"


def test_a_job_that_was_asked_by_somebody_else_at_the_same_time_is_not_done(launches: Bench, tmp_path: Path) -> None:
    """A host that shuts down: the job is quicker than its keeper."""
    program = "trap 'exit 0' TERM; touch $0/up; while :; do sleep 0.01; done"
    launch, keeper = launches.start("sh", "-c", program, str(tmp_path))
    until((tmp_path / "up").exists, "it is up")
    (job,) = Path(f"/proc/{keeper.pid}/task/{keeper.pid}/children").read_text().split()
    os.kill(int(job), signal.SIGTERM)
    keeper.send_signal(signal.SIGTERM)
    assert launches.finish(launch, keeper) == Exit(0, asked=True, empty=True)


def test_who_is_asked_by_somebody_else_is_not_done(launches: Bench, tmp_path: Path) -> None:
    """A job that keeps the contract says so itself."""
    program = (
        "import pathlib, signal, sys, time\n"
        "from gpuloom.train import on_stop\n"
        "on_stop(lambda: sys.exit(0))\n"
        "pathlib.Path(sys.argv[1]).touch()\n"
        "while True: time.sleep(0.01)\n"
    )
    launch, keeper = launches.start(sys.executable, "-c", program, str(tmp_path / "up"))
    until((tmp_path / "up").exists, "it is up")
    (job,) = Path(f"/proc/{keeper.pid}/task/{keeper.pid}/children").read_text().split()
    os.kill(int(job), signal.SIGTERM)
    assert launches.finish(launch, keeper) == Exit(0, asked=True, empty=True)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_what_is_ours_is_nobody_elses_whatever_the_umask(launches: Bench, umask: int) -> None:
    before = os.umask(umask)
    try:
        launch, keeper = launches.start("sh", "-c", "umask; echo x > /dev/stderr")
        launches.finish(launch, keeper)
    finally:
        os.umask(before)
    assert launches.out().strip() == f"{umask:04o}"
    assert launches.out("err.log") == "x\n"
    modes = {path.name: path.stat().st_mode & 0o077 for path in launch.folder.iterdir()}
    assert modes == dict.fromkeys(modes, 0)


def test_a_stopped_keeper_hears_that_it_is_asked(launches: Bench, training: list[str], tmp_path: Path) -> None:
    launch, keeper = launches.start(*training)
    until((tmp_path / "up").exists, "it works")
    keeper.send_signal(signal.SIGSTOP)
    keeper.send_signal(signal.SIGTERM)
    keeper.send_signal(signal.SIGCONT)
    launches.finish(launch, keeper)
    assert (tmp_path / "saved").exists()
