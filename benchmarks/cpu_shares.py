"""Is a seventh of a CPU device a seventh? A compute-bound job on each profile, alone and with busy neighbours.

The job is a loop of SHA-256 in one process for each core. A round visits 7c, a layout, 7c, the next layout, and so
on: the machine drifts by several per cent within seconds, so each speed is divided by the mean of the 7c before and
after it, and by its part of the sevenths: 1 is a true share. 7c itself is divided by the 7c before it: that is the
drift. Beside it stands the CPU time that the kernel counted, of that which the quota promises. Layouts are applied by
the command line, as a user would.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from gpuloom.gpus.host.cgroups import Group, Home
from gpuloom.gpus.host.cpu import CpuDevice, parse_devices, this_machine
from gpuloom.gpus.host.cpu_driver import CpuDriver, cpu_driver
from gpuloom.gpus.host.ownership import state_dir
from gpuloom.gpus.model import Instance

GPULOOM = (sys.executable, "-c", "from gpuloom.cli.main import main; main()")
WHOLE = "7"
LAYOUTS = ("1,1,1,1,1,1,1", "3,2,2", "4,2,1")
SETTLE_S, PATIENCE_S = 0.1, 10.0
"""Before anything is counted: quotas that nobody used have gathered nothing by then."""

WORKER = """
import hashlib, sys, time
for door in sys.argv[1:]:
    with open(door, "w") as file:
        file.write("0")
print("ready", flush=True)
seconds = float(sys.stdin.readline())
block, pieces, began = bytes(1 << 16), 0, time.monotonic()
while (passed := time.monotonic() - began) < seconds:
    hashlib.sha256(block)
    pieces += 1
print(pieces / passed, flush=True)
"""


@dataclass(frozen=True, slots=True)
class Speed:
    pieces_per_s: float
    of_promised: float
    """CPU time that the kernel counted, of that which the quota promises."""


@dataclass(frozen=True, slots=True)
class Case:
    layout: str
    profile: str
    busy_neighbours: int


def measure_shares(device: str, rounds: int, seconds: float) -> dict[str, object]:
    (found,) = parse_devices([device], this_machine())
    seen: dict[Case, list[tuple[float, float]]] = {}
    with cpu_driver([found], state_dir()) as driver, _given_back(device):
        visit = _visitor(device, found, driver, seconds)
        for number in range(rounds):
            print(f"shares: round {number + 1} of {rounds}", file=sys.stderr, flush=True)
            for case, ratio, promised in _round(visit, LAYOUTS if number % 2 == 0 else LAYOUTS[::-1]):
                seen.setdefault(case, []).append((ratio, promised))
    return {
        "device": found.name,
        "rounds": rounds,
        "seconds": seconds,
        "profiles": [_row(found, case, pairs) for case, pairs in seen.items()],
    }


Visit = Callable[[str], dict[Case, Speed]]


def _round(visit: Visit, layouts: Sequence[str]) -> Iterator[tuple[Case, float, float]]:
    """Of each case: its speed over that of its part of 7c, and its CPU time over what is promised."""
    (before,) = visit(WHOLE).items()
    for layout in layouts:
        here = visit(layout)
        (after,) = visit(WHOLE).items()
        whole = (before[1].pieces_per_s + after[1].pieces_per_s) / 2
        for case, speed in here.items():
            yield case, speed.pieces_per_s / whole / (int(case.profile[0]) / 7), speed.of_promised
        yield after[0], after[1].pieces_per_s / before[1].pieces_per_s, after[1].of_promised
        before = after


def _visitor(device: str, found: CpuDevice, driver: CpuDriver, seconds: float) -> Visit:
    def visit(layout: str) -> dict[Case, Speed]:
        subprocess.run(
            [*GPULOOM, "layout", "apply", "--device", device, "--to", layout, "--output", "json"],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        instances = [part.instance for part in driver.look(0).parts]
        homes = {instance: driver.home_for(0, instance) for instance in instances}
        speeds = {}
        for profile in dict.fromkeys(instance.profile for instance in instances):
            subject = next(instance for instance in instances if instance.profile == profile)
            others = [instance for instance in instances if instance != subject]
            for busy in ([], others) if others else ([],):
                case = Case(layout, profile, len(busy))
                speeds[case] = _measure(found, subject, homes, busy, seconds)
        return speeds

    return visit


def _measure(
    device: CpuDevice, subject: Instance, homes: dict[Instance, Home], busy: Sequence[Instance], seconds: float
) -> Speed:
    """The subject's speed while these others are busy."""
    cores = len(device.cores)
    crowd = [Crowd(homes[instance].group("neighbour"), cores) for instance in busy]
    one = Crowd(homes[subject].group("subject"), cores)
    try:
        for each in crowd:
            each.go(3600.0)
        time.sleep(SETTLE_S)
        before_s, began_s = one.group.cpu_s() or 0.0, time.monotonic()
        one.go(seconds)
        pieces_per_s = one.answer()
        passed_s = time.monotonic() - began_s
        used_s = (one.group.cpu_s() or 0.0) - before_s
        return Speed(pieces_per_s, used_s / passed_s / device.cpus_of(subject.profile))
    finally:
        for each in (one, *crowd):
            each.end()


class Crowd:
    """A busy process for every core, together in one group."""

    def __init__(self, group: Group, cores: int) -> None:
        group.create()
        self.group = group
        doors = [str(door) for door in group.doors()]
        self._workers = [
            subprocess.Popen(
                [sys.executable, "-S", "-E", "-c", WORKER, *doors],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(cores)
        ]
        for worker in self._workers:
            self._line(worker)

    def go(self, seconds: float) -> None:
        for worker in self._workers:
            assert worker.stdin is not None
            worker.stdin.write(f"{seconds}\n")
            worker.stdin.flush()

    def answer(self) -> float:
        return sum(float(self._line(worker)) for worker in self._workers)

    def end(self) -> None:
        for worker in self._workers:
            worker.kill()
            worker.communicate()
        if not self.group.end(PATIENCE_S):
            raise SystemExit(f"{self.group.path}: somebody in it does not end")

    @staticmethod
    def _line(worker: "subprocess.Popen[str]") -> str:
        assert worker.stdout is not None
        line = worker.stdout.readline()
        if not line:
            raise SystemExit("a busy process has ended before its time; see above")
        return line


@contextmanager
def _given_back(device: str) -> Iterator[None]:
    try:
        yield
    finally:
        subprocess.run(
            [*GPULOOM, "layout", "apply", "--device", device, "--as-found"], check=True, stdout=subprocess.DEVNULL
        )


def _row(device: CpuDevice, case: Case, pairs: Sequence[tuple[float, float]]) -> dict[str, object]:
    ratio, ratio_error = median_and_error([ratio for ratio, _ in pairs])
    promised, promised_error = median_and_error([promised for _, promised in pairs])
    return {
        "layout": case.layout,
        "profile": case.profile,
        "busy_neighbours": case.busy_neighbours,
        "cpus": round(device.cpus_of(case.profile), 4),
        "speed_over_its_share": ratio,
        "speed_stderr": ratio_error,
        "cpu_time_over_promised": promised,
        "cpu_time_stderr": promised_error,
        "repetitions": len(pairs),
    }


def median_and_error(values: Sequence[float]) -> tuple[float, float | None]:
    """The median, and how much it varies from one resample to the next."""
    known = np.array(values)
    if len(known) < 2:
        return round(float(np.median(known)), 4), None
    resampled = np.random.default_rng(0).choice(known, size=(2000, len(known)))
    return round(float(np.median(known)), 4), round(float(np.median(resampled, axis=1).std(ddof=1)), 4)
