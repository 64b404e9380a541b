"""The file that comes out of a self-test: one JSON document, described in docs/selftest.md, and where it is kept.

It is made of what the parts found and the calls that they made. The format has a version: a reader refuses any other.
"""

import json
import os
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path

import gpuloom
from gpuloom.errors import InputError
from gpuloom.gpus.host.selftest.recording import Call

FORMAT = "gpuloom self-test"
VERSION = 1
CALL = tuple(field.name for field in fields(Call))


class Verdict(StrEnum):
    OK = "ok"
    DIFFERS = "differs"
    """It worked, and something was otherwise than gpuloom takes it to be."""
    FAILED = "failed"
    NOT_HERE = "not here"
    """Nothing to test: this GPU or this host does not have it, or the self-test was stopped before."""


@dataclass(frozen=True, slots=True)
class Finding:
    verdict: Verdict
    detail: str
    facts: dict[str, object]


@dataclass(frozen=True, slots=True)
class Part:
    part: str
    verdict: Verdict
    detail: str
    """For whoever runs it: with names and process ids."""
    told: str
    """The same for others."""
    seconds: float
    facts: dict[str, object]
    calls: list[Call]

    @property
    def summary(self) -> dict[str, object]:
        seconds = round(self.seconds, 1)
        return {"part": self.part, "result": str(self.verdict), "seconds": seconds, "detail": self.detail}


@dataclass(frozen=True, slots=True)
class Transcript:
    gpu: int
    parts: tuple[Part, ...]
    stopped: str | None
    """Why not all parts were tested, if somebody or the bound on time ended it."""
    interrupted: bool

    @property
    def failed(self) -> bool:
        return self.stopped is not None or any(part.verdict is Verdict.FAILED for part in self.parts)

    def to_json(self) -> str:
        """With one call on each line: that is what people look through."""
        head = {"format": FORMAT, "version": VERSION, "gpuloom": gpuloom.__version__}
        head |= {"gpu": self.gpu, "stopped": self.stopped, "interrupted": self.interrupted}
        parts = ",\n".join(_part_json(part) for part in self.parts)
        return json.dumps(head)[:-1] + f', "parts": [\n{parts}\n]}}\n'


def _part_json(part: Part) -> str:
    head: dict[str, object] = {"part": part.part, "verdict": part.verdict, "detail": part.told}
    head |= {"seconds": round(part.seconds, 3), "facts": part.facts}
    calls = ",\n  ".join(json.dumps({name: getattr(call, name) for name in CALL}) for call in part.calls)
    return json.dumps(head)[:-1] + f', "calls": [\n  {calls}\n]}}'


class Place:
    """Where the transcript will be written: a new file that is made before the GPU is touched, and is ours since."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except FileExistsError:
            raise InputError(
                f"{path}: is there already, and is not overwritten; name another file with --write"
            ) from None
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror}; name another file with --write") from None

    def give_up(self) -> None:
        """Nothing was tested, so there is nothing to keep."""
        os.close(self._descriptor)
        self.path.unlink(missing_ok=True)

    def write(self, text: str) -> Path | None:
        """Where it is now: in the file, or in another if that has become impossible; None: nowhere."""
        try:
            with os.fdopen(self._descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            print(f"{self.path}: {error.strerror}", file=sys.stderr)
            self.path.unlink(missing_ok=True)  # half a transcript would only mislead
            return write_elsewhere(text, (Path(tempfile.gettempdir()), Path("/dev/shm"), Path.home()))
        return self.path


def write_elsewhere(text: str, folders: Iterable[Path]) -> Path | None:
    """The first of these folders that has room; None if none has."""
    for folder in folders:
        try:
            with tempfile.NamedTemporaryFile(
                "w", encoding="utf-8", dir=folder, prefix="gpuloom-selftest-", suffix=".json", delete=False
            ) as file:
                path = Path(file.name)
                try:
                    file.write(text)
                    file.flush()
                except OSError:
                    path.unlink()
                    raise
        except OSError:
            continue
        return path
    return None
