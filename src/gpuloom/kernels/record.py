"""What the data plane records while measuring (one line for each kernel that ended), read into a profile's runs."""

from dataclasses import dataclass
from pathlib import Path

from gpuloom.kernels.profile import Kernel, Launch, Run


@dataclass(frozen=True, slots=True)
class Record:
    queue: int
    kernel: Kernel
    launched_ns: int
    ended_ns: int
    ran_ns: int
    waited: bool


def read_records(path: Path) -> list[Record]:
    """Whole lines only: a program may be killed while it writes the last one."""
    found: list[Record] = []
    known: dict[tuple[str, str, str, str], Kernel] = {}
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1]:
        cells = line.split("\t", 8)
        if len(cells) != 9:
            continue
        queue, identity, launched, ended, ran, waited, grid, block, name = cells
        key = (identity, name, grid, block)
        if key not in known:
            known[key] = Kernel(int(identity, 16), name, grid, block)
        found.append(Record(int(queue), known[key], int(launched), int(ended), int(ran), waited == "1"))
    return found


def devices_of(path: Path) -> set[str]:
    """The names of the devices that it made queues on, from lines `device`, name."""
    with path.open(encoding="utf-8", errors="replace") as file:
        return {line.removeprefix("device\t").strip() for line in file if line.startswith("device\t")}


def runs_of(records: list[Record]) -> tuple[dict[int, Kernel], list[Run]]:
    """The kernels, and a run for each queue that launched something."""
    kernels = {record.kernel.id: record.kernel for record in records}
    by_queue: dict[int, list[Record]] = {}
    for record in sorted(records, key=lambda one: one.launched_ns):
        by_queue.setdefault(record.queue, []).append(record)
    return kernels, [Run(tuple(_launches(of))) for _, of in sorted(by_queue.items())]


def _launches(records: list[Record]) -> list[Launch]:
    launches = []
    for place, record in enumerate(records):
        before = records[place - 1] if place else None
        after = records[place + 1] if place + 1 < len(records) else None
        free_at = max(record.launched_ns, before.ended_ns) if before else record.launched_ns
        since = record.launched_ns if before is None else before.ended_ns if record.waited else before.launched_ns
        launches.append(
            Launch(
                record.kernel.id,
                record.ran_ns,
                max(record.ended_ns - free_at, record.ran_ns),
                max(record.launched_ns - since, 0),
                record.waited,
                max(after.launched_ns - record.ended_ns, 0) if after else 0,
            )
        )
    return launches
