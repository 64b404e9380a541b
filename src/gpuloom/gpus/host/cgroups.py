"""Control groups: who belongs to a launch whatever it does to itself, its end in one stroke, and limits that hold.

A group is a folder of cgroup version 2, which says who is in it and ends them all. Limits are set there where version 2
has the controller, and in a folder of the same name of version 1 where that still has it (the hybrid mount). Knows
nothing of jobs. A group that was removed was empty, and nobody can join it any more, not even through an open file.
"""

import errno
import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

CONTROLLERS = ("cpu", "memory", "pids")
PERIOD_US = 100_000


class NoCgroups(Exception):  # noqa: N818  (a fact about the host, not a fault)
    """Groups cannot be made here; the text says why, and what would make them."""


@dataclass(frozen=True, slots=True)
class Limits:
    cpus: float | None = None
    mem_mib: int | None = None
    pids: int | None = None

    @property
    def controllers(self) -> tuple[str, ...]:
        """Which controllers hold them."""
        asked = {"cpu": self.cpus, "memory": self.mem_mib, "pids": self.pids}
        return tuple(name for name, value in asked.items() if value is not None)


NO_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Mounts:
    """Where groups are, and in which one a process is."""

    unified: Path | None
    """Version 2."""
    version_1: Mapping[str, Path] = field(default_factory=dict)
    """By controller."""
    own: Mapping[str, str] = field(default_factory=dict)
    """This process's group by controller, "" for version 2; each starts with a slash."""


def read_mounts(mounts: str, own: str) -> Mounts:
    """From the texts of /proc/self/mounts and /proc/self/cgroup."""
    unified: Path | None = None
    version_1: dict[str, Path] = {}
    for line in mounts.splitlines():
        _, folder, kind, options, *_ = line.split(" ")
        path = Path(folder.replace("\\040", " "))
        if kind == "cgroup2" and unified is None:
            unified = path
        elif kind == "cgroup":
            version_1 |= {name: path for name in options.split(",") if name in CONTROLLERS}
    groups: dict[str, str] = {}
    for line in own.splitlines():
        _, names, group = line.split(":", 2)
        groups |= dict.fromkeys(names.split(","), group)
    return Mounts(unified, version_1, groups)


def mounts_here() -> Mounts:
    return read_mounts(
        Path("/proc/self/mounts").read_text(encoding="utf-8"), Path("/proc/self/cgroup").read_text(encoding="utf-8")
    )


@dataclass(frozen=True, slots=True)
class Home:
    """Below which groups of ours are made: one folder in each hierarchy that is needed."""

    unified: Path
    version_1: Mapping[str, Path] = field(default_factory=dict)
    """By controller, where version 2 does not have it."""

    def group(self, name: str) -> "Group":
        return Group(self.unified / name, {kind: path / name for kind, path in self.version_1.items()})

    def groups(self) -> "list[Group]":
        """Those that exist, but for what groups have inside."""
        with suppress(OSError):
            return [self.group(path.name) for path in sorted(self.unified.iterdir()) if path.is_dir()]
        return []

    def limitable(self) -> frozenset[str]:
        """Controllers whose limits can be set here."""
        return frozenset(_words(self.unified / "cgroup.subtree_control")) & {*CONTROLLERS} | {*self.version_1}

    def why_no_limit(self, limits: Limits) -> str | None:
        lacking = [name for name in limits.controllers if name not in self.limitable()]
        if not lacking:
            return None
        return f"limits need the {' and '.join(lacking)} controller of cgroups, which {self.unified} does not have"

    def remove(self) -> None:
        """Empty groups go; so does the home itself when it has none left."""
        for group in self.groups():
            group.remove()
        for path in (self.unified, *self.version_1.values()):
            with suppress(OSError):
                _remove(path)


@dataclass(frozen=True, slots=True)
class Group:
    path: Path
    """Of version 2."""
    twins: Mapping[str, Path] = field(default_factory=dict)
    """Of version 1, by controller. They exist only for limits that were asked for."""

    def create(self, limits: Limits = NO_LIMITS) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        if "memory" in self.twins:  # with or without a limit: it tells who died for want of memory
            self.twins["memory"].mkdir(parents=True, exist_ok=True)
        for name in limits.controllers:
            twin = self.twins.get(name)
            if twin is not None:
                twin.mkdir(parents=True, exist_ok=True)
            _limit(name, limits, self.path if twin is None else twin, version=2 if twin is None else 1)

    def doors(self) -> list[Path]:
        """Whoever writes 0 into all of these is in."""
        return [path / "cgroup.procs" for path in (self.path, *self.twins.values()) if path.is_dir()]

    @property
    def exists(self) -> bool:
        return self.path.is_dir()

    def populated(self) -> bool:
        """Whether anybody is in it, at any depth, as far as can be told; nobody is in a group that is gone."""
        try:
            events = (self.path / "cgroup.events").read_text(encoding="ascii")
        except OSError as error:
            return error.errno not in (errno.ENOENT, errno.ENODEV)
        return "populated 1" in events

    def processes(self) -> list[int]:
        return [pid for folder in self._folders() for pid in map(int, _words(folder / "cgroup.procs"))]

    def kill(self) -> None:
        """Ask the kernel to end them all. Who sleeps uninterruptibly dies when it wakes: look at `populated`."""
        try:
            (self.path / "cgroup.kill").write_text("1", encoding="ascii")
        except OSError:  # Linux before 5.14 has no such file: nobody may fork while they are ended one by one
            with suppress(OSError):
                (self.path / "cgroup.freeze").write_text("1", encoding="ascii")
        # It passes over processes whose main thread has ended, so they are ended one by one as well.
        handles = {pid: handle for pid in self.processes() if (handle := _handle(pid)) is not None}
        there = {*self.processes()} if handles else set()  # again: a number may have been given to somebody else
        for pid, handle in handles.items():
            with suppress(ProcessLookupError):
                if pid in there:
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
            os.close(handle)
        with suppress(OSError):
            (self.path / "cgroup.freeze").write_text("0", encoding="ascii")

    def remove(self) -> bool:
        """Whether it is gone for certain: it was empty, and now nobody can enter it any more."""
        try:
            _remove(self.path)
        except FileNotFoundError:
            return _is_in_cgroups(self.path)  # else it may be there, where we cannot see it
        except OSError:
            return False
        for twin in self.twins.values():
            with suppress(OSError):  # a process that is dying may be counted there a moment longer; see `Home.remove`
                _remove(twin)
        return True

    def end(self, patience_s: float) -> bool:
        """Kill them all and wait: whether it is empty and gone."""
        deadline_s = time.monotonic() + patience_s
        self.kill()
        while not self.remove():
            if time.monotonic() >= deadline_s:
                return False
            time.sleep(0.002)
            self.kill()
        return True

    def oom_kills(self) -> int:
        """How many of its processes were killed because there was no memory left for them."""
        for path, name in ((self.path, "memory.events"), (self.twins.get("memory"), "memory.oom_control")):
            with suppress(OSError, ValueError):
                for line in (path / name).read_text(encoding="ascii").splitlines() if path is not None else ():
                    word, _, number = line.partition(" ")
                    if word == "oom_kill":
                        return int(number)
        return 0

    def _folders(self) -> Iterator[Path]:
        """It and what its processes have made inside."""
        for folder, _, _ in os.walk(self.path):
            yield Path(folder)


