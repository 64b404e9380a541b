"""Reading a user's file: whatever is wrong with it becomes one sentence (`InputError`) that names file and place.

Knows bytes, text and JSON. Knows nothing of what the files mean.
"""

import difflib
import json
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuloom.errors import InputError

MAX_SECONDS = 1e11
"""Three thousand years: a larger time is a wrong unit (milliseconds, nanoseconds), not a job."""
MAX_COUNT = 10_000_000
"""No number of GPUs, jobs or samples in a batch is larger."""


MOST_BYTES = 64 << 20
"""Of a file that people write."""


@dataclass(frozen=True, slots=True)
class FileOwner:
    """In whose name a file speaks."""

    uid: int
    others_write: bool
    """Others than its owner could have written it."""


def shown(value: object) -> str:
    """A value as an error message quotes it: short, and printable on any terminal."""
    if isinstance(value, str):
        return ascii(value) if len(value) <= 60 else ascii(value[:57] + "...")
    if isinstance(value, int) and abs(value) >= 10**40:
        return "a number of more than 40 digits"  # Python refuses to print one of more than 4,300
    if value is None:
        return "missing"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, dict):
        return "an object"
    return "a list" if isinstance(value, list) else f"a {type(value).__name__}"


def did_you_mean(word: str, accepted: Iterable[str]) -> str:
    """The end of a sentence with the closest accepted word, or nothing."""
    close = difflib.get_close_matches(word[:100].lower(), list(accepted), n=1, cutoff=0.6)
    return f" (did you mean {close[0]!r}?)" if close else ""


def read_text(path: Path, expected: str) -> str:
    """The whole file as text. `expected` says what would be accepted, as a noun phrase."""
    return read_owned_text(path, expected)[0]


def read_owned_text(path: Path, expected: str) -> tuple[str, FileOwner]:
    """The text, and whose it is: of the very file that was read, whatever is put into its place meanwhile."""
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            data = file.read(MOST_BYTES + 1)
            if len(data) > MOST_BYTES:
                raise InputError(f"{path} has more than {MOST_BYTES >> 20} MiB: expected {expected}")
    except FileNotFoundError:
        raise InputError(f"{path} does not exist: expected {expected}") from None
    except IsADirectoryError:
        raise InputError(f"{path} is a folder: expected {expected}") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(f"{ascii(str(path))[1:-1]} cannot be read ({reason}): expected {expected}") from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path}: line {line} is not UTF-8 text: expected {expected}") from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise InputError(f"{path}: line {line} contains a NUL byte: expected {expected}")
    if not text.strip():
        raise InputError(f"{path} is empty: expected {expected}")
    return text, FileOwner(status.st_uid, bool(status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)))


def parse_json(text: str, path: Path, expected: str, *, line: int | None = None) -> Any:
    """JSON, with the line named where it breaks; `line` is the line of the file that `text` is, if it is one."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        at = error.lineno if line is None else line
        raise InputError(
            f"{path}: line {at}, column {error.colno} is not JSON ({error.msg}): expected {expected}"
        ) from None
    except (ValueError, RecursionError):
        # A number of thousands of digits, or brackets nested by the thousand.
        where = str(path) if line is None else f"{path}: line {line}"
        raise InputError(f"{where} holds a number or a nesting that is too large: expected {expected}") from None


def read_json(path: Path, expected: str) -> Any:
    return parse_json(read_text(path, expected), path, expected)


def check_id(value: str, where: str, seen: set[str], what: str = "job") -> str:
    """A name: printable (it appears in tables and logs) and used once."""
    if not value or len(value) > 200 or not value.isprintable():
        raise InputError(f"{where} is {shown(value)}, but must be 1 to 200 printable characters")
    if value in seen:
        raise InputError(f"{where} is {shown(value)}, which an earlier {what} already has: names must be unique")
    seen.add(value)
    return value
