"""The runs that took place, one JSON line each, on disk before the next begins. A torn last line is dropped.

Any other line that cannot be read is an error: measurements are not lost in silence.
"""

import os
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from gpuloom.errors import InputError
from gpuloom.gpus.host.files import NotOursError, open_own, read_own
from gpuloom.measure.campaign.order import Run

if TYPE_CHECKING:
    from pydantic import TypeAdapter

MOST_BYTES = 1 << 30


class Journal:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.runs: list[Run] = []
        self._file = -1

    def __enter__(self) -> "Journal":
        try:
            self._file = open_own(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
            data = read_own(self.path, MOST_BYTES)
        except NotOursError as error:
            raise InputError(str(error)) from None
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data):
            os.ftruncate(self._file, len(whole))
            os.fsync(self._file)
        self.runs = [self._read(number, line) for number, line in enumerate(whole.splitlines(), 1)]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)

    def _read(self, number: int, line: bytes) -> Run:
        try:
            return _runs().validate_json(line)
        except ValueError:
            raise InputError(
                f"{self.path}: line {number} is not a run that gpuloom has measured; expected the journal as it was"
            ) from None

    def write(self, run: Run) -> None:
        """All of it or, after an error, nothing."""
        data, length = _runs().dump_json(run) + b"\n", os.fstat(self._file).st_size
        try:
            while data:
                data = data[os.write(self._file, data) :]
            os.fdatasync(self._file)
        except OSError:
            os.ftruncate(self._file, length)
            raise
        self.runs.append(run)


@cache
def _runs() -> "TypeAdapter[Run]":
    from pydantic import TypeAdapter

    return TypeAdapter(Run)
