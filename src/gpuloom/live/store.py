"""The state directory of a run: what has to outlive the runner. One runner at a time holds it.

lock            held by the runner
run.json        what was asked for: jobs, policy, seed, GPUs
log.jsonl       the engine's log; a turn is on disk before anything that it caused is carried out
log.v1.jsonl    what it was before an upgrade, if the run was begun with a log of version 1
jobs/NAME/      checkpoint/, out.log, err.log, and launches/N/ with launch.json, started, exit, job/progress and
                job/elastic, where a job listens that is resized in place
mps/            the MPS daemons' pipes and logs

The folder and all in it are ours, and nobody else can write there or look into it. Only checkpoint/, job/ and the two
logs belong to the account that the job runs as; where that is another, the folders above let it pass (0711).
"""

import hashlib
import json
import os
import re
import time
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Any

from gpuloom.engine.events import Event
from gpuloom.engine.log import OLD_VERSION, Header, Scribe, header_line, opened, read_turns, version_of
from gpuloom.engine.machine import Decision
from gpuloom.errors import InputError
from gpuloom.gpus.host.cgroups import Group
from gpuloom.gpus.host.files import (
    Lock,
    NotOursError,
    exposed_by,
    give_folder,
    is_still_at,
    open_lock,
    open_own,
    own_folder,
    read_anyones,
    read_own,
    try_lock,
    write_whole,
)
from gpuloom.gpus.host.noise import Noise
from gpuloom.gpus.host.processes import ProcessId, boot_id
from gpuloom.live import processes
from gpuloom.live.keeper import NO_ROOM, RECORD_BYTES, ROOM_BYTES
from gpuloom.live.users import Account
from gpuloom.work.model import Job

FIGURES = (
    *("epoch", "progress", "metric", "batch", "local_batch", "accumulation", "workers", "nodes"),
    *("step_s", "compute_s", "grad_sqr", "grad_var"),
)
"""What elastic jobs report beside their step: `elastic.reports` makes something of it."""
MOST_STEPS, MOST_UNIX_S = 10**15, 10.0**11
"""What a job could report: beyond, it does not mean what it says."""
_DAMAGED = (KeyError, TypeError, ValueError, AttributeError, OverflowError)
TRIES = 3
"""To read a report that is just being written."""
MOST_REPORT_BYTES, MOST_LOG_BYTES = 1 << 16, 1 << 36


@dataclass(frozen=True, slots=True)
class Run:
    """What was asked for. A run that goes on must be asked for the same."""

    policy: str
    seed: int
    pace: float
    origin_unix_s: float
    working_dir: str
    gpus: tuple[str, ...]
    """UUIDs, in the order of the engine's indices."""
    jobs: tuple[Job, ...]
    timing: Mapping[str, float] = field(default_factory=dict)
    """As it was begun with."""
    owner_uid: int | None = None
    """Whose work file it was; None if it was begun before that was kept."""
    devices: tuple[str, ...] = ()
    """As the command line named them; none: this host's GPUs."""
    noise: Noise | None = None
    """How steady the devices were before it began, where that can be told."""
    memory: str | None = None
    """The file that it is handed what earlier runs saw from, and that it adds to; None: it does neither."""


@dataclass(frozen=True, slots=True)
class Exit:
    code: int
    asked: bool
    """Whether it had been asked to stop before it ended."""
    empty: bool = True
    """Whether its keeper saw that nobody was left."""
    room: bool = True
    """Whether the disk had room for anything when it failed."""


