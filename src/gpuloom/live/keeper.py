"""The parent of one launch: asks its processes to stop, keeps their output, and writes down how they ended.

Run as a script, without gpuloom (`python -I -S keeper.py FOLDER SETTINGS COMMAND …`), so that it is small and starts
quickly. The folder belongs to one launch. Its file `started` is linked there once: a launch happens once, whoever asks
for it again. Its file `exit` was written by the runner, as blanks, so that a full disk cannot keep the end from it.

Whoever loses its parent becomes a child of the keeper. So it knows, with or without cgroups, when nobody is left, and
stays until then.
"""

import ctypes
import errno
import fcntl
import json
import os
import select
import signal
import stat
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

NOT_EXECUTABLE, NOT_ENTERED, NOT_WRITTEN = 127, 126, 75
"""Exit codes: the shell's for a command that cannot be run; for one that could not enter its group or become its user;
and for a launch that did not happen since nothing could be written."""

RECORD_BYTES = 128
ROOM_BYTES = 1 << 18
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "fish", "tcsh", "csh", "busybox"})
IMPATIENT = frozenset({"su", "runuser", "script"})
"""They pass SIGTERM on, and kill two seconds later: asked only when nobody is saving any more."""
PASS_IT_ON = frozenset({"timeout", "tini", "dumb-init", "catatonit", "sudo", "mpirun", "srun"})
PR_SET_CHILD_SUBREAPER = 36
LOOK_AGAIN_MS, LISTEN_S = 50, 0.1
HEARD = (signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD)
"""Ask, kill, and somebody has ended."""
DEAF_TO = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE)


Process = tuple[int, int]
"""Its number, and when it was born."""


