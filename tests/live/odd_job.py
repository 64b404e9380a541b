"""A measured job that misbehaves in one way: `python odd_job.py ODDITY MARKS ARGUMENTS-OF-THE-MEASURED-JOB …`.

Whatever it does, it sees to it that it is alone: two launches of one job at once leave a file called TWICE beside the
checkpoint, which no test forgives. What really came to pass leaves an empty file in MARKS.
"""

import contextlib
import ctypes
import fcntl
import os
import runpy
import signal
import subprocess
import sys
import threading
from pathlib import Path

MEASURED_JOB = Path(__file__).parents[2] / "examples" / "measured_job.py"
ODD_FILES = ("a pipe", "a folder", "a device", "a large file", "rubbish")


def be_alone() -> object:
    """Held until the last thread of this process has ended; nobody whom it starts inherits it."""
    folder = Path(os.environ["GPULOOM_CHECKPOINT_DIR"])
    lock = (folder / "alone").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        (folder / "TWICE").touch()
        sys.exit("two at once")
    return lock


def mend_the_history() -> None:
    """A full disk may have torn its last line."""
    path = Path(os.environ["GPULOOM_CHECKPOINT_DIR"]) / "steps.log"
    if path.exists():
        os.truncate(path, path.read_bytes().rfind(b"\n") + 1)


def clobber_the_environment() -> None:
    """As setproctitle does to make room for a title."""
    words = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end, before = int(words[47]), int(words[48]), dict(os.environ)
    ctypes.memset(start, 0, end - start)
    os.environ.update(before)  # the C library's copies, elsewhere
    assert b"GPULOOM" not in Path("/proc/self/environ").read_bytes()


def leave_children() -> None:
    """Without our environment, in sessions of their own, orphans, deaf to all that can be heard."""
    deaf = "trap '' TERM HUP INT; while :; do sleep 1000; done"
    subprocess.run(["env", "-i", "setsid", "sh", "-c", f"sh -c '{deaf}' &"], check=True)


def put_something_odd(path: Path, what: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    match what:
        case "a pipe":
            os.mkfifo(path)
        case "a folder":
            path.mkdir()
        case "a device":
            path.symlink_to("/dev/zero")
        case "a large file":
            with path.open("wb") as file:
                file.truncate(10 << 30)
        case _:
            path.write_bytes(b'{"step": 1e999, "at_unix_s": [' * 1000)


def flood() -> None:
    for _ in range(64):
        os.write(1, b"all work and no play\n" * 3000)
        os.write(2, b"oh no\n" * 10000)


def train(arguments: list[str]) -> None:
    sys.argv = [str(MEASURED_JOB), *arguments]
    runpy.run_path(str(MEASURED_JOB), run_name="__main__")


def train_without_a_main_thread(arguments: list[str]) -> None:
    """The process lives in another thread; its first has ended, and with it all that /proc shows of it."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal = lambda *_: None  # only main threads may set any

    def work() -> None:
        try:
            train(arguments)
        except BaseException:
            os._exit(1)
        os._exit(0)

    threading.Thread(target=work).start()
    ctypes.CDLL(None).pthread_exit(None)


def main(oddity: str, marks: Path, arguments: list[str]) -> None:
    lock = be_alone()
    mend_the_history()
    odd_file = next((what for what in ODD_FILES if oddity == f"progress is {what}"), None)
    match oddity:
        case "clobbered environment":
            clobber_the_environment()
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        case "escaped children":
            leave_children()
        case "output flood":
            flood()
    if odd_file is not None:
        put_something_odd(Path(os.environ.pop("GPULOOM_PROGRESS")), odd_file)
    if oddity:
        (marks / f"{'odd progress file' if odd_file else oddity}.{os.getpid()}").touch()
    if oddity == "ended main thread":
        train_without_a_main_thread(arguments)
    train(arguments)
    del lock


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
