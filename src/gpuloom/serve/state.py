"""The state folder of a deployment: what `status`, `down` and `load` find it by, and what proves that nothing is left.

lock              held by the one who serves
alive             held by it and by every server that it started: free only when all of them are gone
deployment.json   the address, the promises, the process
events.jsonl      what happened: started, ready, crashed, switched, …
servers/NAME/     a server's model repository and its log
mps/              the MPS daemons' pipes and logs
"""

import fcntl
import hashlib
import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gpuloom.errors import InputError

_SHARED_MEMORY = Path("/dev/shm")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One service as clients reach it."""

    name: str
    path: str
    """Of its inference, on the deployment's address."""
    slo_ms: float
    rate_rps: float


@dataclass(frozen=True, slots=True)
class Record:
    """deployment.json."""

    pid: int
    host: str
    port: int
    dilate: float
    """So many seconds pass for one of the plan's."""
    standin: bool
    """Whether the models only take their time."""
    services: tuple[Endpoint, ...]


class State:
    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.mps_dir = self.folder / "mps"
        self.servers_dir = self.folder / "servers"
        self._record = self.folder / "deployment.json"
        self._lock: int | None = None
        self.alive: int | None = None
        """A descriptor for servers to inherit."""

    @property
    def shm_prefix(self) -> str:
        """What the names of all shared memory of this folder's servers begin with."""
        return f"gpuloom-{hashlib.sha256(str(self.folder).encode()).hexdigest()[:10]}-"

    def __enter__(self) -> "State":
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = _open(self.folder / "lock")
        if not _wait_lock(self._lock, fcntl.LOCK_EX, 0.5):  # longer than somebody looks whether it is held
            os.close(self._lock)
            raise InputError(f"{self.folder}: something is served there already; name another --state, or take it down")
        self.alive = _open(self.folder / "alive")
        if not _wait_lock(self.alive, fcntl.LOCK_EX, 10.0):
            raise InputError(f"{self.folder}: servers of an earlier deployment do not end; see `gpuloom serve down`")
        fcntl.flock(self.alive, fcntl.LOCK_SH)
        self._record.unlink(missing_ok=True)
        (self.folder / "events.jsonl").unlink(missing_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._record.unlink(missing_ok=True)
        for descriptor in (self.alive, self._lock):
            if descriptor is not None:
                os.close(descriptor)

    def publish(self, record: Record) -> None:
        draft = self._record.with_suffix(".draft")
        draft.write_text(json.dumps(asdict(record), indent=2) + "\n", encoding="utf-8")
        draft.replace(self._record)

    def write_event(self, event: dict[str, object]) -> None:
        with (self.folder / "events.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(event) + "\n")

    def remove_shared_memory(self, name: str = "") -> None:
        """What killed servers have left; of the one with this name, or of all."""
        for path in _SHARED_MEMORY.glob(f"{self.shm_prefix}{name}*"):
            path.unlink(missing_ok=True)

    # ---- for others than the one who serves ------------------------------------------------------------------------

    def served(self) -> bool:
        """Whether somebody serves from this folder."""
        return _is_held(self.folder / "lock")

    def record(self) -> Record:
        """What is served, or InputError."""
        try:
            found = json.loads(self._record.read_bytes())
            services = tuple(Endpoint(**one) for one in found.pop("services"))
            record = Record(**found, services=services)
        except FileNotFoundError:
            what = "is still starting" if self.served() else "has nothing that is served"
            raise InputError(f"{self.folder} {what}: expected the --state of `gpuloom serve up`") from None
        except (ValueError, TypeError, KeyError, AttributeError):
            raise InputError(f"{self._record}: not the description of a deployment") from None
        if not self.served():
            raise InputError(f"{self.folder}: what was served there was killed; `gpuloom serve down` cleans up")
        return record

    def take_down(self, timeout_s: float = 30.0) -> bool:
        """End what is served from this folder; whether there was anything. InputError if it stays."""
        if not self.folder.is_dir():
            return False
        found = self.served() or _is_held(self.folder / "alive")
        for number in (signal.SIGTERM, signal.SIGKILL):
            pid = self._pid()
            if pid is not None and self.served():  # whoever holds the lock is the one who wrote the number
                os.kill(pid, number)
            if _until(lambda: not self.served(), timeout_s):
                break
        if not _until(lambda: not _is_held(self.folder / "alive"), 10.0):
            raise InputError(
                f"{self.folder}: a server does not end; look for processes that have {self.folder}/alive open"
            )
        self._record.unlink(missing_ok=True)
        self.remove_shared_memory()
        return found

    def _pid(self) -> int | None:
        try:
            return int((self.folder / "lock").read_text())
        except (OSError, ValueError):
            return None

    def sign(self) -> None:
        """Say who serves, for whoever wants to end it."""
        assert self._lock is not None
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)


def read_events(folder: Path) -> list[dict[str, Any]]:
    path = folder / "events.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)


def _try_lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _wait_lock(descriptor: int, kind: int, timeout_s: float) -> bool:
    deadline_s = time.monotonic() + timeout_s
    while not _try_lock(descriptor, kind):
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.02)
    return True


def _until(condition: Callable[[], bool], timeout_s: float) -> bool:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.05)
    return True


def _is_held(path: Path) -> bool:
    if not path.exists():
        return False
    descriptor = _open(path)
    try:
        return not _try_lock(descriptor, fcntl.LOCK_EX)
    finally:
        os.close(descriptor)
