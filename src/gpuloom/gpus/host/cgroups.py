"""Control groups: who belongs to a launch whatever it does to itself, its end in one stroke, and limits that hold.

A group is a folder of cgroup version 2, which says who is in it and ends them all. Limits are set there where version 2
has the controller, and in a folder of the same name of version 1 where that still has it (the hybrid mount). Knows
nothing of jobs. A group that was removed was empty, and nobody can join it any more, not even through an open file.
"""

import errno
import math
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

CONTROLLERS = ("cpu", "cpuset", "memory", "pids")
PERIOD_US, LEAST_QUOTA_US, MOST_PERIOD_US = 7_000, 1_000, 1_000_000
"""A quota is a duty cycle: the shorter its period, the more it is like a slower CPU. But the kernel looks only at its
ticks, of 4 ms in most kernels, and with periods shorter than this up to a tenth of the time is lost."""


class NoCgroups(Exception):  # noqa: N818  (a fact about the host, not a fault)
    """Groups cannot be made here; the text says why, and what would make them."""


@dataclass(frozen=True, slots=True)
class Limits:
    cpus: float | None = None
    mem_mib: int | None = None
    pids: int | None = None
    cores: tuple[int, ...] | None = None

    @property
    def controllers(self) -> tuple[str, ...]:
        """Which controllers hold them."""
        asked = {"cpu": self.cpus, "cpuset": self.cores, "memory": self.mem_mib, "pids": self.pids}
        return tuple(name for name, value in asked.items() if value is not None)

    def within(self, cpus: float | None, mem_mib: int | None) -> "Limits":
        """These, and no more CPU time and memory than that."""
        return replace(self, cpus=_less(self.cpus, cpus), mem_mib=_less(self.mem_mib, mem_mib))


NO_LIMITS = Limits()

N = TypeVar("N", int, float)


def _less(one: N | None, other: N | None) -> N | None:
    return one if other is None else other if one is None else min(one, other)


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
    """Of version 1, by controller. They exist for limits that were asked for, here or of a group around it."""

    def create(self, limits: Limits = NO_LIMITS) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        for name, twin in self.twins.items():
            # Memory with or without a limit: it tells who died for want of memory.
            if name == "memory" or name in limits.controllers or twin.parent.is_dir():
                twin.mkdir(parents=True, exist_ok=True)
        if limits.cores is not None and "cpuset" in self.twins:
            _open_cpuset(self.twins["cpuset"])
        self.limit(limits)
        self._end_together("1")

    def limit(self, limits: Limits) -> None:
        """Set these limits, of a group that is there; others stay as they are."""
        for file, value, needed in self._settings(limits):
            try:
                file.write_text(value, encoding="ascii")
            except OSError as error:
                if needed:
                    raise OSError(error.errno, error.strerror, str(file)) from error

    def _end_together(self, yes: str) -> None:
        """Whether all of it ends if one of it runs out of memory."""
        with suppress(OSError):  # version 1 cannot
            (self.path / "memory.oom.group").write_text(yes, encoding="ascii")

    def lift_cpus(self) -> None:
        """All the CPU time that the groups above it have."""
        twin = self.twins.get("cpu")
        file, value = (self.path / "cpu.max", "max") if twin is None else (twin / "cpu.cfs_quota_us", "-1")
        with suppress(FileNotFoundError):  # then it has no limit
            file.write_text(value, encoding="ascii")

    def holds(self, limits: Limits) -> bool:
        """Whether it is there and has these limits."""
        wanted = {file: value for file, value, needed in self._settings(limits) if needed}
        try:
            return self.exists and all(file.read_text(encoding="ascii").strip() == wanted[file] for file in wanted)
        except OSError:
            return False

    def _settings(self, limits: Limits) -> Iterator[tuple[Path, str, bool]]:
        """File, value, and whether that has to be there."""
        for name in limits.controllers:
            twin = self.twins.get(name)
            folder, version = (self.path, 2) if twin is None else (twin, 1)
            for file, value, needed in _settings(name, limits, version):
                yield folder / file, value, needed

    def as_home(self) -> "Home":
        """For groups inside it, which can have limits of their own. Nobody may be in it but in those."""
        _enable(self.path, self.path)
        self._end_together("0")
        return Home(self.path, self.twins)

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

    def cpu_s(self) -> float | None:
        """CPU time that its processes have had so far; None if the kernel does not tell."""
        with suppress(OSError, ValueError):
            for line in (self.path / "cpu.stat").read_text(encoding="ascii").splitlines():
                word, _, number = line.partition(" ")
                if word == "usage_usec":
                    return int(number) / 1e6
        return None

    def memory_mib(self, *, peak: bool) -> float | None:
        """Main memory that is its processes', with their files in the cache: now, or the most that it has been."""
        names = ("memory.peak", "memory.max_usage_in_bytes") if peak else ("memory.current", "memory.usage_in_bytes")
        for path, name in zip((self.path, self.twins.get("memory")), names, strict=True):
            with suppress(OSError, ValueError):
                if path is not None:
                    return int((path / name).read_text(encoding="ascii")) / (1 << 20)
        return None

    def threads_s(self) -> dict[int, float]:
        """CPU time that each of its threads has had, by number; those that have ended are not in it."""
        found = {}
        for pid in self.processes():
            for task in Path(f"/proc/{pid}/task").glob("[0-9]*"):
                with suppress(OSError, ValueError):
                    found[int(task.name)] = int((task / "schedstat").read_text(encoding="ascii").split()[0]) / 1e9
        return found

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
        entered = _try_out(folder)
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


