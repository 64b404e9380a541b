"""The checkpoint of a job, a file in a folder: written whole or not at all, and read back."""

import contextlib
import io
import os
import sys
from pathlib import Path
from typing import Any

import torch

from gpuloom.train.elastic.settings import ElasticError
from gpuloom.train.elastic.state import walk
from gpuloom.train.elastic.words import tell

FILE = "elastic.pt"


class UnsavedError(Exception):
    """The state could not be written: one sentence."""


def prepare(folder: Path) -> None:
    """At launch: the folder is there and can be written to, and drafts of processes that were killed are not."""
    probe = folder / f"{FILE}.{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"?")
        probe.unlink()
        for draft in folder.glob(f"{FILE}.*"):
            if draft.suffix[1:].isdecimal() and not Path("/proc", draft.suffix[1:]).exists():
                draft.unlink(missing_ok=True)
    except OSError as error:
        raise ElasticError(f"checkpoints cannot be written to {folder}: {error.strerror or error}") from None


def save(folder: Path, state: dict[str, Any], launch: str) -> None:
    """Whole or not at all: a draft, on disk, renamed. UnsavedError if that fails, as on a full disk."""
    draft = folder / f"{FILE}.{os.getpid()}"
    try:
        with draft.open("wb") as file:
            torch.save({**walk(state, _plain), "launch": launch}, file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(folder / FILE)
        _sync(folder)
    except (OSError, RuntimeError) as error:  # the second is what PyTorch makes of the first
        raise UnsavedError(f"the checkpoint could not be written to {folder}: {error}") from error
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()


def load(folder: Path, launch: str, resume: bool) -> dict[str, Any] | None:
    """The checkpoint, if there is one of this launch, or any if it is to be resumed."""
    path = folder / FILE
    if not path.exists():
        return None
    try:
        state: dict[str, Any] = _read(path)
        known, _ = state.pop("launch"), (state["model"], state["at"])
    except Exception as error:  # rubbish makes the reader raise anything
        if resume:
            raise ElasticError(f"the checkpoint {path} cannot be read; remove it to begin anew: {error}") from None
        tell(f"{path} is no checkpoint that can be read, and will be replaced by this job's")
        return None
    return state if resume or known == launch else None


def check_that_it_can_be_read(state: Any) -> None:
    """A user's own state, before it is in a file that nobody can read."""
    made = io.BytesIO()
    try:
        torch.save(walk(state, _plain), made)
        made.seek(0)
        _read(made)
    except Exception as error:
        reason = str(error).splitlines()[0]
        raise ElasticError(f"state: tensors, arrays, numbers, text and lists of them can be saved; {reason}") from None


def _read(file: Any) -> Any:
    with torch.serialization.safe_globals(_numpy_arrays()):
        return torch.load(file, map_location="cpu", weights_only=True)


def _sync(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _plain(value: Any) -> Any:
    """NumPy's numbers as Python's: what reads a checkpoint knows only these."""
    numpy = sys.modules.get("numpy")
    return value.item() if numpy is not None and isinstance(value, numpy.generic) else value


def _numpy_arrays() -> list[Any]:
    """What arrays are made of: a user's own state may have some."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return []
    kinds = {type(numpy.dtype(code)) for code in numpy.typecodes["All"]}
    return [numpy.ndarray, numpy.dtype, numpy.array(0).__reduce__()[0], *kinds]
