"""The runs that took place, one JSON line each, on disk before the next begins. A torn last line is dropped.

Any other line that cannot be read, or that no campaign can have written, is an error: measurements are not lost in
silence, and what is put into the table can be read from it.
"""

import os
from collections.abc import Sequence
from functools import cache
from math import inf
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from gpuloom.errors import InputError
from gpuloom.gpus.host.driver import StepFailed
from gpuloom.gpus.host.files import NotOursError, is_still_at, open_own, read_own
from gpuloom.gpus.model import GpuModel
from gpuloom.measure.campaign.order import Run
from gpuloom.measure.results import Copy
from gpuloom.measure.table import check

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
            raise InputError(_not_a_run(self.path, number)) from None

    def check(self, model: GpuModel) -> None:
        """InputError, with the line, if the runs are not as a campaign leaves them."""
        before = -1
        for number, run in enumerate(self.runs, 1):
            if run.number <= before:
                raise InputError(
                    f"{self.path}: line {number} has run {run.number} after run {before}; expected the journal as it"
                    " was"
                )
            strange = [seat for seat in run.arrangement.seats if seat.profile not in (None, *model.by_name)]
            if strange or not _is_whole(run):
                raise InputError(_not_a_run(self.path, number))
            for copy in run.copies:
                check(copy, f"{self.path}: line {number}")
            before = run.number

    def write(self, run: Run) -> None:
        """All of it or, after an error, nothing."""
        self._insist_that_it_is_there()
        data, length = _runs().dump_json(run) + b"\n", os.fstat(self._file).st_size
        try:
            while data:
                data = data[os.write(self._file, data) :]
            os.fdatasync(self._file)
        except OSError:
            os.ftruncate(self._file, length)
            raise
        self.runs.append(run)

    def _insist_that_it_is_there(self) -> None:
        """What is written to a file that was removed, or moved away, nobody finds again."""
        if not is_still_at(self.path, self._file):
            raise StepFailed(f"{self.path} was removed or is another file, so what is measured cannot be kept")


def _not_a_run(path: Path, line: int) -> str:
    return f"{path}: line {line} is not a run that gpuloom has measured; expected the journal as it was"


def _is_whole(run: Run) -> bool:
    """A row for each copy; of servers, for each at each of their batches."""
    groups: dict[str | None, list[Copy]] = {}
    for copy in run.copies:
        groups.setdefault(copy.batches, []).append(copy)
    return bool(groups) and 0 <= run.seconds < inf and all(_is_of(run, copies) for copies in groups.values())


def _is_of(run: Run, copies: Sequence[Copy]) -> bool:
    seats = run.arrangement.seats
    told = [(copy.run, copy.arrangement, copy.way, copy.copies, copy.copy, copy.seat) for copy in copies]
    name, way = run.arrangement.name, run.arrangement.way
    return told == [(run.number, name, way, len(seats), at, seat) for at, seat in enumerate(seats)]


@cache
def _runs() -> "TypeAdapter[Run]":
    from pydantic import TypeAdapter

    return TypeAdapter(Run)
