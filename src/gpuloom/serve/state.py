"""The state folder of a deployment: what `status`, `down` and `load` find it by, and what proves that nothing is left.

lock              held by the one who serves; says which process that is
alive             held by it and by every server that it started: free only when all of them are gone
deployment.json   the address, the promises, the process
events.jsonl      what happened: started, ready, crashed, switched, …
devices.json      the CPU devices that it has, by the names that the user gave them
servers/NAME/     a server's model repository and its log
mps/              the MPS daemons' pipes and logs
"""

import hashlib
import json
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gpuloom.errors import InputError
from gpuloom.gpus.host.files import Lock, is_locked, open_lock, try_lock, write_whole
from gpuloom.gpus.host.noise import Noise
from gpuloom.gpus.host.processes import born_ticks

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
    grpc_port: int | None = None
    """None: gRPC is not spoken."""
    noise: Noise | None = None
    """How steady the devices are that it is served on, where that can be told."""


class State:
    def __init__(self, folder: Path, end_left: "Callable[[State], None]" = lambda _: None) -> None:
        """`end_left` ends what a killed deployment has left, whose servers may not have noticed yet."""
        self.folder, self._end_left = folder.resolve(), end_left
        if self.folder.exists() and not self.folder.is_dir():
            raise InputError(f"{self.folder} is a file: expected a folder, the --state of `gpuloom serve up`")
        self.mps_dir = self.folder / "mps"
        self.servers_dir = self.folder / "servers"
        self._record = self.folder / "deployment.json"
        self._devices = self.folder / "devices.json"
        self._lock: int | None = None
        self.alive: int | None = None
        """A descriptor for servers to inherit."""

    @property
    def shm_prefix(self) -> str:
        """What the names of all shared memory of this folder's servers begin with."""
        return f"gpuloom-{hashlib.sha256(str(self.folder).encode()).hexdigest()[:10]}-"

    def __enter__(self) -> "State":
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = open_lock(self.folder / "lock")
        if not try_lock(self._lock, Lock.ALONE, 0.5):  # longer than somebody looks whether it is held
            os.close(self._lock)
            raise InputError(f"{self.folder}: something is served there already; name another --state, or take it down")
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()} {born_ticks(os.getpid())}\n".encode(), 0)
        try:
            self._end_left(self)
            self.alive = open_lock(self.folder / "alive")
            if not try_lock(self.alive, Lock.ALONE, 10.0):
                raise InputError(
                    f"{self.folder}: servers of an earlier deployment do not end; see `gpuloom serve down`"
                )
        except BaseException:
            self._close()
            raise
        try_lock(self.alive, Lock.TOGETHER)  # from alone to together: nobody can be in the way
        self._record.unlink(missing_ok=True)
        (self.folder / "events.jsonl").unlink(missing_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._record.unlink(missing_ok=True)
        self._close()

    def _close(self) -> None:
        for descriptor in (self.alive, self._lock):
            if descriptor is not None:
                os.close(descriptor)
        self.alive = self._lock = None

    def publish(self, record: Record) -> None:
        write_whole(self._record, json.dumps(asdict(record), indent=2) + "\n")

    def remember_devices(self, names: Sequence[str]) -> None:
        """Before they are taken: if we are killed, whoever comes next knows where to look."""
        write_whole(self._devices, json.dumps(list(names)))

    def devices(self) -> tuple[str, ...]:
        """The CPU devices on which something may run or be left."""
        try:
            return tuple(map(str, json.loads(self._devices.read_bytes())))
        except FileNotFoundError:
            return ()
        except (ValueError, TypeError):
            raise InputError(f"{self._devices}: not a list of devices; remove it if nothing runs there") from None

    def forget_devices(self) -> None:
        self._devices.unlink(missing_ok=True)

    def write_event(self, event: dict[str, object]) -> None:
        """A full disk, or a folder that somebody has removed, is no reason to stop serving."""
        with suppress(OSError), (self.folder / "events.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(event) + "\n")

    def remove_shared_memory(self, name: str = "") -> None:
        """What killed servers have left; of the one with this name, or of all."""
        for path in _SHARED_MEMORY.glob(f"{self.shm_prefix}{name}*"):
            path.unlink(missing_ok=True)

    # ---- for others than the one who serves ------------------------------------------------------------------------

    def served(self) -> bool:
        """Whether somebody serves from this folder."""
        return is_locked(self.folder / "lock")

    def record(self) -> Record:
        """What is served, or InputError."""
        try:
            fields = json.loads(self._record.read_bytes())
            services = tuple(Endpoint(**service) for service in fields.pop("services"))
            noise = fields.pop("noise", None)
            record = Record(**fields, services=services, noise=None if noise is None else Noise(**noise))
        except FileNotFoundError:
            record = None
        except (ValueError, TypeError, KeyError, AttributeError):
            raise InputError(f"{self._record}: not the description of a deployment") from None
        served = self.served()
        if record is None and not served:
            expected = "expected the --state of `gpuloom serve up`"
            raise InputError(f"{self.folder} has nothing that is served: {expected}")
        if not served:
            raise InputError(f"{self.folder}: what was served there was killed; `gpuloom serve down` cleans up")
        if record is None or record.pid != self._pid():  # an earlier one's, that was killed
            raise InputError(f"{self.folder} is still starting: ask again when `gpuloom serve up` says that it serves")
        return record

    def take_down(self, timeout_s: float = 30.0) -> bool:
        """End what is served from this folder; whether there was anything. InputError if it stays."""
        if not self.folder.is_dir():
            return False
        found = self.served() or is_locked(self.folder / "alive")
        ended = self._end(signal.SIGTERM, timeout_s) or self._end(signal.SIGKILL, timeout_s)
        if ended:
            self._end_left(self)
        if not ended or not _until(lambda: not is_locked(self.folder / "alive"), 10.0):
            raise InputError(
                f"{self.folder}: something does not end; look for processes that have {self.folder}/alive open"
            )
        self._record.unlink(missing_ok=True)
        self.remove_shared_memory()
        return found

    def _end(self, number: signal.Signals, timeout_s: float) -> bool:
        """Tell the one who serves, once it has said who it is; whether it ended in time."""
        signalled = False

        def ended() -> bool:
            nonlocal signalled
            if not self.served():
                return True
            if not signalled and (pid := self._pid()) is not None:
                signalled = True
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    pass
                except PermissionError:
                    raise InputError(f"{self.folder}: process {pid} serves there, and you may not end it") from None
            return False

        return _until(ended, timeout_s)

    def _pid(self) -> int | None:
        """Who serves. None if that has not been written yet: what is there may be of one that was killed."""
        try:
            pid, birth = (self.folder / "lock").read_text().split()
            return int(pid) if int(birth) == born_ticks(int(pid)) else None
        except (OSError, ValueError):
            return None


def read_events(folder: Path) -> list[dict[str, Any]]:
    """All that are whole: the last one may be half written."""
    path = folder / "events.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def _until(condition: Callable[[], bool], timeout_s: float) -> bool:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.05)
    return True
