"""A kernel profile: what a program launches, how long each kernel runs, and how long the device waits for the next.

One readable file, tab-separated, a word at the start of each line saying what it is (docs/kernels.md lists them). The
data plane reads the `kernel` lines itself, so their first five columns are fixed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from gpuloom.errors import InputError

FORMAT = "gpuloom-kernel-profile"
VERSION = 1
QUANTILES = (0.1, 0.5, 0.9, 0.99)
LOOKED_AT = 20_000


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

    def period(self) -> int:
        """Launches of one request: the length after which the sequence repeats; the longest run's, if it does not."""
        longest = max(self.runs, key=lambda run: len(run.launches))
        return period([launch.kernel for launch in longest.launches])

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
    numbers = {kernel: place for place, kernel in enumerate(profile.kernels)}
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
    whole = path.with_name(path.name + ".part")
    whole.write_text("\n".join((*lines, "end\t")) + "\n", encoding="utf-8")
    whole.replace(path)


def _plain(text: str) -> str:
    return " ".join(text.split()) or "-"


def read_profile(path: Path) -> Profile:
    """InputError, with the line, for anything that is not a whole profile."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: {getattr(error, 'strerror', None) or error}: expected a kernel profile") from None
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
                    kernels.append(Kernel(int(cells[0], 16), cells[16], cells[14], cells[15]))
                case "run":
                    runs.append([])
                case "launch":
                    place, ran, held, host, waited, gap = map(int, cells)
                    if min(place, ran, held, host, gap) < 0:
                        raise ValueError("a negative number")
                    runs[-1].append(Launch(kernels[place].id, ran, held, host, bool(waited), gap))
                case "end":
                    ended = True
                case _ if line and not line.startswith("#"):
                    raise ValueError(f"{word!r} is no kind of line")
        except (ValueError, IndexError) as error:
            raise InputError(
                f"{path}, line {number}: {error}: expected a line as gpuloom kernels measure writes it"
            ) from None
    if not ended:
        raise InputError(f"{path}: is cut short: expected an 'end' line")
    if not any(runs):
        raise InputError(f"{path}: has no launches: expected some")
    return Profile(
        source, {one.id: one for one in kernels}, tuple(Run(tuple(run)) for run in runs if run), device, tuple(notes)
    )