class Output:
    """One stream of the job's, in a file of at most half of what it may have; beside it the half before that.

    What cannot be written, on a full disk, is counted and dropped: the job goes on.
    """

    def __init__(self, source: int, path: str, most_bytes: int, owner: tuple[int, int]) -> None:
        self.source, self.path, self.most_bytes, self.owner = source, path, max(most_bytes // 2, 1), owner
        self.target, self.length, self.lost = -1, 0, 0
        self._open(0)

    def _open(self, more: int) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | more
        target = os.open(self.path, flags, 0o600)
        status = os.fstat(target)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a plain file", self.path)
        self.target, self.length = target, status.st_size
        if os.geteuid() == 0:
            os.fchown(self.target, *self.owner)

    def take(self) -> bool:
        """Whether there may be more."""
        try:
            data = os.read(self.source, 1 << 16)
        except BlockingIOError:
            return True
        except OSError:
            data = b""
        if data:
            self._put(data)
        return bool(data)

    def _put(self, data: bytes) -> None:
        if self.lost:
            data = f"\n[gpuloom: {self.lost} bytes of output could not be written]\n".encode() + data
        while data:
            try:
                if self.length >= self.most_bytes:
                    self._rotate()
                written = os.write(self.target, data[: self.most_bytes - self.length])
            except OSError:
                self.lost += len(data)
                return
            self.length, self.lost, data = self.length + written, 0, data[written:]

    def _rotate(self) -> None:
        with suppress(FileNotFoundError):  # moved already, when there was no room for a new one
            os.rename(self.path, f"{self.path}.1")  # noqa: PTH104  (nothing is imported that need not be)
        before = self.target
        self._open(os.O_EXCL)
        os.close(before)


class Keeper:
    def __init__(self, folder: Path, settings: dict[str, Any], command: list[str]) -> None:
        self.folder, self.settings, self.command = folder, settings, command
        self.asked = self.killing = False
        self.late_at: float | None = None
        self.told: set[Process] = set()
        """Who has had its SIGTERM."""
        self.acted_at = 0.0
        self.code: int | None = None
        self.room = True
        self.main = 0
        self.umask = os.umask(0o077)  # what is ours is nobody else's
        self.outputs: dict[int, Output] = {}

    # ---- before --------------------------------------------------------------------------------------------------

    def claim(self) -> bool:
        """Whether this launch is ours to begin. The file has its whole content from its first moment."""
        draft = self.folder / f"started.{os.getpid()}"
        draft.write_text(json.dumps({"pid": os.getpid(), "born_ticks": _born_ticks(os.getpid())}), encoding="utf-8")
        try:
            os.link(draft, self.folder / "started")
        except FileExistsError:
            return False
        finally:
            draft.unlink()
        return True

    def begin(self) -> None:
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        if self.settings["keepers"]:
            with suppress(OSError):
                _write(self.settings["keepers"], b"0")
        pipes = [os.pipe2(os.O_CLOEXEC) for _ in range(2)]
        owner = (self.settings["uid"], self.settings["gid"])
        for (source, _), path in zip(pipes, self.settings["outputs"], strict=True):
            fcntl.fcntl(source, fcntl.F_SETFL, os.O_NONBLOCK)
            self.outputs[source] = Output(source, path, self.settings["log_max_bytes"], owner)
        doors = [os.open(door, os.O_WRONLY | os.O_CLOEXEC) for door in self.settings["doors"]]
        targets = [target for _, target in pipes]
        for target in targets:
            os.fchown(target, *owner)  # else /dev/stderr could not be opened by its user
        self.main = self._fork_the_job(doors, targets)
        for descriptor in (*doors, *targets):
            os.close(descriptor)

    def _fork_the_job(self, doors: list[int], targets: list[int]) -> int:
        """In a session of its own, since who kills its whole process group does not mean its keeper; not as its leader,
        since `setsid` would make a child then, and end.
        """
        source, target = os.pipe2(os.O_CLOEXEC)
        leader = os.fork()
        if leader == 0:
            os.setsid()
            job = os.fork()
            if job == 0:
                self._become(doors, targets)
            os.write(target, str(job).encode())
            os._exit(0)
        os.close(target)
        os.waitpid(leader, 0)
        job_pid = int(os.read(source, 20))  # ours by now, as an orphan
        os.close(source)
        return job_pid

    def _become(self, doors: list[int], targets: list[int]) -> None:
        """The job. A group that was removed meanwhile cannot be entered: then nobody wants this launch any more."""
        try:
            os.umask(self.umask)
            for number, target in enumerate(targets, 1):
                os.dup2(target, number)
            for door in doors:
                os.write(door, b"0")
            self._become_the_user()
        except OSError as error:
            os.write(2, f"gpuloom: its cgroup or user cannot be entered: {error.strerror}\n".encode())
            os._exit(NOT_ENTERED)
        for number in (*HEARD, *DEAF_TO, signal.SIGXFSZ):  # Python itself ignores the last, and who is ignored stays so
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, set())
        try:
            os.execvp(self.command[0], self.command)
        except (OSError, ValueError) as error:
            os.write(2, f"gpuloom: {self.command[0]} cannot be run: {getattr(error, 'strerror', error)}\n".encode())
            os._exit(NOT_EXECUTABLE)

    def _become_the_user(self) -> None:
        uid, gid, groups = self.settings["uid"], self.settings["gid"], self.settings["groups"]
        if (uid, gid, sorted(groups)) != (os.geteuid(), os.getegid(), sorted(os.getgroups())):
            os.setgroups(groups)
            os.setgid(gid)
            os.setuid(uid)

    # ---- meanwhile -----------------------------------------------------------------------------------------------

    def keep(self) -> int:
        poll = select.poll()
        for source in self.outputs:
            poll.register(source, select.POLLIN)
        poll.register(_wakeup(), select.POLLIN)
        while self._reap():
            self._act()
            for descriptor, _ in poll.poll(self._patience_ms()):
                output = self.outputs.get(descriptor)
                if output is None:
                    with suppress(BlockingIOError):
                        os.read(descriptor, 4096)
                elif not output.take():
                    poll.unregister(descriptor)
        for output in self.outputs.values():
            while select.select([output.source], [], [], 0)[0] and output.take():
                pass
        self._record(empty=True)
        assert self.code is not None
        return self.code if self.code >= 0 else 128 - self.code

    def _patience_ms(self) -> int | None:
        """How long nothing has to be done unless something happens: then orphans are looked for, who make no noise."""
        return LOOK_AGAIN_MS if self.killing or self.asked else None

    def _reap(self) -> bool:
        """Whether anybody is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.main:
                self.code = os.waitstatus_to_exitcode(status)
                self._listen()
                self.asked |= (self.folder / "job" / "asked").exists()  # by somebody else, it says
                self.room = self.code == 0 or self._has_room()
                self._record(empty=False)
                self.killing |= not self.asked  # who stays behind when the job has ended by itself is no part of it

    def _listen(self) -> None:
        """A host that shuts down asks everybody at once: the job must not seem to be done because it was quicker."""
        until = time.monotonic() + LISTEN_S
        while not self.asked and not self.killing and time.monotonic() < until:
            time.sleep(LISTEN_S / 10)

    def _act(self) -> None:
        if time.monotonic() - self.acted_at < LOOK_AGAIN_MS / 1000:
            return
        self.acted_at = time.monotonic()
        if self.killing:
            self._kill()
        elif self.asked:
            self._ask()

    # ---- asking and killing --------------------------------------------------------------------------------------

    def ask(self, *_: object) -> None:
        if not self.asked:
            self.asked = True
            self.late_at = time.monotonic() + self.settings["grace_real_s"] / 2

    def end(self, *_: object) -> None:
        self.killing = True

    def _ask(self) -> None:
        """Who can save, whom it is only the wrapper of, and whoever is left when nobody is saving any more.

        Not everybody at once: a training whose data loaders or whose `tee` are killed by the same signal fails
        instead of saving. At half the grace time those are asked as well whose wrapper kept it to itself.
        """
        late = self.late_at is not None and time.monotonic() >= self.late_at
        for process in _whom_to_ask(_children(os.getpid()), late=late)[0]:
            if process not in self.told:
                self.told.add(process)
                _signal(process, signal.SIGTERM)
                _signal(process, signal.SIGCONT)  # one that is stopped hears nothing else

    def _kill(self) -> None:
        if self.settings["kill"]:
            with suppress(OSError):
                _write(self.settings["kill"], b"1")
        # That passes over processes whose main thread has ended; and there may be no group.
        heads = _children(os.getpid())
        while heads:
            process = heads.pop()
            heads += _children(process[0])
            _signal(process, signal.SIGKILL)

    def _has_room(self) -> bool:
        """Whether the disk had any for its user when it failed: by the time that somebody looks it may have again."""
        child = os.fork()
        if child == 0:
            try:
                self._become_the_user()
                os._exit(0 if _fits(self.folder / "job" / "room") else NOT_WRITTEN)
            except OSError:
                os._exit(0)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != NOT_WRITTEN and _fits(self.folder / "room")

    def _record(self, *, empty: bool) -> None:
        """Over the blanks that are there, so that no block has to be found for it."""
        text = json.dumps({"code": self.code, "asked": self.asked, "empty": empty, "room": self.room})
        with suppress(OSError):
            record = os.open(self.folder / "exit", os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            os.pwrite(record, text.ljust(RECORD_BYTES - 1).encode() + b"\n", 0)
            os.fdatasync(record)
            os.close(record)


def _wakeup() -> int:
    """Readable whenever a signal has come."""
    source, target = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(target, warn_on_full_buffer=False)
    return source


def _write(path: str, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)


def _stat(pid: int) -> list[bytes] | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return None


def _born_ticks(pid: int) -> int:
    words = _stat(pid)
    return 0 if words is None else int(words[19])


def _children(parent: int) -> list[Process]:
    """Of a process; those that come and go meanwhile may be missed, and are seen the next time."""
    found: list[Process] = []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{parent}/task"):  # noqa: PTH208
            with suppress(OSError), open(f"/proc/{parent}/task/{thread}/children", "rb") as file:  # noqa: PTH123
                found += [(int(pid), _born_ticks(int(pid))) for pid in file.read().split()]
    return found


def _fits(probe: Path) -> bool:
    try:
        with probe.open("wb") as file:
            file.write(b" " * ROOM_BYTES)
        return True
    except OSError as error:
        return error.errno not in NO_ROOM
    finally:
        with suppress(OSError):
            probe.unlink()


def _whom_to_ask(heads: list[Process], *, late: bool) -> tuple[list[Process], list[Process]]:
    """Of these processes and those below: who is to save or to stop going on, and who is left to them meanwhile."""
    asked: list[Process] = []
    left: list[Process] = []
    for process in heads:
        below, program, hears = _children(process[0]), _program(process[0]), _hears(process[0])
        if hears and program not in SHELLS and not (program in IMPATIENT and below):
            asked.append(process)
            keeps_it = late and program not in PASS_IT_ON and not _is_torchrun(process[0])
            below = [child for child in below if not _is_helper(child[0], process[0])] if keeps_it else []
        else:
            # A shell hears a trapped signal only when its foreground command has ended; others do not pass it on.
            (asked if (below or hears) and program not in IMPATIENT else left).append(process)
        more_asked, more_left = _whom_to_ask(below, late=late)
        asked += more_asked
        left += more_left
    if not any(_hears(pid) and _program(pid) not in SHELLS for pid, _ in asked):
        return asked + left, []  # nobody among them can save: there is nobody to wait for
    return asked, left


def _program(pid: int) -> str:
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe")).removesuffix(" (deleted)")  # noqa: PTH115, PTH119
    except OSError:
        return ""


def _hears(pid: int) -> bool:
    """Whether it does something of its own when it gets SIGTERM."""
    with suppress(OSError, ValueError, StopIteration), open(f"/proc/{pid}/status", "rb") as file:  # noqa: PTH123
        caught = next(line for line in file if line.startswith(b"SigCgt:"))
        return bool(int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1)
    return False


def _words(pid: int) -> bytes:
    with suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:  # noqa: PTH123
        return file.read()
    return b""


def _is_helper(pid: int, parent: int) -> bool:
    """A fork of its parent, or a worker of Python's multiprocessing: its parent ends it."""
    words = _words(pid)
    return words == _words(parent) or b"multiprocessing" in words


def _is_torchrun(pid: int) -> bool:
    words = _words(pid)
    return b"torchrun" in words or b"torch.distributed" in words


def _signal(process: Process, number: int) -> None:
    """This very process: its number may have been given to somebody else meanwhile."""
    with suppress(OSError):
        handle = os.pidfd_open(process[0])
        try:
            if _born_ticks(process[0]) == process[1]:
                signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)


def main(folder: Path, settings: dict[str, Any], command: list[str]) -> int:
    keeper = Keeper(folder, settings, command)
    # Before anybody can know of it: no signal may end it.
    for number, handler in zip(HEARD, (keeper.ask, keeper.end, lambda *_: None), strict=True):
        signal.signal(number, handler)
    for number in DEAF_TO:
        signal.signal(number, signal.SIG_IGN)
    try:
        if not keeper.claim():
            return 0
        keeper.begin()
    except OSError as error:
        os.write(2, f"gpuloom: cannot be begun: {error}\n".encode())
        return NOT_WRITTEN if error.errno in NO_ROOM else NOT_ENTERED
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    return keeper.keep()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3:]))