def _try_out(folder: Path) -> bool:
    """Make it; whether a group in it can be entered. Somebody else may just be removing what is empty above it."""
    for _ in range(20):
        with suppress(FileNotFoundError):
            folder.mkdir(parents=True, exist_ok=True)
            inner = folder / f"try-{os.getpid()}"
            inner.mkdir(exist_ok=True)
            entered = _can_enter(inner)
            inner.rmdir()
            return entered
    folder.mkdir(parents=True, exist_ok=True)
    return False


def _enable(root: Path, folder: Path) -> None:
    """Let the groups in this folder have limits, as far as those above it allow that."""
    for above in reversed([folder, *(path for path in folder.parents if path.is_relative_to(root))]):
        for name in {*CONTROLLERS} & {*_words(above / "cgroup.controllers")}:
            with suppress(OSError):  # a group with processes of its own cannot: limits are then not to be had
                (above / "cgroup.subtree_control").write_text(f"+{name}", encoding="ascii")


def _settings(name: str, limits: Limits, version: int) -> list[tuple[str, str, bool]]:
    """File, value, and whether it has to be there."""
    match name:
        case "cpu":
            quota, period = bandwidth_us(limits.cpus or 0.0)
            if version == 2:
                return [("cpu.max", f"{quota} {period}", True)]
            # Without a quota first: no step between the old and the new may be more than the group above has.
            files = ("cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.cfs_quota_us")
            return [*zip(files, ("-1", str(period), str(quota)), (True, True, True), strict=True)]
        case "cpuset":
            cores = ranges(limits.cores or ())
            if version == 2:
                return [("cpuset.cpus", cores, True)]
            return [
                ("cpuset.cpus", cores, True),
                ("cgroup.clone_children", "1", True),
            ]  # so groups inside begin with it
        case "memory":
            size = str((limits.mem_mib or 0) << 20)
            if version == 2:  # and no swap beyond it
                return [("memory.max", size, True), ("memory.swap.max", "0", False)]
            # With swap no more than without, which may not be above it, on the way neither.
            swap = "memory.memsw.limit_in_bytes"
            return [(swap, "-1", False), ("memory.limit_in_bytes", size, True), (swap, size, False)]
        case _:
            return [("pids.max", str(limits.pids), True)]


def _open_cpuset(folder: Path) -> None:
    """In version 1 a group begins without cores and memory: give it all that the one around it has."""
    for name in ("cpuset.mems", "cpuset.cpus"):
        if not (folder / name).read_text(encoding="ascii").strip():
            _open_cpuset(folder.parent)
            (folder / name).write_text((folder.parent / name).read_text(encoding="ascii"), encoding="ascii")


def ranges(cores: Sequence[int]) -> str:
    """As the kernel writes them: 0-3,8."""
    found: list[list[int]] = []
    for core in sorted({*cores}):
        if found and core == found[-1][-1] + 1:
            found[-1].append(core)
        else:
            found.append([core])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in found)


def bandwidth_us(cpus: float) -> tuple[int, int]:
    """Quota and period for so many CPUs: the shortest that is kept exactly."""
    period = min(max(PERIOD_US, math.ceil(LEAST_QUOTA_US / max(cpus, 1e-9) - 1e-6)), MOST_PERIOD_US)
    return max(int(cpus * period + 1e-6), LEAST_QUOTA_US), period


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
