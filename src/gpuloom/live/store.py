"""The state directory of a run: what has to outlive the runner. One runner at a time holds it.

lock            held by the runner
run.json        what was asked for: jobs, policy, seed, GPUs
log.jsonl       the engine's log; a turn is on disk before anything that it caused is carried out
log.v1.jsonl    what it was before an upgrade, if the run was begun with a log of version 1
jobs/NAME/      checkpoint/, out.log, err.log, and launches/N/ with launch.json, started, progress, exit
mps/            the MPS daemons' pipes and logs
"""

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from gpuloom.engine.events import Event
from gpuloom.engine.log import OLD_VERSION, Header, Scribe, header_line, opened, read_turns, version_of
from gpuloom.engine.machine import Decision
from gpuloom.errors import InputError
from gpuloom.gpus.host.files import Lock, open_lock, try_lock, write_whole
from gpuloom.work.model import Job

MOST_STEPS, MOST_UNIX_S = 10**15, 10.0**11
"""What a job could report: beyond, it does not mean what it says."""


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


@dataclass(frozen=True, slots=True)
class Exit:
    code: int
    asked: bool
    """Whether it had been asked to stop before it ended."""


@dataclass(frozen=True, slots=True)
class Progress:
    step: int
    at_unix_s: float


@dataclass(frozen=True, slots=True)
class Launch:
    """One process of a job, from its start to its end. A start of the engine's may take several (see `probe`)."""

    folder: Path
    number: int
    start: int
    """Which of the engine's starts of the job this belongs to, counted from 1."""
    share_pct: float | None
    """The MPS share it runs with, if that is not its grant's: a probe's level."""

    @property
    def started(self) -> bool:
        return (self.folder / "started").exists()

    def exit(self) -> Exit | None:
        """How it ended; None if it has not, or was killed together with its keeper."""
        found = _json(self.folder / "exit")
        return None if found is None else Exit(int(found["code"]), bool(found["asked"]))

    def progress(self) -> Progress | None:
        """Its last report. The job writes that file, so anything may be in it: what is not a report is none."""
        try:
            found = _json(self.folder / "progress")
            told = None if found is None else Progress(int(found["step"]), float(found["at_unix_s"]))
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError):
            return None
        if told is None or not 0 <= told.step <= MOST_STEPS or not 0 <= told.at_unix_s <= MOST_UNIX_S:
            return None
        return told


class Store:
    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.jobs_dir = self.folder / "jobs"
        self.mps_dir = self.folder / "mps"
        self.log_path = self.folder / "log.jsonl"
        self._lock: int | None = None
        self._log: int | None = None
        self._scribe = Scribe()

    def __enter__(self) -> "Store":
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = open_lock(self.folder / "lock")
        if not try_lock(self._lock, Lock.ALONE):
            os.close(self._lock)
            raise InputError(f"{self.folder}: another gpuloom is running there; expected a folder of its own")
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in (self._log, self._lock):
            if descriptor is not None:
                os.close(descriptor)

    # ---- the run -----------------------------------------------------------------------------------------------

    def run(self) -> Run | None:
        """What this directory was begun with; None if it is new."""
        path = self.folder / "run.json"
        if not path.exists():
            return None
        from pydantic import TypeAdapter, ValidationError

        try:
            return TypeAdapter(Run).validate_json(path.read_bytes())
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
        *whole, _ = self.log_path.read_bytes().split(b"\n")
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
        self._log = os.open(self.log_path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
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
        """One turn, in one call and with one wait for the disk: it is in the log as a whole or not at all."""
        assert self._log is not None, "the log is open before anything happens"
        data = self._scribe.line(events, decision, memory).encode()
        while data:
            data = data[os.write(self._log, data) :]
        os.fdatasync(self._log)

    # ---- jobs --------------------------------------------------------------------------------------------------

    def job_dir(self, job_id: str) -> Path:
        return self.jobs_dir / _file_name(job_id)

    def checkpoint_dir(self, job_id: str) -> Path:
        return self.job_dir(job_id) / "checkpoint"

    def last_launch(self, job_id: str) -> Launch | None:
        folders = sorted((self.job_dir(job_id) / "launches").glob("[0-9]*"), reverse=True)
        for folder in folders:
            told = _json(folder / "launch.json")
            if told is not None:  # else the runner was killed before it launched anything
                return Launch(folder, int(folder.name), int(told["start"]), told["share_pct"])
        return None

    def new_launch(self, job_id: str, number: int, start: int, share_pct: float | None) -> Launch:
        folder = self.job_dir(job_id) / "launches" / f"{number:06}"
        folder.mkdir(parents=True, exist_ok=True)
        self.checkpoint_dir(job_id).mkdir(exist_ok=True)
        write_whole(folder / "launch.json", json.dumps({"start": start, "share_pct": share_pct}))
        return Launch(folder, number, start, share_pct)


def same_work(before: Run, jobs: Sequence[Job], policy: str, seed: int, pace: float) -> str | None:
    """What differs between a run and what is asked for now; None if it is the same."""
    if before.policy != policy:
        return f"policy {before.policy}"
    if before.seed != seed:
        return f"seed {before.seed}"
    if before.pace != pace:
        return f"pace {before.pace:g}"
    return None if before.jobs == tuple(jobs) else "other jobs"


def _json(path: Path) -> dict[str, Any] | None:
    """Written in one piece and then renamed by all of ours; a job's file may be anything."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


@cache
def _file_name(job_id: str) -> str:
    """The name itself where that can be a folder's; else something like it that no other job has."""
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}", job_id):
        return job_id
    digest = hashlib.sha256(job_id.encode()).hexdigest()[:12]
    return f"_{re.sub(r'[^A-Za-z0-9-]', '_', job_id)[:60]}-{digest}"