@dataclass(frozen=True, slots=True)
class Progress:
    """A job's report: so many batches were done at that time."""

    step: int
    at_unix_s: float
    """For people. It may be set: no speed is computed from it."""
    at_monotonic_s: float | None = None
    """The kernel's clock since boot, which nobody can set; None if the job does not tell it."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """What else it tells, as far as somebody wants to know: see FIGURES."""

    @property
    def can_be(self) -> bool:
        """Whether any job could have done so much, at such a time."""
        return 0 <= self.step <= MOST_STEPS and 0 <= self.at_unix_s <= MOST_UNIX_S


@dataclass(frozen=True, slots=True)
class Launch:
    """One process of a job, from its start to its end. A start of the engine's may take several (see `probe`)."""

    folder: Path
    number: int
    start: int
    """Which of the engine's starts of the job this belongs to, counted from 1."""
    share_pct: float | None
    """The MPS share it runs with, if that is not its grant's: a probe's level."""
    group: Group | None = None
    """Who is in it; None where there are no cgroups."""
    before_boot: bool = False
    """The machine has been restarted since: nobody of it can be left."""

    @property
    def is_old(self) -> bool:
        """Begun by a gpuloom whose keepers left `started` empty, and knew only one signal."""
        return self.started and _json(self.folder / "started") is None

    @property
    def progress_path(self) -> Path:
        """The one file that the job itself writes, in a folder of its own."""
        own = self.folder / "job"
        return (own if own.is_dir() else self.folder) / "progress"  # a launch of an earlier version has none

    @property
    def socket_path(self) -> Path:
        """Where a job that is resized in place listens."""
        return self.folder / "job" / "elastic"

    @property
    def started(self) -> bool:
        """Whether its keeper has begun. One that was forestalled has not."""
        return (self.folder / "started").exists() and "pid" in (_json(self.folder / "started") or ("pid",))

    def keeper(self) -> ProcessId | None:
        """Who began it; it may have gone since."""
        if self.before_boot:
            return None
        found = _json(self.folder / "started")
        if found is None:  # not begun; or by a gpuloom whose keepers left this file empty
            return processes.leader(self.folder) if self.started else None
        with suppress(*_DAMAGED):
            return ProcessId(int(found["pid"]), int(found["born_ticks"])) if "pid" in found else None
        return None

    def forestall(self) -> bool:
        """Whether nobody begins it any more: its keeper has gone, or finds its place taken. False if it is at work."""
        try:  # a second name for a file that is there takes no room, on most disks
            os.link(self.folder / "launch.json", self.folder / "started")
        except FileExistsError:
            pass
        except OSError:
            return False
        keeper = self.keeper()
        return keeper is None or not keeper.lives

    def exit(self) -> Exit | None:
        """How it ended; None if it has not, or was killed together with its keeper."""
        found = _json(self.folder / "exit")
        with suppress(*_DAMAGED):
            if found is not None:
                empty, room = bool(found.get("empty", True)), bool(found.get("room", True))
                return Exit(int(found["code"]), bool(found["asked"]), empty, room)
        return None

    def trouble(self) -> str | None:
        """What its keeper could not do, in its words."""
        with suppress(OSError):
            return (
                read_own(self.folder / "keeper.log", MOST_REPORT_BYTES).decode(errors="replace").strip()[-300:] or None
            )
        return None

    def oom_kills(self) -> int:
        return 0 if self.group is None else self.group.oom_kills()

    def _whole_report(self) -> bytes:
        for _ in range(TRIES):
            report = read_anyones(self.progress_path, MOST_REPORT_BYTES)
            if not _is_half(report):
                return report
        raise ValueError("it is being written, again and again")

    def progress(self) -> Progress | None:
        """Its last report, if it can be one."""
        told = self.told()
        return told if told is not None and told.can_be else None

    def told(self) -> Progress | None:
        """What it told last. The job writes that file, so it may be anything: what is not a report is none."""
        try:
            found = json.loads(self._whole_report())
            at_monotonic_s, figures = _seconds(found.get("at_monotonic_s")), _figures(found)
            return Progress(int(found["step"]), float(found["at_unix_s"]), at_monotonic_s, figures)
        except (OSError, LookupError, TypeError, AttributeError, ValueError, OverflowError, RecursionError):
            return None


def _is_half(report: bytes) -> bool:
    """It was read while it was written over; whoever replaces the file instead need not tell a sum."""
    line, told, crc32 = report.rpartition(b', "crc32": ')
    return bool(told) and crc32.strip() != b"%d}" % zlib.crc32(line)


