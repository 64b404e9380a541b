"""Whose GPU it is. gpuloom changes only GPUs that it has taken, and remembers how it found each of them.

A folder keeps two files for each GPU: a lock, which one running gpuloom holds, and a record, which outlives it. Other
managers know nothing of that folder; `around/managers.py` looks for those.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from gpuloom.gpus.host.files import Lock, NotOursError, open_lock, open_own, own_folder, read_own, try_lock, write_whole
from gpuloom.gpus.model import Instance, Layout

_PATIENCE_S = 0.02
"""`holder` has a lock for the moment of looking."""


class Refused(Exception):  # noqa: N818 (a refusal is an answer, not a fault of the program)
    """This GPU is not ours to change, or not now; the text says why. Nothing has been changed."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a GPU looked like when gpuloom took it."""

    uuid: str
    mig: bool
    layout: Layout


def state_dir(environment: Mapping[str, str] = os.environ, uid: int | None = None) -> Path:
    """$GPULOOM_STATE_DIR, or /var/lib/gpuloom for root, or gpuloom in the user's state folder."""
    if told := environment.get("GPULOOM_STATE_DIR"):
        return Path(told)
    if (os.geteuid() if uid is None else uid) == 0:
        return Path("/var/lib/gpuloom")
    home = environment.get("XDG_STATE_HOME") or Path(environment.get("HOME", "~")).expanduser() / ".local" / "state"
    return Path(home) / "gpuloom"


class Claims:
    """The GPUs that this process holds. Closing lets go of the locks, and so does dying; the records stay."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._locks: dict[str, int] = {}

    def __enter__(self) -> "Claims":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for lock in self._locks.values():
            os.close(lock)
        self._locks.clear()

    def lock(self, uuid: str) -> None:
        """Hold this GPU until closed; Refused if another gpuloom does."""
        if uuid in self._locks:
            return
        try:
            own_folder(self.folder)
            lock = open_lock(self._path(uuid, "lock"))
        except NotOursError as error:
            raise Refused(str(error)) from None
        if not try_lock(lock, Lock.ALONE, _PATIENCE_S):
            holder = _holder(lock)
            os.close(lock)
            raise Refused(holder)
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        self._locks[uuid] = lock

    def unlock(self, uuid: str) -> None:
        os.close(self._locks.pop(uuid))

    def holds(self, uuid: str) -> bool:
        return uuid in self._locks

    def holder(self, uuid: str) -> str | None:
        """Why `lock` would refuse, without locking; None if it would not."""
        if uuid in self._locks:
            return None
        try:
            lock = open_own(self._path(uuid, "lock"), os.O_RDONLY)
        except NotOursError as error:
            return str(error)
        except OSError:
            return None
        try:
            return None if try_lock(lock, Lock.TOGETHER) else _holder(lock)
        finally:
            os.close(lock)

    def found(self, uuid: str) -> Found | None:
        """How this GPU looked when it was taken; None if it is not ours."""
        path = self._path(uuid, "json")
        try:
            record = json.loads(read_own(path))
            layout = tuple(sorted(Instance(int(start), str(profile)) for start, profile in record["layout"]))
            return Found(uuid, bool(record["mig"]), layout)
        except FileNotFoundError:
            return None
        except NotOursError as error:
            raise Refused(str(error)) from None
        except (ValueError, KeyError, TypeError) as error:
            raise Refused(f"its record {path} cannot be understood; look at the GPU, then remove the file") from error

    def remember(self, found: Found) -> None:
        """Write the record so that it is complete or absent, whenever the machine stops."""
        record = {"uuid": found.uuid, "mig": found.mig, "layout": [list(instance) for instance in found.layout]}
        write_whole(self._path(found.uuid, "json"), json.dumps(record))

    def forget(self, uuid: str) -> None:
        self._path(uuid, "json").unlink(missing_ok=True)

    def _path(self, uuid: str, kind: str) -> Path:
        return self.folder / f"{uuid}.{kind}"


def _holder(lock: int) -> str:
    pid = os.pread(lock, 20, 0).decode(errors="replace").strip()
    return f"another gpuloom (process {pid or 'unknown'}) is working on it"
