"""The checkpoint of a job, a file in a folder: written whole or not at all, and read back."""

import contextlib
import io
import os
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

import torch

from gpuloom.train.elastic.settings import ElasticError
from gpuloom.train.elastic.state import walk
from gpuloom.train.elastic.words import tell

FILE = "elastic.pt"
ASIDE = f"{FILE}.unreadable"
NAMES = {"own": "state"}
"""Of the parts, as users know them."""


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
    """Whole or not at all: a draft, on disk, renamed. UnsavedError if that fails, or could not be read back."""
    draft = folder / f"{FILE}.{os.getpid()}"
    try:
        check_that_it_can_be_read(state)
        with draft.open("wb") as file:
            torch.save({**walk(state, _plain), "launch": launch}, file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(folder / FILE)
        _sync(folder)
    except Exception as error:  # of the disk, of PyTorch, of what is in the state
        raise UnsavedError(f"the checkpoint could not be written to {folder}: {error}") from error
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()


def load(folder: Path, launch: str, resume: bool, begun: bool = False) -> dict[str, Any] | None:
    """The checkpoint, if there is one of this launch, or any if it is to be resumed.

    `begun`: this launch has trained, so that one which is there and cannot be read is not to be passed over.
    """
    path = folder / FILE
    if not path.exists():
        return None
    try:
        state: dict[str, Any] = _read(path)
        known, _ = state.pop("launch"), (state["model"], state["at"])
    except Exception as error:  # rubbish makes the reader raise anything
        if resume or (begun and path.is_file()):
            raise ElasticError(f"the checkpoint {path} cannot be read; remove it to begin anew: {error}") from None
        tell(f"{path} is no checkpoint that can be read, and will be replaced by this job's (kept as {ASIDE})")
        if path.is_file():  # what is found here later is this job's own
            path.replace(folder / ASIDE)
        return None
    return state if resume or known == launch else None


def check_that_it_can_be_read(state: dict[str, Any]) -> None:
    """What was gathered, before it is in a file that nobody can read. Tried without its tensors, which can be."""
    for name, part in state.items():
        made = io.BytesIO()
        try:
            torch.save(walk(part, _hollow), made)
            made.seek(0)
            _read(made)
        except Exception as error:
            kind = re.search(r"GLOBAL (\S+)", str(error))
            reason = f"{kind[1]} is none" if kind else (str(error).splitlines() or [type(error).__name__])[0]
            what = f"{NAMES.get(name, name)}: tensors, arrays, numbers, text and lists of them can be saved"
            raise ElasticError(f"{what}; {reason}") from None


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


@cache
def _empty(dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(0, dtype=dtype)


def _hollow(value: Any) -> Any:
    """Without what is large and of no interest."""
    if type(value) in (torch.Tensor, torch.nn.Parameter):
        return _empty(value.dtype)
    numpy = sys.modules.get("numpy")
    if numpy is not None and type(value) is numpy.ndarray and not value.dtype.hasobject:
        return numpy.empty(0, value.dtype)
    return _plain(value)


def _numpy_arrays() -> list[Any]:
    """What arrays are made of: a user's own state may have some."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return []
    kinds = {type(numpy.dtype(code)) for code in numpy.typecodes["All"]}
    made_of = numpy.array(0).__reduce__()[0]
    return [numpy.ndarray, numpy.dtype, made_of, bytes, *kinds]  # `bytes()`: of empty ones
