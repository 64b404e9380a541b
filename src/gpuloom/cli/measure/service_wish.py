"""The words of `gpuloom measure service` as a plan."""

from dataclasses import dataclass, replace
from pathlib import Path

from gpuloom.cli.measure.measure_wish import listed, time_of
from gpuloom.errors import InputError
from gpuloom.gpus.grant import MOST_SHARERS
from gpuloom.measure.plan import LEAST_SHARE_PCT, Plan
from gpuloom.measure.plan_file import checked
from gpuloom.measure.service.model import MOST_BATCH, workloads_of
from gpuloom.measure.service.plan import BATCHES, BOUNDS, REPEATS, Grid, service_plan


@dataclass(frozen=True, slots=True)
class Options:
    """As typed; None: not given."""

    models: tuple[str, ...]
    bodies: tuple[str, ...] = ()
    shares: str | None = None
    batches: str | None = None
    pairs: bool = True
    profiles: str | None = None
    processes: str | None = None
    requests: int | None = None
    seconds: str | None = None
    patience: str | None = None
    repeat: int | None = None
    most: int | None = None
    within: float | None = None
    budget: str | None = None
    seed: int | None = None


def plan_of(options: Options, state: Path, server: str) -> Plan:
    """`state`: the folder of the campaign, `server`: the Triton."""
    batches = listed(options.batches, "--batches", _batch) or BATCHES
    models = workloads_of(options.models, batches, options.bodies, state, server)
    grid = Grid(
        listed(options.shares, "--shares", _share) or Grid().shares_pct,
        options.pairs,
        listed(options.profiles, "--profiles", lambda word, _: word) or (),
        listed(options.processes, "--processes", _processes) or Grid().processes,
    )
    if options.processes is not None and not grid.profiles:
        raise InputError("--processes is of slices: expected --profiles too")
    bounds = replace(
        BOUNDS,
        steps=options.requests or BOUNDS.steps,
        seconds=time_of(options.seconds, "--seconds") or BOUNDS.seconds,
        patience_s=time_of(options.patience, "--patience-s") or BOUNDS.patience_s,
    )
    least = options.repeat or REPEATS.least
    repeats = replace(
        REPEATS,
        least=least,
        most=options.most or max(REPEATS.most, least),
        within_pct=options.within or REPEATS.within_pct,
    )
    budget_s = time_of(options.budget, "--budget")
    return checked(service_plan(models, grid, bounds, repeats, options.seed or 0, budget_s), "--most", "")


def _share(word: str, flag: str) -> float:
    try:
        share_pct = float(word)
    except ValueError:
        share_pct = 0.0
    if not LEAST_SHARE_PCT <= share_pct <= 100:
        raise InputError(f"{flag}: {word!r} is no share; accepted are {LEAST_SHARE_PCT:g} to 100 per cent")
    return share_pct


def _batch(word: str, flag: str) -> int:
    return _count(word, flag, MOST_BATCH, "batch")


def _processes(word: str, flag: str) -> int:
    return _count(word, flag, MOST_SHARERS, "number of servers")


def _count(word: str, flag: str, most: int, what: str) -> int:
    if not (word.isascii() and word.isdigit() and len(word) < 7 and 1 <= int(word) <= most):
        raise InputError(f"{flag}: {word!r} is no {what}; accepted are 1 to {most}")
    return int(word)