class Store:
    def __init__(self, folder: Path) -> None:
        named = folder.absolute()
        # Not resolved itself: a link is refused, and must be seen to be one.
        self.folder = named.parent.resolve() / named.name if named.name not in ("", "..") else named.resolve()
        self.jobs_dir = self.folder / "jobs"
        self.mps_dir = self.folder / "mps"
        self.log_path = self.folder / "log.jsonl"
        self._lock: int | None = None
        self._log: int | None = None
        self._scribe = Scribe()

    def __enter__(self) -> "Store":
        if os.geteuid() == 0 and (parent := exposed_by(self.folder)) is not None:
            raise InputError(
                f"{self.folder}: others can change {parent}, and could put a folder of theirs into its place;"
                " name a --state in a folder of root's, such as /var/lib/gpuloom/run"
            )
        try:
            self._refuse_others()
            own_folder(self.folder)
            self._lock = open_lock(self.folder / "lock")
        except NotOursError as error:
            raise InputError(str(error)) from None
        if not try_lock(self._lock, Lock.ALONE):
            os.close(self._lock)
            raise InputError(f"{self.folder}: another gpuloom is running there; expected a folder of its own")
        return self

    def is_there(self) -> bool:
        """Whether the folder that is held has not been removed or moved away."""
        return self._lock is not None and is_still_at(self.folder / "lock", self._lock)

    def _refuse_others(self) -> None:
        """A folder with something else in it is not ours to shut."""
        with suppress(OSError):
            names = {path.name for path in self.folder.iterdir()}
            if names and not names & {"lock", "run.json", "log.jsonl"}:
                raise InputError(f"{self.folder}: has other files in it; expected a new folder, or that of a run")

    def __exit__(self, *_: object) -> None:
        for descriptor in (self._log, self._lock):
            if descriptor is not None:
                os.close(descriptor)

    # ---- the run -----------------------------------------------------------------------------------------------

    def run(self) -> Run | None:
        """What this directory was begun with; None if it is new."""
        path = self.folder / "run.json"
        if not path.exists() and not path.is_symlink():
            return None
        from pydantic import TypeAdapter, ValidationError

        try:
            return TypeAdapter(Run).validate_json(read_own(path))
        except NotOursError as error:
            raise InputError(str(error)) from None
        except ValidationError:
            raise InputError(f"{path}: not the description of a gpuloom run") from None

    def begin(self, run: Run, header: Header) -> None:
        """The log first: whoever finds run.json finds a log too."""
        write_whole(self.log_path, header_line(header))
        self.open_log()
        write_whole(self.folder / "run.json", json.dumps(asdict(run)))

    # ---- the log -----------------------------------------------------------------------------------------------

    def lines(self) -> list[str]:
        """Whole lines, split at line feeds only: a job's name or command may hold what else Unicode calls line ends."""
        try:
            *whole, _ = read_own(self.log_path, MOST_LOG_BYTES).split(b"\n")
        except NotOursError as error:
            raise InputError(str(error)) from None
        return [f"{line.decode(errors='replace')}\n" for line in whole]

    def open_log(self) -> None:
        """Open it for appending: as version 2, and without the last line if a killed runner has left only a part."""
        lines, name = self.lines(), str(self.log_path)
        if version_of(lines, name) == OLD_VERSION:
            self._write_anew(lines, name)
            lines = self.lines()
        turns = len(list(opened(lines, name)[1]))
        length = sum(len(line.encode()) for line in lines[: turns + 1])
        if self._log is not None:
            os.close(self._log)
        self._log = open_own(self.log_path, os.O_RDWR | os.O_APPEND)
        os.ftruncate(self._log, length)
        os.fsync(self._log)
        # What the policy remembers is written whole once more: whoever goes on may remember otherwise.
        self._scribe = Scribe(turns)

    def _write_anew(self, lines: Sequence[str], name: str) -> None:
        """The same turns as version 2, and the file that was, kept beside it."""
        header, turns = read_turns(lines, name)
        scribe = Scribe()
        # Words such as 2xA100-40GB do not say what the driver says: whoever goes on has to ask that.
        text = header_line(replace(header, cluster=())) + "".join(
            [scribe.line(turn.events, turn.decision) for turn in turns]
        )
        with suppress(FileExistsError):  # then a runner was killed just here, and it is the same file
            os.link(self.log_path, self.folder / "log.v1.jsonl")
        write_whole(self.log_path, text)

    def write(self, events: Sequence[Event], decision: Decision | None = None, memory: object = None) -> None:
        """One turn, in one call and with one wait for the disk: it is in the log as a whole or, after an error, not."""
        assert self._log is not None, "the log is open before anything happens"
        scribe, length = Scribe(self._scribe.number, self._scribe.memory), os.fstat(self._log).st_size
        data = scribe.line(events, decision, memory).encode()
        try:
            while data:
                data = data[os.write(self._log, data) :]
            os.fdatasync(self._log)
        except OSError:
            os.ftruncate(self._log, length)
            raise
        self._scribe = scribe

    # ---- jobs --------------------------------------------------------------------------------------------------

    def job_dir(self, job_id: str) -> Path:
        return self.jobs_dir / _file_name(job_id)

    def checkpoint_dir(self, job_id: str) -> Path:
        return self.job_dir(job_id) / "checkpoint"

    def last_launch(self, job_id: str) -> Launch | None:
        folders = (self.job_dir(job_id) / "launches").glob("[0-9]*")
        for folder in sorted((folder for folder in folders if folder.name.isdecimal()), reverse=True):
            told = _json(folder / "launch.json")
            if told is not None:  # else the runner was killed before it launched anything
                return _launch(folder, told)
        return None

    def new_launch(
        self,
        job_id: str,
        number: int,
        start: int,
        share_pct: float | None,
        account: Account | None = None,
        group: Group | None = None,
    ) -> Launch:
        """`account`: who it runs as; None: as we do."""
        uid, gid = (os.geteuid(), os.getegid()) if account is None else (account.uid, account.gid)
        folder = self.job_dir(job_id) / "launches" / f"{number:06}"
        for part in self._way_to(folder):
            own_folder(part)
        for theirs in (self.checkpoint_dir(job_id), folder / "job"):
            give_folder(theirs, uid, gid)
        if uid != os.geteuid():
            self.open_to_pass(folder)
        # There is room for how it ends before it begins.
        write_whole(folder / "exit", " " * (RECORD_BYTES - 1) + "\n")
        kept = None if group is None else _told(group)
        told = {"start": start, "share_pct": share_pct, "group": kept, "boot": boot_id()}
        write_whole(folder / "launch.json", json.dumps(told))
        return Launch(folder, number, start, share_pct, group)

    def has_room(self) -> bool:
        """Whether a launch could be written down now."""
        probe = self.folder / "room"
        try:
            write_whole(probe, " " * ROOM_BYTES)
        except OSError as error:
            return error.errno not in NO_ROOM
        finally:
            with suppress(OSError):
                probe.with_name("room.draft").unlink(missing_ok=True)
                probe.unlink(missing_ok=True)
        return True

    def open_to_pass(self, launch_dir: Path) -> None:
        """Let other users through to what is theirs of a launch. They can list nothing on the way."""
        for part in self._way_to(launch_dir):
            part.chmod(0o711)
        for log in (self.log_path, self.folder / "log.v1.jsonl"):
            if log.exists():
                log.chmod(0o600)  # who may pass may open what it knows the name of

    def _way_to(self, launch_dir: Path) -> list[Path]:
        """From the state folder down to a launch's."""
        launches = launch_dir.parent
        return [self.folder, self.jobs_dir, launches.parent, launches, launch_dir]