def _remove(folder: Path) -> None:
    """With what was made inside; OSError if somebody is in there."""
    for inner in [path for path in folder.iterdir() if path.is_dir()]:
        _remove(inner)
    folder.rmdir()


def _is_in_cgroups(path: Path) -> bool:
    """Whether what is there of the way to it are groups."""
    nearest = next((parent for parent in path.parents if parent.is_dir()), None)
    return nearest is not None and (nearest / "cgroup.procs").exists()


def _can_enter(folder: Path) -> bool:
    """Whether a process of ours can be put there: to make a group is not enough, where the one above is not ours."""
    child = os.fork()
    if child == 0:
        try:
            (folder / "cgroup.procs").write_text("0", encoding="ascii")
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def home_below(mounts: Mounts, unified: str, name: str) -> Home:
    """Make a home of this name below a group of version 2, and below our own groups of version 1."""
    if mounts.unified is None:
        raise NoCgroups("cgroup version 2 is not mounted; mount it (cgroup2 on /sys/fs/cgroup), or boot with it")
    folder, own = mounts.unified / unified.lstrip("/") / name, mounts.own.get("", "/")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "try").mkdir(exist_ok=True)
        entered = _can_enter(folder / "try")
        (folder / "try").rmdir()
    except OSError as error:
        raise NoCgroups(
            f"{folder} cannot be made ({error.strerror}): have a cgroup delegated to this user, or mount cgroups "
            "writable into the container"
        ) from error
    if not entered:
        raise NoCgroups(
            f"{folder} cannot be entered from {own}: start gpuloom inside a group that is delegated to this user"
        )
    _enable(mounts.unified / unified.lstrip("/"), folder)
    missing = [kind for kind in CONTROLLERS if kind not in _words(folder / "cgroup.subtree_control")]
    twins = {
        kind: mounts.version_1[kind] / mounts.own.get(kind, "/").lstrip("/") / name
        for kind in missing
        if kind in mounts.version_1
    }
    return Home(folder, {kind: path for kind, path in twins.items() if os.access(path.parent.parent, os.W_OK)})


def _enable(root: Path, folder: Path) -> None:
    """Let the groups in this folder have limits, as far as those above it allow that."""
    for above in reversed([folder, *(path for path in folder.parents if path.is_relative_to(root))]):
        for name in {*CONTROLLERS} & {*_words(above / "cgroup.controllers")}:
            with suppress(OSError):  # a group with processes of its own cannot: limits are then not to be had
                (above / "cgroup.subtree_control").write_text(f"+{name}", encoding="ascii")


def _limit(name: str, limits: Limits, folder: Path, version: int) -> None:
    for file, value, needed in _settings(name, limits, version):
        try:
            (folder / file).write_text(value, encoding="ascii")
        except OSError:
            if needed:
                raise


def _settings(name: str, limits: Limits, version: int) -> list[tuple[str, str, bool]]:
    """File, value, and whether it has to be there."""
    match name:
        case "cpu":
            quota = max(int((limits.cpus or 0) * PERIOD_US), 1000)
            if version == 2:
                return [("cpu.max", f"{quota} {PERIOD_US}", True)]
            return [("cpu.cfs_period_us", str(PERIOD_US), True), ("cpu.cfs_quota_us", str(quota), True)]
        case "memory":
            size = str((limits.mem_mib or 0) << 20)
            if version == 2:  # no swap beyond it, and who runs out ends as a whole, not one process of it
                return [("memory.max", size, True), ("memory.swap.max", "0", False), ("memory.oom.group", "1", False)]
            return [("memory.limit_in_bytes", size, True), ("memory.memsw.limit_in_bytes", size, False)]
        case _:
            return [("pids.max", str(limits.pids), True)]


def _handle(pid: int) -> int | None:
    """Of the process that has this number now, and of no other that gets it later."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def _words(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii").split()
    except OSError:
        return []
