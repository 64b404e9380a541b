"""From what a user names (a file, a format, some GPUs) to a scenario that can be run: the place that reads inputs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import exp
from pathlib import Path
from random import Random

from gpuloom.errors import InputError
from gpuloom.gpus.cluster import Cluster, parse_cluster
from gpuloom.perf.goodput.tables import ElasticTables
from gpuloom.perf.slices.earlier import Earlier, earlier_of
from gpuloom.perf.slices.earlier_file import EXPECTED, from_text
from gpuloom.sim.costs import Costs, with_overrides
from gpuloom.sim.faults import check_crashes, parse_faults
from gpuloom.sim.scenario import Scenario
from gpuloom.sim.worlds.probes import AuthorsError, Prober
from gpuloom.work.measured.elastic_profiles import read_profiles
from gpuloom.work.measured.figures import Figures, figures_from_csv, load_figures
from gpuloom.work.model import Kind, TraceJob
from gpuloom.work.source import MAX_SECONDS, read_text
from gpuloom.work.traces import FORMATS, load_trace

AUTHORS = "authors"
"""Probes that err as MISO's authors assumed."""

MISO_CONTROL_S = 10.0
"""MISO's controller looks every 10 s (SoCC'22 artifact)."""

POLLUX_COSTS = Costs(start_s=30.0, restart_s=30.0)
"""What Pollux's simulator charges whenever a job's GPUs change (OSDI'21 artifact)."""

MOST_WRONG = 1000.0
MOST_JITTER = 3.0

LEAST_EVERY_S = 0.01
"""Asking more often would ask of nothing but rounding errors."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """What the command line and the benchmarks take; plain data, so that a worker process can be given it."""

    trace: Path | None = None
    format: str | None = None
    """None: told from the path."""
    gpus: str = "8xA100-40GB"
    jobs: int | None = None
    gap_s: float | None = None
    profiles: Path | None = None
    every_s: float | None = None
    probe: str | None = None
    """`authors`, or a file of measured mixes; None takes the one that comes with the trace, if there is one."""
    guesses: float | None = None
    """Owners guess how long their jobs are, off by up to this factor."""
    costs: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    load: float = 1.0
    """Jobs arrive so many times as fast as the trace says."""
    length_jitter: float = 0.0
    """Elastic jobs train longer or shorter than measured, by a lognormal factor with this sigma."""
    memory: Path | None = None
    """What earlier runs saw, as `gpuloom run` keeps it; None: nothing."""


def load(inputs: Inputs, seed: int) -> Scenario:
    """Read the trace as this seed shapes it, with the measured truth that goes with its format."""
    kind = inputs.format or guess_format(inputs.trace)
    cluster = parse_cluster(inputs.gpus)
    if inputs.trace is None and kind in FORMATS and kind != "synthetic":
        raise InputError(f"format {kind} needs --trace PATH")
    tables = _tables(inputs, kind)
    path = inputs.trace or Path()
    trace = load_trace(path, kind, seed=seed, jobs=inputs.jobs, gap_s=inputs.gap_s)
    figures = figures_from_csv(path / "mig_batch_latency.csv") if kind == "miso" else None
    sliced = kind in ("miso", "synthetic")
    every_s = inputs.every_s if inputs.every_s is not None else MISO_CONTROL_S if sliced else None
    if every_s is not None and not LEAST_EVERY_S <= every_s <= MAX_SECONDS:
        raise InputError(f"--every {every_s:g}: expected from {LEAST_EVERY_S:g} to {MAX_SECONDS:g} seconds")
    check_crashes(inputs.faults, {entry.job.id for entry in trace.jobs})
    costs = with_overrides(POLLUX_COSTS if kind == "pollux" else Costs(), inputs.costs)
    jobs = trace.jobs if inputs.guesses is None else _guessed(trace.jobs, inputs.guesses, seed)
    earlier = () if inputs.memory is None else _earlier(inputs.memory, jobs, cluster)
    return Scenario(
        _jittered(_pressed(jobs, inputs.load, in_place=costs.rescale_s is not None), inputs.length_jitter, seed),
        inputs.gpus,
        figures=figures,
        tables=tables,
        probers=_probers(inputs, kind, figures),
        costs=costs,
        every_s=every_s,
        faults=parse_faults(inputs.faults, cluster),
        skipped=trace.skipped,
        earlier=earlier,
        notes=() if tables is not None else _unmeasured(trace.jobs, figures or load_figures()),
    )


def _earlier(path: Path, jobs: Sequence[TraceJob], cluster: Cluster) -> tuple[Earlier, ...]:
    rows = from_text(read_text(path, EXPECTED), str(path))
    models = {gpu.model.name: gpu.model for gpu in cluster.gpus}
    return earlier_of(rows, [entry.job for entry in jobs], models.values(), str(Path.cwd()))


def _unmeasured(jobs: Sequence[TraceJob], figures: Figures) -> tuple[str, ...]:
    """Jobs on slices whose workload nobody has measured, if there are any."""
    names = [entry.job.workload for entry in jobs if entry.job.kind is Kind.SLICEABLE]
    unknown = [name for name in names if name is not None and name not in figures.workloads]
    if not unknown:
        return ()
    which = ", ".join(sorted(set(unknown))[:3])
    return (f"{len(unknown)} jobs of workloads that were not measured ({which}) run as the mean of the others",)


def guess_format(path: Path | None) -> str:
    if path is None:
        return "synthetic"
    if path.is_dir():
        return "miso"
    by_ending = {".yaml": "yaml", ".yml": "yaml", ".jsonl": "jsonl"}
    if path.suffix not in by_ending:
        raise InputError(f"{path}: its format cannot be told from its name: give --format")
    return by_ending[path.suffix]


def _guessed(jobs: Sequence[TraceJob], factor: float, seed: int) -> list[TraceJob]:
    """With the owners' guesses of the length: off by up to the factor, either way, all errors equally likely."""
    if not 1 <= factor <= MOST_WRONG:
        raise InputError(f"--guesses {factor:g}: expected a factor from 1 (they know) to {MOST_WRONG:g}")
    dice = Random(seed)
    off = [factor ** dice.uniform(-1, 1) for _ in jobs]
    return [
        entry if entry.length_s is None else replace(entry, job=replace(entry.job, estimate_s=entry.length_s * wrong))
        for entry, wrong in zip(jobs, off, strict=True)
    ]


