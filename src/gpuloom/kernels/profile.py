"""A kernel profile: what a program launches, how long each kernel runs, and how long the device waits for the next.

One readable file, tab-separated, a word at the start of each line saying what it is (docs/kernels.md lists them). The
data plane reads the `kernel` lines itself, so their first five columns are fixed.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import numpy as np

from gpuloom.errors import InputError

FORMAT = "gpuloom-kernel-profile"
VERSION = 1
QUANTILES = (0.1, 0.5, 0.9, 0.99)
LOOKED_AT = 20_000
WARM_RUN = 3
"""Of a run with so many requests the first is left out: it compiles kernels and fills caches."""
MOST = 2**63 - 1
"""That a launch's numbers may be; statistics of them are rounded, so they have one bit more."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel's identity, as FIKIT has it: name, grid and block."""

    id: int
    name: str
    grid: str
    """Such as 64x64; "-" where it is not known."""
    block: str


@dataclass(frozen=True, slots=True)
class Launch:
    kernel: int
    """Its id."""
    ran_ns: int
    """On the device, by the device's own clock."""
    held_ns: int
    """From when it could start to when the host heard of its end: what it costs the queue."""
    host_ns: int
    """What the host did before: since the previous launch or, if it waited for results, the previous kernel's end."""
    waited: bool
    """The host waited for results before this launch."""
    gap_ns: int
    """Idle time of the queue after it, until the next launch; 0 if the host was ahead."""


@dataclass(frozen=True, slots=True)
class Run:
    """What one queue did in one run of the program."""

    launches: tuple[Launch, ...]


@dataclass(frozen=True, slots=True)
class Spread:
    mean_ns: float
    sd_ns: float
    quantiles_ns: tuple[float, ...]
    """At QUANTILES."""


@dataclass(frozen=True, slots=True)
class Profile:
    source: str
    """The command, or the file that it was imported from."""
    kernels: dict[int, Kernel]
    runs: tuple[Run, ...]
    device: str = "-"
    notes: tuple[str, ...] = field(default=())

    def launches(self) -> Iterable[Launch]:
        return (launch for run in self.runs for launch in run.launches)

    def longest(self) -> tuple[Launch, ...]:
        """The launches of the longest run."""
        return max((run.launches for run in self.runs), key=len, default=())

    def period(self) -> int:
        """Launches of one request: the length after which the sequence repeats; the longest run's, if it does not."""
        return period([launch.kernel for launch in self.longest()])

    def steady(self, size: int) -> tuple[Launch, ...]:
        """The longest run's whole requests of so many launches, without the first where there are enough."""
        launches = self.longest()
        whole = len(launches) // size * size
        return launches[size if whole >= WARM_RUN * size else 0 : whole]

    def sequence(self) -> list[int]:
        """One request: the kernels that it launches, by their place in `kernels`."""
        numbers, size = self.numbers(), self.period()
        return [numbers[launch.kernel] for launch in self.steady(size)[:size]]

    def numbers(self) -> dict[int, int]:
        """Of each kernel, by its id: its place in `kernels`, as in a file's launches."""
        return {kernel: place for place, kernel in enumerate(self.kernels)}

    def summary(self) -> list[tuple[Kernel, int, Spread, Spread]]:
        """Each kernel with its launches, running time and following gap; first the one that runs longest in all."""
        ran: dict[int, list[int]] = {}
        gaps: dict[int, list[int]] = {}
        for launch in self.launches():
            ran.setdefault(launch.kernel, []).append(launch.ran_ns)
            gaps.setdefault(launch.kernel, []).append(launch.gap_ns)
        order = sorted(ran, key=lambda kernel: (-sum(ran[kernel]), kernel))
        return [(self.kernels[one], len(ran[one]), spread(ran[one]), spread(gaps[one])) for one in order]


def spread(values: Sequence[int]) -> Spread:
    array = np.asarray(values, float)
    return Spread(float(array.mean()), float(array.std()), tuple(float(q) for q in np.quantile(array, QUANTILES)))


