"""The file in which this machine's runs and measurements keep what they saw: where it is, read, and added to.

Several may add at once: each takes the lock, reads what is there, and writes both together, whole or not at all. A file
that is not ours, or cannot be understood, is left as it is: whoever meets it goes without. What is in it is
`perf.slices.earlier_file`'s.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from gpuloom.errors import InputError
from gpuloom.gpus.host.files import Lock, NotOursError, open_lock, own_folder, read_own, try_lock, write_whole
from gpuloom.gpus.host.ownership import state_dir
from gpuloom.perf.slices.earlier import Row
from gpuloom.perf.slices.earlier_file import from_text, is_sound, merged, to_text

MOST_BYTES = 128 << 20
PATIENCE_S = 5.0
"""For the lock, which others have for a moment."""


class NoMemoryError(Exception):
    """It cannot be read, or not be added to; the text says why. Nothing was changed."""


def usual_memory(environment: Mapping[str, str] = os.environ) -> Path:
    return state_dir(environment) / "memory" / "memory.json"


def read_memory(path: Path) -> tuple[Row, ...]:
    """Nothing, if there is no such file yet."""
    try:
        return from_text(read_own(path, MOST_BYTES).decode(), str(path))
    except FileNotFoundError:
        return ()
    except (OSError, UnicodeDecodeError, InputError) as error:
        raise NoMemoryError(_why(error, path)) from None


def add_to_memory(path: Path, rows: Iterable[Row]) -> None:
    """Put them to what is there. Adding what was added before changes nothing."""
    try:
        if not path.parent.exists():
            own_folder(path.parent)
        lock = open_lock(path.with_name(f"{path.name}.lock"))
        try:
            if not try_lock(lock, Lock.ALONE, PATIENCE_S):
                raise NoMemoryError(f"{path}: somebody else has held its lock for {PATIENCE_S:g} s")
            before = read_memory(path)
            after = merged(before, [row for row in rows if is_sound(row)])
            if after != before:
                write_whole(path, to_text(after))
        finally:
            os.close(lock)
    except OSError as error:
        raise NoMemoryError(_why(error, path)) from None


def _why(error: Exception, path: Path) -> str:
    if isinstance(error, InputError | NotOursError):
        return str(error)
    if isinstance(error, OSError):
        return f"{path}: {error.strerror or error}"
    return f"{path}: is no text: expected a memory that gpuloom wrote"