def _pressed(jobs: Sequence[TraceJob], load: float, *, in_place: bool) -> Sequence[TraceJob]:
    """The same jobs, arriving faster or slower; elastic ones resized in place, where there is a cost of that."""
    if not 1 / MOST_WRONG <= load <= MOST_WRONG:
        raise InputError(f"load {load:g}: expected a factor from {1 / MOST_WRONG:g} to {MOST_WRONG:g}")
    if load == 1.0 and not in_place:
        return jobs
    return [
        replace(
            entry,
            job=replace(
                entry.job,
                submit_s=entry.job.submit_s / load,
                in_place=entry.job.in_place or (in_place and entry.job.kind is Kind.ELASTIC),
            ),
        )
        for entry in jobs
    ]


def _jittered(jobs: Sequence[TraceJob], sigma: float, seed: int) -> Sequence[TraceJob]:
    """Work scaled by a lognormal factor of mean 1, one for each job."""
    if not 0 <= sigma <= MOST_JITTER:
        raise InputError(f"length jitter {sigma:g}: expected a sigma from 0 to {MOST_JITTER:g}")
    if sigma == 0:
        return jobs
    dice = Random(seed)
    return [replace(entry, stretch=exp(dice.gauss(-(sigma**2) / 2, sigma))) for entry in jobs]


def _probers(inputs: Inputs, kind: str, figures: Figures | None) -> Callable[[int], Prober]:
    beside = inputs.trace / "mps_mixes.csv" if inputs.trace is not None and kind == "miso" else None
    if inputs.probe == AUTHORS or (inputs.probe is None and (beside is None or not beside.exists())):
        return AuthorsError
    path = beside if inputs.probe is None else Path(inputs.probe)
    assert path is not None
    if not path.is_file():
        raise InputError(f"--probe {path}: expected {AUTHORS}, or a CSV file of measured mixes")

    def prober(seed: int) -> Prober:
        from gpuloom.sim.worlds.measured_probes import MeasuredProbe, measured_mixes, never_saw

        return MeasuredProbe(measured_mixes(path), figures or load_figures(), never_saw, seed)

    return prober


def _tables(inputs: Inputs, kind: str) -> dict[str, ElasticTables] | None:
    if kind != "pollux" and inputs.profiles is None:
        return None
    if inputs.profiles is None:
        raise InputError("format pollux needs --profiles DIR, the folder with a table folder for each application")
    return {model: ElasticTables(profile) for model, profile in read_profiles(inputs.profiles).items()}