def period(kernels: Sequence[int], agreement: float = 0.95) -> int:
    """Looks at the first LOOKED_AT launches, since it compares each length with the whole sequence."""
    ids = np.asarray(kernels[:LOOKED_AT], dtype=np.uint64)
    for length in range(1, len(ids) // 2 + 1):
        if np.mean(ids[length:] == ids[:-length]) >= agreement:
            return length
    return len(kernels)


def write_profile(profile: Profile, path: Path) -> None:
    """Whole or not at all: InputError, and what was there before is still there."""
    try:
        if path.exists() and not path.is_file():  # a pipe or a device, which a file must not replace
            path.write_text(_text(profile), encoding="utf-8", errors="replace")
            return
        there = path.resolve()
        beside = there.with_name(f".gpuloom-{uuid4().hex}.part")
        try:
            beside.write_text(_text(profile), encoding="utf-8", errors="replace")
            beside.replace(there)
        finally:
            beside.unlink(missing_ok=True)
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
        why = getattr(error, "strerror", None) or "cannot be found"
        raise InputError(f"{path}: {why}: expected a place where the profile can be written") from None


def _text(profile: Profile) -> str:
    numbers = profile.numbers()
    lines = [f"{FORMAT}\t{VERSION}", f"source\t{_plain(profile.source)}", f"device\t{_plain(profile.device)}"]
    lines += [f"note\t{_plain(note)}" for note in profile.notes]
    lines.append(
        "# kernel\tid\tlaunches\tmean_ns\tmean_gap_ns\tsd_ns\tp10\tp50\tp90\tp99"
        "\tgap_sd_ns\tp10\tp50\tp90\tp99\tgrid\tblock\tname"
    )
    stats = {kernel.id: (count, ran, gap) for kernel, count, ran, gap in profile.summary()}
    for kernel in profile.kernels.values():
        count, ran, gap = stats.get(kernel.id, (0, Spread(0, 0, (0,) * 4), Spread(0, 0, (0,) * 4)))
        figures = (ran.mean_ns, gap.mean_ns, ran.sd_ns, *ran.quantiles_ns, gap.sd_ns, *gap.quantiles_ns)
        cells = (
            f"{kernel.id:016x}",
            str(count),
            *(f"{value:.0f}" for value in figures),
            kernel.grid,
            kernel.block,
            _plain(kernel.name),
        )
        lines.append("\t".join(("kernel", *cells)))
    lines.append("# launch\tkernel (from 0, as listed)\tran_ns\theld_ns\thost_ns\twaited\tgap_ns")
    for run in profile.runs:
        lines.append(f"run\t{len(run.launches)}")
        lines += [
            f"launch\t{numbers[one.kernel]}\t{one.ran_ns}\t{one.held_ns}\t{one.host_ns}\t{int(one.waited)}\t{one.gap_ns}"
            for one in run.launches
        ]
    return "\n".join((*lines, "end\t")) + "\n"


def _plain(text: str) -> str:
    return " ".join(text.split()) or "-"


def read_profile(path: Path) -> Profile:
    """InputError, with the line, for anything that is not a whole profile."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "is not text"
        raise InputError(f"{path}: {why}: expected a kernel profile") from None
    lines = text.split("\n")
    if lines[0].split("\t")[:1] != [FORMAT]:
        raise InputError(
            f"{path}: is no kernel profile: expected {FORMAT!r} in the first line (gpuloom kernels measure writes one)"
        )
    if lines[0] != f"{FORMAT}\t{VERSION}":
        raise InputError(f"{path}: has version {lines[0].partition(chr(9))[2]!r} of the format: expected {VERSION}")
    source = device = "-"
    notes: list[str] = []
    kernels: list[Kernel] = []
    runs: list[list[Launch]] = []
    ended = False
    for number, line in enumerate(lines[1:], 2):
        word, _, rest = line.partition("\t")
        cells = rest.split("\t")
        try:
            match word:
                case "source":
                    source = rest
                case "device":
                    device = rest
                case "note":
                    notes.append(rest)
                case "kernel":
                    kernels.append(_kernel(cells))
                case "run":
                    runs.append([])
                case "launch":
                    if not runs or not kernels:
                        raise InputError("expected a 'kernel' and a 'run' line before the first launch")
                    runs[-1].append(_launch(cells, kernels))
                case "end":
                    ended = True
                case _ if line and not line.startswith("#"):
                    raise InputError(f"{word[:40]!r}: expected source, device, note, kernel, run, launch or end")
        except InputError as error:
            raise InputError(f"{path}, line {number}: {error}") from None
    if not ended:
        raise InputError(f"{path}: is cut short: expected an 'end' line")
    if not any(runs):
        raise InputError(f"{path}: has no launches: expected some")
    return Profile(
        source, {one.id: one for one in kernels}, tuple(Run(tuple(run)) for run in runs if run), device, tuple(notes)
    )


def _kernel(cells: list[str]) -> Kernel:
    if len(cells) != 17:
        raise InputError(f"{len(cells)} columns after 'kernel': expected 17, from the id to the name")
    if not re.fullmatch("[0-9a-fA-F]{1,16}", cells[0]):
        raise InputError(f"id {cells[0][:40]!r}: expected up to 16 hexadecimal digits")
    for cell in cells[1:14]:
        _number(cell, 2 * MOST + 1)
    return Kernel(int(cells[0], 16), cells[16], cells[14], cells[15])


def _launch(cells: list[str], kernels: list[Kernel]) -> Launch:
    if len(cells) != 6:
        raise InputError(f"{len(cells)} columns after 'launch': expected 6, from the kernel's number to the gap")
    place, waited = _number(cells[0], len(kernels) - 1), _number(cells[4], 1)
    ran, held, host, gap = (_number(cells[at], MOST) for at in (1, 2, 3, 5))
    return Launch(kernels[place].id, ran, held, host, bool(waited), gap)


def _number(text: str, most: int) -> int:
    if not re.fullmatch("[0-9]{1,20}", text) or int(text) > most:
        raise InputError(f"{text[:40]!r}: expected a whole number from 0 to {most}")
    return int(text)
