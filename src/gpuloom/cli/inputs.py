"""The options that `simulate` and `compare` share, and how they become the inputs of a scenario."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuloom.errors import InputError

if TYPE_CHECKING:
    from gpuloom.sim.inputs import Inputs

Trace = Annotated[
    Path | None,
    typer.Option("--trace", help="File or folder with the jobs. Without it: synthetic jobs.", show_default=False),
]
Format = Annotated[
    str | None,
    typer.Option(
        "--format", help="miso, pollux, philly, helios, openb, jsonl, yaml or synthetic; else told from the path."
    ),
]
Gpus = Annotated[str, typer.Option("--gpus", help="8xA100-40GB, 16x4xV100 (nodes x GPUs), or a comma-separated mix.")]
Jobs = Annotated[int | None, typer.Option("--jobs", help="How many jobs: generated, or the first of a file.")]
Gap = Annotated[float | None, typer.Option("--gap-s", help="Mean seconds between arrivals (miso, synthetic).")]
Profiles = Annotated[Path | None, typer.Option("--profiles", help="Measured tables of elastic jobs (format pollux).")]
Every = Annotated[float | None, typer.Option("--every", help="Ask the policy every so many seconds, not on events.")]
Cost = Annotated[
    list[str] | None,
    typer.Option("--cost", help="NAME=SECONDS: start_s, restart_s, checkpoint_s, cut_s, stay_s, mps_start_s, probe_s."),
]
Probe = Annotated[
    str | None,
    typer.Option(
        "--probe",
        help="How simulated probes err: `authors` (by 0.016, as MISO's authors assumed) or a CSV of mixes, each"
        " job predicted by weights that never saw its model. Default: TRACE/mps_mixes.csv if it is there (format miso),"
        " else authors.",
        show_default=False,
    ),
]
Guesses = Annotated[
    float | None,
    typer.Option("--guesses", help="Owners guess the length, off by up to this factor. Default: as in the file."),
]
Fault = Annotated[
    list[str] | None,
    typer.Option(
        "--fault",
        help="gpu-lost:GPU@SECONDS, gpu-restored:GPU@SECONDS, crash:JOB@SECONDS, cut-fails:NTH, resize-fails:NTH. "
        "Repeatable.",
    ),
]
Memory = Annotated[
    Path | None, typer.Option("--memory", help="Tell the policy what earlier runs saw, in this file; it is only read.")
]


def gather(
    trace: Path | None,
    format: str | None,
    gpus: str,
    jobs: int | None,
    gap_s: float | None,
    profiles: Path | None,
    every: float | None,
    probe: str | None,
    guesses: float | None,
    cost: list[str] | None,
    fault: list[str] | None,
    memory: Path | None = None,
) -> "Inputs":
    from gpuloom.sim.inputs import Inputs

    costs, faults = tuple(cost or ()), tuple(fault or ())
    return Inputs(trace, format, gpus, jobs, gap_s, profiles, every, probe, guesses, costs, faults, memory=memory)


def parse_seeds(text: str) -> list[int]:
    """`1-5`, `1,2,7` or a mix, without repeats, in the order given."""
    seeds: dict[int, None] = {}
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise InputError(f"seeds {text!r}: expected numbers and ranges such as 1-5,8")
        begin, end = int(first), int(last or first)
        if end < begin or end - begin >= 100_000 or end > 2**32 - 2:
            raise InputError(f"seeds {text!r}: {part.strip()} is not a range of at most 100,000 small numbers")
        seeds.update(dict.fromkeys(range(begin, end + 1)))
    return list(seeds)


def check_writable(*paths: Path | None, read: Path | Iterable[Path] | None = None) -> None:
    """Refuse before the work, not after it: a place that cannot be written, or that something else is written to."""
    inputs = () if read is None else (read,) if isinstance(read, Path) else read
    taken = {path.resolve() for path in inputs}
    for path in paths:
        if path is None:
            continue
        if path.is_dir() or not path.absolute().parent.is_dir():
            raise InputError(f"{path}: cannot be written there; name a file in a folder that exists")
        if path.resolve() in taken:
            raise InputError(f"{path}: would overwrite what is read, or another output; name a file of its own")
        taken.add(path.resolve())