def same_work(
    before: Run,
    jobs: Sequence[Job],
    policy: str,
    seed: int,
    pace: float,
    owner_uid: int | None = None,
    devices: Sequence[str] = (),
) -> str | None:
    """What differs between a run and what is asked for now; None if it is the same."""
    if None not in (before.owner_uid, owner_uid) and before.owner_uid != owner_uid:
        return f"a work file of user {before.owner_uid}"
    if before.devices != tuple(devices):
        return f"--device {' --device '.join(before.devices)}" if before.devices else "GPUs, and no --device"
    if before.policy != policy:
        return f"policy {before.policy}"
    if before.seed != seed:
        return f"seed {before.seed}"
    if before.pace != pace:
        return f"pace {before.pace:g}"
    return None if before.jobs == tuple(jobs) else "other jobs"


def _launch(folder: Path, told: dict[str, Any]) -> Launch:
    path = folder / "launch.json"
    try:
        start, share_pct, group = int(told["start"]), told["share_pct"], _group(told.get("group"))
    except _DAMAGED:
        raise InputError(f"{path}: damaged: which launch it was cannot be told, nor whether it has ended") from None
    before_boot = told["boot"] != boot_id() if "boot" in told else _is_older_than_boot(path)
    return Launch(folder, int(folder.name), start, share_pct, group, before_boot)


def _is_older_than_boot(path: Path) -> bool:
    """Of a file whose writer did not say in which boot that was."""
    return path.stat().st_mtime < time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def _told(group: Group) -> dict[str, Any]:
    return {"path": str(group.path), "twins": {kind: str(path) for kind, path in group.twins.items()}}


def _group(told: dict[str, Any] | None) -> Group | None:
    if told is None:
        return None
    return Group(Path(told["path"]), {kind: Path(path) for kind, path in told["twins"].items()})


def _json(path: Path) -> dict[str, Any] | None:
    """A small file of ours, written in one piece and then renamed."""
    try:
        found = json.loads(read_own(path, MOST_REPORT_BYTES))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _seconds(value: object) -> float | None:
    """A job's time, if it is one."""
    seconds = float(value) if isinstance(value, int | float) else -1.0
    return seconds if 0 <= seconds < float("inf") else None


def _figures(found: Mapping[str, object]) -> dict[str, float]:
    """Those of an elastic job, as far as they are numbers."""
    told = {name: found.get(name) for name in FIGURES}
    numbers = {name: float(value) for name, value in told.items() if isinstance(value, int | float)}
    return {name: value for name, value in numbers.items() if isfinite(value)}


@cache
def _file_name(job_id: str) -> str:
    """The name itself where that can be a folder's; else something like it that no other job has."""
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}", job_id):
        return job_id
    digest = hashlib.sha256(job_id.encode()).hexdigest()[:12]
    return f"_{re.sub(r'[^A-Za-z0-9-]', '_', job_id)[:60]}-{digest}"
