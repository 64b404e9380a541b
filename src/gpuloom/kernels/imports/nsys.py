"""Nsight Systems' SQLite export (`nsys export --type sqlite report.nsys-rep`).

Tables exist only if there was something to put in them, and older versions lack columns: what is not needed is not
asked for.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from gpuloom.errors import InputError
from gpuloom.kernels.imports.trace import COPY, FILL, Queue, Shape, Trace, sizes
from gpuloom.kernels.profile import Profile

KERNELS, CALLS = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"
MEMORY = {"CUPTI_ACTIVITY_KIND_MEMCPY": COPY, "CUPTI_ACTIVITY_KIND_MEMSET": FILL}
GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
"""Whole CUDA graphs, as recorded by default (--cuda-graph-trace=graph)."""
STRINGS, DEVICES = "StringIds", "TARGET_INFO_GPU"
WHERE = ("start", "end", "globalPid", "deviceId", "contextId", "streamId", "correlationId")
THREAD_BITS = 24
"""The lowest of a globalTid; the rest is the globalPid."""


def import_nsys(path: Path) -> Profile:
    """InputError if it is no such export, or has no GPU kernels."""
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True)) as database:
            database.text_factory = lambda raw: raw.decode("utf-8", "replace")
            return _Export(path, database).profile()
    except sqlite3.Error as error:
        raise InputError(
            f"{path}: cannot be read ({error}): expected a whole SQLite export of Nsight Systems"
        ) from None


class _Export:
    def __init__(self, path: Path, database: sqlite3.Connection) -> None:
        self._path, self._database = path, database
        self._trace = Trace()
        self._processes: dict[object, int] = {}
        found = database.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
        self._columns = {str(name): self._columns_of(str(name)) for (name,) in found.fetchall()}

    def _columns_of(self, table: str) -> set[str]:
        quoted = table.replace('"', '""')
        return {str(row[1]) for row in self._database.execute(f'PRAGMA table_info("{quoted}")')}

    def profile(self) -> Profile:
        if KERNELS not in self._columns and GRAPHS not in self._columns:
            raise InputError(
                f"{self._path}: has no table {KERNELS}: expected an export of what nsys profile --trace=cuda recorded"
            )
        notes = ["imported from an Nsight Systems export"]
        self._kernels()
        for table, name in MEMORY.items():
            for *where, size in self._rows(table, *WHERE, "bytes"):
                self._work(Shape(name, name, sizes([size]), ()), where)
        for *where, graph in self._rows(GRAPHS, *WHERE, "graphId"):
            self._work(Shape(f"(graph {graph})", f"(graph {graph})", (), ()), where)
        if not self._calls():
            notes.append("the trace does not tell the names of CUDA calls, so not where the host waited")
        return self._trace.profile(str(self._path), self._device(), tuple(notes))

    def _rows(self, table: str, *columns: str) -> Iterator[tuple[object, ...]]:
        """NULL for a column that the export does not have; without start and end, an InputError."""
        if not (has := self._columns.get(table)):
            return iter(())
        missing = [column for column in ("start", "end") if column not in has]
        if missing:
            raise InputError(
                f"{self._path}: {table} has no column {missing[0]}: expected an export of Nsight Systems 2019 or later"
            )
        wanted = ", ".join(f'"{column}"' if column in has else "NULL" for column in columns)
        return self._database.execute(f'SELECT {wanted} FROM "{table}"')

    def _kernels(self) -> None:
        has = self._columns.get(KERNELS, set())
        readable = next((one for one in ("demangledName", "shortName", "mangledName") if one in has), None)
        if has and (readable is None or not {"id", "value"} <= self._columns.get(STRINGS, set())):
            missing = (
                f"{KERNELS} has no column demangledName"
                if readable is None
                else f"has no table {STRINGS} with id and value"
            )
            raise InputError(
                f"{self._path}: {missing}, so kernels have no names: expected an export of Nsight Systems 2019 or later"
            )
        names = self._strings(KERNELS, ("demangledName", "shortName", "mangledName"))
        columns = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")
        known: dict[tuple[object, ...], Shape] = {}
        for row in self._rows(KERNELS, *WHERE, readable or "", "mangledName", *columns):
            what = row[len(WHERE) :]
            if what not in known:
                name = names.get(what[0], f"kernel {what[0]}")
                known[what] = Shape(name, names.get(what[1], name), sizes(what[2:5]), sizes(what[5:8]))
            self._work(known[what], row)

    def _work(self, shape: Shape, where: tuple[object, ...] | list[object]) -> None:
        start, end, process, device, context, stream, correlation = where[: len(WHERE)]
        # Streams are numbered within a context.
        stream = stream if context in (None, 0, 1) else f"{stream} of context {context}"
        queue = Queue(self._process(process), device or 0, stream)
        times = (start, end) if isinstance(start, int) and isinstance(end, int) else (0, -1)
        self._trace.add_work(shape, queue, *times, correlation)

    def _calls(self) -> bool:
        """Whether it has names of calls."""
        names = self._strings(CALLS, ("nameId",))
        for start, end, thread, correlation, name in self._rows(
            CALLS, "start", "end", "globalTid", "correlationId", "nameId"
        ):
            if isinstance(start, int) and isinstance(end, int):
                process = thread >> THREAD_BITS << THREAD_BITS if isinstance(thread, int) else thread
                self._trace.add_call(self._process(process), names.get(name, ""), start, end, correlation)
        return bool(names)

    def _process(self, number: object) -> int:
        """0 for all if either table does not tell: then there is nothing to keep them apart by."""
        if "globalPid" not in self._columns.get(KERNELS, set()) or "globalTid" not in self._columns.get(CALLS, set()):
            return 0
        return self._processes.setdefault(number, len(self._processes))

    def _strings(self, table: str, columns: tuple[str, ...]) -> dict[object, str]:
        """Those that the columns mention: an export holds many others."""
        has = [column for column in columns if column in self._columns.get(table, set())]
        if not has or not {"id", "value"} <= self._columns.get(STRINGS, set()):
            return {}
        used = " UNION ".join(f'SELECT "{column}" FROM "{table}"' for column in has)
        return {
            key: str(value)
            for key, value in self._database.execute(f"SELECT id, value FROM {STRINGS} WHERE id IN ({used})")
        }

    def _device(self) -> str:
        if not {"id", "name"} <= self._columns.get(DEVICES, set()):
            return "-"
        names = {key: str(name) for key, name in self._database.execute(f"SELECT id, name FROM {DEVICES}")}
        return ", ".join(sorted({names[one] for one in self._trace.devices() if one in names})) or "-"
